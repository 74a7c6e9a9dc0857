# SPDX-License-Identifier: Apache-2.0
import re
import time
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.bench import recorded
from trove_ceph_bench import model, sysbench, sysbench_output, workloads

#: Fake of sysbench: prints its arguments and option file, then runs a line of the test.
PROGRAM = """#!/bin/sh
[ "$1" = --version ] && echo 'sysbench 1.0.20' && exit
echo "called $*"
for word; do case $word in --config-file=*) cat "${word#*=}"; ls -l "${word#*=}";; esac; done
%s
"""


class OutputTest(base.BaseTestCase):
    def test_samples(self):
        samples = sysbench_output.parse_samples(recorded.text('sysbench-run.log'))

        self.assertEqual([1, 2, 3, 4, 5, 6, 7], [sample.second for sample in samples])
        self.assertEqual(sysbench_output.Sample(2, 4, 360.59, 5037.34, 89.16, 0.0, 0.0), samples[1])

    def test_summary(self):
        summary = sysbench.parse_summary(recorded.text('sysbench-run.log'))

        self.assertEqual((2290, 32060), (summary.transactions, summary.queries))
        self.assertEqual((0, 0), (summary.errors, summary.reconnects))
        self.assertEqual(8.0709, summary.elapsed_sec)
        self.assertAlmostEqual(283.7, summary.tps, delta=0.1)
        self.assertAlmostEqual(3971.8, summary.qps, delta=1)
        self.assertEqual(
            (13.99, 417.45, 150.29),
            (summary.latency_avg_ms, summary.latency_max_ms, summary.latency_percentile_ms),
        )

    def test_no_summary_of_an_interrupted_run(self):
        killed = recorded.text('sysbench-server-killed.log')
        self.assertEqual(2, len(sysbench_output.parse_samples(killed)))
        self.assertRaises(ValueError, sysbench.parse_summary, killed)
        whole = recorded.text('sysbench-run.log')
        self.assertRaises(ValueError, sysbench.parse_summary, whole[: whole.index('avg:')])

    def test_reasons(self):
        for text, reason in (
            (recorded.text('sysbench-server-killed.log'), 'the connection to the server was lost'),
            (recorded.text('sysbench-refused.log'), 'access is denied: wrong user or password'),
            ('FATAL: MySQL error: 1146 "Table \'a.b\' doesn\'t exist"', 'a table is missing'),
            ("returned error 1114 (The table 't' is full) for", 'a table is full'),
            ('returned error 3675 (Create table/tablespace failed)', 'the disk of the server'),
        ):
            explained = sysbench_output.explain(text)
            self.assertTrue(explained.startswith(reason), explained)
            self.assertIn(text.strip().splitlines()[-1].strip(), explained)

    def test_unknown_error_shows_the_last_lines(self):
        self.assertEqual('b | c', sysbench_output.explain('b\n\nc\n'))
        self.assertEqual('5 | 6', sysbench_output.last_lines('4\n5\n6\n', 2))


class SysbenchTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.install('exit 0')
        self.load = self.make()

    def install(self, then):
        """Install a fake sysbench that runs a shell line."""
        program = self.directory / 'sysbench'
        program.write_text(PROGRAM % then)
        program.chmod(0o755)
        self.useFixture(fixtures.EnvironmentVariable('PATH', f'{self.directory}:/bin:/usr/bin'))

    def make(self, password='se"cret', **more):
        address = model.Address('u', password, 'db', **more)
        data = model.Dataset('d', 2, 100)
        return sysbench.Sysbench(address, workloads.get('write'), data)

    def start(self, load, threads=3):
        run = load.start(threads, 60, self.directory / 'run')
        self.addCleanup(run.stop)
        self.assertTrue(run.wait(60))
        return run

    def test_password_is_in_a_private_file_and_not_on_the_command_line(self):
        run = self.start(self.make(host='db.example', port=3307))

        called, *settings = run.output().splitlines()
        self.assertNotIn('se"cret', called)
        self.assertEqual(
            [
                'db-driver="mysql"',
                'mysql-user="u"',
                "mysql-password='se\"cret'",
                'mysql-db="db"',
                'mysql-host="db.example"',
                'mysql-port="3307"',
            ],
            settings[:-1],
        )
        self.assertTrue(settings[-1].startswith('-rw-------'), settings[-1])
        (path,) = re.findall('--config-file=([^ ]+)', called)
        self.assertNotIn(self.directory, Path(path).parents)
        self.assertTrue(Path(path).exists())
        run.stop()
        self.assertFalse(Path(path).exists())

    def test_socket_replaces_the_host(self):
        run = self.start(self.make(unix_socket='/run/s.sock'))
        self.assertIn('mysql-socket="/run/s.sock"', run.output())
        self.assertNotIn('mysql-host', run.output())

    def test_refuses_a_password_that_sysbench_cannot_read(self):
        for name, password in (('a', 'both \' and "'), ('b', 'line\nbreak')):
            load = self.make(password)
            self.assertRaises(
                exceptions.TargetUnavailableError, load.start, 1, 1, self.directory / name
            )

    def test_command(self):
        called = self.start(self.load).output().splitlines()[0]
        for option in (
            '--threads=3',
            '--time=60',
            '--tables=2',
            '--table-size=100',
            '--rand-type=uniform',
            '--report-interval=1',
            '--mysql-ignore-errors=1213,1205,1020',
        ):
            self.assertIn(f' {option} ', called)
        self.assertIn(f' {sysbench.TIMED_SCRIPT} ', called)
        self.assertTrue(called.endswith(' run'))

    def test_refuses_an_empty_load(self):
        for threads, seconds in ((0, 10), (1, 0), (-1, 10)):
            self.assertRaises(
                exceptions.InvalidPlanError, self.load.start, threads, seconds, self.directory / 'r'
            )

    def test_error_for_a_missing_program_names_the_package(self):
        (self.directory / 'sysbench').unlink()
        self.useFixture(fixtures.EnvironmentVariable('PATH', str(self.directory)))
        for call in (sysbench.version, self.load.prepare, self.load.cleanup):
            error = self.assertRaises(exceptions.LoadFailedError, call)
            self.assertIn('install the package sysbench', str(error))

    def test_version(self):
        self.assertEqual('1.0.20', sysbench.version())
        (self.directory / 'sysbench').write_text('#!/bin/sh\necho sysbench 0.5\n')
        error = self.assertRaises(exceptions.LoadFailedError, sysbench.version)
        self.assertIn('sysbench 0.5', str(error))

    def test_prepare_fails(self):
        for then in ('echo "FATAL: error 1045: no"; exit 1', 'echo "FATAL: error 1045: no"'):
            self.install(then)
            error = self.assertRaises(exceptions.LoadFailedError, self.load.prepare)
            self.assertIn('access is denied', str(error))
            self.assertNotIn('se"cret', str(error).partition('access')[0])

    def test_prepare_takes_too_long(self):
        self.install('exec sleep 1000')
        error = self.assertRaises(exceptions.LoadFailedError, self.load.prepare, timeout_sec=0.2)
        self.assertIn('took more than 0.2 s', str(error))

    def test_exit_before_the_start_is_a_failure(self):
        self.install('echo "FATAL: error 1040: Too many connections"; exit 1')
        run = self.start(self.load)
        error = self.assertRaises(exceptions.LoadFailedError, sysbench.start_together, [run])
        self.assertIn('has no free connection', str(error))

    def test_all_start_at_the_same_second_once_all_are_ready(self):
        self.install('touch "$BENCH_LATENCY/thread-0" "$BENCH_LATENCY/thread-1"; exec sleep 1000')
        runs = [self.load.start(2, 60, self.directory / name) for name in ('a', 'b')]
        for run in runs:
            self.addCleanup(run.stop)

        second = sysbench.start_together(runs)

        self.assertGreater(second, time.monotonic() - 60)
        for name, run in zip(('a', 'b'), runs, strict=True):
            start = self.directory / name / 'latency' / 'start'
            self.assertEqual(f'{second}\n', start.read_text())
            # sysbench needs the password only to connect.
            self.assertFalse(run._connection.exists())
            self.assertFalse(run.ended)
            run.stop()
            self.assertTrue(run.ended)

    def test_merges_latencies_into_one_file(self):
        self.install(
            'echo "5 1 1000 1000 0:1" > "$BENCH_LATENCY/thread-0";'
            'echo "5 1 3000 3000 55:1" > "$BENCH_LATENCY/thread-1"'
        )
        run = self.start(self.load, threads=2)

        seconds = run.merge_latencies()

        self.assertEqual((2, 4000), (seconds[5].count, seconds[5].sum_ns))
        names = sorted(path.name for path in (self.directory / 'run').glob('[!c]*'))
        self.assertEqual(['latency.txt', 'sysbench.log'], names)
