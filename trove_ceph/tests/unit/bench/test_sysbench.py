# SPDX-License-Identifier: Apache-2.0
import time
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.bench import recorded
from trove_ceph_bench import model, sysbench, sysbench_output, workloads

#: Stands for sysbench: shows how it was called, then does as a line of the test says.
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

    def test_no_summary_of_a_run_that_was_cut_off(self):
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

    def test_unknown_reason_shows_the_last_lines_alone(self):
        self.assertEqual('b | c', sysbench_output.explain('b\n\nc\n'))
        self.assertEqual('5 | 6', sysbench_output.last_lines('4\n5\n6\n', 2))


class SysbenchTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.be('exit 0')
        self.load = self.make()

    def be(self, then):
        """Let a program stand for sysbench that ends as told."""
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
        self.addCleanup(run.end)
        self.assertTrue(run.wait(60))
        return run

    def test_password_goes_by_a_file_for_nobody_else_and_not_by_the_command(self):
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
        run.end()
        self.assertEqual([], list((self.directory / 'run').glob('connection-*')))

    def test_socket_takes_the_place_of_the_host(self):
        run = self.start(self.make(unix_socket='/run/s.sock'))
        self.assertIn('mysql-socket="/run/s.sock"', run.output())
        self.assertNotIn('mysql-host', run.output())

    def test_password_that_sysbench_cannot_read(self):
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

    def test_nothing_to_do_is_refused(self):
        for threads, seconds in ((0, 10), (1, 0), (-1, 10)):
            self.assertRaises(
                exceptions.InvalidPlanError, self.load.start, threads, seconds, self.directory / 'r'
            )

    def test_missing_program_says_install_it(self):
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
            self.be(then)
            error = self.assertRaises(exceptions.LoadFailedError, self.load.prepare)
            self.assertIn('access is denied', str(error))
            self.assertNotIn('se"cret', str(error).partition('access')[0])

    def test_prepare_takes_too_long(self):
        self.be('exec sleep 1000')
        error = self.assertRaises(exceptions.LoadFailedError, self.load.prepare, timeout_sec=0.2)
        self.assertIn('took more than 0.2 s', str(error))

    def test_end_before_the_start_is_a_failure(self):
        self.be('echo "FATAL: error 1040: Too many connections"; exit 1')
        run = self.start(self.load)
        error = self.assertRaises(exceptions.LoadFailedError, sysbench.begin_together, [run])
        self.assertIn('takes no more connections', str(error))

    def test_all_begin_at_one_second_once_all_are_ready(self):
        self.be('touch "$BENCH_LATENCY/thread-0" "$BENCH_LATENCY/thread-1"; exec sleep 1000')
        runs = [self.load.start(2, 60, self.directory / name) for name in ('a', 'b')]
        for run in runs:
            self.addCleanup(run.end)

        second = sysbench.begin_together(runs)

        self.assertGreater(second, time.monotonic() - 60)
        for name, run in zip(('a', 'b'), runs, strict=True):
            start = self.directory / name / 'latency' / 'start'
            self.assertEqual(f'{second}\n', start.read_text())
            # Once connected, nobody needs the password any more.
            self.assertEqual([], list((self.directory / name).glob('connection-*')))
            self.assertFalse(run.ended)
            run.end()
            self.assertTrue(run.ended)

    def test_latencies_of_an_ended_run_are_kept_in_one_file(self):
        self.be(
            'echo "5 1 1000 1000 0:1" > "$BENCH_LATENCY/thread-0";'
            'echo "5 1 3000 3000 55:1" > "$BENCH_LATENCY/thread-1"'
        )
        run = self.start(self.load, threads=2)

        seconds = run.pack()

        self.assertEqual((2, 4000), (seconds[5].count, seconds[5].sum_ns))
        names = sorted(path.name for path in (self.directory / 'run').glob('[!c]*'))
        self.assertEqual(['latency.txt', 'sysbench.log'], names)
