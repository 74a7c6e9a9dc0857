# SPDX-License-Identifier: Apache-2.0
import contextlib
import io
import json
import logging
import textwrap
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.bench import sample, test_plan_file
from trove_ceph_bench import cli, loads, operations, progress, runner


class CommandTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch('os.fsync', lambda descriptor: None))
        # The command must not change the logging of the tests.
        self.useFixture(fixtures.MonkeyPatch('logging.basicConfig', lambda **options: None))
        self.output, self.errors = io.StringIO(), io.StringIO()

    def run_command(self, *arguments):
        with (
            contextlib.redirect_stdout(self.output),
            contextlib.redirect_stderr(self.errors),
        ):
            try:
                return cli.main([str(argument) for argument in arguments])
            except SystemExit as error:
                return error.code

    def write(self, name, text):
        path = self.directory / name
        path.write_text(text)
        return path

    def assert_one_line(self, *parts):
        (line,) = self.errors.getvalue().splitlines()
        self.assertTrue(line.startswith('trove-ceph-bench: '), line)
        for part in parts:
            self.assertIn(part, line)


class HelpTestCase(CommandTestCase):
    def test_every_command_has_examples_and_exit_codes(self):
        for command in ('run', 'operations', 'report', 'compare', 'check', 'trove'):
            self.output.truncate(0)
            self.assertEqual(0, self.run_command(command, '--help'))
            self.assertRegex(self.output.getvalue(), 'examples?:\n +trove-ceph-bench')
            self.assertIn('\n  130  interrupted', self.output.getvalue())

    def test_the_plan_in_the_help_is_valid(self):
        for command, kind in (('run', 'loads'), ('operations', 'operations')):
            self.output = io.StringIO()
            self.run_command(command, '--help')
            text = self.output.getvalue()
            begin = text.index('  name: ')
            example = textwrap.dedent(text[begin : text.index('\n\n', begin)])
            plan = self.write(f'{kind}.yaml', example)
            self.assertEqual(0, self.run_command(command, plan, '--dry-run'), plan.read_text())

    def test_lists(self):
        self.assertEqual(0, self.run_command('plans'))
        self.assertEqual(0, self.run_command('workloads'))
        for name in ('quick', 'tuning', 'mixed-70-30', 'seagate'):
            self.assertIn(f'\n{name} ', '\n' + self.output.getvalue())

    def test_wrong_command_line(self):
        self.assertEqual(2, self.run_command('run'))
        self.assertEqual(2, self.run_command('walk'))


class DryRunTestCase(CommandTestCase):
    def test_loads(self):
        plan = self.write('plan.yaml', test_plan_file.PLAN)
        self.assertEqual(0, self.run_command('run', plan, '--dry-run', '-d', self.directory / 'r'))

        shown = self.output.getvalue()
        self.assertIn('read, 1:4, 16 threads: ours stock, 2 times', shown)
        seconds = 32 * (4 + loads.RUN_OVERHEAD_SEC)
        self.assertIn(f'32 runs, about {seconds // 60}:{seconds % 60:02d}', shown)
        self.assertIn('plus the time to fill the tables', shown)
        self.assertFalse((self.directory / 'r').exists())

    def test_known_buffer_pool(self):
        plan = self.write('plan.yaml', test_plan_file.PLAN + 'buffer_pool_mib: 1024\n')
        self.run_command('run', plan, '--dry-run')
        # 0.5 and 4 times 1 GiB, for two variants, at 8 MiB/s: 1152 s in addition to the runs.
        seconds = 32 * (4 + loads.RUN_OVERHEAD_SEC) + 1152
        self.assertIn(f'about {seconds // 60}:{seconds % 60:02d}', self.output.getvalue())

    def test_scale_and_a_dataset_of_a_fixed_size(self):
        text = test_plan_file.PLAN.replace('cached, 1:4', '8GiB')
        plan = self.write('plan.yaml', text)
        # 8 GiB and an eighth of it, for two variants, at 8 MiB/s, in addition to the runs.
        for scale, fill_sec in (((), 2048), (('--scale', '0.125'), 256)):
            self.output = io.StringIO()
            self.assertEqual(0, self.run_command('run', plan, '--dry-run', *scale))
            seconds = 16 * (4 + loads.RUN_OVERHEAD_SEC) + fill_sec
            self.assertIn(f'about {progress.duration_text(seconds)}\n', self.output.getvalue())

    def test_data_that_fit_the_buffer_pool(self):
        for size, is_warned in (('64MiB', True), ('8GiB', False)):
            plan = self.write('plan.yaml', test_plan_file.PLAN.replace('cached, 1:4', size))
            self.output = io.StringIO()
            self.assertEqual(0, self.run_command('run', plan, '--dry-run'))
            shown = 'warning: 64MiB: 63 MiB of data fit the buffer pool of ours, 128 MiB: its reads'
            self.assertIs(is_warned, shown in self.output.getvalue())

    def test_invalid_scale(self):
        plan = self.write('plan.yaml', test_plan_file.PLAN)
        self.assertEqual(2, self.run_command('run', plan, '--dry-run', '--scale', '2'))
        self.assert_one_line('scale', '2 is too large', '1')

    def test_operations(self):
        plan = self.write('plan.yaml', test_plan_file.OPERATIONS)
        self.assertEqual(0, self.run_command('operations', plan, '--dry-run'))
        self.assertIn('backup, 64 MiB: ours stock, 2 times', self.output.getvalue())


class RunTestCase(CommandTestCase):
    """Output and exit status for an outcome; the tests of the runner cover the outcome."""

    def setUp(self):
        super().setUp()
        self.outcome = runner.Outcome(measured=3)
        self.created = []
        for kind in (loads.LoadRunner, operations.OperationsRunner):
            self.useFixture(fixtures.MonkeyPatch(f'{kind.__module__}.{kind.__name__}', self.create))

    def create(self, plan, store, display, settings, only):
        self.created.append((plan, store, only))
        return self

    def run(self, result=None):
        # This object serves both as the plan's runner and as the test case.
        return self.outcome if result is None else super().run(result)

    def run_plan(self, *words, text=test_plan_file.PLAN, command='run'):
        plan = self.write('plan.yaml', text)
        return self.run_command(command, plan, '-d', self.directory / 'results', *words)

    def test_success(self):
        self.outcome.report = self.directory / 'index.html'
        self.assertEqual(0, self.run_plan())
        self.assertEqual(f'report: {self.outcome.report}\n', self.output.getvalue())
        self.assertIn('3 runs measured', self.errors.getvalue())
        self.assertEqual(
            test_plan_file.PLAN, (self.directory / 'results' / 'plan.yaml').read_text()
        )

    def test_failure_shows_how_to_resume(self):
        self.outcome.failures = ['sysbench: no\nspace']
        self.assertEqual(1, self.run_plan())
        self.assertIn('trove-ceph-bench: sysbench: no space\n', self.errors.getvalue())
        self.assertIn('the same command resumes', self.errors.getvalue())

    def test_interruption(self):
        self.outcome.interrupted = True
        self.outcome.failures = ['a still has its schema']
        self.assertEqual(130, self.run_plan())
        self.assertIn('a still has its schema', self.errors.getvalue())

    def test_changes_and_variants(self):
        self.run_plan('--set', 'repeats=1', '--only-variant', 'stock')
        ((plan, _, only),) = self.created
        self.assertEqual((1, ['stock']), (plan.repeats, only))

    def test_unknown_variant(self):
        self.assertEqual(2, self.run_plan('--only-variant', 'theirs'))
        self.assert_one_line('theirs', 'ours, stock')

    def test_wrong_plan(self):
        self.assertEqual(2, self.run_plan(text='name: x\n'))
        self.assert_one_line('plan.yaml', 'lacks')
        self.assertFalse((self.directory / 'results').exists())

    def test_refuses_a_foreign_folder(self):
        (self.directory / 'results').mkdir()
        (self.directory / 'results' / 'letter').touch()
        self.assertEqual(2, self.run_plan())
        self.assert_one_line('results', 'not a results folder')
        self.assertEqual([], self.created)

    def test_both_commands_run_operations(self):
        self.assertEqual(0, self.run_plan(text=test_plan_file.OPERATIONS))
        self.assertEqual(0, self.run_plan(text=test_plan_file.OPERATIONS, command='operations'))
        self.assertEqual(2, len(self.created))

    def test_operations_command_refuses_a_plan_of_loads(self):
        self.assertEqual(2, self.run_plan(command='operations'))
        self.assert_one_line('plan of loads', 'trove-ceph-bench run')

    def test_unwritable_results_folder(self):
        plan = self.write('plan.yaml', test_plan_file.PLAN)
        self.assertEqual(1, self.run_command('run', plan, '-d', plan / 'below'))
        self.assert_one_line('plan.yaml')


class ResultsTestCase(CommandTestCase):
    def setUp(self):
        super().setUp()
        self.store = sample.load_store(self.directory / 'results', 2, ('write',), (4,))

    def check(self, text, *words):
        return self.run_command('check', self.store.path, self.write('thresholds', text), *words)

    def test_thresholds(self):
        self.assertEqual(0, self.check('[{metric: tps, min: 1}]'))
        self.assertEqual('', self.errors.getvalue())
        self.assertEqual(3, self.check('[{metric: tps, variant: ours, min: 1000000}]'))
        self.assert_one_line('ours', 'below')

    def test_wrong_thresholds(self):
        self.assertEqual(2, self.check('[{metric: speed, min: 1}]'))
        self.assert_one_line('speed')

    def test_compare(self):
        other = sample.load_store(self.directory / 'other', 2, ('write',), (4,), scale=1.5)
        self.assertEqual(0, self.run_command('compare', other.path, self.store.path))
        self.assertIn('ours', self.output.getvalue())
        self.output.truncate(0)
        self.output.seek(0)
        self.run_command('compare', other.path, self.store.path, '--format', 'json')
        rows = json.loads(self.output.getvalue())['rows']
        (ratio,) = [
            each['ratio'] for each in rows if (each['variant'], each['metric']) == ('ours', 'tps')
        ]
        self.assertAlmostEqual(1.5, ratio['value'], delta=0.05)

    def test_missing_folder(self):
        for words in (('report',), ('compare', self.store.path), ('check', 'thresholds')):
            self.errors = io.StringIO()
            command, *rest = words
            self.assertEqual(2, self.run_command(command, self.directory / 'nothing', *rest))
            self.assert_one_line('nothing', 'no such results folder')

    def test_interrupted_while_reading(self):
        def interrupted(*arguments):
            raise KeyboardInterrupt

        self.useFixture(fixtures.MonkeyPatch('trove_ceph_bench.check.check', interrupted))
        self.assertEqual(130, self.check('[{metric: tps, min: 1}]'))

    def test_trove(self):
        def refused(parsed):
            raise exceptions.TargetUnavailableError(f'{parsed.instance}: Trove lists none')

        self.useFixture(fixtures.MonkeyPatch('trove_ceph_bench.trove_operations.main', refused))
        self.assertEqual(1, self.run_command('trove', 'backup', 'shop', 'b'))
        self.assert_one_line('shop: Trove lists none')


class LoggingTestCase(base.BaseTestCase):
    def test_verbose(self):
        level = logging.getLogger('matplotlib').level
        self.addCleanup(logging.getLogger('matplotlib').setLevel, level)
        options = {}
        self.useFixture(fixtures.MonkeyPatch('logging.basicConfig', options.update))
        with contextlib.redirect_stdout(io.StringIO()):
            cli.main(['-v', 'workloads'])
            self.assertEqual(logging.DEBUG, options['level'])
            cli.main(['workloads'])
        self.assertEqual(logging.WARNING, options['level'])
