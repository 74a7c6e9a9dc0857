# SPDX-License-Identifier: Apache-2.0
import datetime

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import backup_record, backups, claims, work_queue
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.roles import Role
from trove_ceph.storage import image_types
from trove_ceph.tests.unit.db import database

MINUTE = datetime.timedelta(minutes=1)
HOUR = datetime.timedelta(hours=1)
COPY = image_types.SnapshotRef('vault', 'image', 'snapshot')
ONE, TWO = claims.Claimant('one'), claims.Claimant('two')
ROLES = (Role.COPY, Role.VERIFY)


class QueueTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = datetime.datetime(2026, 1, 1)
        path = self.useFixture(fixtures.TempDir()).join('trove.sqlite')
        self.records = backups.BackupStore(database.with_tables(path), lambda: self.now)
        self.queue, self.results = self.records.queue, self.records.results

    def take(self, backup_id, project='project', **requests):
        self.now += MINUTE
        claim = self.records.begin_taking(backup_id, f'instance-{backup_id}', project, ONE)
        self.records.record_taken(claim, 's', 'c', 1.0, **requests)

    def due(self, role, **limits):
        found = self.queue.list_due(role, TWO, work_queue.QueueLimits(**limits))
        return [one.backup_id for one in found]

    def begin(self, role, backup_id, worker=ONE):
        return self.queue.begin(role, self.records.get(backup_id), worker)

    def work(self, role, backup_id):
        """Copy or verify a backup."""
        claim = self.begin(role, backup_id)
        if role is Role.COPY:
            self.results.record_copied(claim, 1, 1.0)
        else:
            self.results.record_verified(claim, 'uuid:1', {}, 1.0)
        self.records.claims.release(claim)


class QueueTest(QueueTestCase):
    def test_request_is_due_until_it_is_done(self):
        self.take('a')
        self.assertEqual([[], []], [self.due(role) for role in ROLES])
        self.queue.request_copy('a')
        self.queue.request_verification('a')
        since = self.now
        self.now += MINUTE
        self.queue.request_copy('a')
        self.assertEqual(since, self.records.get('a').copy_wanted_at)
        # The verification waits for the copy.
        self.assertEqual([['a'], []], [self.due(role) for role in ROLES])
        self.work(Role.COPY, 'a')
        self.assertEqual([[], ['a']], [self.due(role) for role in ROLES])
        self.work(Role.VERIFY, 'a')
        self.assertEqual([[], []], [self.due(role) for role in ROLES])
        self.queue.request_copy('a')
        self.assertIsNone(self.records.get('a').copy_wanted_at)
        self.queue.request_verification('a')
        self.assertEqual(['a'], self.due(Role.VERIFY))
        self.work(Role.VERIFY, 'a')
        self.assertEqual([], self.due(Role.VERIFY))

    def test_request_before_the_backup_is_taken(self):
        claim = self.records.begin_taking('a', 'instance', 'project', ONE)
        self.queue.request_copy('a')
        since = self.now
        self.assertEqual([], self.due(Role.COPY))
        self.now += MINUTE
        self.records.record_taken(claim, 's', 'c', 1.0, copy=True, verify=True)
        found = self.records.get('a')
        self.assertEqual((since, self.now), (found.copy_wanted_at, found.verify_wanted_at))

    def test_the_oldest_request_of_a_project_is_first(self):
        for name in ('a', 'b', 'c'):
            self.take(name)
        for name in ('b', 'c', 'a'):
            self.now += MINUTE
            self.queue.request_verification(name)
        self.assertEqual(['b', 'c', 'a'], self.due(Role.VERIFY))

    def test_projects_take_turns(self):
        """A project with many requests does not delay the others."""
        for number in range(20):
            self.take(f'many-{number:02}', 'greedy', copy=True)
        for project in ('second', 'third'):
            for number in range(2):
                self.take(f'{project}-{number}', project, copy=True)
        served = []
        for _turn in range(8):
            # One worker with one thread, which lists the queue again after each copy.
            first = self.due(Role.COPY)[0]
            self.work(Role.COPY, first)
            served.append(self.records.get(first).project_id)
        self.assertEqual(['greedy', 'second', 'third'] * 2 + ['greedy'] * 2, served)

    def test_copies_and_verifications_have_separate_turns(self):
        self.take('a', 'one', copy=True)
        self.take('b', 'one', verify=True)
        self.take('c', 'two', verify=True)
        self.work(Role.COPY, 'a')
        self.assertEqual(['b', 'c'], self.due(Role.VERIFY))
        self.work(Role.VERIFY, 'b')
        self.queue.request_verification('b')
        self.assertEqual(['c', 'b'], self.due(Role.VERIFY))

    def test_rate_of_a_project(self):
        for number in range(4):
            self.take(f'a{number}', 'one', verify=True)
        self.take('b', 'two', verify=True)
        for name in ('a0', 'a1'):
            self.work(Role.VERIFY, name)
        self.assertEqual(['b'], self.due(Role.VERIFY, per_hour=2))
        self.assertEqual(['b', 'a2', 'a3'], self.due(Role.VERIFY, per_hour=3))
        # Deleting backups or verifying one repeatedly does not lower the count.
        self.records.delete(self.records.begin_deleting('a0', ONE))
        self.queue.request_verification('a1')
        self.assertEqual(['b'], self.due(Role.VERIFY, per_hour=2))
        self.assertEqual([], self.due(Role.COPY, per_hour=2))
        self.now += HOUR + MINUTE
        self.assertEqual(['b', 'a2', 'a3', 'a1'], self.due(Role.VERIFY, per_hour=2))

    def test_old_starts_are_deleted(self):
        self.take('a', verify=True)
        self.work(Role.VERIFY, 'a')
        self.now += datetime.timedelta(days=2)
        self.take('b', verify=True)
        self.work(Role.VERIFY, 'b')
        with self.queue._transactions.reading() as session:
            starts = session.scalars(
                work_queue.sa.select(work_queue.tables.JobStart.backup_id)
            ).all()
        self.assertEqual(['b'], starts)

    def test_no_other_worker_takes_a_claimed_backup(self):
        self.take('a', copy=True)
        is_copying = self.queue.is_copying
        self.assertFalse(is_copying('instance-a', TWO))
        mine = self.begin(Role.COPY, 'a')
        self.assertEqual([], self.due(Role.COPY))
        self.assertIsNone(self.begin(Role.COPY, 'a', TWO))
        self.assertTrue(is_copying('instance-a', TWO))
        self.assertFalse(is_copying('other', TWO))
        self.now += claims.DEFAULT_EXPIRY
        self.assertTrue(self.records.claims.heartbeat(mine))
        self.now += claims.DEFAULT_EXPIRY
        self.assertEqual([], self.due(Role.COPY))
        self.now += MINUTE
        self.assertEqual(['a'], self.due(Role.COPY))
        self.assertFalse(is_copying('instance-a', TWO))
        self.assertIsNotNone(self.begin(Role.COPY, 'a', TWO))
        self.assertRaises(exceptions.ClaimLostError, self.queue.record_failure, mine, 'late')
        found = self.records.get('a')
        self.assertEqual(('two', None), (found.claimed_by, found.copy_failures))

    def fail(self, role, backup_id):
        claim = self.begin(role, backup_id)
        self.queue.record_failure(claim, 'the vault is full')
        self.records.claims.release(claim)

    def next_attempt_at(self, record):
        return work_queue.next_attempt_at(record, Role.COPY, self.now)

    def test_pause_doubles_with_each_failure(self):
        self.take('a', copy=True)
        for minutes in (1, 2, 4, 8, 16):
            self.fail(Role.COPY, 'a')
            found = self.records.get('a')
            self.assertEqual('the vault is full', found.copy_error)
            self.assertEqual(minutes * MINUTE, found.copy_retry_at - self.now)
            self.assertEqual(found.copy_retry_at, self.next_attempt_at(found))
            self.assertEqual([], self.due(Role.COPY))
            self.now = found.copy_retry_at
            self.assertIsNone(self.next_attempt_at(found))
            self.assertEqual(['a'], self.due(Role.COPY))
        for _ in range(20):
            self.fail(Role.COPY, 'a')
        self.assertEqual(6 * HOUR, self.records.get('a').copy_retry_at - self.now)

    def test_a_clock_that_was_ahead_delays_no_attempt(self):
        for role in (Role.COPY, Role.VERIFY):
            name = str(role)
            self.take(name, copy=role is Role.COPY, verify=role is Role.VERIFY)
            right = self.now
            self.now += datetime.timedelta(days=365)
            self.fail(role, name)
            self.assertEqual([], self.due(role))
            self.now = right
            self.assertEqual([name], self.due(role))
            # The pause after a failure by the right clock is kept.
            for _ in range(20):
                self.fail(role, name)
            self.assertEqual([], self.due(role))

    def test_repeated_request_does_not_bring_the_next_attempt_forward(self):
        for role, request in (
            (Role.COPY, self.queue.request_copy),
            (Role.VERIFY, self.queue.request_verification),
        ):
            name = str(role)
            self.take(name)
            request(name)
            self.fail(role, name)
            self.fail(role, name)
            before = self.records.get(name)
            request(name)
            self.assertEqual(before, self.records.get(name))
            self.assertEqual([], self.due(role))

    def test_failed_verification_does_not_delay_a_copy(self):
        self.take('a', verify=True)
        self.fail(Role.VERIFY, 'a')
        self.queue.request_copy('a')
        self.assertEqual([['a'], []], [self.due(role) for role in ROLES])
        self.work(Role.COPY, 'a')
        found = self.records.get('a')
        self.assertEqual((1, None), (found.verify_failures, found.copy_failures))

    def test_nothing_is_due_in_other_states(self):
        claim = self.records.begin_taking('a', 'i', 'p', ONE, copy=True, verify=True)
        self.assertEqual([[], []], [self.due(role) for role in ROLES])
        self.records.record_failed(claim, 'why')
        self.assertEqual([[], []], [self.due(role) for role in ROLES])
        self.take('b', copy=True, verify=True)
        self.records.begin_deleting('b', ONE)
        self.assertEqual([[], []], [self.due(role) for role in ROLES])

    def test_damaged_backup_is_verified_and_not_copied(self):
        self.take('a', copy=True, verify=True)
        claim = self.begin(Role.VERIFY, 'a')
        self.results.record_damaged(claim, {'verdict': 'corrupt'}, 1.0, 'why')
        self.records.claims.release(claim)
        found = self.records.get('a')
        self.assertEqual((RecordState.DAMAGED, 'why'), (found.state, found.verify_error))
        self.queue.request_copy('a')
        self.assertEqual([[], []], [self.due(role) for role in ROLES])
        self.queue.request_verification('a')
        self.assertEqual([[], ['a']], [self.due(role) for role in ROLES])

    def test_suspected_backup_is_verified_and_its_copy_waits(self):
        self.take('a', copy=True, verify=True)
        claim = self.begin(Role.VERIFY, 'a')
        self.results.record_suspected(claim, {'verdict': 'corrupt'}, 1.0, 'perhaps')
        self.records.claims.release(claim)
        found = self.records.get('a')
        self.assertEqual((RecordState.SUSPECTED, 'perhaps'), (found.state, found.verify_error))
        self.assertEqual('corrupt', found.verification['verdict'])
        self.assertIn('at', found.verification)
        self.assertIsNotNone(found.verify_wanted_at)
        # Only the verification is due.
        self.assertEqual([[], ['a']], [self.due(role) for role in ROLES])
        claim = self.begin(Role.VERIFY, 'a')
        self.results.record_unfinished(claim, {'verdict': 'unfinished'}, 1.0, 'no time')
        self.records.claims.release(claim)
        self.assertEqual([[], []], [self.due(role) for role in ROLES])
        self.queue.request_verification('a')
        self.work(Role.VERIFY, 'a')
        self.assertEqual([['a'], []], [self.due(role) for role in ROLES])

    def test_suspicion_does_not_change_a_damaged_or_deleting_backup(self):
        self.take('a')
        claim = self.begin(Role.VERIFY, 'a')
        self.results.record_damaged(claim, {'verdict': 'corrupt'}, 1.0, 'why')
        self.results.record_suspected(claim, {}, 1.0, 'perhaps')
        found = self.records.get('a')
        self.assertEqual((RecordState.DAMAGED, 'why'), (found.state, found.verify_error))
        self.records.begin_deleting('a', ONE)
        note = self.results.record_suspected
        self.assertRaises(exceptions.ClaimLostError, note, claim, {}, 1.0, 'perhaps')
        self.assertEqual(RecordState.DELETING, self.records.get('a').state)


class DeletedCopiesTest(QueueTestCase):
    """Copies of one instance in one image of the vault, some of which are deleted."""

    def copy(self, backup_id, moved_bytes, used_bytes):
        self.take(backup_id, copy=True)
        claim = self.begin(Role.COPY, backup_id)
        self.results.begin_copying(claim, COPY)
        self.results.record_copied(claim, moved_bytes, 1.0, used_bytes)
        self.records.claims.release(claim)

    def setUp(self):
        super().setUp()
        self.copy('a', 1000, 1000)
        self.copy('b', 50, 1010)
        self.copy('c', 70, 1040)
        self.copy('d', 90, 1060)

    def delete(self, backup_id):
        claim = self.records.begin_deleting(backup_id, ONE)
        self.results.clear_copy(claim)
        return claim

    def used_bytes(self):
        return self.queue.vault_bytes_of('project')

    def inherited(self):
        return {one.backup_id: one.inherited_bytes for one in self.records.all() if one.copied_at}

    def test_what_a_deleted_copy_replaced_still_counts(self):
        """The first copy keeps it."""
        self.assertEqual(1060 + 50 + 70 + 90, self.used_bytes())
        self.delete('b')
        self.assertEqual(1060 + 50 + 70 + 90, self.used_bytes())
        self.assertEqual({'a': None, 'c': 50, 'd': None}, self.inherited())
        self.delete('c')
        self.assertEqual(1060 + 50 + 70 + 90, self.used_bytes())
        self.assertEqual({'a': None, 'd': 120}, self.inherited())
        self.delete('a')
        self.assertEqual(1060, self.used_bytes())

    def test_nothing_is_kept_without_a_copy_before(self):
        self.delete('a')
        self.delete('d')
        self.assertEqual({'b': None, 'c': None}, self.inherited())
        self.assertEqual(1040 + 70, self.used_bytes())

    def test_copies_of_other_images_do_not_count_it(self):
        other = image_types.SnapshotRef('vault', 'other', 'snapshot')
        self.take('e', copy=True)
        claim = self.begin(Role.COPY, 'e')
        self.results.begin_copying(claim, other)
        self.results.record_copied(claim, 7, 1.0, 2000)
        self.records.claims.release(claim)
        self.delete('d')
        self.assertEqual({'a': None, 'b': None, 'c': None, 'e': None}, self.inherited())

    def test_a_copy_that_is_made_again_inherits_nothing(self):
        self.delete('b')
        claim = self.begin(Role.VERIFY, 'c')
        self.results.replace_copy(claim, 'it was damaged')
        self.assertEqual({'a': None, 'd': 120}, self.inherited())
        self.assertIsNone(self.records.get('c').inherited_bytes)

    def test_a_worker_that_has_lost_its_claim_changes_nothing(self):
        claim = self.begin(Role.VERIFY, 'b')
        self.records.claims.release(claim)
        before = self.records.all()
        self.assertRaises(exceptions.ClaimLostError, self.results.replace_copy, claim, 'why')
        self.assertRaises(exceptions.ClaimLostError, self.results.clear_copy, claim)
        self.assertEqual(before, self.records.all())


class VaultBytesTest(base.BaseTestCase):
    """The bound on a project's copies: the latest of each image plus what the others moved."""

    def copied(self, number, image, moved, used, **facts):
        at = datetime.datetime(2026, 1, number)
        values = {'vault_pool': 'vault', 'vault_image': image, 'snapshot_at': at}
        values |= {'moved_bytes': moved, 'used_bytes': used}
        return backup_record.BackupRecord(
            f'b{number}', 'instance', 'project', RecordState.COPIED, at, at, **values | facts
        )

    def test_shared_objects_count_once(self):
        first = self.copied(1, 'i', 1000, 1000)
        second = self.copied(2, 'i', 50, 1010)
        third = self.copied(3, 'i', 70, 1040)
        self.assertEqual(0, work_queue.vault_bytes([]))
        self.assertEqual(1000, work_queue.vault_bytes([first]))
        self.assertEqual(1040 + 50 + 70, work_queue.vault_bytes([third, first, second]))
        # Without the first copy, the second one holds the shared objects.
        self.assertEqual(1040 + 70, work_queue.vault_bytes([second, third]))
        other = self.copied(4, 'another', 300, 300)
        self.assertEqual(1300, work_queue.vault_bytes([first, other]))

    def test_bases_decide_the_order_within_a_second(self):
        """The times of the database have whole seconds."""
        at = {'snapshot_at': datetime.datetime(2026, 1, 1)}
        first = self.copied(9, 'i', 1000, 1000, **at)
        second = self.copied(8, 'i', 50, 1010, copy_base_id='b9', **at)
        third = self.copied(7, 'i', 70, 1040, copy_base_id='b8', **at)
        self.assertEqual(1040 + 50 + 70, work_queue.vault_bytes([third, second, first]))
        # The base of the second copy is deleted.
        self.assertEqual(1040 + 70, work_queue.vault_bytes([third, second]))
        later = self.copied(10, 'i', 5, 1041, copy_base_id='b7')
        self.assertEqual(1041 + 70 + 5, work_queue.vault_bytes([later, third, second]))

    def test_size_of_the_volume_counts_if_usage_is_unknown(self):
        found = work_queue.vault_bytes([self.copied(1, 'i', None, None, size_bytes=4096)])
        self.assertEqual(4096, found)
