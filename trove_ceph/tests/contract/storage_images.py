# SPDX-License-Identifier: Apache-2.0
"""Images, snapshots, clones, trash, limits and pool usage."""

import datetime
import itertools
import threading

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph.tests.contract import storage

MIB = units.Mi


class ImagesContract(storage.StorageContract):
    def test_a_new_image_is_described(self):
        image = self.make(size_mib=20, object_bytes=MIB, data_pool=self.data_pool)
        facts = self.storage.describe(image)
        self.assertEqual(
            (image, 20 * MIB, MIB), (facts.image, facts.size_bytes, facts.object_bytes)
        )
        self.assertEqual(self.data_pool, facts.data_pool)
        self.assertLessEqual(image_types.DEFAULT_FEATURES, facts.features)
        nothing = (facts.parent, facts.lock_owner, facts.used_bytes)
        self.assertEqual((None, None, 0), nothing)
        self.assertEqual(((), (), ()), (facts.snapshots, facts.children, facts.clients))
        self.assertEqual(({}, image_types.Qos()), (facts.metadata, facts.qos))
        header = self.storage.read_header(image)
        self.assertEqual(facts.image_id, header.image_id)
        self.assertEqual((facts.features, {}), (header.features, header.metadata))
        age = datetime.datetime.now(datetime.UTC) - facts.created_at
        self.assertLess(abs(age), datetime.timedelta(minutes=1))

    def test_the_error_names_the_missing_object(self):
        nothing, nowhere = self.ref('nothing'), image_types.ImageRef('no-such-pool', 'x')
        there = self.make()
        for verb, arguments, missing in (
            ('describe', (nothing,), nothing),
            ('describe', (nowhere,), nowhere.pool),
            ('read_header', (nothing,), nothing),
            ('set_image_metadata', (nothing, {'a': '1'}), nothing),
            ('list_images', ('no-such-pool',), 'no-such-pool'),
            ('create_image', (nowhere, MIB, image_types.ImageOptions()), nowhere.pool),
            ('create_snapshot', (nothing.snapshot('s'),), nothing),
            ('remove_snapshot', (there.snapshot('s'),), 's'),
            ('rename_snapshot', (there.snapshot('s'), 't'), 's'),
            (
                'clone',
                (there.snapshot('s'), nothing, image_types.ImageOptions()),
                there.snapshot('s'),
            ),
            ('flatten', (nothing,), nothing),
            ('set_qos', (nothing, image_types.Qos()), nothing),
            ('remove', (nothing,), nothing),
            ('trash', (nothing,), nothing),
            ('restore', (self.pool, 'abc', 'x'), 'abc'),
            ('purge', (self.pool, 'abc'), 'abc'),
            ('usage', ('no-such-pool',), 'no-such-pool'),
            ('busiest_images', ('no-such-pool',), 'no-such-pool'),
            ('open_reader', (there.snapshot('s'),), there),
            ('open_writer', (nothing,), nothing),
            ('find_clients', (nothing,), nothing),
        ):
            error = self.assertRaises(
                exceptions.NotFoundError, getattr(self.storage, verb), *arguments
            )
            self.assert_message(error, missing)
        self.assertRaises(
            exceptions.NotFoundError, list, self.storage.describe_pool('no-such-pool')
        )

    def test_names_are_unique(self):
        image = self.make_written()
        for verb, arguments in (
            ('create_image', (image, MIB, image_types.ImageOptions())),
            ('create_snapshot', (image.snapshot('s'),)),
            ('rename_snapshot', (image.snapshot('s'), 's')),
            ('clone', (image.snapshot('s'), image, image_types.ImageOptions())),
        ):
            error = self.assertRaises(
                exceptions.AlreadyExistsError, getattr(self.storage, verb), *arguments
            )
            self.assert_message(error, image)

    def test_a_snapshot_keeps_the_state_of_the_image(self):
        image = self.make(size_mib=8)
        before = self.data(5 * MIB)
        with self.storage.open_writer(image) as writer:
            writer.write(MIB, before).result()
            self.storage.create_snapshot(image.snapshot('s'))
            writer.zero(0, 3 * MIB + 100).result()
            writer.write(4 * MIB - 7, b'across two objects').result()
            writer.resize(12 * MIB)
            writer.create_snapshot('t')
        expected = bytearray(MIB) + before + bytes(2 * MIB)
        self.assertEqual(bytes(expected), self.content(image.snapshot('s')))
        expected[: 3 * MIB + 100] = bytes(3 * MIB + 100)
        expected[4 * MIB - 7 : 4 * MIB + 11] = b'across two objects'
        self.assertEqual(bytes(expected) + bytes(4 * MIB), self.content(image.snapshot('t')))
        snapshots = self.storage.describe(image).snapshots
        self.assertEqual([8 * MIB, 12 * MIB], [one.size_bytes for one in snapshots])
        self.assertLess(snapshots[0].snapshot_id, snapshots[1].snapshot_id)

    def test_an_image_in_use_is_snapshotted_cloned_and_flattened(self):
        image, clone = self.make_written(), self.ref('clone')
        with self.other.open_writer(image) as writer:
            self.storage.create_snapshot(image.snapshot('t'))
            writer.write(0, self.data(MIB)).result()
            self.storage.clone(image.snapshot('t'), clone, image_types.ImageOptions())
        with self.other.open_writer(clone) as writer:
            writer.write(5, b'mine').result()
            self.storage.flatten(clone)
            writer.write(100, b'mine').result()
        self.storage.remove_snapshot(image.snapshot('t'))
        expected = bytearray(self.content(image.snapshot('s')))
        expected[5:9] = expected[100:104] = b'mine'
        self.assertEqual(bytes(expected), self.content_now(clone))

    def test_a_snapshot_is_renamed(self):
        """Even in use by a client and by a clone."""
        image, clone = self.make_written(), self.ref('clone')
        expected = self.content(image.snapshot('s'))
        before = self.storage.describe(image).find_snapshot('s')
        self.storage.clone(image.snapshot('s'), clone, image_types.ImageOptions())
        with self.other.open_writer(image) as writer:
            self.storage.rename_snapshot(image.snapshot('s'), 'renamed')
            writer.write(0, self.data(MIB)).result()
        found = self.storage.describe(image).find_snapshot('renamed')
        self.assertEqual(before.snapshot_id, found.snapshot_id)
        self.assertEqual(['renamed'], self.snapshot_names(image))
        self.assertEqual(image.snapshot('renamed'), self.storage.describe(clone).parent)
        for snapshot in (image.snapshot('renamed'), clone):
            content = self.content if snapshot != clone else self.content_now
            self.assertEqual(expected, content(snapshot))

    def test_images_are_listed_in_pages(self):
        images = [self.make(name) for name in ('c', 'a', 'd', 'b')]
        self.make('elsewhere', pool=self.second_pool)
        trashed = self.make('e')
        self.storage.trash(trashed)
        expected = sorted(images)
        found = self.storage.list_images(self.pool, self.prefix)
        self.assertEqual(expected, [one.image for one in found])
        self.assertEqual(self.storage.describe(expected[0]).image_id, found[0].image_id)
        pages = [
            self.storage.list_images(self.pool, self.prefix, after, limit=3)
            for after in ('', expected[2].name, expected[3].name)
        ]
        self.assertEqual([expected[:3], expected[3:], []], [[x.image for x in p] for p in pages])
        self.assertEqual([], self.storage.list_images(self.pool, f'{self.prefix}-none'))

    def test_the_trash_tells_sizes(self):
        image = self.make('large', size_mib=12)
        trashed = self.storage.trash(image)
        (listed,) = [
            one for one in self.storage.list_trash(self.pool) if one.image_id == trashed.image_id
        ]
        self.assertEqual(12 * MIB, listed.size_bytes)

    def test_only_images_of_the_pool_are_among_the_busiest(self):
        self.make_written()
        found = self.storage.busiest_images(self.pool)
        self.assertEqual([], [one for one in found if one.image.pool != self.pool])

    def test_roll_back(self):
        image = self.make_written()
        with self.storage.open_writer(image) as writer:
            writer.zero(0, 4 * MIB).result()
            writer.resize(24 * MIB)
            writer.write(20 * MIB, b'later').result()
            writer.roll_back('s')
        self.assertEqual(self.content(image.snapshot('s')), self.content_now(image))

    def test_a_clone_in_another_pool_outlives_its_snapshot(self):
        image = self.make_written()
        clone = self.ref('clone', self.second_pool)
        expected = self.content(image.snapshot('s'))
        self.storage.clone(image.snapshot('s'), clone, image_types.ImageOptions())
        self.write(clone, 4 * MIB, b'mine')
        self.write(image, 0, b'theirs')

        facts = self.storage.describe(image)
        self.assertEqual([(clone, 's')], [(one.image, one.snapshot) for one in facts.children])
        self.assertEqual(image.snapshot('s'), self.storage.describe(clone).parent)

        self.storage.remove_snapshot(image.snapshot('s'))
        (left,) = self.storage.describe(image).snapshots
        self.assertEqual((True, 's'), (left.removed, left.removed_name))
        self.assertEqual(
            [(clone, left.name)],
            [(one.image, one.snapshot) for one in self.storage.describe(image).children],
        )
        expected = expected[: 4 * MIB] + b'mine' + expected[4 * MIB + 4 :]
        self.assertEqual(expected, self.content_now(clone))

        self.storage.flatten(clone)
        self.storage.flatten(clone)
        self.assertIsNone(self.storage.describe(clone).parent)
        self.assertEqual((), self.storage.describe(image).snapshots)
        self.assertEqual(expected, self.content_now(clone))

    def test_depth_of_clones(self):
        """A parent in the trash counts as well; a flattened one ends the chain."""
        first = self.make_written()
        chain = [first, *(self.ref(name) for name in 'bcd'), self.ref('e', self.second_pool)]
        for parent, clone in itertools.pairwise(chain):
            if parent != first:
                self.storage.create_snapshot(parent.snapshot('s'))
            self.storage.clone(parent.snapshot('s'), clone, image_types.ImageOptions())
        self.storage.trash(first)
        depths = [self.storage.describe(one).clone_depth for one in chain[1:]]
        self.assertEqual([1, 2, 3, 4], depths)
        self.storage.flatten(chain[2])
        depths = [self.storage.describe(one).clone_depth for one in chain[1:]]
        self.assertEqual([1, 0, 1, 2], depths)

    def test_a_flatten_is_canceled(self):
        image, clone = self.make_written(), self.ref('clone')
        self.storage.clone(image.snapshot('s'), clone, image_types.ImageOptions())
        cancel = threading.Event()
        cancel.set()

        def refuse(_done, _total):
            raise exceptions.LockLostError('the lock is lost')

        for options in ({'cancel': cancel}, {'progress': refuse}):
            self.assertRaises(exceptions.CanceledError, self.storage.flatten, clone, **options)
            self.assertEqual(image.snapshot('s'), self.storage.describe(clone).parent)

    def test_a_clone_inherits_no_limits_and_no_metadata(self):
        """librbd copies the metadata of the parent, which the back end removes."""
        image, clone = self.make_written(), self.ref('clone')
        self.storage.set_qos(image, image_types.Qos(iops=500))
        self.storage.set_image_metadata(image, {'trove_ceph.test': 'of the parent'})
        self.storage.clone(
            image.snapshot('s'), clone, image_types.ImageOptions(data_pool=self.data_pool)
        )
        facts = self.storage.describe(clone)
        self.assertEqual((image_types.Qos(), {}), (facts.qos, facts.metadata))
        self.assertTrue(facts.qos_is_whole)
        self.assertEqual(self.data_pool, facts.data_pool)

    def test_removal_names_the_obstacles(self):
        image, clone = self.make_written(), self.ref('clone', self.second_pool)
        error = self.assertRaises(exceptions.BusyError, self.storage.remove, image)
        self.assert_message(error, image, 'snapshots s')
        self.storage.clone(image.snapshot('s'), clone, image_types.ImageOptions())
        self.storage.remove_snapshot(image.snapshot('s'))
        error = self.assertRaises(exceptions.BusyError, self.storage.remove, image)
        self.assert_message(error, f'children {clone}')
        with self.other.open_writer(clone):
            (client,) = self.storage.describe(clone).clients
            error = self.assertRaises(exceptions.BusyError, self.storage.remove, clone)
            self.assert_message(error, f'clients {client}')
            error = self.assertRaises(exceptions.BusyError, self.storage.trash, clone)
            self.assert_message(error, f'clients {client}')
        self.storage.remove(clone)
        self.storage.remove(image)
        self.assert_missing(image)

    def test_a_parent_stays_in_the_trash_until_its_last_clone_is_gone(self):
        image, clone = self.make_written(), self.ref('clone', self.second_pool)
        self.storage.clone(image.snapshot('s'), clone, image_types.ImageOptions())
        expected = self.content(image.snapshot('s'))
        trashed = self.storage.trash(image)
        self.assert_missing(image)
        self.assertEqual((image.name, [clone]), (trashed.name, [c.image for c in trashed.children]))
        self.assertIn(trashed, self.storage.list_trash(self.pool))
        # The name is free for another image.
        self.make()

        error = self.assertRaises(
            exceptions.BusyError, self.storage.purge, self.pool, trashed.image_id
        )
        self.assert_message(error, image, clone)
        self.assertEqual(expected, self.content_now(clone))
        self.storage.remove(clone)
        self.storage.purge(self.pool, trashed.image_id)
        self.assertNotIn(image.name, [one.name for one in self.storage.list_trash(self.pool)])

    def test_an_image_with_another_id_is_not_trashed(self):
        image = self.make()
        old_id = self.storage.describe(image).image_id
        self.storage.remove(image)
        self.make()
        new_id = self.storage.describe(image).image_id
        error = self.assertRaises(exceptions.NotFoundError, self.storage.trash, image, old_id)
        self.assert_message(error, image, old_id)
        self.assertEqual(new_id, self.storage.describe(image).image_id)
        self.assertNotIn(new_id, [one.image_id for one in self.storage.list_trash(self.pool)])
        self.assertEqual(new_id, self.storage.trash(image, new_id).image_id)
        # A repetition, as after a lost answer.
        self.assertRaises(exceptions.NotFoundError, self.storage.trash, image, new_id)

    def test_purging_a_clone_drops_the_removed_snapshot_that_it_read(self):
        image, clone = self.make_written(), self.ref('clone', self.second_pool)
        self.storage.clone(image.snapshot('s'), clone, image_types.ImageOptions())
        self.storage.remove_snapshot(image.snapshot('s'))
        trashed = self.storage.trash(clone)
        self.assertEqual([True], [one.removed for one in self.storage.describe(image).snapshots])
        self.storage.purge(clone.pool, trashed.image_id)
        self.assertEqual((), self.storage.describe(image).snapshots)
        self.storage.remove(image)

    def test_restore_from_the_trash(self):
        image = self.make_written()
        expected = self.storage.describe(image).image_id
        trashed = self.storage.trash(image)
        other = self.make('other')
        arguments = (self.pool, trashed.image_id, other.name)
        self.assertRaises(exceptions.AlreadyExistsError, self.storage.restore, *arguments)
        self.storage.restore(self.pool, trashed.image_id, image.name)
        self.assertEqual(expected, self.storage.describe(image).image_id)
        self.assertEqual(['s'], self.snapshot_names(image))

    def test_limits(self):
        image = self.make()
        qos = image_types.Qos(iops=300, iops_burst=600, bytes_per_sec=50 * MIB)
        self.storage.set_qos(image, qos)
        self.assertEqual((qos, {}), self._limits_and_metadata(image))
        self.storage.set_qos(image, qos)
        self.assertEqual((qos, {}), self._limits_and_metadata(image))
        self.storage.set_qos(image, image_types.Qos(bytes_per_sec=MIB))
        self.assertEqual((image_types.Qos(bytes_per_sec=MIB), {}), self._limits_and_metadata(image))
        self.storage.set_qos(image, image_types.Qos())
        self.assertEqual((image_types.Qos(), {}), self._limits_and_metadata(image))

    def _limits_and_metadata(self, image):
        facts = self.storage.describe(image)
        self.assertTrue(facts.qos_is_whole)
        return facts.qos, facts.metadata

    def test_metadata(self):
        image = self.make()
        self.storage.set_image_metadata(image, {'a': '1', 'b': '2'})
        with self.other.open_writer(image) as writer:
            self.storage.set_image_metadata(image, {'a': None, 'b': '3', 'missing': None})
            self.assertEqual({'b': '3'}, writer.facts().metadata)
            writer.set_metadata('b', None)
        self.assertEqual({}, self.storage.describe(image).metadata)

    def test_metadata_with_many_entries(self):
        image, clone = self.make_written(), self.ref('clone')
        entries = {f'{number}': 'ä' * number for number in range(200)}
        self.storage.set_image_metadata(image, entries)
        self.storage.set_qos(image, image_types.Qos(iops=500))
        self.assertEqual(entries, self.storage.read_header(image).metadata)
        self.assertEqual(entries, self.storage.describe(image).metadata)
        self.storage.clone(image.snapshot('s'), clone, image_types.ImageOptions())
        self.assertEqual({}, self.storage.read_header(clone).metadata)
        self.assertEqual(image_types.Qos(), self.storage.describe(clone).qos)

    def test_describe_all_images_of_a_pool(self):
        parent = self.make_written()
        clone = self.ref('clone')
        self.storage.clone(parent.snapshot('s'), clone, image_types.ImageOptions())
        self.make('elsewhere', pool=self.second_pool)
        found = {
            facts.image: facts
            for facts in self.storage.describe_pool(self.pool)
            if facts.image.name.startswith(self.prefix)
        }
        self.assertEqual({parent, clone}, set(found))
        self.assertEqual([clone], [one.image for one in found[parent].children])
        self.assertIsNone(found[parent].used_bytes)

    def test_used_bytes_include_data_of_snapshots(self):
        image = self.make_written()
        with self.storage.open_writer(image) as writer:
            writer.write(0, self.data(4 * MIB)).result()
        used = self.storage.describe(image).used_bytes
        # Three objects in the snapshot, one of which was replaced later.
        self.assertTrue(12 * MIB <= used <= 16 * MIB, used)

    def test_only_one_client_can_open_an_image_for_writing(self):
        image = self.make()
        with self.other.open_writer(image) as writer:
            error = self.assertRaises(exceptions.BusyError, self.storage.open_writer, image)
            self.assert_message(error, image, self.storage.find_clients(image).lock_owner)
            writer.write(0, b'goes on').result()
        self.write(image, 0, b'now we do')

    def test_a_full_pool_refuses_writes_at_once(self):
        image = self.make(size_mib=64, data_pool=self.data_pool)
        self.write(image, 0, self.data(4 * MIB))
        self.fill(self.data_pool)
        usage = self.storage.usage(self.data_pool)
        self.assertTrue(usage.full)
        self.assertGreaterEqual(usage.fill, 1)
        with self.storage.open_writer(image) as writer:
            future = writer.write(8 * MIB, self.data(4 * MIB))
            self.assertRaises(exceptions.NoSpaceError, future.result)
            # Requests that free space still work.
            writer.zero(0, 4 * MIB).result()
            writer.flush()
        self.storage.remove(image)
