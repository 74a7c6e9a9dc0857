# SPDX-License-Identifier: Apache-2.0
"""SQL over the network and the figures of sysbench."""

from unittest import mock

import fixtures
import pymysql
from main_job import database
from main_job.errors import JobError
from oslotest import base

# The layout is that of sysbench 1.0.20 running oltp_read_write with --percentile=95.
_REPORT = """\
sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)

Running the test with following options:
Number of threads: 4
Initializing random number generator from current time


Initializing worker threads...

Threads started!

SQL statistics:
    queries performed:
        read:                            15722
        write:                           4492
        other:                           2246
        total:                           22460
    transactions:                        1123   (37.36 per sec.)
    queries:                             22460  (747.25 per sec.)
    ignored errors:                      2      (0.07 per sec.)
    reconnects:                          0      (0.00 per sec.)

General statistics:
    total time:                          30.0550s
    total number of events:              1123

Latency (ms):
         min:                                   22.11
         avg:                                  106.94
         max:                                  981.55
         95th percentile:                      189.93
         sum:                               120094.42

Threads fairness:
    events (avg/stddev):           280.7500/1.48
    execution time (avg/stddev):   30.0236/0.02

"""


class ParseTest(base.BaseTestCase):
    def test_parses_the_figures(self):
        self.assertEqual(
            {
                'tps': 37.36,
                'qps': 747.25,
                'errors': 2.0,
                'latency_avg_ms': 106.94,
                'latency_p95_ms': 189.93,
                'latency_max_ms': 981.55,
            },
            database.parse_sysbench(_REPORT),
        )

    def test_error_names_missing_figures(self):
        lines = [line for line in _REPORT.splitlines() if 'queries:' not in line]
        other = '\n'.join(lines).replace('95th', '99th')
        error = self.assertRaises(JobError, database.parse_sysbench, other)
        self.assertEqual('sysbench reported no qps, latency_p95_ms', str(error))

    def test_refuses_a_report_without_statistics(self):
        error = self.assertRaises(JobError, database.parse_sysbench, _REPORT.split('SQL')[0])
        self.assertIn('tps, qps, errors', str(error))


class DatabaseTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.database = database.Database('10.21.0.9', 'sue', 'secret', 'shop')
        self.useFixture(fixtures.MonkeyPatch('time.sleep', lambda seconds: None))

    def _sysbench(self, **done):
        done = mock.Mock(**{'returncode': 0, 'stdout': _REPORT, 'stderr': ''} | done)
        return mock.patch('main_job.database.subprocess.run', return_value=done)

    def test_runs_sysbench(self):
        with self._sysbench() as run:
            self.assertEqual(37.36, self.database.load(30)['tps'])
        (command,) = run.call_args.args
        self.assertEqual('run', command[-1])
        for option in ('--time=30', '--percentile=95', '--mysql-host=10.21.0.9'):
            self.assertIn(option, command)

    def test_recreates_the_tables(self):
        with self._sysbench() as run:
            self.database.prepare()
        self.assertEqual(['cleanup', 'prepare'], [call.args[0][-1] for call in run.call_args_list])

    def test_error_has_the_output(self):
        # Sysbench reports a refused connection on its standard output.
        with self._sysbench(returncode=1, stdout='FATAL: error 2003', stderr=''):
            error = self.assertRaises(JobError, self.database.load, 30)
        self.assertEqual('sysbench run failed: FATAL: error 2003', str(error))

    def test_waits_until_the_server_is_reachable(self):
        refused = pymysql.err.OperationalError(2003, 'refused')
        connection = mock.MagicMock()
        with mock.patch('pymysql.connect', side_effect=[refused, refused, connection]) as connect:
            self.database.wait_reachable()
        self.assertEqual(3, connect.call_count)

    def test_fails_if_the_server_stays_unreachable(self):
        refused = pymysql.err.OperationalError(2003, 'refused')
        clock = iter([0.0, 10.0, database.CONNECT_TIMEOUT_SEC + 1.0])
        with (
            mock.patch('pymysql.connect', side_effect=refused),
            mock.patch('main_job.database.time.monotonic', side_effect=clock),
        ):
            error = self.assertRaises(JobError, self.database.wait_reachable)
        self.assertIn('10.21.0.9:3306 does not answer SQL', str(error))
        self.assertNotIn('secret', str(error))

    def test_settings_by_name(self):
        row = tuple(range(len(database.SETTINGS)))
        with mock.patch.object(database.Database, 'query', return_value=[row]) as query:
            found = self.database.settings()
        self.assertEqual('0', found['version'])
        self.assertEqual(str(len(row) - 1), found[database.SETTINGS[-1]])
        self.assertIn('@@gtid_mode', query.call_args.args[0])
