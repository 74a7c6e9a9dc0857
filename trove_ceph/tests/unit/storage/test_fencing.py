# SPDX-License-Identifier: Apache-2.0
"""Fencing when watches outlive the blocklist entry, or calls are interrupted."""

import logging
from unittest import mock

import fixtures
from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import fencing, image_types
from trove_ceph.storage.fake import backend, cluster
from trove_ceph.tests import interruption

MIB = units.Mi
IMAGE = image_types.ImageRef('volumes', 'image')


class LazyBackend(backend.FakeBackend):
    """Watches end some time after the blocklist entry; calls may be interrupted."""

    def __init__(self, cluster, polls_until_gone=0):
        super().__init__(cluster)
        self.polls = polls_until_gone
        self.killed_at = None
        self.verbs = []

    def find_clients(self, image):
        clients = super().find_clients(image)
        if self.cluster.blocklist and self.polls > 0:
            self.polls -= 1
            return image_types.Clients(frozenset(self.cluster.blocklist), None)
        return clients

    def _count(self, verb):
        if len(self.verbs) == self.killed_at:
            raise interruption.Kill
        self.verbs.append(verb)

    def blocklist(self, addresses, expire_sec):
        self._count('blocklist')
        super().blocklist(addresses, expire_sec)

    def break_lock(self, image, owner):
        self._count('break_lock')
        super().break_lock(image, owner)

    def await_blocklist(self, image):
        self._count('await_blocklist')
        super().await_blocklist(image)

    def set_image_metadata(self, image, entries):
        self._count('set_image_metadata')
        super().set_image_metadata(image, entries)


class FencingTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self._create_world()

    def _create_world(self):
        self.cluster = cluster.Cluster({'volumes': 64 * MIB})
        self.now = 0.0
        storage = backend.FakeBackend(self.cluster)
        storage.create_image(IMAGE, MIB, image_types.ImageOptions())
        self.victim = storage.open_writer(IMAGE)

    def _sleep(self, seconds):
        self.now += seconds

    def _fence(self, storage, only=None):
        return fencing.fence(storage, IMAGE, only=only, clock=lambda: self.now, sleep=self._sleep)

    def test_waits_for_the_watch_to_end(self):
        proof = self._fence(LazyBackend(self.cluster, polls_until_gone=5))
        self.assertEqual(1, len(proof.addresses))
        self.assertGreater(self.now, 0)

    def test_a_watch_that_never_ends_is_no_proof(self):
        storage = LazyBackend(self.cluster, polls_until_gone=10**6)
        error = self.assertRaises(exceptions.NotFencedError, self._fence, storage)
        (address,) = self.cluster.blocklist
        self.assertIn(f'{IMAGE}: still held by {address}', str(error))

    def test_clones_are_not_listed(self):
        """Listing the clones of an image takes requests to every pool."""
        with mock.patch.object(backend.FakeBackend, 'describe', side_effect=AssertionError):
            storage = backend.FakeBackend(self.cluster)
            (address,) = self._fence(storage).addresses
            fencing.unfence(storage, IMAGE)
        self.assertEqual(({}, {}), (self.cluster.get(IMAGE).metadata, self.cluster.blocklist))
        self.assertTrue(address)

    def test_clients_that_are_not_named(self):
        """A late request must not cut off the client of a server that came since."""
        storage = LazyBackend(self.cluster)
        known = storage.find_clients(IMAGE).addresses
        self.assertEqual(known, self._fence(storage, known).addresses)
        # A fenced client may stay in the list for a while.
        self.assertEqual(known, self._fence(storage, frozenset()).addresses)
        storage.open_writer(IMAGE)
        (new,) = storage.find_clients(IMAGE).addresses - known
        storage.verbs.clear()
        error = self.assertRaises(exceptions.NotFencedError, self._fence, storage, known)
        self.assertIn(f'{IMAGE}: is held by {new}', str(error))
        self.assertEqual([], storage.verbs)
        self.assertNotIn(new, self.cluster.blocklist)

    def test_client_that_librbd_has_blocklisted_for_a_short_time(self):
        """The existing entry stays: the client may write again after it, if it is not dead."""
        storage = backend.FakeBackend(self.cluster)
        (address,) = storage.find_clients(IMAGE).addresses
        log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        # It has lost its watch, but not the lock yet.
        storage.blocklist([address], 3600)
        self.assertEqual({address}, self._fence(storage).addresses)
        until = storage.blocklist_expiries()[address]
        self.assertIn(f'{address} until {until:%Y-%m-%d %H:%M} UTC', log.output)

    def test_client_that_is_cut_off_for_long(self):
        log = self.useFixture(fixtures.FakeLogger(level=logging.WARNING))
        for _again in range(2):
            self._fence(backend.FakeBackend(self.cluster))
        self.assertEqual('', log.output)

    def test_records_the_addresses_first_and_proves_last(self):
        storage = LazyBackend(self.cluster)
        self._fence(storage)
        expected = ['set_image_metadata', 'blocklist', 'break_lock', 'await_blocklist']
        self.assertEqual(expected, storage.verbs)

    def test_killed_anywhere_and_run_again(self):
        for killed_at in range(4):
            self._create_world()
            storage = LazyBackend(self.cluster)
            storage.killed_at = killed_at
            self.assertRaises(interruption.Kill, self._fence, storage)
            storage.killed_at = None
            (address,) = self._fence(storage).addresses
            self.assertEqual([address], list(self.cluster.blocklist))
            self.assertEqual('await_blocklist', storage.verbs[-1])
            fencing.unfence(storage, IMAGE)
            self.assertEqual({}, self.cluster.blocklist)
