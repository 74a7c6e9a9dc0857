# SPDX-License-Identifier: Apache-2.0
import shutil
import urllib.parse
from unittest import mock

import docker
import fixtures
import pymysql
import sqlalchemy
import testtools
from oslotest import base
from sqlalchemy import exc
from trove.common import cfg, exception
from trove.guestagent.datastore import service as base_service
from trove.guestagent.datastore.mysql_common import service as common_service

from trove_ceph import exceptions
from trove_ceph.guestagent import server
from trove_ceph.mysql import tuning
from trove_ceph.tests.unit.trove_adapter import contract

CONF = cfg.CONF
MACHINE = tuning.Machine(4096, 2, 102400, 3000)


class FakeResult(list):
    def first(self):
        return self[0] if self else None


class FakeConnection:
    """A connection that answers by the beginning of a statement and records the others."""

    def __init__(self, answers, failing):
        self.answers, self.failing = answers, failing
        self.statements = []

    def execute(self, statement, *_arguments):
        statement = str(statement)
        self.statements.append(statement)
        for start in self.failing:
            if statement.startswith(start):
                raise exc.OperationalError(statement, None, Exception('1205'))
        for start, rows in self.answers.items():
            if statement.startswith(start):
                return FakeResult(rows)
        return FakeResult()

    def begin(self):
        return mock.Mock()

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        return False


def _refuse(statement, failing):
    if statement.startswith(tuple(failing)):
        raise pymysql.OperationalError(1205, 'Lock wait timeout exceeded')


class MySqlServerTestCase(base.BaseTestCase):
    def server(self, answers=(), failing=()):
        self.connection = FakeConnection(dict(answers), failing)
        result = server.MySqlServer(mock.Mock(), mock.Mock(), lambda *_: MACHINE, 77)
        self.engine = mock.Mock()
        self.engine.connect.return_value = self.connection
        result.get_engine = lambda: self.engine
        result._configuration_manager = mock.Mock()
        result._configuration_manager.has_system_override.return_value = False
        return result

    def ready(self, *row):
        return self.server({'SELECT @@GLOBAL.log_bin': [row]}).exists_replication_source_overrides()

    def test_server_with_binary_log_and_gtids_is_ready_to_be_a_source(self):
        self.assertTrue(self.ready(1, 'ON', 1))

    def test_server_without_them_is_not_ready(self):
        self.assertFalse(self.ready(0, 'ON', 1))
        self.assertFalse(self.ready(1, 'OFF', 1))
        self.assertFalse(self.ready(1, 'ON_PERMISSIVE', 1))
        self.assertFalse(self.ready(1, 'ON', 0))

    def test_troves_own_file_is_enough(self):
        subject = self.server()
        subject._configuration_manager.has_system_override.return_value = True

        self.assertTrue(subject.exists_replication_source_overrides())
        self.assertEqual([], self.connection.statements)

    def purge(self, sizes, budget, failing=()):
        rows = [(f'mysql-bin.{n:06}', size, 'No') for n, size in enumerate(sizes, 1)]
        subject = self.server()
        cursor = mock.MagicMock()
        cursor.fetchall.return_value = rows
        cursor.execute.side_effect = lambda statement, *_arguments: _refuse(statement, failing)
        connection = mock.MagicMock()
        connection.cursor.return_value.__enter__.return_value = cursor
        with mock.patch.object(subject, 'open_connection', return_value=connection):
            purged = subject.purge_binary_logs(budget)
        connection.close.assert_called_once_with()
        # A connection of Trove's pool would make stock backups lose their lock.
        self.engine.connect.assert_not_called()
        statements = [call.args for call in cursor.execute.call_args_list]
        return purged, [arguments for verb, *arguments in statements if verb.startswith('PURGE')]

    def test_logs_within_the_budget_stay(self):
        self.assertEqual((0, []), self.purge([10, 10, 10], 30))

    def test_purges_the_oldest_logs(self):
        self.assertEqual((2, [[('mysql-bin.000003',)]]), self.purge([10, 10, 10, 10], 25))

    def test_the_log_being_written_stays(self):
        self.assertEqual((1, [[('mysql-bin.000002',)]]), self.purge([10, 100], 25))
        self.assertEqual((0, []), self.purge([100], 25))
        self.assertEqual((0, []), self.purge([], 25))

    def test_a_backup_lock_delays_purging(self):
        purged, statements = self.purge([10, 10, 10], 15, failing=('PURGE',))

        self.assertEqual((0, 1), (purged, len(statements)))

    def adopt(self, effective, failing=()):
        computed = tuning.tune(MACHINE)
        options = computed.mysqld_options() | effective
        subject = self.server(failing=failing)
        subject._configuration_manager.effective = options.get
        subject.apply_volume_settings(computed)
        return self.connection.statements

    def test_applies_volume_settings_in_order(self):
        self.assertEqual(
            [
                'SET GLOBAL innodb_io_capacity_max = 3000',
                'SET GLOBAL innodb_io_capacity = 1500',
                'SET GLOBAL innodb_io_capacity_max = 3000',
                'SET GLOBAL innodb_redo_log_capacity = 1073741824',
                'SET GLOBAL max_binlog_size = 1073741824',
                'SET GLOBAL binlog_expire_logs_seconds = 604800',
            ],
            self.adopt({}),
        )

    def test_configuration_group_wins_over_the_volume_settings(self):
        statements = self.adopt({'innodb_io_capacity': 200})

        self.assertNotIn('innodb_io_capacity =', ' '.join(statements))
        self.assertEqual(5, len(statements))

    def test_refused_setting_does_not_fail_the_resize(self):
        self.assertIn('SET GLOBAL innodb_io_capacity_max = 3000', self.adopt({}, failing=('SET',)))

    def test_temporary_directory_is_created_before_the_start(self):
        order = []
        CONF.set_override('datastore_manager', 'mysql')
        self.addCleanup(CONF.clear_override, 'datastore_manager')
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.guestagent.common.operating_system.ensure_directory',
                lambda path, **_: order.append(path),
            )
        )
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.guestagent.datastore.mysql_common.service.BaseMySqlApp.start_db',
                lambda _self, **kwargs: order.append(kwargs),
            )
        )

        subject = self.server()
        subject._write_root_password = mock.Mock()
        subject.start_db(ds_version='9.7.4')

        self.assertEqual(['/var/lib/mysql/tmp', {'ds_version': '9.7.4'}], order)

    def test_configuration_manager_is_ours(self):
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.guestagent.common.operating_system.ensure_directory',
                lambda *_args, **_kwargs: None,
            )
        )
        CONF.set_override('datastore_manager', 'mysql')
        self.addCleanup(CONF.clear_override, 'datastore_manager')
        subject = server.MySqlServer(mock.Mock(), mock.Mock(), lambda *_: MACHINE, 77)

        manager = subject.configuration_manager

        self.assertIs(manager, subject.configuration_manager)
        self.assertEqual(common_service.MYSQL_CONFIG, manager._base_config_path)

    def option_of_backup_images(self):
        CONF.set_override('backup_docker_image', 'registry/db-backup-mysql', 'mysql')
        self.addCleanup(CONF.clear_override, 'backup_docker_image', 'mysql')
        CONF.set_override('datastore_manager', 'mysql')
        self.addCleanup(CONF.clear_override, 'datastore_manager')
        CONF.set_override('datastore_version', '9.7.4')
        self.addCleanup(CONF.clear_override, 'datastore_version')

    @testtools.skipUnless(contract.IS_TROVE_25, 'of Trove 25')
    def test_backup_image_of_the_version(self):
        self.option_of_backup_images()
        self.assertEqual('registry/db-backup-mysql:9.7.4', self.server().get_backup_image())

    @testtools.skipIf(contract.IS_TROVE_25, 'Trove 25 looks for one image')
    def test_backup_image_follows_the_version_of_the_instance(self):
        self.option_of_backup_images()
        images = []

        def find(_client, image):
            images.append(image)
            return mock.Mock(image_name=image) if image.endswith(':9.7') else None

        self.useFixture(
            fixtures.MonkeyPatch('trove.guestagent.utils.docker.get_image_registry', find)
        )

        self.assertEqual('registry/db-backup-mysql:9.7', self.server().get_backup_image())
        self.assertEqual(['registry/db-backup-mysql:9.7.4', 'registry/db-backup-mysql:9.7'], images)
        self.assertTrue(issubclass(server.MySqlServer, base_service.BaseDbApp))

    def test_connection_outside_the_pool(self):
        subject = self.server()
        subject.get_engine().url = sqlalchemy.make_url(
            common_service.CONNECTION_STR_FORMAT % ('os_admin', urllib.parse.quote('p@ss/w'))
        )
        connect = self.useFixture(fixtures.MockPatch('pymysql.connect')).mock

        self.assertIs(connect.return_value, subject.open_connection(9))

        subject.get_engine().connect.assert_not_called()
        options = connect.call_args.kwargs
        self.assertEqual(
            ('/var/lib/mysqld/mysqld.sock', 'os_admin', 'p@ss/w', True, 9, True),
            tuple(
                options[name]
                for name in (
                    'unix_socket',
                    'user',
                    'password',
                    'autocommit',
                    'read_timeout',
                    'ssl_disabled',
                )
            ),
        )

    def test_connections_of_the_pool_are_not_encrypted(self):
        self.useFixture(fixtures.MonkeyPatch(f'{common_service.__name__}.ENGINE', None))
        connect = self.useFixture(
            fixtures.MockPatch('pymysql.connect', side_effect=pymysql.OperationalError(2003, 'no'))
        ).mock
        subject = server.MySqlServer(mock.Mock(), mock.Mock(), lambda *_: MACHINE, 77)
        subject.get_auth_password = lambda: 'of-trove'
        for _ in range(2):
            self.assertRaises(exc.OperationalError, subject.get_engine().connect)
        self.assertEqual(
            [True, True], [call.kwargs['ssl_disabled'] for call in connect.call_args_list]
        )
        self.assertEqual(1, len(list(subject.get_engine().dialect.dispatch.do_connect)))


class ProbeTestCase(base.BaseTestCase):
    """A server to which the agent connects by its socket."""

    def setUp(self):
        super().setUp()
        directory = self.useFixture(fixtures.TempDir())
        self.socket = directory.join('mysqld.sock')
        self.patch('trove.common.constants.MYSQL_HOST_SOCKET_PATH', directory.path)
        self.connection = mock.MagicMock()
        self.cursor = self.connection.cursor.return_value.__enter__.return_value
        self.connect = mock.Mock(return_value=self.connection)
        self.patch('pymysql.connect', self.connect)
        self.passwords = {'root.cnf': 'of-root'}
        self.subject = server.MySqlServer(mock.Mock(), mock.Mock(), lambda *_: MACHINE, 77)
        self.subject.get_auth_password = self.password
        self.subject.get_engine = mock.Mock(side_effect=AssertionError('kept for root'))

    def patch(self, name, value):
        self.useFixture(fixtures.MonkeyPatch(name, value))

    def password(self, file='os_admin.cnf'):
        if file not in self.passwords:
            raise exception.UnprocessableEntity(f'File does not exist: {file}')
        return self.passwords[file]

    def accepts(self, skip_networking=0, **options):
        self.cursor.fetchone.return_value = (skip_networking,)
        with open(self.socket, 'w'):
            return self.subject.accepts_clients(**options)

    def logins(self):
        return [
            tuple(call.kwargs[name] for name in ('unix_socket', 'user', 'password'))
            for call in self.connect.call_args_list
        ]


class ProbeTest(ProbeTestCase):
    """Whether a server that starts accepts clients."""

    def test_without_a_socket_nothing_is_read(self):
        self.passwords.clear()
        self.assertFalse(self.subject.accepts_clients())
        self.assertEqual([], self.logins())

    def test_server_of_a_new_database(self):
        self.assertTrue(self.accepts())
        self.assertEqual([(self.socket, 'root', 'of-root')], self.logins())
        self.assertTrue(self.connect.call_args.kwargs['ssl_disabled'])
        self.connection.close.assert_called_once_with()

    def test_server_with_troves_account(self):
        self.passwords['os_admin.cnf'] = 'of-trove'
        self.assertTrue(self.accepts())
        self.assertEqual([(self.socket, 'os_admin', 'of-trove')], self.logins())

    def test_server_that_the_image_uses_for_itself(self):
        self.assertFalse(self.accepts(skip_networking=1))

    def test_server_that_refuses(self):
        for error in (
            pymysql.OperationalError(1045, 'Access denied'),
            pymysql.OperationalError(3118, 'Account is locked'),
            pymysql.OperationalError(1040, 'Too many connections'),
        ):
            self.connect.side_effect = error
            self.assertFalse(self.accepts(), error)
            self.assertTrue(self.accepts(if_refused=True), error)

    def test_server_that_ends_or_does_not_answer(self):
        for error in (
            pymysql.OperationalError(1053, 'Server shutdown in progress'),
            pymysql.OperationalError(2003, 'Cannot connect'),
            pymysql.InterfaceError(),
        ):
            self.connect.side_effect = error
            self.assertFalse(self.accepts(if_refused=True), error)

    def test_docker_starts_no_program_for_the_health(self):
        self.assertEqual({'test': ['NONE']}, self.subject.HEALTHCHECK)

    def test_passwords_that_are_not_there_yet(self):
        self.passwords.clear()
        self.assertFalse(self.accepts())


class PrivilegesTest(base.BaseTestCase):
    """Root reads and writes files itself; another user has commands do it under ``sudo``."""

    def setUp(self):
        super().setUp()
        self.commands = []
        self.useFixture(fixtures.MonkeyPatch('trove.common.utils.execute', self.execute))
        self.directory = self.useFixture(fixtures.TempDir())
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.guestagent.datastore.mysql_common.service.MYSQL_CONFIG',
                self.directory.join('my.cnf'),
            )
        )
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.guestagent.datastore.mysql_common.service.CNF_INCLUDE_DIR',
                self.directory.path,
            )
        )
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.guestagent.common.guestagent_utils.get_conf_dir', lambda: self.directory.path
            )
        )
        with open(self.directory.join('root.cnf'), 'w') as auth:
            auth.write('[client]\nuser = root\npassword = secret\n')

    def execute(self, *command, **options):
        self.commands.append(command[0])
        if command[0] == 'cp':
            shutil.copyfile(command[-2], command[-1])
        return '', ''

    def run_as(self, uid):
        self.useFixture(fixtures.MonkeyPatch('os.geteuid', lambda: uid))
        self.useFixture(fixtures.MonkeyPatch('os.fchown', mock.Mock()))
        return server.MySqlServer(mock.Mock(), mock.Mock(), lambda *_: MACHINE, 77)

    def test_root_needs_no_command_for_contents(self):
        subject = self.run_as(0)
        subject.configuration_manager.reset_configuration('[mysqld]\nport = 3306\n')
        self.assertEqual('secret', subject.get_auth_password(file='root.cnf'))
        self.assertEqual(3306, subject.configuration_manager.get_value('port', section='mysqld'))
        self.assertEqual({'mkdir', 'chown'}, set(self.commands))

    def test_password_file_that_a_crash_has_damaged(self):
        """The probes of the status must not fail for it."""
        subject = self.run_as(0)
        for content in ('', '\0' * 64, '[client]\nuser = root\n', 'secret'):
            with open(self.directory.join('root.cnf'), 'w') as auth:
                auth.write(content)
            error = self.assertRaises(
                exception.UnprocessableEntity, subject.get_auth_password, file='root.cnf'
            )
            self.assertIn('root.cnf: has no password', str(error))

    def test_another_user_copies(self):
        subject = self.run_as(1000)
        subject.configuration_manager.reset_configuration('[mysqld]\nport = 3306\n')
        self.commands.clear()
        self.assertEqual('secret', subject.get_auth_password(file='root.cnf'))
        self.assertEqual(['cp', 'chmod'], self.commands)
        self.assertTrue(subject.configuration_manager._requires_root)


class MovedTest(ProbeTestCase):
    """What the start of a moved server learns from the server."""

    def test_account_of_trove(self):
        self.passwords['os_admin.cnf'] = 'of-the-admin'
        self.assertTrue(self.subject.accepts_password())
        self.assertEqual([(self.socket, 'os_admin', 'of-the-admin')], self.logins())

    def test_account_whose_password_differs_or_that_is_locked(self):
        for number in (1045, 3118):
            self.connect.side_effect = pymysql.OperationalError(number, 'denied')
            self.assertFalse(self.subject.accepts_password())

    def test_server_that_does_not_answer(self):
        """It would be no reason for new passwords."""
        self.connect.side_effect = pymysql.OperationalError(2013, 'Lost connection')
        self.assertRaises(exceptions.ServerFailedError, self.subject.accepts_password)

    def error_of(self, *lines):
        self.patch('trove.guestagent.utils.docker.get_container_logs', lambda _client: list(lines))
        return self.subject.find_error()

    def test_last_error(self):
        unknown = '2026-11-23 [ERROR] [MY-000067] [Server] unknown variable'
        aborting = '2026-11-23 [ERROR] [MY-010119] [Server] Aborting'
        self.assertEqual(unknown, self.error_of('[ERROR] one', 'two', unknown, aborting, 'end'))
        self.assertEqual(aborting, self.error_of('one', aborting))
        self.assertIsNone(self.error_of('one'))
        self.assertIsNone(self.error_of())

    def test_log_that_cannot_be_read(self):
        self.useFixture(fixtures.FakeLogger())
        self.subject.docker_client.containers.get.side_effect = docker.errors.NotFound('none')
        self.assertIsNone(self.subject.find_error())
