# SPDX-License-Identifier: Apache-2.0
from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph.storage_service import idempotent_clone
from trove_ceph.tests.unit.storage_service import service_world

CLONE = image_types.ImageRef('vault', 'clone')
OPTIONS = image_types.ImageOptions()


class IdempotentCloneTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = service_world.World()
        self.storage = self.world.storage
        self.snapshot = self.world.image.snapshot('s')

    def clone(self):
        idempotent_clone.clone(self.storage, self.snapshot, CLONE, OPTIONS)
        self.assertEqual(self.snapshot, self.storage.describe(CLONE).parent)
        return self.storage.describe(CLONE)

    def use(self):
        with self.storage.open_writer(CLONE) as writer:
            writer.write(0, b'used').result()

    def test_an_unused_image_without_parent_is_created_again(self):
        self.storage.create_image(CLONE, units.Mi, OPTIONS)
        before = self.storage.describe(CLONE)
        after = self.clone()
        self.assertNotEqual(before.image_id, after.image_id)
        self.assertEqual(self.storage.describe(self.world.image).size_bytes, after.size_bytes)

    def test_an_unused_clone_loses_inherited_metadata(self):
        self.clone()
        self.storage.set_image_metadata(CLONE, {'of': 'its parent'})
        self.assertEqual({}, self.clone().metadata)

    def test_a_used_clone_is_kept(self):
        before = self.clone()
        self.use()
        self.assertEqual(before.image_id, self.clone().image_id)

    def test_an_unused_clone_that_is_open_is_busy(self):
        before = self.clone()
        with self.storage.open_writer(CLONE):
            (client,) = self.storage.describe(CLONE).clients
            error = self.assertRaises(exceptions.BusyError, self.clone)
            self.assertIn(client, str(error))
        self.assertEqual(before, self.storage.describe(CLONE))

    def test_another_image_is_refused(self):
        self.storage.create_image(CLONE, units.Mi, OPTIONS)
        self.use()
        before = self.storage.describe(CLONE)
        self.assertRaises(exceptions.AlreadyExistsError, self.clone)
        self.assertEqual(before, self.storage.describe(CLONE))
