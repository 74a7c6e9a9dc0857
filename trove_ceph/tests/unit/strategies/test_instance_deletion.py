# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.storage import image_types
from trove_ceph.strategies.backup import create, delete, instance_deletion, volume_cleanup
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.strategies.test_delete import CLONE, take
from trove_ceph.tests.unit.taskmanager import trove_database


def deletion(world, strike=None):
    return instance_deletion.InstanceDeletion(
        world.deps(strike), world.trove.find_instance(world.instance.id), world.delete_server
    )


def is_deleted(world):
    return trove_database.instance(world.instance.id).deleted


class WithBackupTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    """The volume stays as long as its backup, from which Cinder can restore."""

    def make_world(self):
        world = worlds.World()
        world.backup = take(world)
        return world

    def make_operation(self, world, strike=None):
        return deletion(world, strike).steps()

    def check_done(self, world):
        self.assertTrue(is_deleted(world))
        self.assertEqual([world.volume['id']], list(world.cinder.volumes))
        self.assertEqual({world.volume_image.name}, world.images())
        record = world.records.get(world.backup)
        self.assertEqual([record.location.name], world.snapshots())
        (volume,) = [
            one for one in world.records.kept_volumes() if one.volume_id == record.volume_id
        ]
        self.assertEqual(world.instance.id, volume.instance_id)
        delete.delete_backup(world.deps(), world.backup)
        self.assertEqual({}, world.cinder.volumes)
        self.assertEqual(set(), world.images())
        self.assertEqual([], world.trash())
        self.assertIsNone(world.records.find_kept_volume(record.volume_id))

    def check_undone(self, world):
        raise AssertionError('a deletion is never undone')

    def test_may_be_repeated(self):
        world = self.make_world()
        self._run(self.make_operation(world))
        self._run(self.make_operation(world))
        self.check_done(world)


class WithoutBackupsTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    def make_world(self):
        return worlds.World()

    def make_operation(self, world, strike=None):
        return deletion(world, strike).steps()

    def check_done(self, world):
        self.assertTrue(is_deleted(world))
        volume_cleanup.reclaim(world.deps())
        world.cinder.work()
        self.assertEqual({}, world.cinder.volumes)
        self.assertEqual(set(), world.images())
        self.assertEqual([], world.trash())

    def check_undone(self, world):
        raise AssertionError('a deletion is never undone')


class InstanceDeletionTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()

    def run_steps(self):
        self._run(deletion(self.world))

    def _run(self, operation):
        for step in operation.steps():
            step.do()

    def restore(self, backup_id):
        """Create a clone of a backup, as for another instance."""
        location = self.world.records.get(backup_id).location
        self.world.storage.clone(location, CLONE, image_types.ImageOptions())

    def test_keeps_the_volume_when_the_server_goes(self):
        self.run_steps()
        server_id = trove_database.instance(self.world.instance.id).compute_instance_id
        self.assertEqual([(server_id, self.world.volume['id'])], self.world.servers.kept_volumes)

    def test_continues_if_nova_refuses(self):
        self.world.servers.is_down = True
        self.run_steps()
        self.assertTrue(is_deleted(self.world))
        self.assertEqual(set(), self.world.images())

    def test_keeps_the_volume_until_its_last_backup_is_deleted(self):
        """Defect 7: with stock, Cinder refuses to delete the volume, which stays for ever."""
        backups = [take(self.world) for _ in range(3)]
        self.run_steps()
        for backup in backups:
            self.assertEqual({self.world.volume_image.name}, self.world.images())
            delete.delete_backup(self.world.deps(), backup)
        self.assertEqual(set(), self.world.images())
        self.assertEqual({}, self.world.cinder.volumes)
        self.assertEqual(self.world.cinder.true_usage(), self.world.cinder.quota.counted())

    def test_trashes_a_volume_with_clones(self):
        """Cinder would copy all data into the clone; the trash keeps the image at no cost."""
        backup = take(self.world)
        self.restore(backup)
        self.run_steps()
        delete.delete_backup(self.world.deps(), backup)
        self.assertEqual({}, self.world.cinder.volumes)
        self.assertEqual([self.world.volume_image.name], self.world.trash())
        self.assertIsNotNone(self.world.storage.describe(CLONE).parent)
        volume_cleanup.reclaim(self.world.deps())
        self.assertEqual([self.world.volume_image.name], self.world.trash())
        self.world.storage.flatten(CLONE)
        volume_cleanup.reclaim(self.world.deps())
        self.assertEqual([], self.world.trash())
        self.assertEqual({CLONE.name}, self.world.images())

    def test_trashes_a_volume_with_clones_of_a_deleted_backup(self):
        backup = take(self.world)
        self.restore(backup)
        delete.delete_backup(self.world.deps(), backup)
        self.run_steps()
        self.assertEqual([self.world.volume_image.name], self.world.trash())
        self.assertIsNotNone(self.world.storage.describe(CLONE).parent)

    def test_trashes_a_volume_with_its_parent_in_the_vault(self):
        """Cinder must not write to the vault, and would leave the removed snapshot behind."""
        copy = image_types.ImageRef('vault', 'copy-of-many')
        self.world.storage.create_image(copy, 1024**3, image_types.ImageOptions())
        self.world.storage.create_snapshot(copy.snapshot('one'))
        self.world.storage.remove(self.world.volume_image)
        self.world.storage.clone(
            copy.snapshot('one'), self.world.volume_image, image_types.ImageOptions()
        )
        self.world.storage.remove_snapshot(copy.snapshot('one'))
        before = len(self.world.events)
        self.run_steps()
        self.assertIn('storage trash', self.world.events[before:])
        self.assertEqual({}, self.world.cinder.volumes)
        self.assertEqual([], self.world.trash())
        self.assertEqual((), self.world.storage.describe(copy).snapshots)

    def test_continues_after_an_interruption_while_trashing(self):
        backup = take(self.world)
        self.restore(backup)
        delete.delete_backup(self.world.deps(), backup)
        for number in range(40):
            world = self.world = worlds.World()
            backup = take(world)
            self.restore(backup)
            delete.delete_backup(world.deps(), backup)
            strike = worlds.Strike(number, after=bool(number % 2))
            try:
                self._run(deletion(world, strike))
            except interruption.Kill:
                self.run_steps()
            volume_cleanup.reclaim(world.deps())
            world.cinder.work()
            self.assertEqual({}, world.cinder.volumes)
            self.assertEqual([world.volume_image.name], world.trash())
            world.storage.flatten(CLONE)
            volume_cleanup.reclaim(world.deps())
            self.assertEqual([], world.trash())
            if not strike.struck:
                self.assertGreater(number, 5)
                return
        self.fail('it never ends')

    def test_keeps_the_volume_while_a_backup_is_taken(self):
        backup = self.world.add_backup()
        strike = worlds.Strike(5, after=True)
        self.assertRaises(
            interruption.Kill, create.create_backup, self.world.deps(strike), backup.id
        )
        self.run_steps()
        self.assertEqual({self.world.volume_image.name}, self.world.images())
        error = self.assertRaises(
            exceptions.InvalidBackupError, create.create_backup, self.world.deps(), backup.id
        )
        self.assertIn('was deleted', str(error))
        self.assertEqual(RecordState.FAILED, self.world.records.get(backup.id).state)
        volume_cleanup.reclaim(self.world.deps())
        self.assertEqual(set(), self.world.images())

    def test_waits_for_an_open_image(self):
        writer = self.world.storage.open_writer(self.world.volume_image)
        self.run_steps()
        self.assertEqual({self.world.volume_image.name}, self.world.images())
        writer.close()
        volume_cleanup.reclaim(self.world.deps())
        self.assertEqual(set(), self.world.images())

    def test_keeps_the_volume_of_an_existing_instance(self):
        """The process of a deletion was killed before it deleted the instance."""
        deletion(self.world).steps()[0].do()
        volume_cleanup.reclaim(self.world.deps())
        self.assertEqual({self.world.volume_image.name}, self.world.images())

    def test_keeps_a_volume_with_a_snapshot_made_by_hand(self):
        """Cinder would leave the image in the trash for ever."""
        self.world.storage.create_snapshot(self.world.volume_image.snapshot('by-hand'))
        self.run_steps()
        self.assertTrue(is_deleted(self.world))
        self.assertEqual(['by-hand'], self.world.snapshots())
        self.world.storage.remove_snapshot(self.world.volume_image.snapshot('by-hand'))
        volume_cleanup.reclaim(self.world.deps())
        self.assertEqual(set(), self.world.images())

    def test_keeps_the_record_until_the_image_is_in_the_trash(self):
        facts = self.world.storage.describe(self.world.volume_image)
        self.world.records.record_trashed('volumes', facts.image_id, facts.image.name)
        volume_cleanup.purge_trashed(self.world.deps())
        found = [one.image_id for one in self.world.records.trashed_images()]
        self.assertIn(facts.image_id, found)
