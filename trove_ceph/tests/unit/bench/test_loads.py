# SPDX-License-Identifier: Apache-2.0
import io
import os
import signal
from pathlib import Path
from unittest import mock

import fixtures
from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.bench import fakes, test_plan
from trove_ceph_bench import ceph_facts, loads, model, progress, result_groups, results, targets
from trove_ceph_bench import plan as plans

MIB = units.Mi


class LoadRunnerTestCase(base.BaseTestCase):
    """A runner with a real store, fake servers and fake loads."""

    def setUp(self):
        super().setUp()
        self.notes = []
        self.failing = {}
        self.outcomes = {}
        self.path = Path(self.useFixture(fixtures.TempDir()).path) / 'results'
        self.shown = io.StringIO()
        # The tests need no durability, and fsync makes them slow.
        self.useFixture(fixtures.MonkeyPatch('os.fsync', lambda descriptor: None))
        for name, fake in (
            ('targets.create', self.make),
            ('measure.measure', self.measure),
            ('measure.prefill', self.prefill),
            ('disclosure.host', lambda: {'cores': 2}),
            ('report.write', self.report),
        ):
            self.useFixture(fixtures.MonkeyPatch(f'trove_ceph_bench.{name}', fake))

    def make(self, name, spec, settings):
        return fakes.Target(name, self.notes, self.failing.get(name))

    def prefill(self, used, data, note):
        self.notes.append(('fill', [each.name for each in used], data.name))

    def measure(self, used, load, directory, note, fio_jobs):
        self.assertEqual([], list((directory / 'raw').iterdir()))
        (directory / 'raw' / 'sysbench.log').write_text('')
        run = (load.workload.name, load.threads, *(each.name for each in used))
        self.notes.append(('measure', *run, *fio_jobs))
        outcome = self.outcomes.pop(self.count('measure'), None)
        if isinstance(outcome, BaseException):
            raise outcome
        return fakes.load_run(outcome)

    def report(self, store):
        self.notes.append(('report',))
        return store.path / 'report' / 'index.html'

    def count(self, what):
        return sum(note[0] == what for note in self.notes)

    def run_plan(self, only=(), **changes):
        loads_plan = test_plan.load_plan(
            text='name: tiny\n', **{'buffer_pool_mib': 64, 'datasets': ['cached']} | changes
        )
        store = results.Store(self.path).create(loads_plan.text)
        shown = progress.Progress(self.shown)
        runner = loads.LoadRunner(loads_plan, store, shown, targets.Settings({}), only)
        return runner.run()

    def stored(self):
        return results.Store(self.path).runs()


class PrepareTestCase(LoadRunnerTestCase):
    def test_runs_once_before_the_first_run(self):
        trace = self.path.parent / 'trace'
        for _ in range(2):
            self.run_plan(repeats=2, prepare=f'echo done >> {trace}')
        self.assertEqual('done\n', trace.read_text())

    def test_failure_is_reported_and_no_run_is_measured(self):
        outcome = self.run_plan(prepare='echo no such command; exit 3')
        self.assertRegex(outcome.failures[0], 'prepare of the plan failed: exit code 3')
        self.assertEqual([], self.notes)


class VariantCommandTestCase(LoadRunnerTestCase):
    """Variants on the same servers, which their commands switch."""

    def setUp(self):
        super().setUp()
        self.trace = self.path.parent / 'trace'

    def switch(self, *names, **changes):
        servers = test_plan.OURS.targets[:1]
        variants = [
            plans.Variant(name, 'subject', servers, f'echo {name} >> {self.trace}')
            for name in names
        ]
        workloads = [test_plan.workloads.get('read')]
        return self.run_plan(
            **{'variants': variants, 'reference': names[0], 'threads': [4], 'workloads': workloads}
            | changes
        )

    def test_runs_before_each_run_of_its_variant(self):
        self.switch('off', 'on', cleanup=f'echo end >> {self.trace}')
        self.assertEqual(['off', 'on', 'off', 'on', 'end'], self.trace.read_text().split())
        self.assertEqual(4, self.count('measure'))
        self.assertEqual(1, self.count('enter'))

    def test_nothing_runs_if_no_run_is_missing(self):
        for _ in range(2):
            self.switch('off', 'on', cleanup=f'echo end >> {self.trace}')
        self.assertEqual(5, len(self.trace.read_text().split()))

    def test_its_runs_are_compared(self):
        self.switch('off', 'on', repeats=1)
        (group,) = result_groups.group(result_groups.gather(self.stored()))
        self.assertEqual(['off', 'on'], sorted(group.cells))

    def test_a_failure_ends_the_plan_and_the_cleanup_runs(self):
        servers = test_plan.OURS.targets[:1]
        variants = [plans.Variant('off', 'subject', servers, 'echo cannot; exit 4')]
        outcome = self.switch('off', variants=variants, cleanup=f'echo end >> {self.trace}')
        self.assertIn('prepare-off of the plan failed: exit code 4', outcome.failures[0])
        self.assertEqual(0, self.count('measure'))
        self.assertEqual('end\n', self.trace.read_text())


class OrderTestCase(LoadRunnerTestCase):
    def test_enter_fill_measure_in_turn_leave_report(self):
        outcome = self.run_plan(repeats=1, threads=[4], workloads=[test_plan.workloads.get('read')])

        self.assertEqual(
            [
                ('enter', 'a1'),
                ('enter', 'b1'),
                ('fill', ['a1'], 'cached'),
                ('measure', 'read', 4, 'a1'),
                ('fill', ['b1'], 'cached'),
                ('measure', 'read', 4, 'b1'),
                ('leave', 'b1'),
                ('leave', 'a1'),
                ('report',),
            ],
            self.notes,
        )
        self.assertEqual((2, 0, False, []), self.summary(outcome))
        self.assertEqual(self.path / 'report' / 'index.html', outcome.report)

    def test_starts_no_run_if_the_report_cannot_be_drawn(self):
        missing = ModuleNotFoundError('no plots')
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph_bench.report.prepare', mock.Mock(side_effect=missing))
        )
        self.assertRaises(ModuleNotFoundError, self.run_plan)
        self.assertEqual([], self.notes)

    @staticmethod
    def summary(outcome):
        return outcome.measured, outcome.present, outcome.interrupted, outcome.failures

    def test_variants_alternate_within_repeats(self):
        self.run_plan()
        order = [note[1:] for note in self.notes if note[0] == 'measure']
        self.assertEqual(
            [
                (workload, threads, name)
                for _ in range(2)
                for workload in ('read', 'write')
                for threads in (4, 16)
                for name in ('a1', 'b1')
            ],
            order,
        )

    def test_tables_are_filled_once_for_each_dataset(self):
        self.run_plan(datasets=['cached', '1:4'])
        self.assertEqual(
            [('a1', 'cached'), ('b1', 'cached'), ('a1', '1:4'), ('b1', '1:4')],
            [(note[1][0], note[2]) for note in self.notes if note[0] == 'fill'],
        )

    def test_several_instances(self):
        self.run_plan(instances=[1, 2], repeats=1, threads=[4])
        self.assertIn(('fill', ['a1', 'a2'], 'cached'), self.notes)
        self.assertIn(('measure', 'write', 4, 'a1'), self.notes)
        self.assertIn(('measure', 'write', 4, 'a1', 'a2'), self.notes)
        (both,) = [run for run in self.stored() if run.config['instances'] == 2][:1]
        self.assertEqual({'a1', 'a2'}, set(both.disclosure['targets']))

    def test_equal_specifications_share_a_server(self):
        same = test_plan.OURS, plans.Variant('again', 'baseline', test_plan.OURS.targets)
        self.run_plan(variants=same, repeats=1)
        self.assertEqual(1, self.count('enter'))

    def test_servers_are_restarted_between_repeats(self):
        self.run_plan(restart=True, repeats=3, threads=[4])
        restarts = [note for note in self.notes if note[0] == 'restart']
        self.assertEqual([('restart', 'a1'), ('restart', 'b1')] * 2, restarts)

    def test_fio_before_the_first_run_of_a_variant_in_a_repeat(self):
        self.run_plan(fio=['randread-16k-qd1'], repeats=2)
        with_fio = [note[1:4] for note in self.notes if note[-1] == 'randread-16k-qd1']
        self.assertEqual([('read', 4, 'a1'), ('read', 4, 'b1')] * 2, with_fio)

    def test_one_variant_only(self):
        self.run_plan(only=['stock'], repeats=1)
        self.assertEqual([('enter', 'b1')], [n for n in self.notes if n[0] == 'enter'])

    def test_dataset_of_the_references_buffer_pool(self):
        server = mock.Mock()
        server.return_value.variables.return_value = {'innodb_buffer_pool_size': str(128 * MIB)}
        self.useFixture(fixtures.MonkeyPatch('trove_ceph_bench.loads.database.Server', server))
        self.run_plan(buffer_pool_mib=None, reference='stock', repeats=1, datasets=['1:4'])

        self.assertEqual('schema_of_b1', server.call_args.args[0].database)
        rows = {run.config['dataset']['rows'] for run in self.stored()}
        self.assertEqual({int(128 * MIB * 4 / loads.dataset.BYTES_PER_ROW / 4)}, rows)

    def test_absolute_dataset_needs_no_buffer_pool(self):
        server = mock.Mock(side_effect=AssertionError('queried'))
        self.useFixture(fixtures.MonkeyPatch('trove_ceph_bench.loads.database.Server', server))
        self.run_plan(buffer_pool_mib=None, repeats=1, datasets=['5000 rows'], scale=0.5)
        self.assertEqual(
            {'name': '5000 rows', 'tables': 4, 'rows': 2500, 'scale': 0.5},
            self.stored()[0].config['dataset'],
        )

    def test_disclosure_and_results(self):
        self.run_plan(repeats=1, threads=[4])
        run = self.stored()[0]
        self.assertEqual({'host': {'cores': 2}, 'target': {'version': '9.7.4'}}, run.disclosure)
        self.assertTrue((run.path / 'raw' / 'sysbench.log').exists())

    def test_lines_show_figures_and_time_left(self):
        self.run_plan(repeats=1, threads=[4])
        line = self.shown.getvalue().splitlines()[0]
        self.assertRegex(line, r'\[0:00, .* left\] 1/4 read cached 4 threads, ours, repeat 1: ')
        self.assertIn('20.0 TPS, p99 12.5 ms, largest commit gap 87 ms', line)


class FillTestCase(LoadRunnerTestCase):
    """The pools are filled before each run that wants it, and emptied at the end."""

    def setUp(self):
        super().setUp()
        notes, self.refused = self.notes, None

        class Filler:
            def __init__(filler, image, note):
                filler.pool = image.pool

            def __enter__(filler):
                return filler

            def __exit__(filler, *exception):
                notes.append(('empty', filler.pool))

            def ensure(filler, percent):
                notes.append(('fill to', filler.pool, percent))
                if percent == self.refused:
                    raise exceptions.LoadFailedError('nearfull')
                return ceph_facts.PoolUsage(percent, 10 * units.Gi, percent, 85, 95)

        self.useFixture(fixtures.MonkeyPatch('trove_ceph_bench.pool_filler.PoolFiller', Filler))

    def make(self, name, spec, settings):
        target = super().make(name, spec, settings)
        target.image = None if name == 'b1' else model.Image('volumes', f'image-{name}', '/c')
        return target

    def run_filled(self, **changes):
        defaults = {'only': ['ours'], 'repeats': 1, 'threads': [4], 'fill_percent': [14, 70]}
        return self.run_plan(**defaults | changes)

    def test_order(self):
        self.run_filled(workloads=[test_plan.workloads.get('write')])
        self.assertEqual(
            [
                ('fill to', 'volumes', 14),
                ('measure', 'write', 4, 'a1'),
                ('fill to', 'volumes', 70),
                ('measure', 'write', 4, 'a1'),
                ('empty', 'volumes'),
                ('leave', 'a1'),
            ],
            [note for note in self.notes if note[0] in ('fill to', 'measure', 'empty', 'leave')],
        )
        self.assertEqual([14, 70], sorted(run.config['fill_percent'] for run in self.stored()))

    def test_writes_are_divided_by_all_data_of_the_pool(self):
        self.run_filled(workloads=[test_plan.workloads.get('write')])
        # 70 writes per second; the pool holds 10 GiB when it is full.
        self.assertEqual(
            {
                14: {'stored_gib': 1.4, 'write_iops_per_gib': 50.0},
                70: {'stored_gib': 7.0, 'write_iops_per_gib': 10.0},
            },
            {run.config['fill_percent']: run.run['pool'] for run in self.stored()},
        )

    def test_unknown_writes(self):
        run = fakes.load_run() | {'rbd': None}
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph_bench.measure.measure', lambda *arguments: run)
        )
        self.run_filled(workloads=[test_plan.workloads.get('write')], fill_percent=[14])
        (stored,) = self.stored()
        self.assertEqual({'stored_gib': 1.4, 'write_iops_per_gib': None}, stored.run['pool'])

    def test_instances_of_one_pool_share_its_filler(self):
        self.run_filled(instances=[2])
        self.assertEqual(4, self.count('fill to'))
        self.assertEqual(1, self.count('empty'))

    def test_refused_percentage_keeps_earlier_runs_and_empties_the_pool(self):
        self.refused = 70
        outcome = self.run_filled()
        self.assertEqual((2, ['nearfull']), (outcome.measured, outcome.failures))
        self.assertEqual(1, self.count('empty'))

    def test_interrupted_run_empties_the_pool(self):
        self.outcomes[1] = KeyboardInterrupt()
        self.assertTrue(self.run_filled().interrupted)
        self.assertEqual(1, self.count('empty'))

    def test_a_server_without_a_known_image(self):
        outcome = self.run_filled(only=['stock'])
        self.assertIn('b1: its RBD image is unknown', outcome.failures[0])

    def test_runs_without_it_have_no_such_key(self):
        self.run_plan(repeats=1)
        self.assertEqual({False}, {'fill_percent' in run.config for run in self.stored()})
        self.assertEqual(0, self.count('fill to'))


class ResumeTestCase(LoadRunnerTestCase):
    def test_nothing_is_measured_twice(self):
        self.run_plan()
        self.notes.clear()
        outcome = self.run_plan()

        self.assertEqual((0, 16), (outcome.measured, outcome.present))
        self.assertEqual([('report',)], self.notes)
        self.assertIn('16 of 16 runs are measured already', self.shown.getvalue())

    def test_a_run_has_the_session_that_measured_it(self):
        self.run_plan(repeats=1, only=['ours'])
        self.run_plan(repeats=1)
        found = {(run.config['variant'], run.run['session']) for run in self.stored()}
        self.assertEqual(2, len(found))
        self.assertEqual(2, len({session for _, session in found}))

    def test_a_plan_that_grew(self):
        self.run_plan(repeats=1)
        self.notes.clear()
        outcome = self.run_plan(repeats=2)
        self.assertEqual((8, 8), (outcome.measured, outcome.present))

    def test_interrupted_run_is_stored_and_measured_again(self):
        self.outcomes[3] = 'interrupted'
        outcome = self.run_plan()

        self.assertTrue(outcome.interrupted)
        self.assertEqual([], outcome.failures)
        self.assertEqual([True, True, False], [run.run['complete'] for run in self.stored()])
        self.assertEqual([('leave', 'b1'), ('leave', 'a1'), ('report',)], self.notes[-3:])
        self.notes.clear()
        outcome = self.run_plan()
        self.assertEqual((14, 2, False), (outcome.measured, outcome.present, outcome.interrupted))
        self.assertEqual({True}, {run.run['complete'] for run in self.stored()})

    def test_interruption_before_anything_was_measured(self):
        self.outcomes[1] = KeyboardInterrupt()
        outcome = self.run_plan()
        self.assertTrue(outcome.interrupted)
        self.assertEqual([('leave', 'b1'), ('leave', 'a1')], self.notes[-2:])
        self.assertIsNone(outcome.report)

    def test_later_signals_do_not_interrupt_the_cleanup(self):
        def leave(this, *exception):
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), number)
            self.notes.append(('leave', this.name))

        def killed(*arguments):
            os.kill(os.getpid(), signal.SIGTERM)

        self.useFixture(fixtures.MonkeyPatch(f'{fakes.__name__}.Target.__exit__', leave))
        self.useFixture(fixtures.MonkeyPatch('trove_ceph_bench.measure.measure', killed))
        before = signal.getsignal(signal.SIGINT)
        outcome = self.run_plan()

        self.assertTrue(outcome.interrupted)
        self.assertEqual(2, self.count('leave'))
        self.assertIn('this takes a moment', self.shown.getvalue())
        self.assertEqual(before, signal.getsignal(signal.SIGINT))

    def test_a_signal_while_a_run_is_stored_is_deferred(self):
        real = results.Store.write

        def write(*arguments):
            os.kill(os.getpid(), signal.SIGINT)
            return real(*arguments)

        self.useFixture(fixtures.MonkeyPatch('trove_ceph_bench.results.Store.write', write))
        outcome = self.run_plan()

        self.assertEqual((1, True), (outcome.measured, outcome.interrupted))
        self.assertEqual([True], [run.run['complete'] for run in self.stored()])


class FailureTestCase(LoadRunnerTestCase):
    def test_missing_server(self):
        self.failing['b1'] = 'enter'
        outcome = self.run_plan()
        self.assertEqual(['b1 does not exist'], outcome.failures)
        self.assertEqual(('leave', 'a1'), self.notes[-1])
        self.assertEqual(0, self.count('measure'))

    def test_a_failed_load_ends_the_plan_and_keeps_finished_runs(self):
        self.outcomes[3] = exceptions.LoadFailedError('sysbench: no space left')
        outcome = self.run_plan()
        self.assertEqual(['sysbench: no space left'], outcome.failures)
        self.assertEqual((2, 2), (outcome.measured, len(self.stored())))
        self.assertIsNotNone(outcome.report)

    def test_a_server_that_vanishes_while_it_is_measured(self):
        self.outcomes[2] = 'Lost connection to MySQL server'
        outcome = self.run_plan()
        (failure,) = outcome.failures
        self.assertIn('read cached 4 threads, stock, repeat 1', failure)
        self.assertIn('Lost connection', failure)
        self.assertEqual([True, False], [run.run['complete'] for run in self.stored()])
        self.assertEqual(14 + 1, self.run_plan().measured)

    def test_reports_both_the_failure_and_the_cleanup_error(self):
        self.outcomes[1] = exceptions.LoadFailedError('broken')
        self.failing['b1'] = 'leave'
        self.assertEqual(['broken', 'b1 still has its schema'], self.run_plan().failures)

    def test_full_disk(self):
        error = OSError(28, 'No space left on device')
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph_bench.results.Store.write', mock.Mock(side_effect=error)
            )
        )
        outcome = self.run_plan()
        self.assertEqual(['[Errno 28] No space left on device'], outcome.failures)
        self.assertEqual(2, self.count('leave'))


class EstimateTestCase(base.BaseTestCase):
    def test_sizes(self):
        self.assertEqual(4 + loads.RUN_OVERHEAD_SEC, loads.run_sec(test_plan.load_plan()))
        data = model.Dataset('x', 4, loads.FILL_BYTES_PER_SEC)
        self.assertEqual(8 * loads.dataset.BYTES_PER_ROW, loads.fill_sec(data, 2))
