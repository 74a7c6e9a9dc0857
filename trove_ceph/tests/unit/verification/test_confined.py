# SPDX-License-Identifier: Apache-2.0
"""Both sides of the channel: the answers of the confined program, and their validation."""

import os
import pathlib
import threading

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.verification import channel, confined, confined_server, program, report, server

TABLES = [server.Table('shop', f'orders{number}', 5, 2) for number in range(2500)]


class FakeServer:
    recovery_sec = 0.5

    def __init__(self):
        self.calls = []
        self.error = None

    def start(self, timeout_sec):
        self.calls.append(('start', timeout_sec))
        if self.error:
            raise self.error

    def version(self):
        return '9.7.4-2'

    def gtid_executed(self):
        return 'a-b:1-5,c-d:tag:7'

    def missing_and_extra(self, expected, found):
        return f'{expected}:1', ''

    def tables(self):
        return TABLES

    def check(self, table):
        self.calls.append(('check', table))
        if self.error:
            raise self.error

    def read_ends(self, table, limit_bytes):
        self.calls.append(('read_ends', table, limit_bytes))


class LineTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        to_inside, from_outside = os.pipe()
        to_outside, from_inside = os.pipe()
        self.inside = channel.Channel(to_inside, from_inside)
        self.outside = confined_server.ConfinedServer(
            self, channel.Channel(to_outside, from_outside)
        )
        self.ends = [from_outside, from_inside, to_inside, to_outside]
        self.addCleanup(lambda: [os.close(end) for end in self.ends])
        self.killed = 0

    def kill(self):
        self.killed += 1

    def why_ended(self):
        return 'with exit code 7'

    def in_thread(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments)
        thread.start()
        self.addCleanup(thread.join)

    def hang_up(self):
        self.addCleanup(os.close, self.ends.pop(0))


class AnswersTest(LineTestCase):
    def setUp(self):
        super().setUp()
        self.server = FakeServer()
        inspector = confined.Inspector()
        inspector._server = self.server
        self.in_thread(confined.serve, inspector, self.inside)
        # Cleanups run in the opposite order: the line ends before the thread is waited for.
        end = self.ends.pop(0)
        self.addCleanup(os.close, end)

    def test_every_call_reaches_the_server(self):
        self.outside.start(30)
        self.assertEqual(0.5, self.outside.recovery_sec)
        self.assertEqual('9.7.4-2', self.outside.version())
        self.assertEqual('a-b:1-5,c-d:tag:7', self.outside.gtid_executed())
        self.assertEqual(('a:1', ''), self.outside.missing_and_extra('a', 'b'))
        self.assertEqual(TABLES, self.outside.tables())
        self.outside.check(TABLES[2400])
        self.outside.read_ends(TABLES[1], 77)
        self.assertEqual(
            [('start', 30), ('check', TABLES[2400]), ('read_ends', TABLES[1], 77)],
            self.server.calls,
        )

    def test_a_finding_is_passed_on_without_control_characters(self):
        self.outside.tables()
        self.server.error = report.NotSoundError(report.CORRUPT, 'table \x1b[2J is damaged')
        found = self.assertRaises(report.NotSoundError, self.outside.check, TABLES[0])
        self.assertEqual((report.CORRUPT, 'table ?[2J is damaged'), (found.verdict, found.reason))

    def test_errors_keep_their_class(self):
        for error, expected in (
            (exceptions.NotInspectableError('no key'), exceptions.NotInspectableError),
            (exceptions.ServerFailedError('killed'), exceptions.ServerFailedError),
            (ZeroDivisionError('oops'), exceptions.ServerFailedError),
        ):
            self.server.error = error
            raised = self.assertRaises(expected, self.outside.start, 5)
            self.assertIn(str(error), str(raised))


class DataTest(base.BaseTestCase):
    def test_a_missing_directory_is_incomplete(self):
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        inspector = confined.Inspector(directory, directory / 'run')
        request = {'call': 'read', 'with': {'memory_bytes': 2**30}}
        self.assertEqual(
            {'finding': [report.INCOMPLETE, 'data is not there']},
            confined.answer(inspector, request),
        )

    def test_an_invalid_call_gets_an_error(self):
        for request in ({'call': '__init__', 'with': {}}, {'call': 'check'}, 'version', None):
            self.assertIn('error', confined.answer(confined.Inspector(), request))

    def test_version_of_the_server(self):
        output = '/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))'
        self.assertEqual((9, 7, 4), confined.mysqld_version(lambda *_: output))

        def refuse(*_):
            raise exceptions.StorageCommandError('mysqld cannot be run')

        for run in (refuse, lambda *_: 'something else', lambda *_: 'mysqld Ver new for Linux'):
            self.assertRaises(exceptions.NotInspectableError, confined.mysqld_version, run)


class HostileTest(LineTestCase):
    def answer(self, document):
        def run():
            self.inside.receive()
            self.inside.send(document)

        self.in_thread(run)

    def assert_refused(self, call, *arguments):
        error = self.assertRaises(exceptions.ServerFailedError, call, *arguments)
        self.assertIn('returned an invalid', str(error))

    def test_refuses_invalid_answers(self):
        for document in (
            None,
            [],
            {'finding': [report.SOUND, 'trust me']},
            {'finding': [report.CORRUPT, 5]},
            {'error': ['SystemExit', 'bye']},
            {'result': '9.7\x1b'},
            {'result': ['9.7.4']},
            {'result': 'x' * 65},
        ):
            self.answer(document)
            self.assert_refused(self.outside.version)

    def test_refuses_an_invalid_or_overlong_position(self):
        for found in ('a' * (report.MAX_GTID_BYTES + 1), 'a\nb', 7):
            self.answer({'result': found})
            self.assert_refused(self.outside.gtid_executed)

    def test_refuses_invalid_tables(self):
        for row in (
            ['shop', 'orders', -1, 5],
            ['shop', 'x' * 65, 1, 5],
            ['shop', '', 1, 5],
            ['shop', 'orders', 2**63, 5],
            ['shop', 'orders'],
            'orders',
        ):
            self.answer({'result': [row]})
            self.assert_refused(self.outside.tables)
        self.answer({'result': [['s', 't', 1, 1]] * (confined.PAGE_TABLES + 1)})
        self.assert_refused(self.outside.tables)

    def test_refuses_an_invalid_recovery_time(self):
        for found in (-1, 'soon', 1e300):
            self.answer({'result': found})
            self.assert_refused(self.outside.start, 5)

    def test_an_overlong_reason_is_cut(self):
        self.answer({'finding': [report.CORRUPT, 'x' * 100_000]})
        found = self.assertRaises(report.NotSoundError, self.outside.version)
        self.assertEqual(report.MAX_REASON_CHARACTERS, len(found.reason))

    def test_it_ends(self):
        os.close(self.ends.pop(1))
        error = self.assertRaises(exceptions.ServerFailedError, self.outside.version)
        self.assertIn('version: the confined program ended: with exit code 7', str(error))


class PackTest(base.BaseTestCase):
    def test_all_that_the_program_needs(self):
        place = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'program'
        program.pack(place)
        for name in ('loader', 'python', 'modules/trove_ceph/verification/confined.py'):
            self.assertTrue((place / name).is_file(), name)
        self.assertTrue((place / 'modules' / 'pymysql' / '__init__.py').is_file())
        names = {path.name for path in place.rglob('*')}
        for unneeded in ('ssl.py', 'oslo_config', 'libcrypto.so.3'):
            self.assertNotIn(unneeded, names)
