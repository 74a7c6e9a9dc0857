# SPDX-License-Identifier: Apache-2.0
"""trove_ceph's tables in a real MySQL, with several concurrent writers."""

import concurrent.futures
import datetime

from oslo_db.sqlalchemy import enginefacade

from trove_ceph import exceptions
from trove_ceph.db import backups, claims, guests, migration, policies, transactions
from trove_ceph.db.guest_record import GuestState
from trove_ceph.db.policy_record import PolicyRunState, Retention, Scope
from trove_ceph.db.roles import Role
from trove_ceph.tests.contract import claims_migration, migration_data
from trove_ceph.tests.functional import base, mysqld
from trove_ceph.tests.unit.db import guest_helpers

DUE_AT = datetime.datetime(2026, 3, 1)
WRITERS = 8
ROUNDS = 15


class MySqlTestCase(base.FunctionalTestCase):
    """A test with an empty database in a real MySQL."""

    def setUp(self):
        super().setUp()
        volume = self.directory / 'volume'
        volume.mkdir()
        server = mysqld.durable_server(volume, self.directory / 'run')
        server.ensure_initialised()
        self.enterContext(server)
        server.query('CREATE DATABASE trove CHARACTER SET utf8mb4')
        facade = enginefacade.transaction_context()
        facade.configure(
            connection=f'mysql+pymysql://root@localhost/trove?unix_socket={server.socket}',
            max_pool_size=WRITERS,
        )
        self.facade = facade
        self.engine = facade.writer.get_engine()
        self.addCleanup(self.engine.dispose)


class ClaimsMigrationOnMySqlTest(claims_migration.ClaimsMigrationContract, MySqlTestCase):
    """The same tests as on SQLite."""


@base.long
class MigrationDataOnMySqlTest(migration_data.MigrationDataContract, MySqlTestCase):
    """The same tests as on SQLite."""


class TablesOnMySqlTest(MySqlTestCase):
    def setUp(self):
        super().setUp()
        for _again in range(2):
            migration.upgrade(self.engine)
        self.policies = policies.PolicyStore(transactions.Transactions(self.facade))
        self.records = backups.BackupStore(self.facade)

    def at_once(self, what):
        """Return the results of a function that all writers call at once."""
        with concurrent.futures.ThreadPoolExecutor(WRITERS) as executor:
            return list(executor.map(what, range(WRITERS)))

    def add(self, scope=Scope.TIER):
        return self.policies.add('hourly', scope, 'nvme', interval_min=60, keep=Retention(last=1))

    def test_one_worker_gets_a_run(self):
        policy = self.add()
        before = None
        for number in range(ROUNDS):
            due_at = DUE_AT + datetime.timedelta(hours=number)

            def begin(writer, before=before, due_at=due_at):
                name = f'{due_at:%H}-{writer}'
                worker = claims.Claimant(f'worker-{writer}')
                return self.policies.begin(policy, 'instance', due_at, name, before, worker)

            (begun,) = filter(None, self.at_once(begin))
            self.assertEqual(begun.backup_name, self.policies.runs()['instance'].backup_name)
            self.policies.record_requested(begun, f'backup-{number}')
            run = self.policies.runs()['instance']
            ended = self.at_once(lambda _writer, run=run: self.policies.record_done(run))
            self.assertEqual(1, ended.count(True))
            before = self.policies.runs()['instance']
        self.assertEqual((PolicyRunState.DONE, ROUNDS), (before.state, before.count))
        numbers = [one.number for one in self.policies.backups_of('instance')]
        self.assertEqual((ROUNDS, sorted(numbers)), (len(numbers), numbers))

    def test_one_worker_gets_a_claim(self):
        workers = [claims.Claimant(f'worker-{number}') for number in range(WRITERS)]
        claim = self.records.begin_taking('b', 'instance', 'project', workers[0])
        self.records.record_taken(claim, 's', 'c', 1.0, copy=True)
        for _round in range(ROUNDS):
            record = self.records.get('b')
            taken = self.at_once(
                lambda writer, record=record: self.records.queue.begin(
                    Role.COPY, record, workers[writer]
                )
            )
            (claim,) = filter(None, taken)
            self.assertEqual({claim}, self.records.claims.heartbeat_all([claim]))
            self.assertEqual(1, self.at_once(self.heartbeat_of(claim)).count(True) // WRITERS)
            self.records.claims.release(claim)
        with self.records._transactions.reading() as session:
            now = self.records._transactions.database_time(session)
        self.assertLess(abs(now - transactions.utcnow()), datetime.timedelta(minutes=5))

    def heartbeat_of(self, claim):
        return lambda _writer: self.records.claims.heartbeat(claim)

    def test_one_worker_takes_a_backup(self):
        """For several messages about the same backup that arrive at the same time."""

        def begin(writer):
            worker = claims.Claimant(f'worker-{writer}')
            try:
                return self.records.begin_taking('b', 'instance', 'project', worker)
            except exceptions.ClaimLostError:
                return None

        (claim,) = filter(None, self.at_once(begin))
        self.assertEqual(claim.token, self.records.get('b').claim_token)

    def test_one_policy_for_each_target(self):
        def add(_writer):
            try:
                return self.add()
            except exceptions.RecordExistsError:
                return None

        (policy,) = filter(None, self.at_once(add))
        self.assertEqual([policy], self.policies.all())
        self.add(Scope.DATASTORE)

    def test_each_instance_gets_another_guest(self):
        store = guests.GuestStore(transactions.Transactions(self.facade))
        begun = store.now()
        for number in range(ROUNDS):
            ready = {f'{number}-{guest}' for guest in range(WRITERS // 2)}
            for guest_id in ready:
                store.add(guest_helpers.record(guest_id, begun))
                store.mark_ready(guest_id, 'host')
            claimed = self.at_once(
                lambda writer: store.claim(guest_helpers.KEY, f'instance-{writer}')
            )
            taken = [one.guest_id for one in claimed if one is not None]
            self.assertEqual(sorted(ready), sorted(taken))
        self.assertEqual(ROUNDS * WRITERS, store.requests_since(guest_helpers.POOL, begun))
        bound = self.at_once(
            lambda _writer: store.mark_bound(taken[0], claimed_by(store, taken[0]))
        )
        self.assertEqual([None] * WRITERS, bound)
        self.assertEqual(1, self.at_once(lambda _w: store.retire(taken[0], 'why')).count(True))
        self.assertEqual(GuestState.RETIRED, store.find(taken[0]).state)

    def test_one_taskmanager_keeps_a_pool(self):
        store = guests.GuestStore(transactions.Transactions(self.facade))
        store.claims.release(store.begin_keeping('pool', claims.Claimant('first')))
        for _round in range(ROUNDS):
            taken = self.at_once(
                lambda writer: store.begin_keeping('pool', claims.Claimant(f'worker-{writer}'))
            )
            (claim,) = filter(None, taken)
            store.claims.release(claim)


def claimed_by(store, guest_id):
    """Return the instance that has claimed a guest."""
    return store.find(guest_id).instance_id
