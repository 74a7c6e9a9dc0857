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


class RecordsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = datetime.datetime(2026, 1, 1)
        path = self.useFixture(fixtures.TempDir()).join('trove.sqlite')
        self.records = backups.BackupStore(database.with_tables(path), lambda: self.now)

    def begin(self, backup_id, parent_id=None):
        self.now += datetime.timedelta(seconds=1)
        claim = self.records.begin_taking(backup_id, INSTANCE, PROJECT, ONE, parent_id)
        place = image_types.SnapshotRef('volumes', 'volume-1', 's')
        self.records.note_place(claim, place, VOLUME, 1024)
        return claim

    def claim(self, role, backup_id='b', worker=ONE):
        return self.records.claims.claim(role, backup_id, worker)

    def test_every_column_is_known(self):
        columns = {column.name for column in tables.BackupRow.__table__.columns}
        self.assertEqual(
            columns, {field.name for field in dataclasses.fields(backup_record.BackupRecord)}
        )

    def test_life_of_a_backup(self):
        claim = self.begin('b', parent_id='p')
        self.records.note_level(
            claim, 'freeze', 'none', 'sync_binlog is 0', filesystem_used_bytes=512
        )
        self.records.note_snapshot(claim, 1024, 0.5)
        self.records.note_taken(claim, 'snapshot-c', 'c', 1.5)
        copy = image_types.SnapshotRef('vault', 'copy', 'snapshot-c')
        claim = self.claim(Role.COPY)
        self.records.results.begin_copying(claim, copy)
        self.records.results.note_copied(claim, 4096, 2.5)
        found = self.records.get('b')
        self.assertEqual(backup_record.RecordState.COPIED, found.state)
        self.assertEqual(('freeze', 'none'), (found.quiesce, found.raised_from))
        self.assertEqual(512, found.filesystem_used_bytes)
        self.assertEqual('volumes/volume-1@snapshot-c', str(found.place))
        self.assertEqual(copy, found.copy)
        self.records.claims.release(claim)
        claim = self.claim(Role.VERIFY)
        self.records.results.note_verified(claim, 'uuid:1-5', {'tables': 3}, 3.5, 512)
        self.records.claims.release(claim)
        claim = self.claim(Role.COPY)
        self.records.results.note_copied(claim, 4096, 2.5)
        found = self.records.get('b')
        self.assertEqual(backup_record.RecordState.VERIFIED, found.state)
        self.assertEqual({'at': '2026-01-01T00:00:01Z', 'tables': 3}, found.verification)
        self.assertEqual((512, 'uuid:1-5'), (found.used_bytes, found.gtid_executed))
        self.records.results.forget_copy(claim)
        self.assertIsNone(self.records.get('b').copy)
        self.records.claims.release(claim)
        self.records.forget(self.records.begin_deleting('b', ONE))
        self.assertIsNone(self.records.find('b'))
        self.assertRaises(exceptions.RecordNotFoundError, self.records.get, 'b')

    def test_carrying_on_keeps_what_is_known(self):
        claim = self.begin('b', parent_id='p')
        self.records.note_snapshot(claim, 1024, None)
        self.records.claims.release(claim)
        self.records.begin_taking('b', INSTANCE, PROJECT, TWO)
        found = self.records.get('b')
        self.assertEqual(
            (backup_record.RecordState.TAKING, None, 'p'),
            (found.state, found.error, found.parent_id),
        )
        self.assertEqual(1024, found.size_bytes)

    def test_checked_snapshot_is_that_of_the_worker_who_takes_the_backup(self):
        facts = {
            'level': 'freeze',
            'raised_from': 'none',
            'because': 'sync_binlog is 0',
            'gtid_before': 'uuid:1-7',
            'size_bytes': 1024,
            'quiesced_sec': 0.5,
            'age_sec': 90.0,
        }
        claim = self.begin('b')
        note = self.records.note_checked_snapshot
        other = dataclasses.replace(claim, token='another')
        self.assertRaises(exceptions.ClaimLostError, note, other, **facts)
        self.assertIsNone(self.records.get('b').snapshot_at)
        note(claim, **facts)
        found = self.records.get('b')
        self.assertEqual(
            ('freeze', 'none', 'sync_binlog is 0'),
            (found.quiesce, found.raised_from, found.raised_because),
        )
        self.assertEqual(
            ('uuid:1-7', 1024, 0.5), (found.gtid_before, found.size_bytes, found.quiesced_sec)
        )
        self.assertEqual(datetime.timedelta(seconds=90), self.now - found.snapshot_at)
        self.records.note_failed(claim, 'why')
        self.assertRaises(exceptions.ClaimLostError, note, claim, **facts)

    def test_lists_are_the_latest_first(self):
        for name in ('a', 'b', 'c'):
            self.begin(name)
        for listed in (
            self.records.of_instance(INSTANCE),
            self.records.of_project(PROJECT),
            self.records.of_volume(VOLUME),
        ):
            self.assertEqual(['c', 'b', 'a'], [one.backup_id for one in listed])
        self.assertEqual([], self.records.of_instance('other'))

    def test_one_alone_takes_it(self):
        """Of two messages about one backup, and of a message and a worker that carries on."""
        mine = self.begin('b')
        begin = self.records.begin_taking
        self.assertRaises(exceptions.ClaimLostError, begin, 'b', INSTANCE, PROJECT, TWO)
        self.assertEqual('one', self.records.get('b').claimed_by)
        self.assertEqual(mine, begin('b', INSTANCE, PROJECT, ONE, claim=mine))
        self.records.note_failed(mine, 'why')
        error = self.assertRaises(
            exceptions.InvalidTransitionError, begin, 'b', INSTANCE, PROJECT, TWO
        )
        self.assertIn('failed', str(error))
        self.assertIsNone(self.records.get('b').claimed_by)

    def test_what_is_left_of_one_that_failed(self):
        claim = self.begin('b')
        self.assertEqual([], self.records.list_with_remains(TWO))
        self.records.note_failed(claim, 'why')
        self.assertEqual([], self.records.list_with_remains(TWO))
        self.now += LONG
        self.assertEqual(['b'], [one.backup_id for one in self.records.list_with_remains(TWO)])
        claim = self.claim(Role.CLEAN_UP)
        self.assertEqual([], self.records.list_with_remains(TWO))
        self.records.forget_snapshot(claim)
        self.records.forget_place(claim)
        self.records.claims.release(claim)
        self.now += LONG
        self.assertEqual([], self.records.list_with_remains(TWO))
        self.assertIsNone(self.records.get('b').place)

    def test_deletion_waits_for_the_worker_that_has_it(self):
        mine = self.begin('b')
        self.assertIsNone(self.records.begin_deleting('b', TWO))
        found = self.records.get('b')
        self.assertEqual(
            (backup_record.RecordState.DELETING, 'one'), (found.state, found.claimed_by)
        )
        self.assertFalse(self.records.claims.heartbeat(mine))
        self.assertRaises(exceptions.ClaimLostError, self.records.note_failed, mine, 'why')
        self.records.note_not_deleted('b', None, 'one still takes it')
        found = self.records.get('b')
        self.assertEqual(('one still takes it', 'one'), (found.error, found.claimed_by))
        self.records.claims.release(mine)
        theirs = self.records.begin_deleting('b', TWO)
        self.assertIsNone(self.records.get('b').error)
        # A second message about the same deletion is left alone.
        error = self.assertRaises(
            exceptions.ClaimLostError, self.records.begin_deleting, 'b', THREE
        )
        self.assertIn('is being deleted by two', str(error))
        self.records.note_not_deleted('b', theirs, 'Cinder is down')
        found = self.records.get('b')
        self.assertEqual(('Cinder is down', None), (found.error, found.claimed_by))
        self.assertIsNotNone(self.records.begin_deleting('b', THREE))
        self.assertIsNone(self.records.begin_deleting('other', THREE))

    def test_copy_that_is_replaced(self):
        self.records.note_taken(self.begin('b'), 'snapshot-c', 'c', 1.0)
        claim = self.claim(Role.COPY)
        place = image_types.SnapshotRef('vault', 'i', 's')
        self.records.results.begin_copying(claim, place, 'a')
        self.records.results.note_copied(claim, 4096, 2.5)
        self.records.results.replace_copy(claim, 'it was damaged')
        found = self.records.get('b')
        self.assertEqual(backup_record.RecordState.TAKEN, found.state)
        self.assertEqual((None, None, None), (found.copy, found.copied_at, found.copy_base_id))
        self.assertEqual('it was damaged', found.copy_base_because)
        self.assertIsNotNone(found.copy_wanted_at)

    def test_what_is_complete_is_not_carried_on_with(self):
        self.records.note_taken(self.begin('b'), 'snapshot-c', 'c', 1.0)
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
        self.records.forget(self.records.begin_deleting('parent', ONE))
        self.assertIsNone(self.records.get('child').parent_id)

    def test_what_is_left_of_instances(self):
        for _again in range(2):
            self.records.keep_volume(VOLUME, INSTANCE, PROJECT)
            self.records.note_trashed('volumes', '1a', 'volume-1')
        (volume,) = self.records.kept_volumes()
        self.assertEqual(volume, self.records.find_kept_volume(VOLUME))
        self.assertEqual(INSTANCE, volume.instance_id)
        (image,) = self.records.trashed_images()
        self.assertEqual('volumes/volume-1 (in the trash, id 1a)', str(image))
        self.records.forget_volume(VOLUME)
        self.records.forget_trashed('volumes', '1a')
        self.assertEqual([], self.records.kept_volumes())
        self.assertEqual([], self.records.trashed_images())

    def test_tables_that_are_missing(self):
        path = self.useFixture(fixtures.TempDir()).join('empty.sqlite')
        empty = backups.BackupStore(database.facade(path))
        error = self.assertRaises(exceptions.ServiceUnavailableError, empty.find, 'b')
        self.assertIn('trove-ceph-manage db sync', str(error))
