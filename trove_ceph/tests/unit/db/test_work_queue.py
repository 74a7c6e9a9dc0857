# SPDX-License-Identifier: Apache-2.0
import datetime

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import backups, work_queue
from trove_ceph.db.backup_record import RecordState
from trove_ceph.storage import image_types
from trove_ceph.tests.unit.db import database

LONG = datetime.timedelta(minutes=30)
MINUTE = datetime.timedelta(minutes=1)
COPY = image_types.SnapshotRef('vault', 'image', 'snapshot')


class WishesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = datetime.datetime(2026, 1, 1)
        path = self.useFixture(fixtures.TempDir()).join('trove.sqlite')
        self.records = backups.BackupStore(database.with_tables(path), lambda: self.now)
        self.wishes = self.records.wishes

    def take(self, backup_id, **wanted):
        self.now += MINUTE
        self.records.begin_taking(backup_id, 'instance', 'project', 'taker')
        self.records.note_taken(backup_id, 's', 'c', 1.0, **wanted)
        self.records.release(backup_id, 'taker')

    def due(self):
        return [one.backup_id for one in self.wishes.due(LONG)]

    def test_wanted_until_it_is_done(self):
        self.take('a')
        self.assertEqual([], self.due())
        for want in (self.wishes.want_copy, self.wishes.want_verification):
            want('a')
        since = self.now
        self.now += MINUTE
        self.wishes.want_copy('a')
        self.assertEqual(since, self.records.get('a').copy_wanted_at)
        self.records.copies.note_copied('a', 1, 1.0)
        self.assertEqual(['a'], self.due())
        self.records.copies.note_verified('a', 'uuid:1', {}, 1.0)
        self.assertEqual([], self.due())
        self.wishes.want_copy('a')
        self.assertIsNone(self.records.get('a').copy_wanted_at)
        self.wishes.want_verification('a')
        self.assertEqual(['a'], self.due())
        self.records.copies.note_verified('a', 'uuid:1', {}, 1.0)
        self.assertEqual([], self.due())

    def test_what_was_wanted_before_it_was_taken(self):
        self.records.begin_taking('a', 'instance', 'project', 'taker')
        self.wishes.want_copy('a')
        since = self.now
        self.assertEqual([], self.due())
        self.take('a', copy=True, verify=True)
        found = self.records.get('a')
        self.assertEqual((since, self.now), (found.copy_wanted_at, found.verify_wanted_at))

    def test_who_waits_longest_is_first(self):
        for name in ('a', 'b', 'c'):
            self.take(name)
        for name in ('b', 'c', 'a'):
            self.now += MINUTE
            self.wishes.want_verification(name)
        self.assertEqual(['b', 'c', 'a'], self.due())

    def test_nobody_else_takes_what_is_worked_on(self):
        self.take('a', copy=True)
        self.assertFalse(self.wishes.is_copying('instance', LONG))
        self.assertTrue(self.records.claim('a', 'one', LONG))
        self.assertEqual([], self.due())
        self.assertTrue(self.wishes.is_copying('instance', LONG))
        self.assertFalse(self.wishes.is_copying('other', LONG))
        self.now += LONG
        self.assertTrue(self.wishes.beat('a', 'one'))
        self.now += LONG
        self.assertEqual([], self.due())
        self.now += MINUTE
        self.assertEqual(['a'], self.due())
        self.assertFalse(self.wishes.is_copying('instance', LONG))
        self.assertTrue(self.records.claim('a', 'two', LONG))
        self.assertFalse(self.wishes.beat('a', 'one'))
        for verb in (self.wishes.release, self.wishes.note_failure):
            verb('a', 'one')
        self.assertEqual(
            ('two', None), (self.records.get('a').worker, self.records.get('a').failures)
        )

    def test_deletion_takes_no_backup_from_who_works_on_it(self):
        self.take('a', copy=True)
        worker = work_queue.worker('one')
        self.records.claim('a', worker, LONG)
        self.assertFalse(self.records.begin_deleting('a', 'two', MINUTE, LONG))
        found = self.records.get('a')
        self.assertEqual((RecordState.DELETING, worker), (found.state, found.worker))
        # That one finds it out, and begins nothing any more.
        self.assertFalse(self.wishes.beat('a', worker))
        begin = self.records.copies.begin_copying
        error = self.assertRaises(exceptions.LockLostError, begin, 'a', COPY)
        self.assertIn('being deleted', str(error))
        self.assertIsNone(self.records.get('a').copy)
        self.now += 2 * MINUTE
        self.assertTrue(self.records.begin_deleting('a', 'two', MINUTE, LONG))
        self.assertEqual('two', self.records.get('a').worker)
        # Of those who delete it, who comes last has it.
        self.assertTrue(self.records.begin_deleting('a', 'three', MINUTE, LONG))

    def test_deletion_takes_no_backup_from_who_takes_it(self):
        """He says so less often than one who copies, whose silence is told by another measure."""
        taker = backups.taker('one')
        self.records.begin_taking('a', 'instance', 'project', taker)
        self.now += 2 * MINUTE
        self.assertFalse(self.records.begin_deleting('a', 'two', MINUTE, LONG))
        self.assertFalse(self.records.beat('a', taker, RecordState.TAKING))
        self.assertFalse(self.records.note_failed('a', taker, 'why'))
        self.records.note_not_deleted('a', 'taken by one')
        found = self.records.get('a')
        self.assertEqual((RecordState.DELETING, taker), (found.state, found.worker))
        self.records.release('a', taker)
        self.assertTrue(self.records.begin_deleting('a', 'two', MINUTE, LONG))
        self.records.begin_taking('b', 'instance', 'project', taker)
        self.now += LONG
        self.assertTrue(self.records.begin_deleting('b', 'two', MINUTE, LONG))

    def test_states_in_which_nothing_is_due(self):
        self.take('a', copy=True, verify=True)
        self.records.begin_taking('a', 'instance', 'project', 'taker')
        self.assertTrue(self.records.note_failed('a', 'taker', 'why'))
        self.assertEqual([], self.due())
        self.take('a')
        self.assertEqual(['a'], self.due())
        self.records.begin_deleting('a', 'deleter', MINUTE, LONG)
        self.records.note_not_deleted('a', 'why')
        self.assertEqual([], self.due())

    def test_damaged_is_verified_and_not_copied(self):
        self.take('a', copy=True, verify=True)
        self.records.copies.note_damaged('a', {'verdict': 'corrupt'}, 1.0, 'why')
        self.assertEqual(
            (RecordState.DAMAGED, 'why'),
            (self.records.get('a').state, self.records.get('a').verify_error),
        )
        self.assertEqual([], self.due())
        self.wishes.want_copy('a')
        self.assertEqual([], self.due())
        self.wishes.want_verification('a')
        self.assertEqual(['a'], self.due())

    def test_suspected_is_verified_and_its_copy_waits(self):
        self.take('a', copy=True, verify=True)
        self.records.copies.note_suspected('a', {'verdict': 'corrupt'}, 1.0, 'perhaps')
        found = self.records.get('a')
        self.assertEqual((RecordState.SUSPECTED, 'perhaps'), (found.state, found.verify_error))
        self.assertEqual('corrupt', found.verification['verdict'])
        self.assertIn('at', found.verification)
        self.assertIsNotNone(found.verify_wanted_at)
        self.assertEqual(['a'], self.due())
        # Only the verification is due.
        self.records.copies.note_unfinished('a', {'verdict': 'unfinished'}, 1.0, 'no time')
        self.assertEqual([], self.due())
        self.records.copies.note_verified('a', 'uuid:1', {'verdict': 'sound'}, 1.0)
        self.assertEqual(['a'], self.due())

    def test_suspicion_changes_nothing_of_what_is_damaged_or_being_deleted(self):
        self.take('a')
        self.records.copies.note_damaged('a', {'verdict': 'corrupt'}, 1.0, 'why')
        self.records.copies.note_suspected('a', {}, 1.0, 'perhaps')
        self.assertEqual(RecordState.DAMAGED, self.records.get('a').state)
        self.records.begin_deleting('a', 'deleter', MINUTE, LONG)
        self.records.copies.note_suspected('a', {}, 1.0, 'perhaps')
        self.assertEqual(RecordState.DELETING, self.records.get('a').state)

    def test_what_was_begun_and_is_not_wanted(self):
        self.take('a', copy=True)
        self.records.copies.begin_copying('a', COPY, 'base', 'because')
        self.wishes.want_no_copy('a')
        self.assertEqual(['a'], self.due())
        self.records.copies.forget_copy('a')
        found = self.records.get('a')
        self.assertEqual((None, None), (found.copy, found.copy_base_id))
        self.assertEqual([], self.due())
