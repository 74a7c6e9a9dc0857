# SPDX-License-Identifier: Apache-2.0
import dataclasses
import datetime

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import backup_record, backups, claims, tables
from trove_ceph.db.roles import Role
from trove_ceph.storage import image_types
from trove_ceph.tests.unit.db import database

INSTANCE, PROJECT, VOLUME = 'instance', 'project', 'volume'
LONG = datetime.timedelta(minutes=10)
ONE, TWO, THREE = (claims.Claimant(name) for name in ('one', 'two', 'three'))
#: Arguments of record_checked_snapshot().
CHECKED = {
    'level': 'freeze',
    'raised_from': 'none',
    'because': 'sync_binlog is 0',
    'gtid_before': 'uuid:1-7',
    'size_bytes': 1024,
    'quiesced_sec': 0.5,
    'snapshot_sec': 0.6,
    'age_sec': 90.0,
}


class BackupStoreTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = datetime.datetime(2026, 1, 1)
        path = self.useFixture(fixtures.TempDir()).join('trove.sqlite')
        self.records = backups.BackupStore(database.with_tables(path), lambda: self.now)

    def begin(self, backup_id, parent_id=None):
        self.now += datetime.timedelta(seconds=1)
        claim = self.records.begin_taking(backup_id, INSTANCE, PROJECT, ONE, parent_id)
        location = image_types.SnapshotRef('volumes', 'volume-1', 's')
        self.records.record_location(claim, location, VOLUME, 1024)
        return claim

    def claim(self, role, backup_id='b', worker=ONE):
        return self.records.claims.claim(role, backup_id, worker)

    def test_record_has_every_column(self):
        columns = {column.name for column in tables.BackupRow.__table__.columns}
        self.assertEqual(
            columns, {field.name for field in dataclasses.fields(backup_record.BackupRecord)}
        )

    def test_life_of_a_backup(self):
        claim = self.begin('b', parent_id='p')
        self.records.record_checked_snapshot(claim, **CHECKED, filesystem_used_bytes=512)
        self.records.record_taken(claim, 'snapshot-c', 'c', 1.5)
        copy = image_types.SnapshotRef('vault', 'copy', 'snapshot-c')
        claim = self.claim(Role.COPY)
        self.records.results.begin_copying(claim, copy)
        self.records.results.record_copied(claim, 4096, 2.5)
        found = self.records.get('b')
        self.assertEqual(backup_record.RecordState.COPIED, found.state)
        self.assertEqual(('freeze', 'none'), (found.quiesce, found.raised_from))
        self.assertEqual(512, found.filesystem_used_bytes)
        self.assertEqual('volumes/volume-1@snapshot-c', str(found.location))
        self.assertEqual(copy, found.copy)
        self.records.claims.release(claim)
        claim = self.claim(Role.VERIFY)
        self.records.results.record_verified(claim, 'uuid:1-5', {'tables': 3}, 3.5, 512)
        self.records.claims.release(claim)
        claim = self.claim(Role.COPY)
        self.records.results.record_copied(claim, 4096, 2.5)
        found = self.records.get('b')
        self.assertEqual(backup_record.RecordState.VERIFIED, found.state)
        self.assertEqual({'at': '2026-01-01T00:00:01Z', 'tables': 3}, found.verification)
        self.assertEqual((512, 'uuid:1-5'), (found.used_bytes, found.gtid_executed))
        self.records.results.clear_copy(claim)
        self.assertIsNone(self.records.get('b').copy)
        self.records.claims.release(claim)
        self.records.delete(self.records.begin_deleting('b', ONE))
        self.assertIsNone(self.records.find('b'))
        self.assertRaises(exceptions.RecordNotFoundError, self.records.get, 'b')

    def test_continuing_keeps_recorded_values(self):
        claim = self.begin('b', parent_id='p')
        self.records.record_checked_snapshot(claim, **CHECKED | {'size_bytes': 2048})
        self.records.claims.release(claim)
        self.records.begin_taking('b', INSTANCE, PROJECT, TWO)
        found = self.records.get('b')
        self.assertEqual(
            (backup_record.RecordState.TAKING, None, 'p'),
            (found.state, found.error, found.parent_id),
        )
        self.assertEqual((2048, 'freeze'), (found.size_bytes, found.quiesce))

    def test_only_the_worker_with_the_claim_records_the_snapshot(self):
        claim = self.begin('b')
        note = self.records.record_checked_snapshot
        other = dataclasses.replace(claim, token='another')
        self.assertRaises(exceptions.ClaimLostError, note, other, **CHECKED)
        self.assertIsNone(self.records.get('b').snapshot_at)
        note(claim, **CHECKED)
        found = self.records.get('b')
        self.assertEqual(
            ('freeze', 'none', 'sync_binlog is 0'),
            (found.quiesce, found.raised_from, found.raised_because),
        )
        self.assertEqual(('uuid:1-7', 1024), (found.gtid_before, found.size_bytes))
        self.assertEqual((0.5, 0.6), (found.quiesced_sec, found.snapshot_sec))
        self.assertEqual(datetime.timedelta(seconds=90), self.now - found.snapshot_at)
        self.records.record_failed(claim, 'why')
        self.assertRaises(exceptions.ClaimLostError, note, claim, **CHECKED)

    def test_lists_begin_with_the_latest(self):
        for name in ('a', 'b', 'c'):
            self.begin(name)
        for listed in (
            self.records.of_instance(INSTANCE),
            self.records.of_project(PROJECT),
            self.records.of_volume(VOLUME),
        ):
            self.assertEqual(['c', 'b', 'a'], [one.backup_id for one in listed])
        self.assertEqual([], self.records.of_instance('other'))

    def test_only_one_worker_takes_a_backup(self):
        """A second message about the backup is refused; its own worker may continue."""
        mine = self.begin('b')
        begin = self.records.begin_taking
        self.assertRaises(exceptions.ClaimLostError, begin, 'b', INSTANCE, PROJECT, TWO)
        self.assertEqual('one', self.records.get('b').claimed_by)
        self.assertEqual(mine, begin('b', INSTANCE, PROJECT, ONE, claim=mine))
        self.records.record_failed(mine, 'why')
        error = self.assertRaises(
            exceptions.InvalidTransitionError, begin, 'b', INSTANCE, PROJECT, TWO
        )
        self.assertIn('failed', str(error))
        self.assertIsNone(self.records.get('b').claimed_by)

    def interleave(self, verb):
        """Have another worker run a verb between a look for a row and its insertion."""
        insert = self.records._insert

        def insert_second(session, *arguments, **values):
            self.records._insert = insert
            # SQLite has no two transactions at once, of which one writes.
            session.rollback()
            verb()
            insert(session, *arguments, **values)

        self.records._insert = insert_second

    def test_two_workers_that_begin_at_the_same_time(self):
        begin = self.records.begin_taking
        self.interleave(lambda: begin('b', INSTANCE, PROJECT, TWO))
        self.assertRaises(exceptions.ClaimLostError, begin, 'b', INSTANCE, PROJECT, ONE)
        self.assertEqual('two', self.records.get('b').claimed_by)

    def test_backup_that_begins_while_it_is_given_up(self):
        begin = self.records.begin_taking
        self.interleave(lambda: begin('b', INSTANCE, PROJECT, TWO))
        self.assertFalse(self.records.record_never_begun('b', INSTANCE, PROJECT, 'why'))
        self.assertEqual('two', self.records.get('b').claimed_by)

    def test_failed_backup_with_a_snapshot_is_listed_until_it_is_cleaned_up(self):
        claim = self.begin('b')
        self.assertEqual([], self.records.list_failed_with_snapshot(TWO))
        self.records.record_failed(claim, 'why')
        self.assertEqual([], self.records.list_failed_with_snapshot(TWO))
        self.now += LONG
        self.assertEqual(
            ['b'], [one.backup_id for one in self.records.list_failed_with_snapshot(TWO)]
        )
        claim = self.claim(Role.CLEAN_UP)
        self.assertEqual([], self.records.list_failed_with_snapshot(TWO))
        self.records.invalidate_snapshot(claim)
        self.records.clear_location(claim)
        self.records.claims.release(claim)
        self.now += LONG
        self.assertEqual([], self.records.list_failed_with_snapshot(TWO))
        self.assertIsNone(self.records.get('b').location)

    def test_deletion_waits_for_the_worker_with_the_claim(self):
        mine = self.begin('b')
        self.assertIsNone(self.records.begin_deleting('b', TWO))
        found = self.records.get('b')
        self.assertEqual(
            (backup_record.RecordState.DELETING, 'one'), (found.state, found.claimed_by)
        )
        self.assertFalse(self.records.claims.heartbeat(mine))
        self.assertRaises(exceptions.ClaimLostError, self.records.record_failed, mine, 'why')
        self.records.record_not_deleted('b', None, 'one still takes it')
        found = self.records.get('b')
        self.assertEqual(('one still takes it', 'one'), (found.error, found.claimed_by))
        self.records.claims.release(mine)
        theirs = self.records.begin_deleting('b', TWO)
        self.assertIsNone(self.records.get('b').error)
        # A second message about the same deletion is refused.
        error = self.assertRaises(
            exceptions.ClaimLostError, self.records.begin_deleting, 'b', THREE
        )
        self.assertIn('is being deleted by two', str(error))
        self.records.record_not_deleted('b', theirs, 'Cinder is down')
        found = self.records.get('b')
        self.assertEqual(('Cinder is down', None), (found.error, found.claimed_by))
        self.assertIsNotNone(self.records.begin_deleting('b', THREE))
        self.assertIsNone(self.records.begin_deleting('other', THREE))

    def test_replaced_copy(self):
        self.records.record_taken(self.begin('b'), 'snapshot-c', 'c', 1.0)
        claim = self.claim(Role.COPY)
        location = image_types.SnapshotRef('vault', 'i', 's')
        self.records.results.begin_copying(claim, location, 'a')
        self.records.results.record_copied(claim, 4096, 2.5)
        self.records.results.replace_copy(claim, 'it was damaged')
        found = self.records.get('b')
        self.assertEqual(backup_record.RecordState.TAKEN, found.state)
        self.assertEqual((None, None, None), (found.copy, found.copied_at, found.copy_base_id))
        self.assertEqual('it was damaged', found.copy_base_because)
        self.assertIsNotNone(found.copy_wanted_at)

    def test_complete_backup_is_not_interrupted(self):
        self.records.record_taken(self.begin('b'), 'snapshot-c', 'c', 1.0)
        self.now += LONG
        self.assertEqual([], self.records.list_interrupted(TWO))
        self.records.begin_deleting('b', ONE)
        self.assertEqual([], self.records.list_interrupted(TWO))
        self.now += LONG
        self.assertEqual(['b'], [one.backup_id for one in self.records.list_interrupted(TWO)])

    def test_children_outlive_their_parent(self):
        parent = self.begin('parent')
        self.begin('child', parent_id='parent')
        self.records.claims.release(parent)
        self.records.delete(self.records.begin_deleting('parent', ONE))
        self.assertIsNone(self.records.get('child').parent_id)

    def test_volumes_and_images_of_deleted_instances(self):
        for _ in range(2):
            self.records.keep_volume(VOLUME, INSTANCE, PROJECT)
            self.records.record_trashed('volumes', '1a', 'volume-1')
        (volume,) = self.records.kept_volumes()
        self.assertEqual(volume, self.records.find_kept_volume(VOLUME))
        self.assertEqual(INSTANCE, volume.instance_id)
        (image,) = self.records.trashed_images()
        self.assertEqual('volumes/volume-1 (in the trash, id 1a)', str(image))
        self.records.delete_kept_volume(VOLUME)
        self.records.delete_trashed_image('volumes', '1a')
        self.assertEqual([], self.records.kept_volumes())
        self.assertEqual([], self.records.trashed_images())

    def test_missing_tables(self):
        path = self.useFixture(fixtures.TempDir()).join('empty.sqlite')
        empty = backups.BackupStore(database.facade(path))
        error = self.assertRaises(exceptions.ServiceUnavailableError, empty.find, 'b')
        self.assertIn('trove-ceph-manage db sync', str(error))


class ClockOfTheHostTest(base.BaseTestCase):
    """A worker whose clock is a day ahead of that of the database, which all share."""

    def setUp(self):
        super().setUp()
        self.now = datetime.datetime(2026, 1, 1, 12)
        path = self.useFixture(fixtures.TempDir()).join('trove.sqlite')
        self.records = backups.BackupStore(
            database.with_tables(path),
            lambda: self.now + datetime.timedelta(days=1),
            lambda: self.now,
        )

    def take(self, backup_id, **requests):
        claim = self.records.begin_taking(backup_id, INSTANCE, PROJECT, ONE)
        self.records.record_checked_snapshot(claim, **CHECKED)
        self.records.record_taken(claim, 'snapshot-c', 'c', 1.5, **requests)

    def test_does_not_date_a_snapshot(self):
        self.take('b')
        age = self.now - self.records.get('b').snapshot_at
        self.assertEqual(datetime.timedelta(seconds=CHECKED['age_sec']), age)

    def test_does_not_date_requests(self):
        self.take('a', copy=True, verify=True)
        self.take('b')
        self.records.queue.request_copy('b')
        self.records.queue.request_verification('b')
        self.take('c', copy=True)
        claim = self.records.claims.claim(Role.COPY, 'c', ONE)
        self.records.results.record_copied(claim, 1, 1.0, verify=True)
        self.records.claims.release(claim)
        claim = self.records.claims.claim(Role.VERIFY, 'c', ONE)
        self.records.results.replace_copy(claim, 'it was damaged')
        for backup_id in ('a', 'b', 'c'):
            found = self.records.get(backup_id)
            self.assertEqual((self.now, self.now), (found.copy_wanted_at, found.verify_wanted_at))

    def test_does_not_date_trashed_images(self):
        self.records.record_trashed('volumes', 'id', 'image')
        (found,) = self.records.trashed_images()
        self.assertEqual(self.now, found.created_at)
