# SPDX-License-Identifier: Apache-2.0
"""Our tables in a real MySQL, with several who write at once."""

import concurrent.futures
import datetime

from oslo_db.sqlalchemy import enginefacade

from trove_ceph import exceptions
from trove_ceph.db import migration, policies, transactions
from trove_ceph.db.policy_record import PolicyRunState, Retention, Scope
from trove_ceph.tests.functional import base, mysqld

DUE_AT = datetime.datetime(2026, 3, 1)
WRITERS = 8
ROUNDS = 15


class TablesOnMySqlTest(base.FunctionalTestCase):
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
        self.engine = facade.writer.get_engine()
        self.addCleanup(self.engine.dispose)
        for _again in range(2):
            migration.upgrade(self.engine)
        self.policies = policies.PolicyStore(transactions.Transactions(facade))

    def at_once(self, what):
        """Return what came of it, done by all writers at once."""
        with concurrent.futures.ThreadPoolExecutor(WRITERS) as executor:
            return list(executor.map(what, range(WRITERS)))

    def add(self, scope=Scope.TIER):
        return self.policies.add('hourly', scope, 'nvme', interval_min=60, keep=Retention(last=1))

    def test_one_alone_has_a_run(self):
        policy = self.add()
        before = None
        for number in range(ROUNDS):
            due_at = DUE_AT + datetime.timedelta(hours=number)

            def begin(writer, before=before, due_at=due_at):
                name = f'{due_at:%H}-{writer}'
                return self.policies.begin(policy, 'instance', due_at, name, before)

            (begun,) = filter(None, self.at_once(begin))
            self.assertEqual(begun.backup_name, self.policies.runs()['instance'].backup_name)
            self.policies.note_asked(begun, f'backup-{number}')
            asked = self.policies.runs()['instance']
            ended = self.at_once(lambda _writer, asked=asked: self.policies.note_done(asked))
            self.assertEqual(1, ended.count(True))
            before = self.policies.runs()['instance']
        self.assertEqual((PolicyRunState.DONE, ROUNDS), (before.state, before.count))
        numbers = [one.number for one in self.policies.backups_of('instance')]
        self.assertEqual((ROUNDS, sorted(numbers)), (len(numbers), numbers))

    def test_one_policy_for_each_target(self):
        def add(_writer):
            try:
                return self.add()
            except exceptions.AlreadyExistsError:
                return None

        (made,) = filter(None, self.at_once(add))
        self.assertEqual([made], self.policies.all())
        self.add(Scope.DATASTORE)
