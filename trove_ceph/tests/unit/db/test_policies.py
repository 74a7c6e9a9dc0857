# SPDX-License-Identifier: Apache-2.0
import datetime

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import backups, claims, policies, tables, transactions
from trove_ceph.db.policy_record import PolicyRunState, Retention, Scope
from trove_ceph.tests.unit.db import database

INSTANCE = 'instance'
LONG = datetime.timedelta(days=1)
ONE, TWO = claims.Claimant('one'), claims.Claimant('two')


class PoliciesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = datetime.datetime(2026, 1, 1)
        path = self.useFixture(fixtures.TempDir()).join('trove.sqlite')
        self.facade = database.with_tables(path)
        self.policies = policies.PolicyStore(
            transactions.Transactions(self.facade, lambda: self.now)
        )

    def add(self, name='nightly', scope=Scope.INSTANCE, target=INSTANCE, **values):
        self.now += datetime.timedelta(seconds=1)
        facts = {'interval_min': 60, 'keep': Retention(last=3)}
        return self.policies.add(name, scope, target, **facts | values)

    def begin(self, policy, name, before=None, worker=ONE):
        return self.policies.begin(policy, INSTANCE, self.now, name, before, worker)

    def run_of(self, instance_id=INSTANCE):
        return self.policies.runs().get(instance_id)

    def test_finds_an_added_policy(self):
        made = self.add(
            project_id='project',
            at='02:30',
            timezone='Europe/Berlin',
            keep=Retention(1, 2, 3, 4, 5),
            copy_every=1,
            verify_every=7,
            quiesce='ddl',
        )
        self.assertEqual(made, self.policies.find(made.policy_id))
        self.assertEqual([made], self.policies.all())
        self.assertIsNone(self.policies.find('other'))

    def test_one_policy_for_each_target(self):
        made = self.add()
        error = self.assertRaises(exceptions.RecordExistsError, self.add, 'other')
        self.assertIn('instance instance', str(error))
        # The same target in another scope is another target.
        self.add(scope=Scope.TIER)
        self.policies.remove(made.policy_id)
        self.add('other')

    def test_lists(self):
        mine = [self.add(target=f'i{n}', project_id='mine') for n in range(2)]
        others = [self.add(target='i2', project_id='theirs'), self.add(scope=Scope.TIER)]
        self.assertEqual(mine, self.policies.of_project('mine'))
        self.assertEqual(mine + others, self.policies.all())

    def test_changes(self):
        made = self.add()
        self.now += LONG
        self.policies.change(made.policy_id, enabled=False, keep=Retention(daily=7), at='03:00')
        found = self.policies.find(made.policy_id)
        self.assertEqual(
            (False, Retention(daily=7), '03:00'), (found.enabled, found.keep, found.at)
        )
        self.assertEqual((made.created_at, self.now), (found.created_at, found.updated_at))
        self.policies.request_run(made.policy_id)
        self.assertEqual(self.now, self.policies.find(made.policy_id).run_wanted_at)

    def test_only_one_worker_begins_a_run(self):
        policy = self.add()
        first = self.begin(policy, 'a')
        self.assertEqual(first, self.run_of())
        self.assertIsNone(self.begin(policy, 'b', worker=TWO))
        requested = self.policies.record_requested(first, 'backup-a')
        self.assertEqual(requested, self.run_of())
        self.assertTrue(self.policies.record_done(requested))
        done = self.run_of()
        # Both workers have read the same previous run.
        second = self.begin(policy, 'c', done)
        self.assertIsNone(self.begin(policy, 'd', done))
        self.assertEqual(second, self.run_of())
        self.assertEqual(1, second.count)

    def test_life_of_a_run(self):
        policy = self.add()
        self.begin(policy, 'a')
        self.policies.record_requested(self.run_of(), 'backup-a')
        requested = self.run_of()
        self.assertEqual(
            (PolicyRunState.REQUESTED, 'backup-a'), (requested.state, requested.backup_id)
        )
        retry_at = self.now + LONG
        self.assertTrue(self.policies.record_failed(requested, 'no space', retry_at))
        self.assertFalse(self.policies.record_failed(requested, 'no space', retry_at))
        self.assertFalse(self.policies.record_done(requested))
        failed = self.run_of()
        self.assertEqual(
            (PolicyRunState.FAILED, 1, 'no space', retry_at, 0),
            (failed.state, failed.attempts, failed.error, failed.retry_at, failed.count),
        )
        self.begin(policy, 'b', failed)
        # The error of the last failure is shown until a backup succeeds.
        self.assertEqual(('no space', 1), (self.run_of().error, self.run_of().attempts))
        self.policies.record_requested(self.run_of(), 'backup-b')
        self.policies.record_done(self.run_of())
        done = self.run_of()
        self.assertEqual((None, 0, 1), (done.error, done.attempts, done.count))
        self.assertEqual([done], self.policies.runs_of(policy.policy_id))
        self.assertEqual([], self.policies.runs_of('other'))
        self.policies.delete_run(INSTANCE)
        self.assertEqual({}, dict(self.policies.runs()))

    def test_only_one_worker_resumes_a_run(self):
        begun = self.begin(self.add(), 'a')
        self.assertIsNone(self.policies.resume(begun, TWO))
        self.now += LONG
        resumed = self.policies.resume(begun, TWO)
        self.assertEqual('two', resumed.claimed_by)
        self.assertIsNone(self.policies.resume(begun, ONE))
        # Writes of the first worker, which was only slow, are refused.
        self.assertIsNone(self.policies.record_requested(begun, 'backup-b'))
        self.assertFalse(self.policies.record_failed(begun, 'late', self.now))
        self.assertEqual([], self.policies.backups_of(INSTANCE))
        self.policies.record_requested(resumed, 'backup-a')
        found = self.run_of()
        self.assertEqual((PolicyRunState.REQUESTED, None), (found.state, found.claimed_by))

    def test_backups_of_policies(self):
        policy = self.add()
        run = None
        for name in 'ab':
            begun = self.begin(policy, name, run)
            self.policies.record_requested(begun, name)
            # A late repetition adds no second row.
            self.policies.record_requested(begun, name)
            self.policies.record_done(self.run_of())
            run = self.run_of()
        first, second = self.policies.backups_of(INSTANCE)
        self.assertEqual(('a', 'b'), (first.backup_id, second.backup_id))
        self.assertLess(first.number, second.number)
        self.assertEqual([], self.policies.backups_of('other'))
        self.assertEqual({'a': policy.policy_id}, self.policies.policies_of(['a', 'manual']))
        self.policies.request_removal('a')
        self.assertEqual(self.now, self.policies.backups_of(INSTANCE)[0].removal_wanted_at)
        self.policies.delete_backup_row('a')
        self.assertEqual([second], self.policies.backups_of(INSTANCE))

    def test_knows_the_backup_of_a_lost_run(self):
        policy = self.add()
        begun = self.begin(policy, 'a')
        self.now += LONG
        resumed = self.policies.resume(begun, TWO)
        for _again in range(2):
            self.policies.ensure_backup(begun, 'backup-a')
        (found,) = self.policies.backups_of(INSTANCE)
        self.assertEqual(
            ('backup-a', policy.policy_id, self.now),
            (found.backup_id, found.policy_id, found.taken_at),
        )
        # The worker that has resumed the run finds the same backup.
        requested = self.policies.record_requested(resumed, 'backup-a')
        self.assertEqual(PolicyRunState.REQUESTED, requested.state)
        self.assertEqual([found], self.policies.backups_of(INSTANCE))

    def test_the_clock_of_the_database_dates_backups(self):
        clocks = (lambda: self.now + LONG, lambda: self.now)
        self.policies = policies.PolicyStore(transactions.Transactions(self.facade, *clocks))
        self.policies.record_requested(self.begin(self.add(), 'a'), 'a')
        (found,) = self.policies.backups_of(INSTANCE)
        self.assertEqual(self.now, found.taken_at)
        self.assertEqual(self.now, self.policies.database_time())

    def test_prunes_backups_without_a_record(self):
        store = backups.BackupStore(self.facade, lambda: self.now)
        policy, run = self.add(), None
        for name in 'ab':
            self.begin(policy, name, run)
            self.policies.record_requested(self.run_of(), name)
            self.policies.record_done(self.run_of())
            run = self.run_of()
        store.begin_taking('a', INSTANCE, 'project', ONE)
        self.policies.prune_backups(self.now)
        self.assertEqual(2, len(self.policies.backups_of(INSTANCE)))
        self.now += LONG
        self.policies.prune_backups(self.now)
        self.assertEqual(['a'], [one.backup_id for one in self.policies.backups_of(INSTANCE)])

    def test_numbers_are_not_used_again(self):
        """The numbers give the order of backups."""
        self.assertTrue(tables.PolicyBackupRow.__table__.dialect_options['sqlite']['autoincrement'])

    def test_missing_tables(self):
        path = self.useFixture(fixtures.TempDir()).join('empty.sqlite')
        empty = policies.PolicyStore(transactions.Transactions(database.facade(path)))
        error = self.assertRaises(exceptions.ServiceUnavailableError, empty.all)
        self.assertIn('trove-ceph-manage db sync', str(error))
