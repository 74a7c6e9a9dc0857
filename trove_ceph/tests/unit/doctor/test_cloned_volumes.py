# SPDX-License-Identifier: Apache-2.0
"""The volumes of instances that read from other images, from Trove's rows, Cinder and Ceph."""

import fixtures
from oslotest import base
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions
from trove_ceph.doctor import cloned_volumes
from trove_ceph.doctor.clone_facts import ClonedVolume
from trove_ceph.storage import image_types
from trove_ceph.strategies.restore import flatten
from trove_ceph.tests.unit.strategies import test_restore_clone_volume as restores
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database


class ClonedVolumesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = restores.make_world()
        self.volume = restores.restore(self.world)
        self.volume['status'] = 'in-use'
        self.image = self.world.cinder.image(self.volume)
        self.strike = None

    def read(self):
        make = 'trove_ceph.taskmanager.factory.make_dependencies'
        self.useFixture(fixtures.MonkeyPatch(make, self.make))
        return cloned_volumes.read('conf')

    def make(self, conf, context):
        self.assertEqual(('conf', None), (conf, context))
        return self.world.deps(self.strike)

    def change(self, **values):
        trove_database.instance(self.world.restored.id).update(**values)

    def test_restored_instance(self):
        expected = ClonedVolume(self.world.restored.id, self.image, 1)
        self.assertEqual((expected,), self.read())
        self.assertEqual('storage close', self.world.events[-1])

    def test_tells_what_waits_for_room(self):
        self.world.deps().cinder.request_flatten(self.volume['id'])
        self.assertEqual([None], [one.why_waiting for one in self.read()])
        self.world.cluster.get(self.world.volume_image).write(0, b'x' * (8 << 20))
        self.world.cluster.capacities['volumes'] = 12 << 20
        (found,) = self.read()
        self.assertIn(f'{self.image}: to flatten it may take', found.why_waiting)

    def test_all_images_above_count(self):
        between = image_types.ImageRef('volumes', 'between')
        self.world.storage.remove(self.image)
        self.clone(self.world.volume_image, between)
        self.clone(between, self.image)
        self.assertEqual([2], [one.clone_depth for one in self.read()])

    def clone(self, parent, image):
        snapshot = parent.snapshot('of-the-clone')
        self.world.storage.create_snapshot(snapshot)
        self.world.storage.clone(snapshot, image, image_types.ImageOptions())

    def test_flattened(self):
        self.world.storage.flatten(self.image)
        self.assertEqual((), self.read())
        flatten.flatten_dependents(self.world.deps())
        self.world.events.clear()
        self.assertEqual((), self.read())
        # Cinder knows that the volume is no clone any more.
        self.assertNotIn('storage describe', self.world.events)

    def test_replica_has_a_record_of_its_own(self):
        self.change(slave_of_id=self.world.instance.id)
        self.assertEqual((), self.read())

    def test_instance_that_is_being_deleted(self):
        self.change(task_status=InstanceTasks.DELETING)
        self.assertEqual((), self.read())

    def test_image_that_is_gone(self):
        self.world.storage.remove(self.image)
        self.assertEqual((), self.read())

    def test_volume_on_no_tier(self):
        self.world.find_image = lambda volume: None
        self.assertEqual((), self.read())

    def test_storage_service_that_does_not_answer(self):
        # After the request to Cinder.
        self.strike = worlds.Strike(1, lost=True)
        self.assertRaises(exceptions.ServiceUnavailableError, self.read)
        self.assertEqual('storage close', self.world.events[-1])
