# SPDX-License-Identifier: Apache-2.0
"""Storage when Ceph does not answer, dies in the middle, or refuses the key."""

import errno
import os
import threading
import time

import fixtures
import rados
from oslo_utils import units

from trove_ceph import exceptions, waiting
from trove_ceph.storage import copying, image_types, throttle
from trove_ceph.storage.ceph import description
from trove_ceph.tests.contract import storage as contract
from trove_ceph.tests.functional import base, ceph, storage

MIB = units.Mi
TIMEOUT_SEC = 5
# Each chunk of a copy succeeds within this time, also on a busy machine.
COPY_TIMEOUT_SEC = 20
RECOVERY_SEC = 400
# In which a thread that has ended leaves /proc.
_ENDING_SEC = 60


class FailuresTest(base.FunctionalTestCase):
    """Failures of a private cluster."""

    def setUp(self):
        super().setUp()
        self.cluster = ceph.Cluster(self.directory / 'c', {'ssd': 2}, osd_gib=3)
        self.addCleanup(self.cluster.try_tool, 'destroy')
        self.cluster.create()
        self.cluster.start()
        tiers = {'p': ceph.tier('data', 'ssd', 'p', 2, 8)}
        self.cluster.apply({'tiers': tiers, 'users': {storage.USER: {'role': 'storage'}}})
        self.image = image_types.ImageRef('p', 'image')
        patient = storage.connect(self, self.cluster)
        patient.create_image(self.image, 64 * MIB, image_types.ImageOptions())
        with patient.open_writer(self.image) as writer:
            for at in range(16):
                writer.write(at * 4 * MIB, b'%02d' % at * 2 * MIB).result()
            writer.create_snapshot('s')

    def _connect(self, timeout_sec):
        return storage.connect(
            self, self.cluster, connect_timeout_sec=timeout_sec, operation_timeout_sec=timeout_sec
        )

    def _key(self):
        (found,) = self.cluster.mon_command('auth get', entity=storage.USER)
        return found['key']

    def _assert_unreachable(self, act, *arguments):
        error = self.assertRaises(exceptions.CephUnreachableError, act, *arguments)
        self.assertNotIn(self.key, str(error) + str(error.__cause__))

    def _patiently(self, act):
        """Repeat a request, as its callers would, until Ceph serves."""
        deadline = time.monotonic() + RECOVERY_SEC
        while True:
            try:
                return act()
            except exceptions.CephUnreachableError:
                self.assertLess(time.monotonic(), deadline, 'not within the time limit')

    @base.long
    def test_dead_monitor(self):
        self.key = self._key()
        connected, fresh = (self._connect(TIMEOUT_SEC) for _ in range(2))
        self._patiently(lambda: connected.describe(self.image))
        pid = self.cluster.pids()['mon.a']
        ceph.kill_all([pid])
        self._assert_unreachable(fresh.describe, self.image)
        self._assert_unreachable(connected.usage, 'p')
        # Repeated attempts do not exhaust the sockets.
        before = len(os.listdir('/proc/self/fd'))
        for _ in range(4):
            self._assert_unreachable(connected.usage, 'p')
        self.assertLess(len(os.listdir('/proc/self/fd')), before + 10)
        self._assert_unreachable(connected.create_snapshot, self.image.snapshot('t'))
        self.cluster.start()
        for storage_ in (fresh, connected):
            facts = self._patiently(lambda chosen=storage_: chosen.describe(self.image))
            self.assertEqual(64 * MIB, facts.size_bytes)

    # It takes three minutes. The short suite has a dead monitor here, killed copies in
    # test_storage_copies, a dead OSD in test_storage_disruptions, and OSDs that all stop in
    # test_inspection_faults.
    @base.long
    def test_dead_osds_in_the_middle_of_a_copy(self):
        self.key = self._key()
        client = self._connect(COPY_TIMEOUT_SEC)
        osds = [pid for name, pid in self.cluster.pids().items() if name.startswith('osd')]
        dead = threading.Event()

        def kill_in_the_middle(progress):
            if progress.position_bytes >= 16 * MIB and not dead.is_set():
                dead.set()
                ceph.kill_all(osds)

        vault = image_types.ImageRef('p', 'vault')
        source = self.image.snapshot('s')
        limits = throttle.Throttle(in_flight_bytes=8 * MIB, progress=kill_in_the_middle)

        def copy(**options):
            return copying.copy(client, source, client, vault, **options)

        self.assertRaises(exceptions.CephUnreachableError, lambda: copy(limits=limits))
        self.assertTrue(dead.is_set())
        self._assert_unreachable(client.describe, self.image)
        self.cluster.start()
        facts = self._patiently(lambda: client.describe(vault))
        self.assertEqual({}, copying.complete_copies(facts))
        self.assertGreaterEqual(self._patiently(copy).compared_bytes, 64 * MIB)


class KeysTest(contract.StorageContract, storage.CephStorageTestCase):
    def test_reports_missing_and_weak_keys(self):
        image = self.make(size_mib=4)
        for user in ('client.stranger', 'client.weak'):
            if user == 'client.weak':
                caps = ['mon', 'profile rbd', 'osd', f'profile rbd-read-only pool={self.pool}']
                key = self._make_user(user, caps)
            weak = storage.connect(self, self.cluster, user)
            error = self.assertRaises(
                exceptions.StorageError, weak.create_snapshot, image.snapshot('t')
            )
            self.assertIsInstance(error, exceptions.StorageError)
            self.assertNotIsInstance(error, exceptions.CephUnreachableError)
        self.assertNotIn(key, str(error))
        self.assertIn('Operation not permitted', str(error))

    def _make_user(self, user, caps):
        (found,) = self.cluster.mon_command('auth get-or-create', entity=user, caps=caps)
        keyring = self.cluster.conf.with_name(f'ceph.{user}.keyring')
        keyring.write_text(f'[{user}]\n\tkey = {found["key"]}\n')
        return found['key']


class WriterThatDoesNotOpenTest(contract.StorageContract, storage.CephStorageTestCase):
    def test_leaves_no_client(self):
        held = self._make_held()
        self._assert_leaves_no_client(self.ref('missing'), exceptions.NotFoundError)
        self._assert_leaves_no_client(held, exceptions.BusyError)

    def test_leaves_no_client_if_the_other_one_is_not_found(self):
        held = self._make_held()
        error = rados.TimedOut('no answer', errno=errno.ETIMEDOUT)
        self.useFixture(fixtures.MockPatchObject(description, 'clients_of', side_effect=error))
        self._assert_leaves_no_client(held, exceptions.CephUnreachableError)

    def _make_held(self):
        held = self.make()
        holder = self.enterContext(storage.connect(self, self.cluster).open_writer(held))
        holder.write(0, b'x').result()
        return held

    def _assert_leaves_no_client(self, image, reason):
        self.assertRaises(reason, self.storage.open_writer, image)
        before = self._threads()
        for _ in range(3):
            self.assertRaises(reason, self.storage.open_writer, image)
        # A thread that has ended is listed for a moment.
        deadline = waiting.Deadline(_ENDING_SEC)
        while self._threads() > before and deadline.pause(0.1):
            pass
        self.assertLessEqual(self._threads(), before, image)

    def _threads(self):
        return len(os.listdir('/proc/self/task'))
