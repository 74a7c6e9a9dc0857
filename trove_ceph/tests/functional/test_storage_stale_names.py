# SPDX-License-Identifier: Apache-2.0
"""Remains of an image whose creation, removal or purge was interrupted.

librbd writes a name into the pool's directory, then an object with the image's id, then the image's
header, and removes them in reverse order. The tests create the states in between by removing
objects of a complete image.
"""

import dataclasses

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph.storage.ceph import encoding, trash_entry
from trove_ceph.storage.ceph.trash_entry import State
from trove_ceph.tests.contract import storage as contract
from trove_ceph.tests.functional import storage

MIB = units.Mi
# The remaining objects of a name, and whether the object map exists: it is removed after the
# header.
STAGES = {
    'entry': ({'entry'}, False),
    'id': ({'id'}, False),
    'both': ({'entry', 'id'}, False),
    'removed': ({'entry', 'id'}, True),
}


class RemainsTestCase(contract.StorageContract, storage.CephStorageTestCase):
    def setUp(self):
        super().setUp()
        self.context = self.enterContext(self.cluster.pool(self.pool))

    def remove_objects(self, *names):
        for name in names:
            self.context.remove_object(name)

    def objects_of(self, image_id, name):
        keys = [one.key for one in self.context.list_objects()]
        return {key for key in keys if image_id in key or key == f'rbd_id.{name}'}

    def call(self, name, method, *arguments):
        """Call the object class ``rbd`` with strings, which are encoded, and raw bytes."""
        encoded = [one if isinstance(one, bytes) else encoding.string(one) for one in arguments]
        self.context.execute(name, 'rbd', method, b''.join(encoded))

    def is_listed(self, image):
        return image in [one.image for one in self.storage.list_images(image.pool, image.name)]


class AnotherImageTest(RemainsTestCase):
    """librbd moves an image to the trash by name, also one that was created meanwhile."""

    def test_restores_an_image_created_at_that_moment(self):
        image = self.make()
        old_id = self.storage.read_header(image).image_id
        real = self.storage._rbd

        class Late:
            def __getattr__(self, verb):
                return getattr(real, verb)

            def trash_move(self, context, name):
                real.remove(context, name)
                real.create(context, name, 16 * MIB)
                real.trash_move(context, name)

        self.storage._rbd = Late()
        error = self.assertRaises(exceptions.NotFoundError, self.storage.trash, image, old_id)
        self.assert_message(error, image, old_id)
        new_id = self.storage.read_header(image).image_id
        self.assertNotEqual(old_id, new_id)
        self.assertNotIn(new_id, [one.image_id for one in self.storage.list_trash(self.pool)])


class NamesTest(RemainsTestCase):
    """Only the name of an image exists."""

    def leave(self, stage):
        """Create the remains of an image, and return the image and its id."""
        remaining, has_map = STAGES[stage]
        image = self.make(stage)
        image_id = self.storage.read_header(image).image_id
        self.remove_objects(f'rbd_header.{image_id}')
        if not has_map:
            self.remove_objects(f'rbd_object_map.{image_id}')
        if 'id' not in remaining:
            self.remove_objects(f'rbd_id.{image.name}')
        if 'entry' not in remaining:
            self.call('rbd_directory', 'dir_remove_image', image.name, image_id)
        self.assert_missing(image)
        return image, image_id

    def assert_cleared(self, image, image_id):
        self.assertEqual(set(), self.objects_of(image_id, image.name))
        self.assertFalse(self.is_listed(image))
        self.assert_missing(image)

    def test_creates_an_image_with_a_stale_name(self):
        for stage in STAGES:
            image, image_id = self.leave(stage)
            self.storage.create_image(image, 4 * MIB, image_types.ImageOptions())
            facts = self.storage.describe(image)
            self.assertEqual(4 * MIB, facts.size_bytes)
            self.assertNotEqual(image_id, facts.image_id)
            self.assertEqual({f'rbd_id.{image.name}'}, self.objects_of(image_id, image.name))
            self.storage.remove(image)
            self.assert_cleared(image, image_id)

    def test_clones_to_a_stale_name(self):
        parent = self.make_written('parent')
        for stage in STAGES:
            image, image_id = self.leave(stage)
            self.storage.clone(parent.snapshot('s'), image, image_types.ImageOptions())
            self.assertEqual(parent.snapshot('s'), self.storage.describe(image).parent)
            self.storage.remove(image)
            self.assert_cleared(image, image_id)

    def test_removes_a_stale_name(self):
        for stage in STAGES:
            image, image_id = self.leave(stage)
            self.storage.remove(image)
            self.assert_cleared(image, image_id)
            self.assertRaises(exceptions.NotFoundError, self.storage.remove, image)

    def test_trash_of_a_stale_name_clears_it(self):
        for stage in STAGES:
            image, image_id = self.leave(stage)
            self.assertRaises(exceptions.NotFoundError, self.storage.trash, image)
            self.assert_cleared(image, image_id)

    def test_image_with_a_header_is_not_stale(self):
        """A move to the trash or a restore of it was interrupted."""
        image = self.make()
        image_id = self.storage.read_header(image).image_id
        self.remove_objects(f'rbd_id.{image.name}')
        for verb, *arguments in (
            ('create_image', image, MIB, image_types.ImageOptions()),
            ('clone', self.make_written('parent').snapshot('s'), image, image_types.ImageOptions()),
        ):
            self.assertRaises(
                exceptions.AlreadyExistsError, getattr(self.storage, verb), *arguments
            )
        self.assertEqual(image_id, self.storage.trash(image).image_id)
        self.assertIn(f'rbd_header.{image_id}', self.objects_of(image_id, image.name))


class TrashTest(RemainsTestCase):
    """An interrupted request on the trash."""

    def set_state(self, trashed, state):
        trash_entry.set_state(self.context, trashed.image_id, State.NORMAL, state)

    def test_completes_a_move_to_the_trash(self):
        for is_entered in (True, False):
            image = self.make_written(f'{is_entered}')
            trashed = self.storage.trash(image)
            self.set_state(trashed, State.MOVING)
            if is_entered:
                self.call('rbd_directory', 'dir_add_image', image.name, trashed.image_id)
            again = self.storage.trash(image)
            self.assertEqual(trashed.image_id, again.image_id)
            self.assertFalse(self.is_listed(image))
            self.storage.purge(self.pool, trashed.image_id)
            self.assertEqual(set(), self.objects_of(trashed.image_id, image.name))

    def interrupt_moves(self):
        """Yield images in the trash whose move, there or back, was interrupted."""
        for state in (State.MOVING, State.RESTORING):
            trashed = self.storage.trash(self.make_written(state.name.lower()))
            self.set_state(trashed, state)
            yield trashed

    def test_restores_an_image_after_an_interrupted_move(self):
        for trashed in self.interrupt_moves():
            self.storage.restore(self.pool, trashed.image_id, trashed.name)
            image = image_types.ImageRef(self.pool, trashed.name)
            self.assertEqual(trashed.image_id, self.storage.describe(image).image_id)
            self.assertNotIn(trashed, self.storage.list_trash(self.pool))

    def test_purges_an_image_after_an_interrupted_move(self):
        for trashed in self.interrupt_moves():
            self.storage.purge(self.pool, trashed.image_id)
            self.assertNotIn(trashed, self.storage.list_trash(self.pool))
            self.assertEqual(set(), self.objects_of(trashed.image_id, trashed.name))

    def leave(self, has_map):
        """Create the remains of an interrupted purge, whose size is lost with the header."""
        trashed = dataclasses.replace(self.storage.trash(self.make()), size_bytes=None)
        self.set_state(trashed, State.REMOVING)
        self.remove_objects(f'rbd_header.{trashed.image_id}')
        if not has_map:
            self.remove_objects(f'rbd_object_map.{trashed.image_id}')
        return trashed

    def test_lists_and_purges_remains_of_a_purge(self):
        for has_map in (True, False):
            trashed = self.leave(has_map)
            self.assertIn(trashed, self.storage.list_trash(self.pool))
            self.storage.purge(self.pool, trashed.image_id)
            self.assertNotIn(trashed, self.storage.list_trash(self.pool))
            self.assertEqual(set(), self.objects_of(trashed.image_id, trashed.name))
            arguments = (self.pool, trashed.image_id)
            self.assertRaises(exceptions.NotFoundError, self.storage.purge, *arguments)

    def test_does_not_restore_remains_of_a_purge(self):
        trashed = self.leave(has_map=False)
        image = self.ref('restored')
        arguments = (self.pool, trashed.image_id, image.name)
        self.assertRaises(exceptions.BusyError, self.storage.restore, *arguments)
        self.assertFalse(self.is_listed(image))
        self.assertIn(trashed, self.storage.list_trash(self.pool))
        self.storage.purge(self.pool, trashed.image_id)
