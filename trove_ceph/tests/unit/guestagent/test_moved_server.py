# SPDX-License-Identifier: Apache-2.0
import configparser
import contextlib
import re

import fixtures
from oslotest import base
from trove.common import cfg, exception

from trove_ceph import exceptions
from trove_ceph.guestagent import init_file, moved_server
from trove_ceph.tests.unit.guestagent import server_world

CONF = cfg.CONF
DATA = '/var/lib/mysql/data'
COMMAND = f'--datadir={DATA}'
OLD = {'root': 'old-root', 'os_admin': 'old-admin'}


class MovedApp(server_world.App):
    """A server whose account of Trove has a password, which an init file changes."""

    def __init__(self, files):
        super().__init__(files)
        self.saved = dict(OLD)
        self.accepted = OLD['os_admin']
        self.status = self
        self._refusal_counts = False

    @contextlib.contextmanager
    def of_existing_database(self):
        self._refusal_counts = True
        yield
        self._refusal_counts = False

    def get_auth_password(self, file):
        found = self.saved.get(file.removesuffix('.cnf'))
        if found is None:
            raise exception.UnprocessableEntity()
        if isinstance(found, Exception):
            raise found
        return found

    def start_db(self, ds_version, command):
        super().start_db(ds_version, command)
        text = self._files.contents.get(init_file.PATH, '')
        found = re.findall(r"ALTER USER 'os_admin'@'localhost' IDENTIFIED BY '(.+?)'", text)
        self.accepted = (found or [self.accepted])[-1]
        # The root disk is new, so that only an answer to Trove's account counts otherwise.
        if not self._refusal_counts and not self.accepts_password():
            raise exception.TroveError('Failed to start mysql')

    def accepts_password(self):
        return self.accepted == self.saved['os_admin']


class MovedServerTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        CONF.set_override('datastore_manager', 'mysql')
        self.addCleanup(CONF.clear_override, 'datastore_manager')
        self.log = self.useFixture(fixtures.FakeLogger())
        self.files = server_world.Files(self, [f'{DATA}/mysql.ibd', f'{DATA}/auto.cnf'])
        self.app = MovedApp(self.files)

    def start(self):
        moved_server.MovedServer(self.app, DATA).start('9.7.4', COMMAND)

    def check_nothing_is_left(self):
        self.assertEqual({}, self.app.settings)
        self.assertEqual({f'{DATA}/mysql.ibd', f'{DATA}/auto.cnf'}, set(self.files.contents))

    def check_new_passwords(self):
        self.assertEqual(OLD.keys(), self.app.saved.keys())
        for user, password in self.app.saved.items():
            self.assertNotEqual(OLD[user], password)
            self.assertNotIn(str(password), self.log.output)
        self.assertEqual(self.app.accepted, self.app.saved['os_admin'])
        self.check_nothing_is_left()

    def test_one_start_without_a_change(self):
        self.start()
        ((version, command, options, _files),) = self.app.starts
        self.assertEqual(('9.7.4', COMMAND, None), (version, command, options))
        self.assertEqual(OLD, self.app.saved)
        self.check_nothing_is_left()

    def test_files_without_passwords(self):
        """A crash right after they were written may leave them out, empty or full of zeros."""
        for lost in (None, KeyError('client'), configparser.MissingSectionHeaderError('f', 1, '')):
            self.app = MovedApp(self.files)
            self.app.saved['os_admin'] = lost
            self.start()
            ((_version, _command, options, _files),) = self.app.starts
            self.assertEqual({'init_file': init_file.PATH}, options)
            self.check_new_passwords()

    def test_account_whose_password_was_changed(self):
        self.app.accepted = 'of-the-tenant'
        self.start()
        options = [options for _version, _command, options, _files in self.app.starts]
        self.assertEqual([None, {'init_file': init_file.PATH}], options)
        self.assertEqual([None], self.app.stops)
        self.check_new_passwords()

    def test_init_file_of_an_interrupted_start(self):
        self.files.contents[init_file.PATH] = 'FOR ANOTHER START'
        self.app.settings[init_file.CHANGE_ID] = {'mysqld': {'init_file': init_file.PATH}}
        self.start()
        ((_version, _command, options, files),) = self.app.starts
        self.assertIsNone(options)
        self.assertNotIn(init_file.PATH, files)
        self.check_nothing_is_left()

    def test_failed_statement(self):
        self.app.saved['root'] = None
        self.app.accepts_password = lambda: False
        error = self.assertRaises(exceptions.ServerFailedError, self.start)
        self.assertIn(init_file.PATH, str(error))
        self.assertEqual([{'init_file': init_file.PATH}], self.app.stops)
        self.check_nothing_is_left()

    def test_volume_without_a_database(self):
        """Trove would initialise it, and it would pass for the moved data."""
        del self.files.contents[f'{DATA}/mysql.ibd']
        self.assertRaises(exceptions.ServerFailedError, self.start)
        self.assertEqual([], self.app.starts)

    def test_statements_leave_other_accounts_alone(self):
        statements = moved_server.repair_statements('for-root', 'for-admin')
        self.assertEqual('SET SESSION sql_log_bin = 0', statements[0])
        accounts = set(re.findall("'[a-z_]+'@'[^']+'", ' '.join(statements)))
        self.assertEqual({"'root'@'localhost'", "'os_admin'@'localhost'"}, accounts)


class BackgroundStartTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.FakeLogger())
        self.is_serving = False
        self.error = None
        self.starts = 0
        self.pending = []
        self.background = moved_server.BackgroundStart(
            lambda: self.is_serving, run=self.pending.append
        )

    def start(self):
        self.starts += 1
        if self.error:
            raise self.error

    def request(self, replacement_id='r1'):
        answer = self.background.request(replacement_id, self.start)
        self.assertEqual({'state', 'error'}, answer.keys())
        return answer['state'], answer['error']

    def run_pending(self):
        self.pending.pop()()
        self.assertEqual([], self.pending)

    def test_it_is_started_again_after_its_volume_was_released(self):
        """Such as a fresh clone that is attached again, for the same re-provisioning."""
        self.request()
        self.run_pending()
        self.background.forget()
        self.assertEqual(('starting', ''), self.request())
        # It would be started twice.
        self.background.forget()
        self.assertEqual(('starting', ''), self.request())
        self.run_pending()
        self.assertEqual((('serving', ''), 2), (self.request(), self.starts))

    def test_it_is_started_once(self):
        self.assertEqual(('starting', ''), self.request())
        self.assertEqual(('starting', ''), self.request())
        self.run_pending()
        self.assertEqual(('serving', ''), self.request())
        self.assertEqual(('serving', ''), self.request())
        self.assertEqual((1, []), (self.starts, self.pending))

    def test_a_failure_is_reported_once_then_it_is_started_again(self):
        self.error = RuntimeError('unknown variable\n  x')
        self.request()
        self.run_pending()
        self.assertEqual(('failed', 'unknown variable x'), self.request())
        self.error = None
        self.assertEqual(('starting', ''), self.request())
        self.run_pending()
        self.assertEqual(('serving', ''), self.request())
        self.assertEqual(2, self.starts)

    def test_an_error_without_a_text(self):
        self.error = KeyError()
        self.request()
        self.run_pending()
        self.assertEqual(('failed', 'KeyError'), self.request())

    def test_the_agent_was_restarted(self):
        self.is_serving = True
        self.assertEqual(('serving', ''), self.request())
        self.assertEqual(('serving', ''), self.request())
        self.assertEqual((0, []), (self.starts, self.pending))

    def test_another_replacement(self):
        self.request('r1')
        # One at a time.
        self.assertEqual(('starting', ''), self.request('r2'))
        self.run_pending()
        self.assertEqual(('starting', ''), self.request('r2'))
        self.run_pending()
        self.assertEqual(('serving', ''), self.request('r2'))
        self.assertEqual(2, self.starts)

    def test_threads(self):
        background = moved_server.BackgroundStart(lambda: False)
        background.request('r1', self.start)
        while background.request('r1', self.start)['state'] == moved_server.STARTING:
            pass
        self.assertEqual(1, self.starts)
