# SPDX-License-Identifier: Apache-2.0
"""Deletion of volumes that have snapshots or clones unknown to Cinder."""

from oslotest import base

from trove_ceph import exceptions, steps
from trove_ceph.cinder import deletion
from trove_ceph.storage import image_types
from trove_ceph.tests.unit.cinder import world as worlds

CLONE = image_types.ImageRef('volumes-hdd', f'trove_ceph.replica.{worlds.OPERATION}')


def deleting(world, adapter=None):
    return deletion.VolumeDeletion(
        world.storage,
        world.cinder.client(worlds.SERVICE, adapter=adapter),
        world.volume['id'],
        world.wait_limits(),
    )


class DeletionInterruptionTest(worlds.interruption.InterruptionTests, base.BaseTestCase):
    def make_world(self):
        world = worlds.World()
        world.volume['status'] = 'available'
        return world

    def make_operation(self, world):
        return deleting(world).steps()

    def check_done(self, world):
        self.assertEqual({}, world.cinder.volumes)
        self.assertEqual(set(), world.images('volumes-nvme'))
        self.assertEqual([], world.trash())

    def check_undone(self, world):
        self.assertEqual([world.volume], list(world.cinder.volumes.values()))
        self.assertEqual({world.image.name}, world.images('volumes-nvme'))


class DeletionTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.world.volume['status'] = 'available'

    def run_steps(self):
        steps.run('test', deleting(self.world).steps())

    def assert_busy(self, *words):
        error = self.assertRaises(exceptions.BusyError, self.run_steps)
        for word in words:
            self.assertIn(word, str(error))
        self.assertEqual('available', self.world.volume['status'])
        self.assertEqual({self.world.image.name}, self.world.images('volumes-nvme'))

    def test_snapshot_that_cinder_does_not_know(self):
        """Cinder alone leaves the image in the trash for ever."""
        self.world.storage.create_snapshot(self.world.image.snapshot('by-hand'))
        self.assert_busy(f'{self.world.image} has snapshots by-hand')
        self.world.cinder.client(worlds.SERVICE).delete_volume(self.world.volume['id'])
        self.world.cinder.work()
        self.assertEqual([self.world.image.name], self.world.trash())

    def test_snapshot_that_cinder_knows(self):
        snapshot = self.world.cinder.add_snapshot(self.world.volume)
        self.assert_busy(f'snapshot {snapshot["id"]} (available)')

    def test_clone_that_cinder_does_not_know(self):
        """Cinder alone flattens the clone while the request waits."""
        snapshot = self.world.image.snapshot('parent')
        self.world.storage.create_snapshot(snapshot)
        self.world.storage.clone(snapshot, CLONE, image_types.ImageOptions())
        self.world.storage.remove_snapshot(snapshot)
        self.assert_busy(f'{self.world.image} has children {CLONE}')
        self.world.storage.flatten(CLONE)
        self.run_steps()
        self.assertEqual(set(), self.world.images('volumes-nvme'))
        self.assertEqual([], self.world.trash())

    def test_image_in_use(self):
        with self.world.storage.open_writer(self.world.image):
            self.assert_busy('clients')

    def test_cinder_refuses(self):
        self.world.volume['status'] = 'in-use'
        error = self.assertRaises(exceptions.ServiceUnavailableError, self.run_steps)
        self.assertIn('must not be attached', str(error))

    def test_reports_a_leftover(self):
        """A snapshot is created while the volume is deleted."""
        volume = deleting(self.world)
        volume.check_unneeded()
        self.world.storage.create_snapshot(self.world.image.snapshot('by-hand'))
        error = self.assertRaises(exceptions.BusyError, volume.ensure_deleted)
        self.assertIn('Cinder deleted it but left', str(error))
        self.assertIn('in the trash', str(error))
