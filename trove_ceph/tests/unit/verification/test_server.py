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
    """A fake process that answers each statement with ``answer`` and has a log."""

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

    def test_a_start_that_fails_because_of_damage_is_a_finding(self):
        for text, part, verdict in (
            ('Checksum mismatch in redo', 'InnoDB', report.CORRUPT),
            ("Cannot open './undo_001' OS errno 2 - No such file", 'InnoDB', report.INCOMPLETE),
            ("File './binlog.000003' not found (OS errno 2)", 'Server', report.INCOMPLETE),
        ):
            found = self.assert_start_fails(
                report.NotSoundError, line(text, part), 'recovery failed: '
            )
            self.assertEqual(verdict, found.verdict, text)

    def test_a_server_that_does_not_support_the_data_is_not_inspectable(self):
        for text in (
            'Invalid MySQL server upgrade: Cannot upgrade from 50744 to 90704.',
            "Different lower_case_table_names settings for server ('0') and data dictionary ('1').",
        ):
            self.assert_start_fails(exceptions.NotInspectableError, line(text), text[:30])

    def test_a_start_that_fails_for_an_unknown_reason_is_an_error(self):
        self.assert_start_fails(exceptions.ServerFailedError, '', 'mysqld ended with 1: its log')
        self.assert_start_fails(
            exceptions.ServerFailedError, line('Aborting', 'Server'), 'Aborting'
        )

    def test_check(self):
        self.mysqld.answer = [('shop.odd`name', 'check', 'status', 'OK')]
        self.server.check(TABLE)
        self.assertEqual('CHECK TABLE `shop`.`odd``name`', self.mysqld.statements[-1])
        # Storage engines without a check report a note.
        self.mysqld.answer = [('t', 'check', 'note', "The storage engine doesn't support check")]
        self.server.check(TABLE)
        self.mysqld.answer = [
            ('t', 'check', 'warning', 'clients are using it'),
            ('t', 'check', 'status', 'OK'),
        ]
        self.server.check(TABLE)

    def test_check_reports_damage(self):
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
            found = self.assertRaises(report.NotSoundError, self.server.check, TABLE)
            self.assertEqual((report.CORRUPT, expected), (found.verdict, found.reason))

    def test_a_check_that_fails_without_reporting_damage_is_an_error(self):
        for message, kind in (
            ('Query execution was interrupted', exceptions.ServerFailedError),
            ("Got error 168 - 'Unknown' from storage engine", exceptions.ServerFailedError),
            ("Can't open file: 'orders.ibd' (errno: 5 - I/O error)", None),
            ('Out of memory; restart server and try again', None),
        ):
            self.mysqld.answer = [
                ('t', 'check', 'error', message),
                ('t', 'check', 'status', 'Operation failed'),
            ]
            self.assertRaises(kind or exceptions.InspectionFaultError, self.server.check, TABLE)

    def test_both_ends_of_each_index_are_read(self):
        # The answer to the list of index columns, and to each count.
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

    def test_a_table_without_a_usable_index_is_read_in_physical_order(self):
        for parts in ([], [('words', 'note', None, 0)]):
            self.mysqld.answer = parts
            self.mysqld.statements.clear()
            self.server.read_ends(server.Table('shop', 'log', 10**9), 64 * 50)
            self.assertEqual(
                ['SELECT COUNT(*) FROM (SELECT 1 FROM `shop`.`log` LIMIT 50) AS e'],
                self.mysqld.statements[1:],
            )

    def test_damage_at_an_end_of_an_index_is_a_finding(self):
        self.mysqld.answer = pymysql.err.InternalError(1712, 'Index orders is corrupted')
        found = self.assertRaises(report.NotSoundError, self.server.read_ends, TABLE, 100)
        self.assertEqual(report.CORRUPT, found.verdict)

    def test_a_table_without_its_encryption_key_is_not_inspectable(self):
        """The backup itself may be sound."""
        message = "Can't find master key from keyring, please check in the server log"
        for answer in (
            [('t', 'check', 'error', message), ('t', 'check', 'status', 'Operation failed')],
            pymysql.err.OperationalError(3185, message),
        ):
            self.mysqld.answer = answer
            error = self.assertRaises(exceptions.NotInspectableError, self.server.check, TABLE)
            self.assertIn('master key', str(error))

    def test_a_crash_of_a_query_with_damage_in_the_log_is_a_finding(self):
        self.mysqld.answer = pymysql.err.OperationalError(2013, 'Lost connection')
        self.mysqld.exit_code = 2
        self.mysqld.log.write_text(line('Database page corruption on disk'))
        found = self.assertRaises(report.NotSoundError, self.server.check, TABLE)
        self.assertEqual(report.CORRUPT, found.verdict)
        self.assertIn('table shop.odd`name: mysqld ended with 2', found.reason)

    def test_a_kill_is_a_fault_even_with_damage_in_the_log(self):
        """Such as a kill by the kernel's OOM killer, or by an operator."""
        self.mysqld.log.write_text(line('Database page corruption on disk'))
        self.mysqld.answer = pymysql.err.OperationalError(2013, 'Lost connection')
        for code in (-9, -15, -7, -24, 137, 143):
            self.mysqld.exit_code = code
            error = self.assertRaises(exceptions.InspectionFaultError, self.server.check, TABLE)
            self.assertIn(f'mysqld ended with {code}', str(error))
        for code in (-6, -11, 2, 134):
            self.mysqld.exit_code = code
            self.assertRaises(report.NotSoundError, self.server.check, TABLE)

    def test_a_crash_without_a_known_reason_is_an_error(self):
        self.mysqld.answer = pymysql.err.OperationalError(2013, 'Lost connection')
        self.mysqld.exit_code = 2
        self.mysqld.log.write_text(line('Assertion failure: buf0buf.cc:1:false'))
        self.assertRaises(exceptions.ServerFailedError, self.server.check, TABLE)

    def test_damage_with_a_fault_of_the_host_in_the_log_is_a_fault(self):
        corrupt = line('Database page corruption on disk or a failed file read of page')
        for message in (
            'Operating system error number 5 in a file operation.',
            "Cannot open './ibtmp1' OS errno 28 - No space left on device",
            'Cannot allocate 1048576 bytes of memory after 60 retries',
            'Tried to read 16384 bytes at offset 49152, but was only able to read 0',
            'A long semaphore wait: thread 1 has waited',
            "Error writing file './binlog.000001' (errno: 30 - Read-only file system)",
        ):
            for log in (line(message) + corrupt, corrupt + line(message, 'Server')):
                error = self.assert_start_fails(
                    exceptions.InspectionFaultError, log, 'mysqld ended with 1'
                )
                self.assertIn('its log has', str(error))

    def test_a_fault_at_the_end_of_a_long_log_counts(self):
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

    def test_errors_without_evidence_of_damage(self):
        for code, message, kind in (
            (1026, "Error writing file 'x' (Errcode: 28 - No space left on device)", None),
            (1037, 'Out of memory; restart server', None),
            (1205, 'Lock wait timeout exceeded', exceptions.ServerFailedError),
            (1317, 'Query execution was interrupted', exceptions.ServerFailedError),
            (1146, "Table 'shop.orders' doesn't exist", exceptions.ServerFailedError),
            # The text alone is no evidence where the number has another meaning.
            (1105, 'corrupt, it seems', exceptions.ServerFailedError),
        ):
            self.mysqld.answer = pymysql.err.OperationalError(code, message)
            self.assertRaises(kind or exceptions.InspectionFaultError, self.server.tables)
        self.mysqld.answer = pymysql.err.OperationalError(1932, "doesn't exist in engine")
        found = self.assertRaises(report.NotSoundError, self.server.tables)
        self.assertEqual(report.INCOMPLETE, found.verdict)

    def test_an_error_of_a_running_server_is_classified_by_its_number(self):
        self.mysqld.answer = pymysql.err.OperationalError(1034, 'Incorrect key file')
        found = self.assertRaises(report.NotSoundError, self.server.tables)
        self.assertEqual(
            (report.CORRUPT, 'listing the tables: Incorrect key file'),
            (found.verdict, found.reason),
        )

    def test_a_server_that_does_not_answer_is_an_error(self):
        """Such as when Ceph, which serves its disk, does not answer."""
        self.mysqld.answer = pymysql.err.OperationalError(2013, 'Lost connection (timed out)')
        self.assertRaises(exceptions.ServerFailedError, self.server.check, TABLE)

    def test_position_in_one_line(self):
        self.mysqld.answer = [(10, 'a:1-5,\nb:1')]
        self.assertEqual('a:1-5,b:1', self.server.gtid_executed())

    def test_refuses_a_malformed_gtid_set(self):
        self.mysqld.answer = pymysql.err.OperationalError(1772, 'Malformed GTID set')
        self.assertRaises(exceptions.InvalidRequestError, self.server.missing_and_extra, 'x', 'a:1')

    def test_refuses_a_position_that_is_too_long(self):
        self.mysqld.answer = [(12, 'uuid:1-3,\nuuid:7')]
        self.assertEqual('uuid:1-3,uuid:7', self.server.gtid_executed())
        self.assertIn(f', {report.MAX_GTID_BYTES})', self.mysqld.statements[-1])
        self.mysqld.answer = [(report.MAX_GTID_BYTES + 1, 'uuid:1')]
        error = self.assertRaises(exceptions.NotInspectableError, self.server.gtid_executed)
        self.assertIn(f'has {report.MAX_GTID_BYTES + 1} bytes', str(error))

    def test_refuses_too_many_tables(self):
        self.mysqld.answer = [('s', 't', 1, 1)] * (server.MAX_TABLES + 1)
        error = self.assertRaises(exceptions.NotInspectableError, self.server.tables)
        self.assertIn(f'more than {server.MAX_TABLES} tables', str(error))
        self.assertIn(f'LIMIT {server.MAX_TABLES + 1}', self.mysqld.statements[-1])

    def test_the_result_of_a_check_is_cut(self):
        self.mysqld.answer = [('t', 'check', 'error', 'Corrupt ' * 40)] * 100_000
        found = self.assertRaises(report.NotSoundError, self.server.check, TABLE)
        self.assertEqual(report.MAX_REASON_CHARACTERS, len(found.reason))

    def test_a_log_that_is_a_link_is_not_read(self):
        self.mysqld.log.symlink_to('/etc/passwd')
        self.mysqld.exit_code = 1
        error = self.assertRaises(exceptions.ServerFailedError, self.server.start, 5)
        self.assertIn('its log has no error', str(error))


class OptionsTest(base.BaseTestCase):
    def test_options_follow_the_data(self):
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
