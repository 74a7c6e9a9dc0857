# SPDX-License-Identifier: Apache-2.0
"""Tests of the commands that copy a server by MySQL's own tools, and of their errors."""

import inspect
import os
from pathlib import Path
from unittest import mock

import fixtures
import pymysql
from oslotest import base

from trove_ceph import exceptions
from trove_ceph_bench import arguments, model, mysql_operations

ENVIRONMENT = {
    'BENCH_HOST': '192.0.2.1',
    'BENCH_PORT': '3306',
    'BENCH_SOCKET': '',
    'BENCH_USER': 'tcbench_1',
    'BENCH_PASSWORD': 'secret',
    'BENCH_DATABASE': 'trove_ceph_bench_1',
}
REFUSING = '#!/bin/sh\necho "$MYSQL_PWD $*" >"$RECORD"\necho broken >&2\nexit 2\n'


class Server:
    """Fake of MySQL that records logins and statements."""

    def __init__(self):
        self.statements = []
        self.plugins, self.tables = [], ()
        self.refused = None

    def connect(self, **options):
        self.statements.append(f'login {options["user"]} {options.get("host")}')
        connection = mock.MagicMock()
        cursor = connection.__enter__().cursor().__enter__()
        cursor.execute.side_effect = self._execute
        cursor.fetchall.side_effect = lambda: self._rows
        return connection

    def _execute(self, statement, arguments=None):
        self.statements.append(statement % arguments if arguments else statement)
        if self.refused and self.refused in statement:
            raise pymysql.err.OperationalError(1205, 'Lock wait timeout exceeded')
        self._rows = self.plugins if 'PLUGINS' in statement else self.tables


class OperationsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.server = Server()
        self.roots = []

    def operations(self, rootfs='/srv/mysql', **address):
        fields = {'user': 'u', 'password': 'p', 'database': 'd', 'host': '192.0.2.1', **address}
        return mysql_operations.Operations(
            model.Address(**fields),
            rootfs and Path(rootfs),
            self.fail,
            lambda instance: self.roots.append(instance) or ('boss', 'x'),
            self.server.connect,
        )

    def test_probe_changes_rows_and_definitions_with_a_short_lock_timeout(self):
        self.operations().probe()
        self.assertEqual('login u 192.0.2.1', self.server.statements[0])
        wait = f'lock_wait_timeout = {mysql_operations.LOCK_WAIT_SEC}'
        self.assertIn(wait, self.server.statements[1])
        self.assertEqual(
            ['DROP', 'CREATE', 'INSERT', 'DROP'],
            [one.split()[0] for one in self.server.statements[2:]],
        )

    def test_probe_fails_on_a_lock_timeout(self):
        self.server.refused = 'CREATE TABLE'
        self.assertRaises(pymysql.MySQLError, self.operations().probe)

    def test_change_updates_the_same_rows_each_time(self):
        self.server.tables = (('sbtest1', 50), ('sbtest2', 50))
        updates = []
        for _ in range(2):
            self.server.statements = []
            self.operations().change(250)
            updates.append(
                [one for one in self.server.statements if one.startswith(('UPDATE', 'COMMIT'))]
            )
        self.assertEqual(updates[0], updates[1])
        self.assertEqual(253, len(updates[0]))
        self.assertEqual(3, updates[0].count('COMMIT'))

    def test_end_clone_removes_user_and_plugin(self):
        for plugins, expected in (((), 0), ((('clone',),), 1)):
            self.server.statements, self.server.plugins = [], plugins
            (self.directory / 'made').mkdir()
            self.operations().end_clone('shop', self.directory / 'made')
            self.assertIn('login boss 192.0.2.1', self.server.statements)
            self.assertIn(
                f"DROP USER IF EXISTS '{mysql_operations.DONOR}'@'%'", self.server.statements
            )
            self.assertEqual(expected, self.server.statements.count('UNINSTALL PLUGIN clone'))
            self.assertEqual([], os.listdir(self.directory))
        self.assertEqual(['shop', 'shop'], self.roots)

    def test_reports_a_failed_program_and_keeps_the_password_off_its_command_line(self):
        program = self.directory / 'chroot'
        program.write_text(REFUSING)
        program.chmod(0o755)
        record = self.directory / 'record'
        self.useFixture(fixtures.EnvironmentVariable('RECORD', str(record)))
        path = f'{self.directory}:{os.environ["PATH"]}'
        self.useFixture(fixtures.EnvironmentVariable('PATH', path))
        error = self.assertRaises(
            exceptions.LoadFailedError, self.operations().dump, self.directory / 'out'
        )
        self.assertIn('mysqldump exited with 2: broken', str(error))
        password, arguments = record.read_text().split(maxsplit=1)
        self.assertEqual('p', password)
        self.assertTrue(arguments.startswith('/srv/mysql mysqldump --no-defaults --host=192.0.2.1'))

    def test_programs_need_tcp_and_a_root_file_system(self):
        for operations, message in (
            (self.operations(unix_socket='/run/s'), 'needs TCP'),
            (self.operations(rootfs=None), 'build one'),
        ):
            error = self.assertRaises(
                exceptions.LoadFailedError, operations.dump, self.directory / 'out'
            )
            self.assertIn(message, str(error))


class CommandTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        # Do not change the signal handlers of the test process.
        self.useFixture(fixtures.MonkeyPatch('signal.signal', lambda number, handler: None))

    def test_every_verb_has_the_arguments_of_its_function(self):
        for verb, (names, _) in mysql_operations._VERBS.items():
            values = ['7' if name == 'rows' else name for name in names]
            parsed = arguments.parse(['mysql', verb, *values])
            function = getattr(mysql_operations.Operations, verb.replace('-', '_'))
            parameters = list(inspect.signature(function).parameters)[1:]
            self.assertEqual(list(parsed.parameters), parameters, verb)

    def test_outside_of_a_plan(self):
        parsed = arguments.parse(['mysql', 'probe'])
        for name in set(ENVIRONMENT) - {'BENCH_SOCKET'}:
            environ = {key: value for key, value in ENVIRONMENT.items() if key != name}
            error = self.assertRaises(
                exceptions.LoadFailedError, mysql_operations.main, parsed, environ
            )
            self.assertIn(f'{name} is not set', str(error))

    def test_reports_errors_of_mysql(self):
        parsed = arguments.parse(['mysql', 'probe'])
        failure = pymysql.err.OperationalError(1205, 'x')
        with mock.patch.object(mysql_operations.Operations, 'probe', side_effect=failure):
            error = self.assertRaises(
                exceptions.LoadFailedError, mysql_operations.main, parsed, ENVIRONMENT
            )
        self.assertIn('MySQL failed probe', str(error))
