# SPDX-License-Identifier: Apache-2.0
"""Fencing: who is fenced cannot write, and others still can."""

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import fencing, image_types
from trove_ceph.tests.contract import storage

MIB = units.Mi


class FencingContract(storage.StorageContract):
    def fence(self, image):
        return fencing.fence(self.storage, image)

    def test_the_holder_is_cut_off(self):
        image = self.make()
        victim = self.other.open_writer(image)
        self.addCleanup(self._close, victim)
        victim.write(0, b'before').result()
        held = self.storage.find_clients(image)
        self.assertEqual({held.lock_owner}, set(held.addresses))

        proof = self.fence(image)
        self.addCleanup(fencing.unfence, self.storage, image)
        self.assertEqual(held.addresses, proof.addresses)
        self.assertRaises(
            exceptions.CephUnreachableError, lambda: victim.write(0, b'behind').result()
        )
        self.assertEqual(frozenset(), self.storage.find_clients(image).addresses)
        self.assertLessEqual(held.addresses, self.storage.blocklisted())
        self.write(image, 6, b' and after', storage=self.third)
        self.assertEqual(b'before and after', self.content_now(image)[:16])

    def _close(self, writer):
        try:
            writer.close()
        except exceptions.CephUnreachableError:
            # It is what is to happen to a fenced client.
            return

    def test_nobody_held_it(self):
        image = self.make()
        before = self.storage.blocklisted()
        self.assertEqual(fencing.Fence(image, frozenset()), self.fence(image))
        self.assertEqual(before, self.storage.blocklisted())

    def test_again_says_the_same(self):
        image = self.make()
        victim = self.other.open_writer(image)
        self.addCleanup(self._close, victim)
        proof = self.fence(image)
        self.assertEqual(proof, self.fence(image))
        fencing.unfence(self.storage, image)

    def test_unfencing_removes_what_it_made_and_no_more(self):
        image, other = self.make(), self.make('other')
        for held in (image, other):
            victim = (self.other if held == image else self.third).open_writer(held)
            self.addCleanup(self._close, victim)
        kept = self.fence(other).addresses
        gone = self.fence(image).addresses
        fencing.unfence(self.storage, image)
        fencing.unfence(self.storage, image)
        left = self.storage.blocklisted()
        self.assertLessEqual(kept, left)
        self.assertEqual(frozenset(), gone & left)
        self.assertEqual({}, self.storage.describe(image).metadata)
        fencing.unfence(self.storage, other)

    def test_a_clone_of_a_fenced_image_unfences_nobody(self):
        image, clone = self.make(), self.ref('clone')
        victim = self.other.open_writer(image)
        self.addCleanup(self._close, victim)
        fenced = self.fence(image).addresses
        self.storage.create_snapshot(image.snapshot('s'))
        self.storage.clone(image.snapshot('s'), clone, image_types.ImageOptions())
        fencing.unfence(self.storage, clone)
        self.assertLessEqual(fenced, self.storage.blocklisted())
        fencing.unfence(self.storage, image)

    def test_without_an_exclusive_lock_there_is_no_proof(self):
        image = self.make(features=frozenset({'layering'}))
        error = self.assertRaises(exceptions.NotFencedError, self.fence, image)
        self.assert_message(error, image)

    def test_writers_of_our_own_are_fenced_and_others_follow(self):
        image = self.make()
        victim = self.storage.open_writer(image)
        self.addCleanup(self._close, victim)
        self.fence(image)
        self.assertRaises(exceptions.CephUnreachableError, victim.create_snapshot, 'too-late')
        self.write(image, 0, b'another client')
        fencing.unfence(self.storage, image)
