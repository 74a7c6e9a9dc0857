# SPDX-License-Identifier: Apache-2.0
"""Replicas are clones: of one snapshot, in two pools, and in trees that shrink in any order."""

import itertools

from oslo_utils import units

from trove_ceph.storage import image_types
from trove_ceph.tests.contract import storage

MIB = units.Mi


class ClonesContract(storage.StorageContract):
    def clone(self, source, name, pool=None):
        """Clone an image as it is now, by a snapshot that is removed at once."""
        (clone,) = self.clone_all(source, [self.ref(name, pool)])
        return clone

    def clone_all(self, source, clones):
        snapshot = source.snapshot(f'of-{clones[0].name}')
        self.storage.create_snapshot(snapshot)
        for clone in clones:
            self.storage.clone(snapshot, clone, image_types.ImageOptions())
        self.storage.remove_snapshot(snapshot)
        return clones

    def delete(self, image):
        """Delete an image as the volume of a deleted instance; one with clones goes to the trash.

        Then purge from the trash what has no clones.
        """
        if self.storage.describe(image).children:
            self.storage.trash(image)
        else:
            self.storage.remove(image)
        while self._purge_one():
            pass

    def _purge_one(self):
        return any(self._purge(trashed) for trashed in self.trashed() if not trashed.children)

    def _purge(self, trashed):
        self.storage.purge(trashed.pool, trashed.image_id)
        return True

    def trashed(self):
        pools = self.pool, self.second_pool
        found = itertools.chain.from_iterable(self.storage.list_trash(pool) for pool in pools)
        return [one for one in found if one.name.startswith(self.prefix)]

    def assert_content(self, expected, image):
        # Not by assertEqual, which would print both.
        self.assertTrue(expected == self.content_now(image), f'{image} has other data')

    def test_one_snapshot_serves_clones_in_two_pools(self):
        source = self.make_written()
        pools = (self.pool, self.second_pool, self.second_pool)
        clones = [self.ref(f'clone-{number}', pool) for number, pool in enumerate(pools)]
        expected = self.content_now(source)
        self.clone_all(source, clones)
        self.write(source, 0, self.data(MIB))
        for clone in clones:
            self.assert_content(expected, clone)
        facts = self.storage.describe(source)
        self.assertEqual({*clones}, {one.image for one in facts.children})
        self.assertEqual([False, True], [one.removed for one in facts.snapshots])

        # The last clone takes the snapshot with it, removed or flattened.
        self.storage.remove(clones[0])
        self.storage.flatten(clones[1])
        self.assertEqual(2, len(self.storage.describe(source).snapshots))
        self.storage.remove(clones[2])
        self.assertEqual(['s'], [one.name for one in self.storage.describe(source).snapshots])
        self.assert_content(expected, clones[1])

    def test_a_tree_is_deleted_in_any_order(self):
        """A source, a replica, and a replica of the replica, both re-provisioned."""
        for number, order in enumerate(itertools.permutations('abc')):
            tree = self._make_tree(f'{number}')
            contents = {name: self.content_now(image) for name, image in tree.items()}
            for deleted in order:
                self.delete(tree.pop(deleted))
                for name, image in tree.items():
                    self.assert_content(contents[name], image)
            self.assertEqual([], self.trashed(), order)

    def _make_tree(self, number):
        """Return the images of the tree; what was re-provisioned is deleted or in the trash."""
        source = self.make(f'{number}-a', size_mib=8)
        self.write(source, 0, self.data(5 * MIB))
        for turn in range(3):
            replica = self.clone(source, f'{number}-b{turn}', self.second_pool)
            self.write(replica, 6 * MIB, self.data(100))
            leaf = self.clone(replica, f'{number}-c{turn}', self.second_pool)
            self.write(source, turn * MIB, self.data(100))
            if turn < 2:
                # The replica of the replica follows another source first, then is deleted.
                for old in (replica, leaf) if turn else (leaf, replica):
                    self.delete(old)
        self.assertEqual([], self.trashed())
        return {'a': source, 'b': replica, 'c': leaf}

    def test_a_flattened_replica_releases_the_images_above_it(self):
        source = self.make_written()
        replica = self.clone(source, 'b', self.second_pool)
        leaf = self.clone(replica, 'c', self.second_pool)
        expected = self.content_now(leaf)
        self.delete(source)
        self.delete(replica)
        self.assertEqual({source.name, replica.name}, {one.name for one in self.trashed()})
        self.storage.flatten(leaf)
        while self._purge_one():
            pass
        self.assertEqual([], self.trashed())
        self.assert_content(expected, leaf)

    def test_a_clone_uses_the_space_of_its_own_objects_only(self):
        source = self.make_written()
        replica = self.clone(source, 'b', self.second_pool)
        leaf = self.clone(replica, 'c')
        for clone in (replica, leaf):
            self.assertEqual(0, self.storage.describe(clone).used_bytes)
        self.write(leaf, 5 * MIB, self.data(MIB))
        self.assertEqual(4 * MIB, self.storage.describe(leaf).used_bytes)
        self.assertEqual(0, self.storage.describe(replica).used_bytes)
        # Its own snapshots count, too.
        self.storage.create_snapshot(leaf.snapshot('backup'))
        self.write(leaf, 5 * MIB, self.data(MIB))
        self.assertEqual(8 * MIB, self.storage.describe(leaf).used_bytes)
