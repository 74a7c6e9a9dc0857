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
                    ('t', 'check', 'error', "Index 'jo e' is corrupted"),
                    ('t', 'check', 'status', 'Operation failed'),
                ],
                "table shop.odd`name: Index '...' is corrupted; Operation failed",
            ),
            ([('t', 'check', 'error', b'Corrupt')], 'table shop.odd`name: Corrupt'),
        ):
            self.mysqld.answer = rows
            found = self.assertRaises(report.Finding, self.server.check, TABLE)
            self.assertEqual((report.CORRUPT, expected), (found.verdict, found.reason))

    def test_check_that_fails_without_saying_that_the_table_is_damaged(self):
        for told, kind in (
            ('Query execution was interrupted', exceptions.ServerFailedError),
            ("Got error 168 - 'Unknown' from storage engine", exceptions.ServerFailedError),
            ("Can't open file: 'orders.ibd' (errno: 5 - I/O error)", None),
            ('Out of memory; restart server and try again', None),
        ):
            self.mysqld.answer = [
                ('t', 'check', 'error', told),
                ('t', 'check', 'status', 'Operation failed'),
            ]
            self.assertRaises(kind or exceptions.InspectionFaultError, self.server.check, TABLE)

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
        self.mysqld.log.write_text(line('Database page corruption on disk'))
        found = self.assertRaises(report.Finding, self.server.check, TABLE)
        self.assertEqual(report.CORRUPT, found.verdict)
        self.assertIn('table shop.odd`name: mysqld ended with 2', found.reason)

    def test_it_is_killed_while_its_log_says_that_a_page_is_damaged(self):
        """As where the kernel ends what takes too much memory, or somebody ends it."""
        self.mysqld.log.write_text(line('Database page corruption on disk'))
        self.mysqld.answer = pymysql.err.OperationalError(2013, 'Lost connection')
        for code in (-9, -15, -7, -24, 137, 143):
            self.mysqld.exit_code = code
            error = self.assertRaises(exceptions.InspectionFaultError, self.server.check, TABLE)
            self.assertIn(f'mysqld ended with {code}', str(error))
        for code in (-6, -11, 2, 134):
            self.mysqld.exit_code = code
            self.assertRaises(report.Finding, self.server.check, TABLE)

    def test_it_dies_and_does_not_say_of_what(self):
        self.mysqld.answer = pymysql.err.OperationalError(2013, 'Lost connection')
        self.mysqld.exit_code = 2
        self.mysqld.log.write_text(line('Assertion failure: buf0buf.cc:1:false'))
        self.assertRaises(exceptions.ServerFailedError, self.server.check, TABLE)

    def test_a_page_is_damaged_and_the_disk_has_failed(self):
        corrupt = line('Database page corruption on disk or a failed file read of page')
        for told in (
            'Operating system error number 5 in a file operation.',
            "Cannot open './ibtmp1' OS errno 28 - No space left on device",
            'Cannot allocate 1048576 bytes of memory after 60 retries',
            'Tried to read 16384 bytes at offset 49152, but was only able to read 0',
            'A long semaphore wait: thread 1 has waited',
            "Error writing file './binlog.000001' (errno: 30 - Read-only file system)",
        ):
            for log in (line(told) + corrupt, corrupt + line(told, 'Server')):
                error = self.assert_start_fails(
                    exceptions.InspectionFaultError, log, 'mysqld ended with 1'
                )
                self.assertIn('its log has', str(error))

    def test_what_stands_at_the_end_of_a_long_log_counts(self):
        corrupt = line('Database page corruption on disk')
        page = ' len 16384; hex 00' + '0' * server._LOG_BYTES + '\n'
        log = corrupt + page + line('Operating system error number 5 in a file operation.')
        self.assert_start_fails(exceptions.InspectionFaultError, log, 'error number 5')

    def test_undisturbed(self):
        self.mysqld.log.write_text(line('Database page corruption on disk'))
        self.server.check_undisturbed()
        self.mysqld.log.write_text(line('Disk is full writing', 'Server'))
        self.assertRaises(exceptions.InspectionFaultError, self.server.check_undisturbed)

    def test_prepared_transactions(self):
        self.mysqld.answer = [(1, 3, 2, '0x6162630102'), (7, 1, 0, b'0xff')]
        self.assertEqual(
            (["X'616263',X'0102',1", "X'ff',X'',7"], 2), self.server.prepared_transactions()
        )
        self.mysqld.answer = [(1, 1, 0, '0x00')] * 250
        listed, count = self.server.prepared_transactions()
        self.assertEqual((100, 250), (len(listed), count))

    def test_errors_that_say_nothing_of_the_table(self):
        for code, told, kind in (
            (1026, "Error writing file 'x' (Errcode: 28 - No space left on device)", None),
            (1037, 'Out of memory; restart server', None),
            (1205, 'Lock wait timeout exceeded', exceptions.ServerFailedError),
            (1317, 'Query execution was interrupted', exceptions.ServerFailedError),
            (1146, "Table 'shop.orders' doesn't exist", exceptions.ServerFailedError),
            # The text alone is no evidence where the number has another meaning.
            (1105, 'corrupt, it seems', exceptions.ServerFailedError),
        ):
            self.mysqld.answer = pymysql.err.OperationalError(code, told)
            self.assertRaises(kind or exceptions.InspectionFaultError, self.server.tables)
        self.mysqld.answer = pymysql.err.OperationalError(1932, "doesn't exist in engine")
        found = self.assertRaises(report.Finding, self.server.tables)
        self.assertEqual(report.INCOMPLETE, found.verdict)

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
