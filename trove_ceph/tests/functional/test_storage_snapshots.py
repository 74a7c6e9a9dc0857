# SPDX-License-Identifier: Apache-2.0
"""Snapshots whose creation was interrupted after the header and before the object map.

The tests create that state by removing the map of a complete snapshot.
"""

import threading

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import copying, image_types, throttle
from trove_ceph.storage.ceph import object_map, snapshots
from trove_ceph.tests.contract import storage as contract
from trove_ceph.tests.functional import storage

MIB = units.Mi


class InterruptedCreationTest(contract.StorageContract, storage.CephStorageTestCase):
    def setUp(self):
        super().setUp()
        self.context = self.enterContext(self.cluster.pool(self.pool))
        self.image = self.make_written()
        self.expected = self.content(self.image.snapshot('s'))
        with self.storage.open_writer(self.image) as writer:
            writer.write(4 * MIB, self.data(MIB)).result()

    def map_of(self, snapshot):
        facts = self.storage.describe(snapshot.of)
        found = facts.find_snapshot(snapshot.name)
        return object_map.object_name(facts.image_id, found.snapshot_id)

    def interrupt(self, snapshot):
        """Leave the snapshot as its creator's death does."""
        self.context.remove_object(self.map_of(snapshot))
        self.assertRaises(exceptions.NotFoundError, self.storage.open_reader, snapshot)

    def assert_usable(self, snapshot, expected):
        self.assertEqual(expected, self.content(snapshot))
        clone = self.ref('clone')
        self.storage.clone(snapshot, clone, image_types.ImageOptions())
        self.assertEqual(expected, self.content_now(clone))
        with self.storage.open_reader(snapshot) as reader:
            extents = reader.changed_objects(0, reader.size_bytes, None)
        self.assertEqual([image_types.Extent(0, 12 * MIB, True)], extents)

    def test_a_repetition_makes_it_usable(self):
        snapshot = self.image.snapshot('s')
        self.interrupt(snapshot)
        self.assertRaises(exceptions.AlreadyExistsError, self.storage.create_snapshot, snapshot)
        self.assert_usable(snapshot, self.expected)

    def test_a_repetition_while_another_client_writes(self):
        snapshot = self.image.snapshot('s')
        self.interrupt(snapshot)
        with storage.connect(self, self.cluster).open_writer(self.image) as writer:
            writer.write(0, self.data(MIB)).result()
            self.assertRaises(exceptions.AlreadyExistsError, self.storage.create_snapshot, snapshot)
            # It has not lost its lock.
            writer.write(MIB, self.data(MIB)).result()
        self.assert_usable(snapshot, self.expected)

    def test_a_success_that_is_none_makes_it_usable(self):
        """librbd reports a success if its request is repeated after the lock's owner died."""
        snapshot = self.image.snapshot('s')
        self.interrupt(snapshot)

        class Repeated:
            """An image whose snapshot was requested from an owner that died."""

            def __init__(self, handle):
                self._handle = handle

            def __getattr__(self, name):
                return getattr(self._handle, name)

            def create_snap(self, name, flags):
                pass

        with self.storage._image(self.image, 'opening') as (handle, context):
            snapshots.create(Repeated(handle), context, 's')
        self.assert_usable(snapshot, self.expected)

    def test_a_copy_continues(self):
        """The copy was killed while it created its snapshot."""
        vault = self.ref('vault', self.second_pool)
        source = self.image.snapshot('s')
        cancel = threading.Event()

        def stop_when_comparing(progress):
            if progress.phase == 'verifying':
                cancel.set()

        limits = throttle.Throttle(cancel=cancel, progress=stop_when_comparing)
        arguments = (self.storage, source, self.storage, vault)
        self.assertRaises(exceptions.CanceledError, copying.copy, *arguments, limits=limits)
        self.context = self.enterContext(self.cluster.pool(self.second_pool))
        self.interrupt(vault.snapshot('s'))
        copying.copy(*arguments)
        self.assertEqual(self.expected, self.content(vault.snapshot('s')))

    def test_removal(self):
        snapshot = self.image.snapshot('s')
        self.interrupt(snapshot)
        self.storage.remove_snapshot(snapshot)
        self.assertEqual((), tuple(self.snapshot_names(self.image)))
