# SPDX-License-Identifier: Apache-2.0
"""Migrate rows of version 0003, in which the names of workers contain their roles, to claims."""

import datetime

import sqlalchemy as sa

from trove_ceph.db import backups, claims, migration, policies, transactions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.policy_record import PolicyRunState
from trove_ceph.db.roles import Role

SEEN_AT = datetime.datetime(2026, 1, 1, 12)
RETRY_AT = datetime.datetime(2026, 1, 1, 13)
MINUTE = datetime.timedelta(minutes=1)


class ClaimsMigrationContract:
    """Mix into a test case with ``engine``, of an empty database, and its ``facade``."""

    def fill_old_tables(self):
        migration.upgrade(self.engine, '0003')
        for backup_id, facts in {
            'idle': {},
            'taking': {'state': 'taking', 'worker': 'host:7:taking'},
            'copying': {'worker': 'host:7:wishes', 'copy_wanted_at': SEEN_AT},
            'verifying': {'worker': 'host:7:wishes', 'verify_wanted_at': SEEN_AT},
            'deleting': {'state': 'deleting', 'worker': 'host:7'},
            'uncopied': {'copy_wanted_at': SEEN_AT, 'failures': 3, 'retry_at': RETRY_AT},
            'unverified': {'verify_wanted_at': SEEN_AT, 'failures': 2, 'retry_at': RETRY_AT},
        }.items():
            known = {'backup_id': backup_id, 'instance_id': 'i', 'project_id': 'p'}
            times = {'created_at': SEEN_AT, 'updated_at': SEEN_AT, 'seen_at': SEEN_AT}
            self.insert('trove_ceph_backups', {'state': 'taken'} | known | times | facts)
        run = {'instance_id': 'i', 'policy_id': 'p', 'state': 'begun', 'backup_name': 'hourly-1'}
        run |= {'attempts': 0, 'count': 4, 'due_at': SEEN_AT, 'seen_at': SEEN_AT}
        self.insert('trove_ceph_policy_runs', run)

    def test_claims_are_migrated_back(self):
        self.fill_old_tables()
        before = self.old_rows()
        migration.upgrade(self.engine, '0004')
        migration.downgrade(self.engine, '0003')
        self.assertEqual(before, self.old_rows())

    def test_a_run_without_a_claim_is_migrated_back(self):
        migration.upgrade(self.engine, '0004')
        run = {'instance_id': 'i', 'policy_id': 'p', 'state': 'begun', 'backup_name': 'hourly-1'}
        self.insert('trove_ceph_policy_runs', run | {'attempts': 0, 'count': 4, 'due_at': SEEN_AT})
        migration.downgrade(self.engine, '0003')
        ((_, [found]),) = self.old_rows(['trove_ceph_policy_runs']).items()
        self.assertEqual(SEEN_AT, found['seen_at'])

    def old_rows(self, names=('trove_ceph_backups', 'trove_ceph_policy_runs')):
        """Return all rows of the tables with claims."""
        rows = {}
        with self.engine.connect() as connection:
            for name in names:
                table = sa.Table(name, sa.MetaData(), autoload_with=connection)
                found = connection.execute(sa.select(table)).mappings()
                rows[name] = sorted((dict(row) for row in found), key=str)
        return rows

    def insert(self, table, values):
        found = sa.Table(table, sa.MetaData(), autoload_with=self.engine)
        with self.engine.begin() as connection:
            connection.execute(sa.insert(found).values(**values))

    def test_rows_are_migrated(self):
        self.fill_old_tables()
        migration.upgrade(self.engine)
        now = [SEEN_AT + datetime.timedelta(seconds=10)]
        store = backups.BackupStore(self.facade, lambda: now[0])
        found = {
            one.backup_id: (one.claim_role, one.claimed_by) for one in store.all() if one.claimed_by
        }
        expected = {
            'taking': (Role.TAKE, 'host:7'),
            'copying': (Role.COPY, 'host:7'),
            'verifying': (Role.VERIFY, 'host:7'),
            'deleting': (Role.DELETE, 'host:7'),
        }
        self.assertEqual(expected, found)
        self.assertEqual({SEEN_AT}, {one.heartbeat_at for one in store.all()})
        uncopied, unverified = store.get('uncopied'), store.get('unverified')
        self.assertEqual((3, RETRY_AT), (uncopied.copy_failures, uncopied.copy_retry_at))
        self.assertEqual((None, None), (uncopied.verify_failures, uncopied.verify_retry_at))
        self.assertEqual((2, RETRY_AT), (unverified.verify_failures, unverified.verify_retry_at))
        # Work can be resumed only after its worker must have died.
        worker = claims.Claimant('new')
        self.assertEqual([], store.list_interrupted(worker))
        now[0] += MINUTE
        listed = {one.backup_id for one in store.list_interrupted(worker)}
        self.assertEqual({'taking', 'deleting'}, listed)
        store.record_taken(store.claims.claim(Role.TAKE, 'taking', worker), 's', 'c', 1.0)
        self.assertEqual(RecordState.TAKEN, store.get('taking').state)
        due = [one.backup_id for one in store.queue.list_due(Role.VERIFY, worker)]
        self.assertEqual(['verifying'], due)
        self.assertIsNotNone(store.queue.begin(Role.COPY, store.get('copying'), worker))
        known = policies.PolicyStore(transactions.Transactions(self.facade, lambda: now[0]))
        run = known.runs()['i']
        self.assertEqual((PolicyRunState.BEGUN, 4, None), (run.state, run.count, run.claimed_by))
        resumed = known.resume(run, worker)
        self.assertEqual('backup', known.record_requested(resumed, 'backup').backup_id)
