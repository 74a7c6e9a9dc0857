# SPDX-License-Identifier: Apache-2.0
import dataclasses
import datetime

import fixtures
from oslotest import base
from trove.backup.state import BackupState

from trove_ceph import exceptions
from trove_ceph.db import backups
from trove_ceph.db.backup_record import RecordState
from trove_ceph.storage import image_types, names, tasks
from trove_ceph.storage_service import rpcapi
from trove_ceph.strategies.backup import create, delete, recovery, tenant_errors, volume_cleanup
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import vault_helpers
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import trove_database

CLONE = image_types.ImageRef('volumes', 'volume-of-another-instance')
AT_ONCE = datetime.timedelta(seconds=-5)


def take(world, **facts):
    """Return the id of a new backup."""
    backup = world.add_backup(**facts)
    create.create_backup(world.deps(), backup.id)
    return backup.id


def copy(world, backup_id):
    """Copy a backup to the vault, and return the location of the copy."""
    record = world.records.get(backup_id)
    vault = image_types.ImageRef('vault', names.image_name('vault', record.instance_id))
    location = vault.snapshot(record.location.name)
    with vault_helpers.claimed(world, backup_id) as claim:
        world.records.results.begin_copying(claim, location)
        world.deps().storage.run(f'copy.{backup_id}', tasks.CopyTask(record.location, vault), 600)
        world.records.results.record_copied(claim, 4096, 1.0)
    return location


class DeletionInterruptionTest(worlds.RequestInterruptionTests, base.BaseTestCase):
    """A backup with a copy, beside another backup."""

    def make_world(self):
        world = worlds.World()
        world.other = take(world)
        world.doomed = take(world)
        copy(world, world.doomed)
        return world

    def make_operation(self, world, strike=None):
        return delete.BackupDeletion(world.deps(strike), world.doomed).steps()

    def check_done(self, world):
        volume_cleanup.reclaim(world.deps())
        self.assertTrue(trove_database.backup(world.doomed).deleted)
        self.assertIsNone(world.records.find(world.doomed))
        record = world.records.get(world.other)
        self.assertEqual([record.location.name], world.snapshots())
        self.assertEqual([record.cinder_snapshot_id], list(world.cinder.snapshots))
        self.assertEqual(set(), world.images('vault') - {world.vault.name})
        self.assertEqual([], world.trash())
        self.assertEqual([], world.records.trashed_images())
        self.assertEqual(world.cinder.true_usage(), world.cinder.quota.counted())

    def check_undone(self, world):
        raise AssertionError('a deletion is never undone')


class DeletionTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = worlds.World()

    def delete(self, backup_id, strike=None):
        delete.delete_backup(self.world.deps(strike), backup_id)

    def test_keeps_children(self):
        """Defect 6: stock deletes the children with their parent."""
        parent = take(self.world)
        child = take(self.world, parent_id=parent)
        self.assertEqual(parent, self.world.records.get(child).parent_id)
        self.delete(parent)
        record = self.world.records.get(child)
        self.assertEqual((RecordState.TAKEN, None), (record.state, record.parent_id))
        self.assertEqual(BackupState.COMPLETED, trove_database.backup(child).state)
        self.assertEqual([record.location.name], self.world.snapshots())

    def test_keeps_increments(self):
        parent, child = take(self.world), take(self.world)
        copy(self.world, parent)
        location = self.world.records.get(parent).copy
        record = self.world.records.get(child)
        with vault_helpers.claimed(self.world, child) as claim:
            copy_location = location.of.snapshot(record.location.name)
            self.world.records.results.begin_copying(claim, copy_location)
        work = tasks.CopyTask(record.location, location.of, since=location.name)
        self.world.deps().storage.run(f'copy.{child}', work, 600)
        self.delete(parent)
        self.assertEqual([record.location.name], self.world.snapshots(location.of))
        check = tasks.VerifyTask(record.location, self.world.records.get(child).copy)
        self.world.deps().storage.run(f'verify.{child}', check, 600)
        self.delete(child)
        self.assertNotIn(location.image, self.world.images('vault'))
        self.assertEqual([], self.world.trash())

    def test_deletes_a_snapshot_with_clones(self):
        """Defect 8: with stock, Cinder copies all data into each clone."""
        backup = take(self.world)
        self.world.storage.clone(
            self.world.records.get(backup).location, CLONE, image_types.ImageOptions()
        )
        self.delete(backup)
        self.assertEqual([], self.world.snapshots())
        self.assertIsNotNone(self.world.storage.describe(CLONE).parent)

    def test_reports_a_failure(self):
        """Defect 7: stock ignores the error and marks the backup as deleted."""
        backup = take(self.world)
        (snapshot,) = self.world.cinder.snapshots.values()
        snapshot['status'] = 'backing-up'
        error = self.assertRaises(exceptions.ServiceUnavailableError, self.delete, backup)
        row = trove_database.backup(backup)
        self.assertEqual((BackupState.DELETE_FAILED, False), (row.state, bool(row.deleted)))
        record = self.world.records.get(backup)
        self.assertEqual((RecordState.DELETING, None), (record.state, record.claimed_by))
        self.assertEqual(tenant_errors.tenant_message(error), record.error)
        snapshot['status'] = 'available'
        recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())
        self.assertTrue(trove_database.backup(backup).deleted)
        self.assertEqual([], self.world.snapshots())

    def serve(self, own_pools):
        """Restart the storage service after a change of its tiers file."""
        name = f'{worlds.service_world.__name__}.POOLS'
        self.useFixture(fixtures.MonkeyPatch(name, own_pools))
        self.world.served = self.world.service()

    def lose_tier(self, pool):
        own = worlds.service_world.POOLS
        self.addCleanup(self.serve, own)
        self.serve(dataclasses.replace(own, images=tuple({*own.images} - {pool})))
        return own

    def check_waits_for_tier(self, backup, pool):
        own = self.lose_tier(pool)
        error = self.assertRaises(exceptions.MissingTierError, self.delete, backup)
        self.assertIn(f'in pool {pool}, which no tier', str(error))
        record = self.world.records.get(backup)
        self.assertEqual((RecordState.DELETING, None), (record.state, record.claimed_by))
        self.assertEqual(tenant_errors.tenant_message(error), record.error)
        self.assertNotIn(pool, record.error)
        self.assertEqual(BackupState.DELETE_FAILED, trove_database.backup(backup).state)
        self.assertEqual(datetime.timedelta(minutes=10), record.delete_retry_at - self.date)
        self.serve(own)
        self.date = record.delete_retry_at - datetime.timedelta(seconds=1)
        self.recover()
        self.assertEqual(record, self.world.records.get(backup))
        self.date = record.delete_retry_at
        self.recover()
        self.assertTrue(trove_database.backup(backup).deleted)
        self.assertIsNone(self.world.records.find(backup))

    def recover(self):
        recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())

    def test_waits_for_the_tier_of_the_copy(self):
        backup = self.take_dated()
        copy(self.world, backup)
        self.check_waits_for_tier(backup, 'vault')
        self.assertEqual([], self.world.snapshots())

    def test_waits_for_the_tier_of_the_snapshot(self):
        self.check_waits_for_tier(self.take_dated(), 'volumes')

    def test_a_repeated_request_does_not_wait_for_the_next_attempt(self):
        backup = self.take_dated()
        own = self.lose_tier('volumes')
        self.assertRaises(exceptions.MissingTierError, self.delete, backup)
        self.serve(own)
        self.delete(backup)
        self.assertTrue(trove_database.backup(backup).deleted)

    def test_a_wrong_clock_does_not_delay_the_next_attempt(self):
        backup = self.take_dated()
        own = self.lose_tier('volumes')
        self.date += datetime.timedelta(days=1000)
        self.assertRaises(exceptions.MissingTierError, self.delete, backup)
        self.serve(own)
        self.date -= datetime.timedelta(days=1000)
        self.recover()
        self.assertTrue(trove_database.backup(backup).deleted)

    def take_dated(self):
        """Return the id of a new backup; ``date`` is the clock of the database."""
        self.date = datetime.datetime(2026, 11, 24, 3)
        facade = worlds.emptied()
        self.world.records = backups.BackupStore(facade, database_clock=lambda: self.date)
        return take(self.world)

    def test_deletes_a_failed_backup(self):
        self.world.guest.is_down = True
        backup = self.world.add_backup()
        self.assertRaises(
            exceptions.ServiceUnavailableError, create.create_backup, self.world.deps(), backup.id
        )
        self.delete(backup.id)
        self.assertTrue(trove_database.backup(backup.id).deleted)
        self.assertIsNone(self.world.records.find(backup.id))

    def test_stops_a_running_copy(self):
        """Cinder does not know that the copy reads the snapshot, and would remove it."""
        backup = take(self.world)
        record = self.world.records.get(backup)
        threads = worlds.service_world.DeferredExecutor()
        self.world.served = self.world.service(threads=threads)
        vault = image_types.ImageRef('vault', names.image_name('vault', record.instance_id))
        with vault_helpers.claimed(self.world, backup) as claim:
            location = vault.snapshot(record.location.name)
            self.world.records.results.begin_copying(claim, location)
        storage = self.world.deps().storage
        storage.start('copy', tasks.CopyTask(record.location, vault))
        sleep_before = self.world.sleep

        def sleep(seconds):
            sleep_before(seconds)
            while threads.waiting:
                threads.run_next()

        self.world.sleep = sleep
        self.delete(backup)
        self.assertEqual(tasks.JobState.CANCELED, storage.find_job('copy').state)
        self.assertEqual([], self.world.snapshots())

    def silence(self, *pools):
        """Have pools not answer."""
        stock = rpcapi.StorageAPI.survey_jobs
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.storage_service.rpcapi.StorageAPI.survey_jobs',
                lambda api: (stock(api)[0], list(pools)),
            )
        )

    def test_a_lost_pool_of_others_delays_nothing(self):
        """Such as one with a single copy of each object."""
        backup = take(self.world)
        self.silence('replicas')
        self.delete(backup)
        self.assertEqual([], self.world.snapshots())

    def test_waits_for_the_pools_of_the_backup(self):
        backup = take(self.world)
        pool = self.world.records.get(backup).location.pool
        self.silence(pool)
        error = self.assertRaises(exceptions.CephUnreachableError, self.delete, backup)
        self.assertIn(f'pool {pool} does not answer', str(error))
        self.assertEqual(1, len(self.world.snapshots()))

    def test_continues_after_a_kill(self):
        backup = take(self.world)
        self.world.events.clear()
        strike = worlds.Strike(3)
        self.assertRaises(interruption.Kill, self.delete, backup, strike)
        recovery.recover(self.world.deps(expiry=AT_ONCE), worlds.AtOnce())
        self.assertTrue(trove_database.backup(backup).deleted)
        self.assertIsNone(self.world.records.find(backup))

    def test_keeps_a_vault_image_with_unknown_snapshots(self):
        backup = take(self.world)
        location = copy(self.world, backup)
        self.world.storage.create_snapshot(location.of.snapshot('by-hand'))
        self.delete(backup)
        self.assertEqual(['by-hand'], self.world.snapshots(location.of))
