# SPDX-License-Identifier: Apache-2.0
import io
import time
from pathlib import Path
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.bench import fakes
from trove_ceph_bench import (
    commit_probe,
    model,
    operations,
    plan,
    progress,
    results,
    shell,
    targets,
)

#: Between the clock of files and the monotonic one.
EPOCH = time.monotonic() - time.time()

SIZES = {64: 67_000_000, 256: 268_000_000}


class Server:
    """Report the size that was filled last."""

    stored = 0

    def __init__(self, address):
        self.address = address

    def schema_bytes(self, name):
        return SIZES[self.stored]


class Writer:
    """Fake of the committer: a hundred commits per second, except during a stall.

    It uses the real clock, so that commits fall before, into and after the operation. The stall
    begins when the operation creates a file.
    """

    stall_file = Path('/nonexistent')
    stall_sec = 0.0

    def __init__(self, address, log):
        self._began = self._stopped = 0.0

    def __enter__(self):
        self._began = time.monotonic()
        return self

    def __exit__(self, *exception):
        pass

    def read(self):
        now = time.monotonic()
        ticks = [self._began + n / 100 for n in range(1, int((now - self._began) * 100))]
        since = self._stalled_since()
        return commit_probe.Log(
            [(t, t) for t in ticks if not since <= t < since + self.stall_sec], []
        )

    def _stalled_since(self):
        if not self.stall_file.exists():
            return float('inf')
        return self.stall_file.stat().st_mtime + EPOCH

    def stop(self):
        self._stopped = time.monotonic()


class OperationsTestCase(base.BaseTestCase):
    """Real commands with a real store and fake servers."""

    def setUp(self):
        super().setUp()
        self.notes = []
        self.path = Path(self.useFixture(fixtures.TempDir()).path)
        self.shown = io.StringIO()
        self.useFixture(fixtures.MonkeyPatch('os.fsync', lambda descriptor: None))
        for name, fake in (
            ('operations.database.Server', Server),
            ('operations.commit_probe.Committer', Writer),
            ('targets.create', lambda name, spec, settings: fakes.Target(name, self.notes)),
            ('measure.prefill', self.prefill),
            ('disclosure.host', lambda: {'cores': 2}),
            ('report.write', lambda store: store.path / 'index.html'),
        ):
            self.useFixture(fixtures.MonkeyPatch(f'trove_ceph_bench.{name}', fake))

    def prefill(self, used, data, note):
        self.notes.append(('fill', [each.name for each in used], data.name))
        self.useFixture(
            fixtures.MonkeyPatch(f'{__name__}.Server.stored', int(data.name.split()[0]))
        )

    def contender(self, name='ours', run='true', **more):
        defaults = {'role': 'subject', 'operation': 'backup', 'target': {'instance': 'a'}}
        return plan.Contender(name=name, run=run, **defaults | more)

    def run_plan(self, *contenders, **more):
        defaults = {'sizes_mib': [64], 'repeats': 1, 'committer': False, 'settle_sec': 0}
        operations_plan = plan.OperationsPlan(
            name='dumps',
            description='',
            contenders=contenders,
            text='name: dumps\n',
            **defaults | more,
        )
        store = results.Store(self.path / 'results').create(operations_plan.text)
        runner = operations.OperationsRunner(
            operations_plan, store, progress.Progress(self.shown), targets.Settings({})
        )
        return runner.run()

    def stored(self):
        return results.Store(self.path / 'results').runs()

    def only_run(self):
        (run,) = self.stored()
        return run.run


class OutcomeTestCase(OperationsTestCase):
    def test_success(self):
        outcome = self.run_plan(self.contender(run='echo phase request; sleep 0.2; echo done'))

        self.assertEqual((1, []), (outcome.measured, outcome.failures))
        run = self.only_run()
        self.assertEqual((True, None, 0), (run['complete'], run['reason'], run['exit_code']))
        self.assertGreater(run['seconds'], 0.1)
        self.assertEqual(67_000_000, run['data_bytes'])
        self.assertEqual(['request'], [each['name'] for each in run['phases']])
        self.assertEqual('done', run['output'])
        self.assertEqual((None, None, []), (run['committer'], run['writer_tps'], run['warnings']))

    def test_cost(self):
        cost = {'space_bytes': 'echo 1024; echo of 2048', 'moved_bytes': 'echo 1.5e3'}
        self.run_plan(self.contender(cost=cost))
        self.assertEqual(
            dict.fromkeys(plan.COSTS) | {'space_bytes': 1024, 'moved_bytes': 1500},
            self.only_run()['cost'],
        )

    def test_unknown_cost(self):
        cost = {'space_bytes': 'echo many', 'moved_bytes': 'echo 7; exit 4'}
        outcome = self.run_plan(self.contender(cost=cost))

        self.assertEqual([], outcome.failures)
        run = self.only_run()
        self.assertEqual(dict.fromkeys(plan.COSTS), run['cost'])
        self.assertIn('space_bytes is unknown', run['warnings'][0])
        self.assertIn('exit code 4', run['warnings'][1])

    def test_variables(self):
        names = 'TARGET OPERATION VARIANT DATA_MIB ITERATION HOST PORT USER PASSWORD DATABASE'
        self.run_plan(
            self.contender(
                prepare='echo kept > "$BENCH_DIRECTORY/mine"',
                run='cat "$BENCH_DIRECTORY/mine"; '
                + '; '.join(f'echo $BENCH_{name}' for name in names.split()),
            )
        )
        self.assertEqual(
            'kept a backup ours 64 0 127.0.0.1 3306 root sesame schema_of_a'.split(),
            self.only_run()['output'].split(),
        )

    def test_order_of_commands(self):
        trace = self.path / 'trace'
        self.run_plan(
            self.contender(
                prepare=f'echo prepare >> {trace}',
                run=f'echo run >> {trace}',
                cost={'space_bytes': f'echo cost >> {trace}; echo 1'},
                cleanup=f'echo cleanup >> {trace}',
            )
        )
        self.assertEqual('prepare run cost cleanup'.split(), trace.read_text().split())


class FailureTestCase(OperationsTestCase):
    def test_a_failure_is_stored_and_the_plan_continues(self):
        gone = self.path / 'gone'
        outcome = self.run_plan(
            self.contender('bad', 'echo no such backup; exit 5', cleanup=f'touch {gone}'),
            self.contender('good'),
        )

        (failure,) = outcome.failures
        self.assertIn('backup by bad, 64 MiB, repeat 1: run failed: exit code 5', failure)
        self.assertIn('no such backup', failure)
        bad, good = (
            next(run.run for run in self.stored() if run.config['variant'] == name)
            for name in ('bad', 'good')
        )
        self.assertEqual((True, 5, 'no such backup'), self.values(bad))
        self.assertEqual((True, 0, ''), self.values(good))
        self.assertTrue(gone.exists())

    @staticmethod
    def values(run):
        return run['complete'], run['exit_code'], run['output']

    def test_a_failure_is_retried(self):
        flag = self.path / 'flag'
        contender = self.contender(run=f'test -e {flag}')
        self.assertEqual(1, len(self.run_plan(contender).failures))
        flag.touch()
        self.assertEqual((1, 0), self.counts(self.run_plan(contender)))
        (retried,) = self.stored()
        self.assertEqual([1], [each['exit_code'] for each in retried.failed_attempts])
        self.assertEqual((0, 1), self.counts(self.run_plan(contender)))

    @staticmethod
    def counts(outcome):
        return outcome.measured, outcome.present

    def test_timeout(self):
        gone = self.path / 'gone'
        outcome = self.run_plan(
            self.contender(run='sleep 600', timeout_sec=0.3, cleanup=f'touch {gone}')
        )
        self.assertIn('timed out', outcome.failures[0])
        self.assertIsNone(self.only_run()['exit_code'])
        self.assertTrue(gone.exists())

    def test_failed_preparation(self):
        ran, gone = self.path / 'ran', self.path / 'gone'
        outcome = self.run_plan(
            self.contender(prepare='exit 2', run=f'touch {ran}', cleanup=f'touch {gone}')
        )
        self.assertIn('prepare failed: exit code 2', outcome.failures[0])
        self.assertFalse(ran.exists())
        self.assertTrue(gone.exists())

    def test_check_decides_after_the_writer_has_stopped(self):
        gone = self.path / 'gone'
        outcome = self.run_plan(
            self.contender('left', check='echo a lock is left; exit 3', cleanup=f'touch {gone}'),
            self.contender('failed', 'exit 4', check='exit 3'),
            self.contender('good', check='true'),
        )
        found = {each.config['variant']: each.run for each in self.stored()}
        self.assertEqual(3, found['left']['exit_code'])
        self.assertRegex(found['left']['reason'], '^check failed: .*a lock is left')
        self.assertRegex(found['failed']['reason'], '^run failed: exit code 4')
        self.assertEqual(0, found['good']['exit_code'])
        self.assertEqual(2, len(outcome.failures))
        self.assertTrue(gone.exists())

    def test_an_unusable_server_fails_the_attempt_and_the_plan_continues(self):
        gone = self.path / 'gone'
        for place, error in (
            ('Server.schema_bytes', exceptions.TargetUnavailableError('no reply')),
            ('Writer.__enter__', exceptions.LoadFailedError('no commit')),
        ):
            self.useFixture(
                fixtures.MonkeyPatch(f'{__name__}.{place}', mock.Mock(side_effect=[error, 0, 0]))
            )
        outcome = self.run_plan(
            self.contender('one', cleanup=f'touch {gone}'),
            self.contender('two'),
            self.contender('three', target=None),
            committer=False,
        )
        self.assertEqual(['no reply'], [each.rpartition(': ')[2] for each in outcome.failures])
        self.assertEqual(3, outcome.measured)
        self.assertTrue(gone.exists())
        outcome = self.run_plan(self.contender('two', operation='restore'), committer=True)
        self.assertEqual(['no commit'], [each.rpartition(': ')[2] for each in outcome.failures])

    def test_reports_a_failed_cleanup(self):
        self.run_plan(self.contender(cleanup='echo busy; exit 1'))
        self.assertRegex(self.only_run()['warnings'][0], '^cleanup failed: exit code 1 .*busy')
        self.assertIn('cleanup failed', self.shown.getvalue())

    def test_interruption_cleans_up(self):
        gone = self.path / 'gone'
        real = shell.run

        def interrupted(command, *arguments):
            if command == 'the operation':
                raise KeyboardInterrupt
            return real(command, *arguments)

        self.useFixture(fixtures.MonkeyPatch('trove_ceph_bench.shell.run', interrupted))
        outcome = self.run_plan(self.contender(run='the operation', cleanup=f'touch {gone}'))

        self.assertTrue(outcome.interrupted)
        run = self.only_run()
        self.assertEqual((False, 'interrupted'), (run['complete'], run['reason']))
        self.assertTrue(gone.exists())
        self.assertEqual(('leave', 'a'), self.notes[-1])

    def test_an_interruption_does_not_abort_the_cleanup(self):
        gone = self.path / 'gone'
        outcome = self.run_plan(
            self.contender(cleanup=f'kill -INT $PPID; sleep 0.5; touch {gone}'), repeats=2
        )

        self.assertTrue(outcome.interrupted)
        self.assertTrue(gone.exists())
        self.assertEqual(1, outcome.measured)
        run = self.only_run()
        self.assertEqual((True, None, 0), (run['complete'], run['reason'], run['exit_code']))
        self.assertEqual([], run['warnings'])
        self.assertIn('cleaning up; this takes a moment', self.shown.getvalue())


class PlanCleanupTestCase(OperationsTestCase):
    def setUp(self):
        super().setUp()
        self.trace = self.path / 'trace'

    def write(self, word):
        return f'echo {word} >> {self.trace}'

    def lines(self):
        return self.trace.read_text().split() if self.trace.exists() else []

    def test_runs_once_at_the_end(self):
        contender = self.contender(run=self.write('run'), cleanup=self.write('removed'))
        outcome = self.run_plan(contender, repeats=2, cleanup=self.write('all'))
        self.assertEqual([], outcome.failures)
        self.assertEqual('run removed run removed all'.split(), self.lines())
        self.run_plan(contender, repeats=2, cleanup=self.write('again'))
        self.assertNotIn('again', self.lines())

    def test_after_a_failure_that_ends_the_plan(self):
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph_bench.targets.create',
                mock.Mock(side_effect=exceptions.TargetUnavailableError('gone')),
            )
        )
        outcome = self.run_plan(self.contender(), cleanup=self.write('all'))
        self.assertEqual(['gone'], outcome.failures)
        self.assertEqual(['all'], self.lines())

    def test_after_an_interruption(self):
        outcome = self.run_plan(
            self.contender(run='kill -INT $PPID; sleep 60'), cleanup=self.write('all')
        )
        self.assertTrue(outcome.interrupted)
        self.assertEqual(['all'], self.lines())

    def test_reports_its_failure(self):
        outcome = self.run_plan(self.contender(), cleanup='echo busy; exit 4')
        self.assertEqual(1, outcome.measured)
        self.assertRegex(outcome.failures[0], '^cleanup of the plan failed: exit code 4.*busy')


class DataTestCase(OperationsTestCase):
    def test_each_size_is_filled_once_and_shared(self):
        self.run_plan(
            self.contender('ours'), self.contender('stock'), sizes_mib=[256, 64], repeats=2
        )
        self.assertEqual(
            [
                ('enter', 'a'),
                ('fill', ['a'], '64 MiB'),
                ('fill', ['a'], '256 MiB'),
                ('leave', 'a'),
            ],
            self.notes,
        )
        self.assertEqual(
            {(64, 67_000_000), (256, 268_000_000)},
            {(run.config['data_mib'], run.run['data_bytes']) for run in self.stored()},
        )

    def test_same_contender_in_two_operations(self):
        self.run_plan(
            self.contender('stock', 'echo a'),
            self.contender('stock', 'echo b', operation='restore', target={'instance': 'b'}),
        )
        self.assertEqual(
            {('backup', 'a'), ('restore', 'b')},
            {(run.config['operation'], run.run['output']) for run in self.stored()},
        )

    def test_without_a_server(self):
        self.run_plan(self.contender(run='echo "$BENCH_DATA_MIB $BENCH_OPERATION"', target=None))
        run = self.only_run()
        self.assertEqual(('64 backup', None), (run['output'], run['data_bytes']))
        self.assertEqual([], self.notes)
        (stored,) = self.stored()
        self.assertEqual({'cores': 2}, stored.disclosure['host'])

    def test_rows(self):
        data = operations.dataset_of_size(64)
        size_bytes = data.total_rows * operations.dataset.BYTES_PER_ROW
        self.assertAlmostEqual(64 * 1024 * 1024, size_bytes, delta=4 * 1024)
        self.assertIsInstance(data, model.Dataset)


class WriterTestCase(OperationsTestCase):
    def test_rates_and_gap(self):
        self.run_plan(self.contender(run='sleep 0.5'), committer=True, settle_sec=1)

        run = self.only_run()
        self.assertAlmostEqual(100, run['writer_tps']['before'], delta=15)
        self.assertAlmostEqual(100, run['writer_tps']['during'], delta=15)
        self.assertLess(run['committer']['gap_max_ms'], 100)

    def stall(self, seconds):
        """Let the writer stall from the operation on; return the operation's command."""
        path = self.path / 'stall'
        for name, value in (('stall_file', path), ('stall_sec', seconds)):
            self.useFixture(fixtures.MonkeyPatch(f'{__name__}.Writer.{name}', value))
        return f'touch {path}'

    def test_a_stall_beyond_the_end_counts_in_full(self):
        self.run_plan(self.contender(run=self.stall(2.0)), committer=True)

        run = self.only_run()
        self.assertLess(run['seconds'], 2)
        self.assertAlmostEqual(2000, run['committer']['gap_max_ms'], delta=500)
        self.assertEqual([], run['warnings'])

    def test_a_stall_without_end(self):
        self.useFixture(fixtures.MonkeyPatch('trove_ceph_bench.operations.STALL_LIMIT_SEC', 2))
        self.run_plan(self.contender(run=self.stall(1e6)), committer=True)

        run = self.only_run()
        self.assertIn('still stalled', run['warnings'][0])
        self.assertGreater(run['committer']['gap_max_ms'], 1900)
