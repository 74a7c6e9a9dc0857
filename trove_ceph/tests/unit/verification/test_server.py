# SPDX-License-Identifier: Apache-2.0
import pathlib

import fixtures
import pymysql
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.verification import data_directory, report, server

FOUND = data_directory.DataDirectory(999, 998, (9, 7, 4), 8192, 'ibdata1:5M:autoextend', 'binlog')
TABLE = server.Table('shop', 'odd`name', 5)


def line(text, part='InnoDB'):
    return f'2026-11-21T18:48:35.900000Z 0 [ERROR] [MY-000001] [{part}] {text}\n'


class FakeMysqld:
    """Stands for the process: answers one statement, and has a log."""

    def __init__(self, log):
        self.log = log
        self.exit_code = None
        self.answer = []
        self.statements = []

    def prepare_run(self):
        pass

    def start(self, timeout_sec):
        if self.exit_code is not None:
            raise exceptions.ServerFailedError('raw log with secrets')

    def has_ended(self, within_sec):
        return self.exit_code is not None

    def connect(self, **_):
        return self

    cursor = connect

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        pass

    def execute(self, statement, arguments=None):
        self.statements.append(statement)
        if isinstance(self.answer, Exception):
            raise self.answer

    def fetchall(self):
        return self.answer

    def fetchone(self):
        return self.answer[0]


class ServerTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        log = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'mysqld.log'
        self.mysqld = FakeMysqld(log)
        self.server = server.Server(self.mysqld, FOUND)

    def assert_start_fails(self, kind, log, expected):
        self.mysqld.exit_code = 1
        self.mysqld.log.write_text(log)
        error = self.assertRaises(kind, self.server.start, 5)
        self.assertIn(expected, str(error))
        self.assertNotIn('secret', str(error))
        return error

    def test_why_it_does_not_start(self):
        for text, part, verdict in (
            ('Checksum mismatch in redo', 'InnoDB', report.CORRUPT),
            ("Cannot open './undo_001' OS errno 2 - No such file", 'InnoDB', report.INCOMPLETE),
            ("File './binlog.000003' not found (OS errno 2)", 'Server', report.INCOMPLETE),
        ):
            found = self.assert_start_fails(report.Finding, line(text, part), 'recovery failed: ')
            self.assertEqual(verdict, found.verdict, text)

    def test_it_is_not_made_for_this_data(self):
        for text in (
            'Invalid MySQL server upgrade: Cannot upgrade from 50744 to 90704.',
            "Different lower_case_table_names settings for server ('0') and data dictionary ('1').",
            'Cannot allocate memory for the buffer pool',
        ):
            self.assert_start_fails(exceptions.NotInspectableError, line(text), text[:30])

    def test_it_ends_for_a_reason_that_nobody_knows(self):
        self.assert_start_fails(exceptions.ServerFailedError, '', 'mysqld ended with 1: its log')
        self.assert_start_fails(
            exceptions.ServerFailedError, line('Aborting', 'Server'), 'Aborting'
        )

    def test_check(self):
        self.mysqld.answer = [('shop.odd`name', 'check', 'status', 'OK')]
        self.server.check(TABLE)
        self.assertEqual('CHECK TABLE `shop`.`odd``name`', self.mysqld.statements[-1])
        # Engines without a check say so.
        self.mysqld.answer = [('t', 'check', 'note', "The storage engine doesn't support check")]
        self.server.check(TABLE)
        self.mysqld.answer = [
            ('t', 'check', 'warning', 'clients are using it'),
            ('t', 'check', 'status', 'OK'),
        ]
        self.server.check(TABLE)

    def test_check_finds_something(self):
        for rows, expected in (
            (
                [
                    ('t', 'check', 'Warning', 'InnoDB: index'),
                    ('t', 'check', 'error', "Key 'jo e' is bad"),
                    ('t', 'check', 'status', 'Operation failed'),
                ],
                "table shop.odd`name: Key '...' is bad; Operation failed",
            ),
            ([('t', 'check', 'error', b'Corrupt')], 'table shop.odd`name: Corrupt'),
        ):
            self.mysqld.answer = rows
            found = self.assertRaises(report.Finding, self.server.check, TABLE)
            self.assertEqual((report.CORRUPT, expected), (found.verdict, found.reason))

    def test_both_ends_of_each_index_are_read(self):
        # One after the other: what the indexes are of, and what is counted.
        self.mysqld.answer = [
            ('PRIMARY', 'id', 'A', 1),
            ('begins', 'note', 'A', 0),
            ('by_day', 'day', 'D', 1),
            ('by_day', 'odd`', b'A', 1),
            ('by_sum', None, 'A', 1),
            ('words', 'note', None, 0),
        ]
        table = server.Table('shop', 'odd`name', 10**15, 200)

        self.server.read_ends(table, 800_000)

        self.assertEqual(
            [
                f'SELECT COUNT(*) FROM (SELECT 1 FROM `shop`.`odd``name` {how} LIMIT 1000) AS e'
                for how in (
                    'FORCE INDEX (`PRIMARY`) ORDER BY `id` ASC',
                    'FORCE INDEX (`PRIMARY`) ORDER BY `id` DESC',
                    'FORCE INDEX (`by_day`) ORDER BY `day` DESC, `odd``` ASC',
                    'FORCE INDEX (`by_day`) ORDER BY `day` ASC, `odd``` DESC',
                )
            ],
            self.mysqld.statements[1:],
        )

    def test_table_without_an_order_to_read_by(self):
        for parts in ([], [('words', 'note', None, 0)]):
            self.mysqld.answer = parts
            self.mysqld.statements.clear()
            self.server.read_ends(server.Table('shop', 'log', 10**9), 64 * 50)
            self.assertEqual(
                ['SELECT COUNT(*) FROM (SELECT 1 FROM `shop`.`log` LIMIT 50) AS e'],
                self.mysqld.statements[1:],
            )

    def test_damage_at_an_end(self):
        self.mysqld.answer = pymysql.err.InternalError(1712, 'Index orders is corrupted')
        found = self.assertRaises(report.Finding, self.server.read_ends, TABLE, 100)
        self.assertEqual(report.CORRUPT, found.verdict)

    def test_table_whose_key_is_elsewhere(self):
        """That is no fault of the backup's."""
        told = "Can't find master key from keyring, please check in the server log"
        for answer in (
            [('t', 'check', 'error', told), ('t', 'check', 'status', 'Operation failed')],
            pymysql.err.OperationalError(3185, told),
        ):
            self.mysqld.answer = answer
            error = self.assertRaises(exceptions.NotInspectableError, self.server.check, TABLE)
            self.assertIn('master key', str(error))

    def test_it_dies_of_what_it_is_asked(self):
        self.mysqld.answer = pymysql.err.OperationalError(2013, 'Lost connection')
        self.mysqld.exit_code = 2
        self.mysqld.log.write_text(line('Assertion failure'))
        found = self.assertRaises(report.Finding, self.server.check, TABLE)
        self.assertEqual(report.CORRUPT, found.verdict)
        self.assertIn('table shop.odd`name: mysqld ended with 2', found.reason)

    def test_it_refuses_and_lives(self):
        self.mysqld.answer = pymysql.err.OperationalError(1034, 'Incorrect key file')
        found = self.assertRaises(report.Finding, self.server.tables)
        self.assertEqual(
            (report.CORRUPT, 'listing the tables: Incorrect key file'),
            (found.verdict, found.reason),
        )

    def test_it_does_not_answer(self):
        """As when Ceph does not, on which it has its disk."""
        self.mysqld.answer = pymysql.err.OperationalError(2013, 'Lost connection (timed out)')
        self.assertRaises(exceptions.ServerFailedError, self.server.check, TABLE)

    def test_position_in_one_line(self):
        self.mysqld.answer = [('a:1-5,\nb:1',)]
        self.assertEqual('a:1-5,b:1', self.server.gtid_executed())

    def test_no_set_of_gtids(self):
        self.mysqld.answer = pymysql.err.OperationalError(1772, 'Malformed GTID set')
        self.assertRaises(exceptions.InvalidRequestError, self.server.missing_and_extra, 'x', 'a:1')


class OptionsTest(base.BaseTestCase):
    def test_as_it_was_written(self):
        found = server.options(FOUND, 2 * 1024**3)
        self.assertEqual(
            (8192, 'ibdata1:5M:autoextend', 'binlog', 512 * 1024**2),
            tuple(
                found[name]
                for name in (
                    'innodb_page_size',
                    'innodb_data_file_path',
                    'log_bin',
                    'innodb_buffer_pool_size',
                )
            ),
        )
        self.assertNotIn('skip_log_bin', found)

    def test_without_binary_log(self):
        without = data_directory.DataDirectory(1, 1, (8, 0, 36), 16384, 'ibdata1:5M', None)
        found = server.options(without, 64 * 1024**2)
        self.assertTrue(found['skip_log_bin'])
        self.assertNotIn('log_bin', found)
        self.assertEqual(32 * 1024**2, found['innodb_buffer_pool_size'])
