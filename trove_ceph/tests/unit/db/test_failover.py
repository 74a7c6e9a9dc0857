# SPDX-License-Identifier: Apache-2.0
"""The stores of automatic failover: policies and the watch."""

import datetime

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import claims, failover_policies, failover_watch, transactions
from trove_ceph.db.failover_record import FailoverWatch, Preference
from trove_ceph.db.policy_record import Scope
from trove_ceph.tests.unit.db import database

_DATABASE = database.Shared()


class _StoreTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = datetime.datetime(2026, 1, 1)
        self.transactions = transactions.Transactions(_DATABASE.emptied(), lambda: self.now)

    def pass_time(self, seconds):
        self.now += datetime.timedelta(seconds=seconds)


class FailoverPolicyStoreTest(_StoreTestCase):
    def setUp(self):
        super().setUp()
        self.store = failover_policies.FailoverPolicyStore(self.transactions)

    def test_adds_changes_and_removes(self):
        one = self.store.add(Scope.INSTANCE, 'instance', project_id='project')
        self.assertEqual((True, 'project'), (one.enabled, one.project_id))
        self.assertIs(Preference.VOLUME, one.prefer)
        self.pass_time(1)
        two = self.store.add(Scope.DATASTORE, 'mysql/8.4', enabled=False, prefer=Preference.REPLICA)
        self.assertEqual([one, two], self.store.all())
        self.store.change(one.policy_id, enabled=False)
        changed = self.store.find(one.policy_id)
        self.assertEqual((False, self.now), (changed.enabled, changed.updated_at))
        self.store.change(one.policy_id, prefer=Preference.REPLICA)
        changed = self.store.find(one.policy_id)
        self.assertEqual((False, Preference.REPLICA), (changed.enabled, changed.prefer))
        for _again in range(2):
            self.store.remove(one.policy_id)
        self.assertEqual([two], self.store.all())
        self.assertIsNone(self.store.find(one.policy_id))

    def test_a_target_has_one_policy(self):
        self.store.add(Scope.DATASTORE, 'mysql')
        error = self.assertRaises(
            exceptions.RecordExistsError, self.store.add, Scope.DATASTORE, 'mysql'
        )
        self.assertIn('datastore mysql has a failover policy', str(error))
        self.assertEqual(1, len(self.store.all()))

    def test_disables_an_instance_that_has_a_policy(self):
        policy = self.store.add(Scope.INSTANCE, 'one', prefer=Preference.REPLICA)
        self.pass_time(1)
        self.store.add(Scope.INSTANCE, 'two')
        for _again in range(2):
            self.store.disable('one', 'project')
        found = self.store.find(policy.policy_id)
        self.assertEqual((False, Preference.REPLICA), (found.enabled, found.prefer))
        self.assertEqual([False, True], [one.enabled for one in self.store.all()])

    def test_disables_an_instance_without_a_policy(self):
        self.store.add(Scope.DATASTORE, 'mysql')
        self.pass_time(1)
        for _again in range(2):
            self.store.disable('one', 'project')
        of_datastore, own = self.store.all()
        self.assertTrue(of_datastore.enabled)
        self.assertEqual(
            (Scope.INSTANCE, 'one', 'project', False),
            (own.scope, own.target, own.project_id, own.enabled),
        )

    def test_lacking_tables(self):
        empty = transactions.Transactions(database.facade(':memory:'))
        store = failover_policies.FailoverPolicyStore(empty)
        error = self.assertRaises(exceptions.ServiceUnavailableError, store.all)
        self.assertIn('db sync', str(error))


class FailoverWatchStoreTest(_StoreTestCase):
    def setUp(self):
        super().setUp()
        self.store = failover_watch.FailoverWatchStore(self.transactions)

    def test_one_worker_watches(self):
        self.assertEqual(FailoverWatch(), self.store.read())
        first, second = (claims.Claimant(name) for name in ('first', 'second'))
        claim = self.store.begin_watching(first)
        self.assertIsNone(self.store.begin_watching(second))
        self.assertEqual(('first', self.now), self._claim())
        self.pass_time(46)
        self.assertIsNotNone(self.store.begin_watching(second))
        self.assertEqual(('second', self.now), self._claim())
        self.store.record_report(claim, {'hold': None})
        self.assertIsNone(self.store.read().report)

    def _claim(self):
        found = self.store.read()
        return found.claimed_by, found.heartbeat_at

    def test_the_report_of_the_last_round(self):
        claim = self.store.begin_watching(claims.Claimant('worker'))
        self.store.record_report(claim, {'hold': 'maintenance'})
        self.pass_time(10)
        self.store.record_report(claim, {'hold': None})
        found = self.store.read()
        self.assertEqual(({'hold': None}, self.now), (found.report, found.reported_at))

    def test_a_failed_round_is_no_report(self):
        """The age of the report shows that nothing is watched."""
        claim = self.store.begin_watching(claims.Claimant('worker'))
        self.store.record_failure(claim, {'hold': 'the last round failed'})
        began = self.now
        self.assertEqual(began, self.store.read().reported_at)
        self.pass_time(10)
        self.store.record_failure(claim, {'hold': 'the last round failed again'})
        found = self.store.read()
        self.assertEqual('the last round failed again', found.report['hold'])
        self.assertEqual(began, found.reported_at)

    def test_maintenance(self):
        self.store.set_maintenance('new switch')
        began = self.now
        found = self.store.read()
        self.assertEqual(('new switch', began), (found.maintenance, found.maintenance_since))
        self.store.begin_watching(claims.Claimant('worker'))
        self.assertEqual('new switch', self.store.read().maintenance)
        self.store.set_maintenance(None)
        found = self.store.read()
        self.assertEqual((None, None), (found.maintenance, found.maintenance_since))
