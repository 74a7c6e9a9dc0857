# SPDX-License-Identifier: Apache-2.0
import json
import re
from unittest import mock

import pymysql
from oslotest import base
from trove.common import cfg

from trove_ceph import exceptions
from trove_ceph.guestagent import init_file, persisted_options, restored_server
from trove_ceph.tests.unit.guestagent import server_world

CONF = cfg.CONF
DATA = '/var/lib/mysql/data'
COMMAND = f'--datadir={DATA}'


class StatementsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.passwords = restored_server.Passwords('for-root', 'for-admin', 'for-remote')
        self.statements = restored_server.statements(self.passwords)

    def test_nothing_is_logged(self):
        self.assertEqual('SET SESSION sql_log_bin = 0', self.statements[0])

    def test_admin_account_comes_last(self):
        self.assertEqual(
            "ALTER USER 'os_admin'@'localhost' IDENTIFIED BY 'for-admin' ACCOUNT UNLOCK",
            self.statements[-1],
        )

    def test_dropped_accounts_are_created_again(self):
        for user in ('root', 'os_admin'):
            account = f"'{user}'@'localhost'"
            verbs = [one.partition(account)[0] for one in self.statements if account in one]
            self.assertEqual(
                ['CREATE USER IF NOT EXISTS ', 'GRANT ALL ON *.* TO ', 'ALTER USER '], verbs
            )

    def test_replica_keeps_the_remote_accounts_of_its_source(self):
        of_replica = restored_server.statements(self.passwords, is_replica=True)
        for one in ('for-remote', 'PREPARE', '@others'):
            self.assertIn(one, ''.join(self.statements))
            self.assertNotIn(one, ''.join(of_replica))
        self.assertEqual([one for one in self.statements if one in of_replica], of_replica)
        self.assertEqual(len(self.statements) - 4, len(of_replica))

    def test_one_line_each(self):
        """The server reads lines and ends a statement at a semicolon."""
        for statement in self.statements:
            self.assertNotRegex(statement, '[;\n]')

    def test_repr_has_no_passwords(self):
        self.assertNotIn('for-', repr(self.passwords))

    def test_passwords(self):
        CONF.set_override('datastore_manager', 'mysql')
        self.addCleanup(CONF.clear_override, 'datastore_manager')
        made, again = restored_server.new_passwords(), restored_server.new_passwords()
        found = {one.root for one in (made, again)} | {made.admin, made.remote_root}
        self.assertEqual(4, len(found))
        for password in found:
            self.assertRegex(password, r'\A[A-Za-z0-9+/=_-]{20,}\Z')
            for kind in '[A-Z]', '[a-z]', '[0-9]', '[^A-Za-z0-9]':
                self.assertTrue(re.search(kind, password), kind)


class RestoredServerTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        CONF.set_override('datastore_manager', 'mysql')
        self.addCleanup(CONF.clear_override, 'datastore_manager')
        self.files = server_world.Files(self, [f'{DATA}/mysql.ibd', f'{DATA}/auto.cnf'])
        self.app = server_world.App(self.files)

    def start(self):
        restored_server.RestoredServer(self.app, DATA).start('9.7.4', COMMAND)

    def test_persisted_options_of_the_origin(self):
        path = f'{DATA}/{persisted_options.FILE}'
        names = ('server_id', 'read_only', 'sort_buffer_size')
        for is_replica, kept in (
            (False, {'read_only': {}, 'sort_buffer_size': {}}),
            (True, {'sort_buffer_size': {}}),
        ):
            self.files.contents[path] = json.dumps({'variables': {name: {} for name in names}})
            restored = restored_server.RestoredServer(self.app, DATA, is_replica)
            restored.start('9.7.4', COMMAND)
            (*_others, (_version, _command, _options, files)) = self.app.starts
            self.assertEqual({'variables': kept}, json.loads(files[path]))
            self.assertEqual(is_replica, '@others' not in files[init_file.PATH])

    def check_nothing_is_left(self, is_stopped=True):
        stopped_with = {'init_file': init_file.PATH, 'skip_replica_start': 'ON'}
        self.assertEqual([stopped_with] if is_stopped else [], self.app.stops)
        self.assertEqual({}, self.app.settings)
        self.assertNotIn(init_file.PATH, self.files.contents)

    def test_one_start_with_the_new_identity(self):
        self.start()
        ((version, command, options, files),) = self.app.starts
        self.assertEqual(('9.7.4', COMMAND), (version, command))
        self.assertEqual({'init_file': init_file.PATH, 'skip_replica_start': 'ON'}, options)
        self.assertNotIn(f'{DATA}/auto.cnf', files)
        text = files[init_file.PATH]
        self.assertEqual({'root', 'os_admin'}, set(self.app.saved))
        for password in self.app.saved.values():
            self.assertIn(f"IDENTIFIED BY '{password}'", text)
        self.assertEqual((1001, 1001), self.files.owners[init_file.PATH])
        self.assertEqual(0o600, self.files.modes[init_file.PATH])
        self.check_nothing_is_left(is_stopped=False)

    def test_volume_without_a_database(self):
        """Trove would initialise it, and it would pass for restored data."""
        del self.files.contents[f'{DATA}/mysql.ibd']
        self.assertRaises(exceptions.InvalidBackupError, self.start)
        self.assertEqual([], self.app.starts)
        self.assertEqual({}, self.app.saved)

    def test_server_fails_to_recover(self):
        self.app.error = RuntimeError('Failed to start mysql')
        self.assertRaises(RuntimeError, self.start)
        self.check_nothing_is_left()

    def test_server_that_cannot_be_stopped_keeps_its_statements(self):
        """Without them, it would serve as the server that was cloned."""
        self.app.error = RuntimeError('Failed to start mysql')
        self.app.stop_error = RuntimeError('docker does not answer')
        self.assertRaises(RuntimeError, self.start)
        self.assertIn(init_file.CHANGE_ID, self.app.settings)
        self.assertIn(init_file.PATH, self.files.contents)

    def test_failed_statement(self):
        self.app.open_connection = mock.Mock(
            side_effect=pymysql.err.OperationalError(1045, 'Access denied')
        )
        error = self.assertRaises(exceptions.ServerFailedError, self.start)
        self.assertIn('Access denied', str(error))
        self.check_nothing_is_left()

    def test_server_with_a_replication_source(self):
        self.app.channels = (('a channel',),)
        self.assertRaises(exceptions.ServerFailedError, self.start)
        self.check_nothing_is_left()
