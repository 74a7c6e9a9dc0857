# SPDX-License-Identifier: Apache-2.0
"""Whole plans of ``trove-ceph-bench`` on real servers, interrupted and resumed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import yaml
from oslo_utils import units

from trove_ceph.tests.functional import base, mysqld
from trove_ceph_bench import results

COMMAND = Path(sys.executable).parent / 'trove-ceph-bench'
MARK = 'TROVE_CEPH_BENCH_TEST'
MIB = units.Mi


class BenchRunTestCase(base.FunctionalTestCase):
    def setUp(self):
        super().setUp()
        self.disk = self.directory / 'disk'
        self.disk.mkdir()
        self.results = self.directory / 'results'
        self.addCleanup(self.end_all)

    def server(self, **options):
        small = {'innodb_buffer_pool_size': 16 * MIB, 'innodb_redo_log_capacity': 16 * MIB}
        return {
            'server': {
                'mysqld': {'rootfs': str(mysqld.rootfs())},
                'on': {'local': str(self.disk)},
                'options': small | options,
            }
        }

    def start(self, command, content):
        """Start a plan; its environment identifies all processes that it starts."""
        path = self.directory / 'plan.yaml'
        path.write_text(yaml.safe_dump(content))
        return subprocess.Popen(
            [str(COMMAND), command, str(path), '-d', str(self.results)],
            env={**os.environ, MARK: str(self.directory), 'TMPDIR': str(self.directory)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run_plan(self, command, content):
        process = self.start(command, content)
        output, errors = process.communicate()
        return process.returncode, output, errors

    def wait_for_line(self, process, text):
        """Read until a line contains this text, and return the line."""
        lines = []
        for line in process.stderr:
            lines.append(line)
            if text in line:
                return line
        raise AssertionError(f'{text!r} was never printed: {"".join(lines)}')

    def started(self):
        """Return the running processes that a plan started."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == str(self.directory):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def end_all(self):
        for process in self.started():
            process.kill()

    def assert_nothing_left(self):
        self.assertEqual([], self.started())
        self.assertEqual([], list(self.disk.iterdir()))
        self.assertEqual([], list(self.directory.glob('trove-ceph-test-*')))

    def stored(self):
        return results.Store(self.results).runs()


class LoadPlanTestCase(BenchRunTestCase):
    def plan(self, **changes):
        durable, lazy = self.server(), self.server(innodb_flush_log_at_trx_commit=2)
        return {
            'name': 'flush',
            'description': 'Two servers on a local disk',
            'variants': [
                {'name': 'durable', 'role': 'subject', 'target': durable},
                {'name': 'lazy', 'role': 'control', 'target': lazy},
            ],
            'workloads': ['write'],
            'datasets': ['cached'],
            'threads': [2],
            'repeats': 2,
            'warmup_sec': 1,
            'measure_sec': 3,
            **changes,
        }

    @base.long
    def test_resumes_an_interrupted_plan(self):
        # The second run is long enough for the interruption to hit it.
        long = self.plan(measure_sec=10, repeats=1)
        process = self.start('run', long)
        self.wait_for_line(process, '1/2 write cached 2 threads, durable, repeat 1: ')
        self.wait_for_measured_second(process)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()

        self.assertEqual(130, process.returncode, errors)
        self.assertIn('the same command resumes', errors)
        self.assert_nothing_left()
        before = {run.path: run for run in self.stored()}
        self.assertEqual([True, False], [run.run['complete'] for run in before.values()])
        (cut_off,) = [run.run for run in before.values() if not run.run['complete']]
        self.assertEqual('interrupted', cut_off['reason'])
        self.assertGreater(cut_off['totals']['transactions'], 0)
        self.assertTrue((self.results / 'report' / 'index.html').exists())

        status, output, errors = self.run_plan('run', long)

        self.assertEqual(0, status, errors)
        self.assertIn('1 of 2 runs are measured already', errors)
        self.assertEqual(f'report: {self.results}/report/index.html\n', output)
        self.assert_nothing_left()
        after = self.stored()
        self.assertEqual([True] * 2, [run.run['complete'] for run in after])
        for run in after:
            if run.path in before and before[run.path].run['complete']:
                self.assertEqual(before[run.path].run, run.run)
        page = (self.results / 'report' / 'index.html').read_text()
        for words in ('durable', 'lazy', 'Two servers on a local disk'):
            self.assertIn(words, page)

    def wait_for_measured_second(self, process):
        """Wait until the present run has a complete second of results."""
        while process.poll() is None:
            for log in self.results.glob('*/id-*/raw/*/sysbench.log'):
                if not (log.parents[2] / 'run.json').exists() and '[ 5s ]' in log.read_text():
                    return
            time.sleep(0.2)
        raise AssertionError(f'ended with {process.returncode}: {process.stderr.read()}')

    @base.long
    def test_data_has_the_requested_size(self):
        status, _, errors = self.run_plan('run', self.plan(datasets=['1:2'], repeats=1))
        self.assertEqual(0, status, errors)
        for run in self.stored():
            rows = run.config['dataset']['tables'] * run.config['dataset']['rows']
            self.assertAlmostEqual(32 * MIB, rows * 244, delta=MIB)
            variables = run.disclosure['target']['mysql']['variables']
            self.assertEqual(str(16 * MIB), variables['innodb_buffer_pool_size'])

    @base.long
    def test_reports_a_server_that_dies(self):
        process = self.start('run', self.plan(measure_sec=30))
        self.wait_for_measured_second(process)
        for each in self.started():
            if each.name() == 'mysqld':
                each.kill()
        _, errors = process.communicate()

        self.assertEqual(1, process.returncode, errors)
        self.assertIn('trove-ceph-bench: write cached 2 threads, durable, repeat 1: ', errors)
        self.assertNotIn('Traceback', errors)
        self.assert_nothing_left()
        (run,) = self.stored()
        self.assertFalse(run.run['complete'])
        self.assertGreater(run.run['totals']['transactions'], 0)

    def test_reports_a_missing_server(self):
        plan = self.plan()
        plan['variants'][1]['target'] = {'dsn': 'mysql://bench@127.0.0.1:9'}
        status, _, errors = self.run_plan('run', plan)

        self.assertEqual(1, status)
        self.assertIn('127.0.0.1:9', errors)
        self.assertNotIn('Traceback', errors)
        self.assert_nothing_left()


class OperationsPlanTestCase(BenchRunTestCase):
    @base.long
    def test_measures_two_sizes_and_reports_a_failing_contender(self):
        dump = self.directory / 'dump'
        gone = self.directory / 'gone'
        target = self.server()
        plan = {
            'name': 'copies',
            'operations': {
                'sizes_mib': [8, 2],
                'repeats': 2,
                'settle_sec': 1,
                'contenders': [
                    {
                        'name': 'copy',
                        'role': 'subject',
                        'operation': 'backup',
                        'target': target,
                        'run': f'echo phase begin; sleep 1; printf %${{BENCH_DATA_MIB}}s >{dump}',
                        'cost': {'space_bytes': f'stat -c %s {dump}'},
                        'cleanup': f'rm {dump}',
                    },
                    {
                        'name': 'broken',
                        'role': 'baseline',
                        'operation': 'backup',
                        'target': target,
                        'run': 'echo no such backup >&2; exit 5',
                        'cleanup': f'touch {gone}',
                    },
                ],
            },
        }
        status, output, errors = self.run_plan('operations', plan)

        self.assertEqual(1, status, errors)
        self.assertIn('backup by broken, 2 MiB, repeat 1: run failed: exit code 5', errors)
        self.assertIn('report: ', output)
        self.assertTrue(gone.exists())
        self.assert_nothing_left()
        runs = self.stored()
        self.assertEqual(8, len(runs))
        for run in runs:
            size_mib = run.config['data_mib']
            self.assertAlmostEqual(size_mib, run.run['data_bytes'] / MIB, delta=size_mib / 2 + 1)
            if run.config['variant'] == 'copy':
                self.assert_copy(run.run, size_mib)
            else:
                self.assertEqual((5, 'no such backup'), self.outcome(run.run))
        report = json.loads((self.results / 'report' / 'report.json').read_text())
        self.assertTrue(report)

    @staticmethod
    def outcome(run):
        return run['exit_code'], run['output']

    def assert_copy(self, run, size_mib):
        self.assertEqual((0, ''), self.outcome(run))
        self.assertGreater(run['seconds'], 0.9)
        self.assertEqual(['begin'], [phase['name'] for phase in run['phases']])
        self.assertEqual(size_mib, run['cost']['space_bytes'])
        self.assertGreater(run['committer']['commits'], 0)
        self.assertGreater(run['committer']['gap_max_ms'], 0)
        self.assertGreater(run['writer_tps']['before'], 0)
        self.assertGreater(run['writer_tps']['during'], 0)
