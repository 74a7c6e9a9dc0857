# SPDX-License-Identifier: Apache-2.0
"""Fencing: a fenced client cannot write, and other clients still can."""

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import fencing, image_types
from trove_ceph.tests.contract import storage

MIB = units.Mi
# A busy machine answers late.
TIMEOUT_SEC = 60


class FencingContract(storage.StorageContract):
    def fence(self, image):
        return fencing.fence(self.storage, image)

    def test_the_client_with_the_lock_is_fenced(self):
        image = self.make()
        victim = self.other.open_writer(image)
        self.addCleanup(self._close, victim)
        victim.write(0, b'before').result()
        before = self.storage.find_clients(image)
        self.assertEqual({before.lock_owner}, set(before.addresses))

        proof = self.fence(image)
        self.addCleanup(fencing.unfence, self.storage, image)
        self.assertEqual(before.addresses, proof.addresses)
        self.assertRaises(
            exceptions.CephUnreachableError, lambda: victim.write(0, b'behind').result()
        )
        self.assertEqual(frozenset(), self.storage.find_clients(image).addresses)
        self.assertLessEqual(before.addresses, self.storage.blocklisted())
        self.write(image, 6, b' and after', storage=self.third)
        self.assertEqual(b'before and after', self.content_now(image)[:16])

    def _close(self, writer):
        try:
            writer.close()
        except exceptions.CephUnreachableError:
            # As expected of a fenced client.
            return

    def test_clients_answer(self):
        image = self.make()
        self.assertTrue(self.storage.do_clients_answer(image, TIMEOUT_SEC))
        victim = self.other.open_writer(image)
        self.addCleanup(self._close, victim)
        self.assertTrue(self.storage.do_clients_answer(image, TIMEOUT_SEC))
        self.assertRaises(
            exceptions.NotFoundError, self.storage.do_clients_answer, self.ref('missing')
        )

    def test_an_image_without_clients(self):
        image = self.make()
        before = self.storage.blocklisted()
        self.assertEqual(fencing.Fence(image, frozenset()), self.fence(image))
        self.assertEqual(before, self.storage.blocklisted())

    def test_a_repetition_returns_the_same_proof(self):
        image = self.make()
        victim = self.other.open_writer(image)
        self.addCleanup(self._close, victim)
        proof = self.fence(image)
        self.assertEqual(proof, self.fence(image))
        fencing.unfence(self.storage, image)

    def test_unfencing_removes_only_its_own_entries(self):
        image, other = self.make(), self.make('other')
        for client, one in ((self.other, image), (self.third, other)):
            self.addCleanup(self._close, client.open_writer(one))
        others = self.fence(other).addresses
        own = self.fence(image).addresses
        fencing.unfence(self.storage, image)
        fencing.unfence(self.storage, image)
        left = self.storage.blocklisted()
        self.assertLessEqual(others, left)
        self.assertEqual(frozenset(), own & left)
        self.assertEqual({}, self.storage.describe(image).metadata)
        fencing.unfence(self.storage, other)

    def test_unfencing_a_clone_of_a_fenced_image_changes_nothing(self):
        image, clone = self.make(), self.ref('clone')
        victim = self.other.open_writer(image)
        self.addCleanup(self._close, victim)
        fenced = self.fence(image).addresses
        self.storage.create_snapshot(image.snapshot('s'))
        self.storage.clone(image.snapshot('s'), clone, image_types.ImageOptions())
        fencing.unfence(self.storage, clone)
        self.assertLessEqual(fenced, self.storage.blocklisted())
        fencing.unfence(self.storage, image)

    def test_refuses_an_image_without_exclusive_lock(self):
        image = self.make(features=frozenset({'layering'}))
        error = self.assertRaises(exceptions.NotFencedError, self.fence, image)
        self.assert_message(error, image)

    def test_own_writers_are_fenced_and_new_ones_can_write(self):
        image = self.make()
        victim = self.storage.open_writer(image)
        self.addCleanup(self._close, victim)
        self.fence(image)
        self.assertRaises(exceptions.CephUnreachableError, victim.create_snapshot, 'too-late')
        self.write(image, 0, b'another client')
        fencing.unfence(self.storage, image)
