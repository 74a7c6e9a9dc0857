# SPDX-License-Identifier: Apache-2.0
"""The words that name the ways of copying a server, and what they say when they fail."""

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
    """A MySQL that remembers who logged in and what they said."""

    def __init__(self):
        self.said = []
        self.plugins, self.tables = [], ()
        self.refused = None

    def connect(self, **options):
        self.said.append(f'login {options["user"]} {options.get("host")}')
        connection = mock.MagicMock()
        cursor = connection.__enter__().cursor().__enter__()
        cursor.execute.side_effect = self._execute
        cursor.fetchall.side_effect = lambda: self._rows
        return connection

    def _execute(self, statement, arguments=None):
        self.said.append(statement % arguments if arguments else statement)
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
        given = {'user': 'u', 'password': 'p', 'database': 'd', 'host': '192.0.2.1', **address}
        return mysql_operations.Operations(
            model.Address(**given),
            rootfs and Path(rootfs),
            self.fail,
            lambda instance: self.roots.append(instance) or ('boss', 'x'),
            self.server.connect,
        )

    def test_probe_changes_rows_and_definitions_with_little_patience(self):
        self.operations().probe()
        self.assertEqual('login u 192.0.2.1', self.server.said[0])
        wait = f'lock_wait_timeout = {mysql_operations.LOCK_WAIT_SEC}'
        self.assertIn(wait, self.server.said[1])
        self.assertEqual(
            ['DROP', 'CREATE', 'INSERT', 'DROP'], [one.split()[0] for one in self.server.said[2:]]
        )

    def test_probe_that_has_to_wait_is_an_error(self):
        self.server.refused = 'CREATE TABLE'
        self.assertRaises(pymysql.MySQLError, self.operations().probe)

    def test_changes_are_the_same_each_time_and_as_many_as_asked_for(self):
        self.server.tables = (('sbtest1', 50), ('sbtest2', 50))
        said = []
        for _ in range(2):
            self.server.said = []
            self.operations().change(250)
            said.append([one for one in self.server.said if one.startswith(('UPDATE', 'COMMIT'))])
        self.assertEqual(said[0], said[1])
        self.assertEqual(253, len(said[0]))
        self.assertEqual(3, said[0].count('COMMIT'))

    def test_end_of_a_donor_leaves_neither_user_nor_plugin(self):
        for plugins, expected in (((), 0), ((('clone',),), 1)):
            self.server.said, self.server.plugins = [], plugins
            (self.directory / 'made').mkdir()
            self.operations().end_clone('shop', self.directory / 'made')
            self.assertIn('login boss 192.0.2.1', self.server.said)
            self.assertIn(f"DROP USER IF EXISTS '{mysql_operations.DONOR}'@'%'", self.server.said)
            self.assertEqual(expected, self.server.said.count('UNINSTALL PLUGIN clone'))
            self.assertEqual([], os.listdir(self.directory))
        self.assertEqual(['shop', 'shop'], self.roots)

    def test_failed_program_is_told_and_its_password_is_not_in_its_words(self):
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
        self.assertIn('mysqldump ended with 2: broken', str(error))
        password, words = record.read_text().split(maxsplit=1)
        self.assertEqual('p', password)
        self.assertTrue(words.startswith('/srv/mysql mysqldump --no-defaults --host=192.0.2.1'))

    def test_programs_need_tcp_and_a_root_file_system(self):
        for operations, told in (
            (self.operations(unix_socket='/run/s'), 'by TCP'),
            (self.operations(rootfs=None), 'build one'),
        ):
            error = self.assertRaises(
                exceptions.LoadFailedError, operations.dump, self.directory / 'out'
            )
            self.assertIn(told, str(error))


class CommandTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        # The signals are those of the process that runs the tests.
        self.useFixture(fixtures.MonkeyPatch('signal.signal', lambda number, handler: None))

    def test_every_verb_has_the_arguments_of_its_function(self):
        for verb, (names, _) in mysql_operations._VERBS.items():
            words = ['7' if name == 'rows' else name for name in names]
            parsed = arguments.parse(['mysql', verb, *words])
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

    def test_what_mysql_says_is_told(self):
        parsed = arguments.parse(['mysql', 'probe'])
        failure = pymysql.err.OperationalError(1205, 'x')
        with mock.patch.object(mysql_operations.Operations, 'probe', side_effect=failure):
            error = self.assertRaises(
                exceptions.LoadFailedError, mysql_operations.main, parsed, ENVIRONMENT
            )
        self.assertIn('MySQL failed probe', str(error))
