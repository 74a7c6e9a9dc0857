# SPDX-License-Identifier: Apache-2.0
"""How a guest agent has a server follow, stop following, and follow again."""

import json

import fixtures
import pymysql
from oslotest import base
from pymysql.constants import CR, ER
from trove.common.db.mysql import models as mysql_models

from trove_ceph import exceptions
from trove_ceph.guestagent import persisted_options, read_only, replication, replication_user
from trove_ceph.tests.unit.guestagent import replication_world, server_world

REPLICA_ID = '01234567-89ab-cdef-0123-456789abcdef'
CONTEXT = {
    'master': {'host': '192.0.2.1', 'port': 3306},
    'replica_conf': {'replication_user': {'name': 'slave_0123456789', 'password': 'Secret-1'}},
}
IDLE = {'Replica_IO_Running': 'No', 'Replica_SQL_Running': 'No'}


class ReplicationTestCase(base.BaseTestCase):
    """The test has the clock of the strategy."""

    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.logged = self.useFixture(fixtures.FakeLogger())
        self.strategy = replication.CloneReplication(lambda: self.now, self.sleep)
        self.app = replication_world.App()
        self.overrides = self.app.configuration_manager.overrides

    def sleep(self, seconds):
        self.now += seconds

    def replicate(self, **columns):
        """Make the server a replica that follows."""
        self.app.follow(**columns)
        self.app.super_read_only = 1
        self.strategy.enable_as_slave(self.app, CONTEXT, '')


class FollowingTest(ReplicationTestCase):
    def test_refuses_writes_before_it_follows(self):
        self.replicate()
        verbs = [statement.partition(' TO ')[0] for statement, _ in self.app.statements]
        refused = verbs.index('SET GLOBAL super_read_only = ON')
        stopped = verbs.index('SET GLOBAL event_scheduler = OFF')
        follows = verbs.index('CHANGE REPLICATION SOURCE')
        self.assertTrue(refused < stopped < follows < verbs.index('START REPLICA'), verbs)
        self.assertEqual({'mysqld': read_only.REPLICA_OPTIONS}, self.overrides['slave-replication'])

    def test_follows_by_its_own_position_with_tls(self):
        self.replicate()
        ((statement, arguments),) = self.app.executed('CHANGE REPLICATION SOURCE')
        self.assertEqual(('192.0.2.1', 3306, 'slave_0123456789', 'Secret-1'), arguments)
        for option in (
            *('SOURCE_AUTO_POSITION = 1', 'SOURCE_SSL = 1', 'GET_SOURCE_PUBLIC_KEY = 1'),
            'SOURCE_HEARTBEAT_PERIOD = 2',
        ):
            self.assertIn(option, statement)
        self.assertNotIn('Secret-1', self.logged.output)

    def test_server_that_accepts_writes_never_follows(self):
        self.app.follow()
        self.assertRaises(
            exceptions.ServerFailedError, self.strategy.connect_to_master, self.app, CONTEXT
        )
        self.assertEqual([], self.app.executed('CHANGE'))

    def test_replica_that_gives_up(self):
        self.app.follow(Last_IO_Error='Got fatal error 1236', Replica_IO_Running='No')
        self.app.super_read_only = 1
        self.app.errors = {}
        self.app._rows = self._without_start(self.app._rows)
        error = self.assertRaises(
            exceptions.ServerFailedError, self.strategy.connect_to_master, self.app, CONTEXT
        )
        self.assertIn('192.0.2.1: Got fatal error 1236', str(error))
        self.assertEqual(0.0, self.now)

    def test_replica_that_does_not_connect(self):
        self.app.follow(Last_IO_Error='Connection refused', Replica_IO_Running='Connecting')
        self.app.super_read_only = 1
        self.app._rows = self._without_start(self.app._rows)
        error = self.assertRaises(
            exceptions.ServerFailedError, self.strategy.connect_to_master, self.app, CONTEXT
        )
        self.assertIn('Connection refused', str(error))
        self.assertEqual(replication.CONNECT_TIMEOUT_SEC, self.now)

    def test_source_refuses_right_after_the_connection(self):
        """The receiver runs for some milliseconds, without a position in a binary log."""
        self.app.follow(Source_Log_File='')
        self.app.super_read_only = 1
        channel = self.app.channel

        def refuse(seconds):
            self.sleep(seconds)
            channel.update(Last_IO_Error='Got fatal error 1236', Replica_IO_Running='No')

        strategy = replication.CloneReplication(lambda: self.now, refuse)
        error = self.assertRaises(
            exceptions.ServerFailedError, strategy.connect_to_master, self.app, CONTEXT
        )
        self.assertIn('Got fatal error 1236', str(error))

    def _without_start(self, rows):
        return lambda statement: [] if statement == 'START REPLICA' else rows(statement)

    def test_statement_that_does_not_end(self):
        self.app.errors['SET GLOBAL super'] = pymysql.OperationalError(ER.LOCK_WAIT_TIMEOUT, '')
        self.assertRaises(
            exceptions.NotQuiescedError, self.strategy.enable_as_slave, self.app, CONTEXT, ''
        )
        self.assertEqual(({}, []), (self.overrides, self.app.executed('CHANGE')))
        self.assertEqual(1, len(self.app.executed('SET GLOBAL read_only = OFF')))

    def test_server_that_was_read_only_stays_so_if_a_statement_does_not_end(self):
        self.app.read_only = 1
        self.app.errors['SET GLOBAL super'] = pymysql.OperationalError(ER.LOCK_WAIT_TIMEOUT, '')
        self.assertRaises(exceptions.NotQuiescedError, read_only.refuse_writes, self.app)
        self.assertEqual([], self.app.executed('SET GLOBAL read_only'))

    def test_persisted_options_do_not_override_those_of_a_replica(self):
        self.replicate()
        self.assertEqual(
            {f'RESET PERSIST IF EXISTS {name}' for name in read_only.REPLICA_OPTIONS},
            {statement for statement, _ in self.app.executed('RESET PERSIST')},
        )

    def test_no_backup_is_needed(self):
        self.assertFalse(self.strategy.backup_required_for_replication())


class ResumeTest(ReplicationTestCase):
    def setUp(self):
        super().setUp()
        self.replicate()

    def resumed(self):
        self.app.statements.clear()
        answer = self.strategy.resume(self.app)
        self.assertEqual(answer, bool(self.app.executed('START REPLICA')))
        return answer

    def test_after_a_restart_of_the_server(self):
        self.assertFalse(self.resumed())
        self.app.channel |= IDLE
        self.assertTrue(self.resumed())

    def test_writes_are_refused_first(self):
        """A crash may have taken its options, or its tenant may have opened it."""
        self.app.channel |= IDLE
        self.app.super_read_only = 0
        self.app.errors = {'SET GLOBAL super_read_only': pymysql.OperationalError(1205, 'writes')}
        self.assertRaises(exceptions.NotQuiescedError, self.resumed)
        self.assertEqual([], self.app.executed('START'))
        self.app.errors = {}
        self.overrides.pop(read_only.REPLICA_CHANGE_ID, None)
        self.assertTrue(self.resumed())
        statements = [statement for statement, _ in self.app.statements]
        refused = statements.index('SET GLOBAL super_read_only = ON')
        self.assertLess(refused, statements.index('START REPLICA'))
        self.assertTrue(read_only.is_configured_replica(self.app))
        self.app.channel |= IDLE
        self.app.super_read_only = 1
        self.assertTrue(self.resumed())
        self.assertEqual([], self.app.executed('SET GLOBAL super_read_only'))

    def test_not_after_an_error_or_a_request(self):
        for columns in (
            {'Last_SQL_Errno': 1062},
            {'Last_IO_Errno': 13114},
            {'Replica_SQL_Running': 'Yes'},
        ):
            self.app.follow(**(IDLE | columns))
            self.assertFalse(self.resumed(), columns)

    def test_not_under_the_identity_of_the_cloned_server(self):
        self.app.channel |= IDLE
        self.app.uuid = 'of-the-source'
        self.assertFalse(self.resumed())
        # It is the identity of the instance on a volume that it had before.
        self.strategy.follow_under_own_identity(self.app)
        self.assertEqual('Yes', self.app.channel['Replica_IO_Running'])

    def test_after_a_failed_start_on_another_root_disk(self):
        """The tenant has repaired its cause, such as an option, and restarts the server."""
        files = server_world.Files(self, [])
        path = '/data/auto.cnf'
        for content in (f'[auto]\nserver-uuid={replication_world.UUID}\n', '', 'x', '[auto]\n'):
            files.contents[path] = content
            self.overrides.clear()
            read_only.configure_replica(self.app)
            self.strategy.prepare_start(self.app, '/data')
            self.app.channel |= IDLE
            self.assertEqual(replication_world.UUID in content, self.resumed(), content)
        del files.contents[path]
        self.strategy.prepare_start(self.app, '/data')
        self.assertNotIn('replication', self.overrides)

    def test_persisted_options_do_not_open_a_replica_on_another_root_disk(self):
        """Its tenant has persisted them when it was the source."""
        files = server_world.Files(self, [])
        path = f'/data/{persisted_options.FILE}'
        persisted = {'variables': {'super_read_only': {}, 'sort_buffer_size': {}}}
        files.contents[path] = json.dumps(persisted)
        self.overrides.clear()
        self.app.database_service_uid = self.app.database_service_gid = 1001
        self.strategy.prepare_start(self.app, '/data')
        self.assertEqual(persisted, json.loads(files.contents[path]))
        read_only.configure_replica(self.app)
        self.strategy.prepare_start(self.app, '/data')
        self.assertEqual({'variables': {'sort_buffer_size': {}}}, json.loads(files.contents[path]))

    def test_identity_of_a_server_that_is_no_replica(self):
        server_world.Files(self, []).contents['/data/auto.cnf'] = '[auto]\nserver-uuid=one\n'
        self.overrides.clear()
        self.strategy.prepare_start(self.app, '/data')
        self.assertEqual({}, self.overrides)

    def test_silent_source_is_noticed_after_each_start(self):
        for _ in range(2):
            self.app.channel |= IDLE
            self.assertTrue(self.resumed())
            (statement,) = [found for found, _ in self.app.executed('SET GLOBAL replica_net')]
            self.assertIn('BETWEEN 0.001 AND 5, 10,', statement)
        options = {'mysqld': {'replica_net_timeout': 77}}
        self.app.configuration_manager.apply_system_override(options, 'of the tenant')
        self.app.channel |= IDLE
        self.assertTrue(self.resumed())
        self.assertEqual([], self.app.executed('SET GLOBAL replica_net'))

    def test_not_after_it_was_detached(self):
        self.strategy.detach_slave(self.app, True)
        self.app.channel |= IDLE
        self.assertFalse(self.resumed())

    def test_server_that_is_no_replica_has_nothing_to_follow(self):
        self.overrides.clear()
        self.app.statements.clear()
        self.strategy.follow_under_own_identity(self.app)
        self.assertEqual(([], {}), (self.app.statements, self.overrides))

    def test_a_crash_while_it_becomes_writable(self):
        """A restart keeps the decision, and a repetition still switches the events on."""
        self.app.channel = None
        self.app.events = 'OFF'
        for statement in ('SET GLOBAL read_only', 'SET GLOBAL event_scheduler'):
            self.app.errors = {statement: pymysql.OperationalError(2013, 'lost')}
            self.assertRaises(
                pymysql.OperationalError, self.strategy.enable_as_master, self.app, None
            )
            for name in ('read_only', 'super_read_only', 'event_scheduler'):
                self.assertIsNone(self.app.configuration_manager.effective(name))
        self.app.errors.clear()
        self.app.statements.clear()
        self.strategy.enable_as_master(self.app, None)
        self.assertEqual(1, len(self.app.executed('SET GLOBAL event_scheduler = ON')))
        self.assertEqual({}, {k: v for k, v in self.overrides.items() if k != 'replication'})

    def test_request_is_remembered(self):
        self.assertFalse(self.strategy.is_done(self.app, 'a-request'))
        self.strategy.set_request(self.app, 'a-request')
        self.assertTrue(self.strategy.is_done(self.app, 'a-request'))
        self.strategy.follow_under_own_identity(self.app)
        self.assertFalse(self.strategy.is_done(self.app, 'a-request'))


class SourceTest(ReplicationTestCase):
    def setUp(self):
        super().setUp()
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.guestagent.replication.CloneReplication.get_master_ref',
                lambda _self, _app, _info: {'host': '192.0.2.1', 'port': 3306},
            )
        )

    def test_context_has_a_new_password_each_time(self):
        passwords = set()
        for _ in range(2):
            context = self.strategy.get_replica_context(self.app, None, REPLICA_ID)
            user = context['replica_conf']['replication_user']
            self.assertEqual('slave_0123456789', user['name'])
            self.assertRegex(user['password'], r'\A[A-Za-z0-9_-]{28,32}\Z')
            passwords.add(user['password'])
            self.assertNotIn(user['password'], self.logged.output)
        self.assertEqual(2, len(passwords))
        self.assertEqual({'host': '192.0.2.1', 'port': 3306}, context['master'])
        for statement, _arguments in self.app.executed('CREATE') + self.app.executed('ALTER'):
            self.assertIn('REQUIRE SSL', statement)

    def test_name_without_a_replica_is_random(self):
        names = {replication_user.name_of(None) for _ in range(2)}
        self.assertEqual(2, len(names))
        for name in names:
            self.assertEqual(name, mysql_models.MySQLUser(name=name).name)
        self.assertRaises(ValueError, replication_user.name_of, "x' OR 1")

    def test_trove_lists_users_with_such_a_name(self):
        name = replication_user.name_of(REPLICA_ID)
        self.assertEqual(name, mysql_models.MySQLUser(name=name).name)

    def test_source_that_refuses_writes(self):
        self.app.super_read_only = 1
        self.assertRaises(
            exceptions.UnsafeSettingsError, self.strategy.get_replica_context, self.app, None
        )
        self.assertEqual([], self.app.executed('CREATE'))

    def test_users_of_other_replicas_are_dropped(self):
        others = ['slave_ffffffff', 'slave_ffffffffffffff', 'slave_of_the_tenant']
        self.app.users = ['slave_0123456789', 'slave_ffffffffff', *others]
        self.strategy.drop_users(self.app, [REPLICA_ID])
        dropped = [given for _, given in self.app.executed('DROP')]
        self.assertEqual([('slave_ffffffffff',)], dropped)

    def test_user_of_a_replica_that_trove_has_attached_stays_while_it_is_connected(self):
        """After a rebuild, Trove does not tell which replica it attaches."""
        self.app.users = [replication_user.name_of(None) for _ in range(2)]
        self.app.connected = self.app.users[:1]
        self.strategy.drop_users(self.app, [REPLICA_ID])
        dropped = [given for _, given in self.app.executed('DROP')]
        self.assertEqual([(self.app.users[1],)], dropped)

    def test_account_statements_that_wait_for_a_lock(self):
        """They must not be executed after the agent has given up."""
        self.app.users = ['slave_ffffffffff']
        for verb, call in (
            ('CREATE', lambda: self.strategy.get_replica_context(self.app, None, REPLICA_ID)),
            ('DROP', lambda: self.strategy.drop_users(self.app, [])),
        ):
            self.app.errors = {verb: pymysql.OperationalError(ER.LOCK_WAIT_TIMEOUT, '')}
            self.assertRaises(exceptions.NotQuiescedError, call)
            (waited,) = self.app.executed('SET SESSION lock_wait_timeout')
            self.assertEqual('SET SESSION lock_wait_timeout = 30', waited[0])
            self.app.statements.clear()

    def test_promotion(self):
        self.replicate()
        self.assertRaises(
            exceptions.UnsafeSettingsError, self.strategy.enable_as_master, self.app, ''
        )
        self.assertRaises(
            exceptions.UnsafeSettingsError, self.strategy.make_read_only, self.app, False
        )
        answer = self.strategy.detach_slave(self.app, True)
        self.assertEqual({'replication_user': 'slave_0123456789'}, answer)
        self.assertIn('slave-replication', self.overrides)
        self.assertEqual([], self.app.executed('SET GLOBAL read_only'))
        self.app.channel, self.app.events = None, 'OFF'
        self.strategy.enable_as_master(self.app, '')
        self.assertEqual({}, self.overrides)
        self.assertEqual(1, len(self.app.executed('SET GLOBAL read_only = OFF')))
        self.assertEqual(1, len(self.app.executed('SET GLOBAL event_scheduler = ON')))

    def test_promotion_that_is_repeated_after_an_error(self):
        for failing in ('SET GLOBAL read_only', 'SET GLOBAL event_scheduler = ON'):
            self.replicate()
            self.app.events, self.app.channel = 'OFF', None
            self.app.errors = {failing: pymysql.OperationalError(CR.CR_SERVER_LOST, '')}
            self.assertRaises(
                pymysql.OperationalError, self.strategy.enable_as_master, self.app, ''
            )
            self.assertTrue(read_only.is_configured_replica(self.app))
            self.app.errors = {}
            self.app.statements.clear()
            self.strategy.enable_as_master(self.app, '')
            self.assertEqual(1, len(self.app.executed('SET GLOBAL event_scheduler = ON')))
            self.assertFalse(read_only.is_configured_replica(self.app))

    def test_events_that_are_configured_to_be_off_stay_off(self):
        configured = self.app.configuration_manager
        configured.apply_system_override({'mysqld': {'event_scheduler': 'OFF'}}, 'group')
        self.replicate()
        self.app.events = 'OFF'
        self.strategy.detach_slave(self.app, False)
        self.assertEqual([], self.app.executed('SET GLOBAL event_scheduler = ON'))

    def test_refused_writes_outlast_a_restart(self):
        self.strategy.make_read_only(self.app, True)
        options = self.overrides['read-only']['mysqld']
        self.assertEqual({'read_only': 'ON', 'super_read_only': 'ON'}, options)
        # An option that its tenant has persisted would override them.
        forgotten = [statement for statement, _ in self.app.executed('RESET PERSIST')]
        self.assertEqual(
            [f'RESET PERSIST IF EXISTS {name}' for name in ('read_only', 'super_read_only')],
            forgotten,
        )
        self.strategy.make_read_only(self.app, False)
        self.assertEqual({}, self.overrides)
        # The events of a server that was no replica are left alone.
        self.assertEqual([], self.app.executed('SET GLOBAL event_scheduler'))

    def test_demoted_source(self):
        self.strategy.make_read_only(self.app, True)
        self.strategy.demote_master(self.app)
        self.assertEqual({'slave-replication'}, set(self.overrides))

    def test_wait_is_bounded(self):
        self.assertIs(True, self.strategy.wait_for_gtid(self.app, 'a:1', 600))
        self.app.is_applied = 0
        self.assertIs(False, self.strategy.wait_for_gtid(self.app, 'a:1', 5))
        waits = [arguments for _, arguments in self.app.executed('SELECT WAIT_FOR')]
        self.assertEqual([('a:1', replication.MAX_WAIT_SEC), ('a:1', 5)], waits)

    def test_receiving_stops_and_applying_goes_on(self):
        self.strategy.stop_receiving(self.app)
        self.assertEqual([('STOP REPLICA IO_THREAD', ())], self.app.statements)
