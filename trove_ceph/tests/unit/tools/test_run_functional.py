# SPDX-License-Identifier: Apache-2.0
import argparse
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import fixtures
import yaml
from oslotest import base
from testtools.content import text_content

from trove_ceph.tests.functional import base as functional
from trove_ceph.tests.unit import tools

run_functional = tools.load('run-functional')
summary = run_functional.summary

PREFIX = run_functional.PREFIX
SHORT = [f'{PREFIX}test_{module}.SomeTest.test_{name}' for module in 'abcde' for name in 'xyz']
LONG = [f'{PREFIX}test_{name}.SomeTest.test_{number}[long]' for name in 'fgh' for number in '12']
SERIAL = [
    f'{PREFIX}test_a.OtherTest.test_x[serial]',
    f'{PREFIX}test_f.SomeTest.test_3[long,serial]',
]
TESTS = SHORT + LONG + SERIAL
DURATIONS = {
    f'test_{name}.SomeTest.test_x': sec for name, sec in zip('abc', (90, 50, 30), strict=True)
}


class TagsTest(base.BaseTestCase):
    """The program reads the tags that the decorators set."""

    def test_tags_of_methods_and_classes(self):
        @functional.long
        class Tagged(functional.FunctionalTestCase):
            @functional.serial
            def test_both(self):
                pass

            def test_one(self):
                pass

        class Plain(functional.FunctionalTestCase):
            test_one = Tagged.test_one

        self.assertEqual({'long', 'serial'}, run_functional.tags(Tagged('test_both').id()))
        self.assertEqual({'long'}, run_functional.tags(Tagged('test_one').id()))
        self.assertEqual(set(), run_functional.tags(Plain('test_one').id()))
        self.assertEqual(
            run_functional.class_of(Plain('test_one').id()).replace('Plain', 'Tagged'),
            run_functional.class_of(Tagged('test_both').id()),
        )


class SpreadTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.durations = run_functional.Durations(DURATIONS)

    def test_runs_each_test_once_and_keeps_classes_together(self):
        groups = run_functional.by_class(SHORT)
        for count in (1, 2, 3, 9):
            bins = run_functional.spread(groups, count, self.durations)
            self.assertEqual(count, len(bins))
            self.assertEqual(sorted(SHORT), sorted(itertools.chain(*bins)))
            for group in groups:
                self.assertEqual(1, sum(set(group) <= set(tests) for tests in bins))

    def test_separates_the_longest_tests(self):
        bins = run_functional.spread([[one] for one in SHORT[:9:3]], 2, self.durations)
        self.assertEqual([90, 80], [self.durations.sum(tests) for tests in bins])

    def test_is_independent_of_the_order(self):
        groups = run_functional.by_class(SHORT)
        self.assertEqual(
            run_functional.spread(groups, 3, self.durations),
            run_functional.spread(reversed(groups), 3, self.durations),
        )

    def test_durations_of_unknown_tests_and_of_scenarios(self):
        default_sec = run_functional.SHORT_SEC
        self.assertEqual(default_sec, self.durations.of(f'{PREFIX}test_z.SomeTest.test_x'))
        self.assertEqual(90, self.durations.of(f'{PREFIX}test_a.SomeTest.test_x[long](a case)'))
        self.assertEqual(default_sec, run_functional.Durations({}).of('anything'))


class ChooseTest(base.BaseTestCase):
    def choose(self, suite, *regexes, turn=0):
        durations = run_functional.Durations(DURATIONS)
        return run_functional.choose(TESTS, suite, regexes, turn, durations)

    def test_chooses_by_suite(self):
        long = [*LONG, SERIAL[1]]
        self.assertEqual(TESTS, self.choose('all'))
        self.assertEqual(long, self.choose('long'))
        self.assertEqual([*SHORT, SERIAL[0]], self.choose('short'))

    def test_each_long_test_is_due_once_in_all_turns(self):
        turns = range(20780, 20780 + run_functional.SHARES)
        due = [self.choose('due', turn=turn) for turn in turns]
        for chosen in due:
            self.assertLessEqual({*SHORT, SERIAL[0]}, set(chosen))
        long = [one for chosen in due for one in chosen if 'long' in run_functional.tags(one)]
        self.assertEqual(sorted([*LONG, SERIAL[1]]), sorted(long))
        self.assertEqual(due[0], self.choose('due', turn=turns[0] + run_functional.SHARES))

    def test_chooses_by_regular_expressions(self):
        self.assertEqual(SHORT[:3], self.choose('all', r'test_a\.Some'))
        self.assertEqual(
            [SHORT[0], LONG[0]], self.choose('all', r'a\.SomeTest\.test_x', r'test_f.*_1')
        )
        self.assertEqual([], self.choose('all', 'nothing'))


class FakeStestr(base.BaseTestCase):
    """A program that replaces stestr and records its calls."""

    SCRIPT = """#!{python}
import json, pathlib, sys
args = sys.argv[1:]
with open({log!r}, 'a') as log:
    call = dict(args=args, chosen=pathlib.Path(args[args.index('--load-list') + 1]).read_text())
    if '--worker-file' in args:
        call['workers'] = pathlib.Path(args[args.index('--worker-file') + 1]).read_text()
    print(json.dumps(call), file=log)
sys.exit({code})
"""

    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.log = self.directory / 'log'
        self.useFixture(fixtures.MonkeyPatch('sys.executable', str(self.directory / 'python')))
        self.python = os.path.realpath('/proc/self/exe')
        self.ends_with(0)

    def ends_with(self, code):
        program = self.directory / 'stestr'
        program.write_text(self.SCRIPT.format(python=self.python, log=str(self.log), code=code))
        program.chmod(0o755)

    def calls(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]


class RunTest(FakeStestr):
    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch('signal.signal', lambda number, handler: None))
        self.stestr = run_functional.Stestr(str(self.directory), self.directory)

    def test_runs_workers_and_then_serial_tests(self):
        self.assertEqual(0, self.stestr.run([SHORT[:3], SHORT[3:9], []]))
        self.assertEqual(0, self.stestr.run([SERIAL]))
        first, second = self.calls()
        self.assertEqual(SHORT[:9], first['chosen'].split())
        self.assertEqual(
            [
                {'worker': [r'^trove_ceph\.tests\.functional\.test_a\.SomeTest\.']},
                {
                    'worker': [
                        r'^trove_ceph\.tests\.functional\.test_b\.SomeTest\.',
                        r'^trove_ceph\.tests\.functional\.test_c\.SomeTest\.',
                    ]
                },
            ],
            yaml.safe_load(first['workers']),
        )
        self.assertNotIn('--combine', first['args'])
        self.assertEqual(SERIAL, second['chosen'].split())
        self.assertLessEqual({'--combine', '--serial'}, set(second['args']))

    def test_calls_nothing_without_tests(self):
        self.assertEqual(0, self.stestr.run([[], []]))
        self.assertFalse(self.log.exists())
        self.stestr.run([SERIAL])
        self.assertNotIn('--combine', self.calls()[0]['args'])

    def test_returns_the_status_of_a_failure(self):
        self.ends_with(1)
        self.assertEqual(1, self.stestr.run([SERIAL]))

    def test_interrupts_workers_once_and_waits_for_them(self):
        started, cleaned_up = self.directory / 'started', self.directory / 'cleaned-up'
        # A signal before sigwait() is not lost.
        (self.directory / 'stestr').write_text(
            f'#!{self.python}\n'
            'import os, pathlib, signal, time\n'
            'signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n'
            'if os.fork():\n'
            '    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})\n'
            '    os.wait()\n'
            f"pathlib.Path('{started}').touch()\n"
            'signal.sigwait({signal.SIGTERM})\n'
            'time.sleep(0.5)\n'
            f"pathlib.Path('{cleaned_up}').touch()\n"
        )

        def interrupt():
            while not started.exists():
                time.sleep(0.01)
            self.stestr._interrupt(signal.SIGTERM, None)
            self.stestr._interrupt(signal.SIGTERM, None)

        thread = threading.Thread(target=interrupt, daemon=True)
        thread.start()
        self.assertEqual(-signal.SIGTERM, self.stestr.run([SERIAL]))
        thread.join()
        self.assertTrue(cleaned_up.exists())

    def test_runs_nothing_after_an_interruption(self):
        self.stestr._interrupt(15, None)
        self.assertEqual(0, self.stestr.run([SERIAL]))
        self.assertFalse(self.log.exists())


DYING = """
import os, pathlib, sys
import testscenarios
from trove_ceph.tests.functional import base

class DyingTest(testscenarios.WithScenarios, base.TaggedTestCase):
    scenarios = [('only', {{}})]

    def test_before(self):
        pass

    def test_dies(self):
        deaths = pathlib.Path({log!r}, 'deaths')
        with deaths.open('a') as log:
            print('one', file=log)
        if len(deaths.read_text().split()) <= {deaths}:
            lines = ['an hour before', *['a line'] * 40, 'a library: an assertion']
            print(*lines, sep='\\n', file=sys.stderr)
            os.abort()

    def test_later(self):
        pass
"""


class WholeRunTest(base.BaseTestCase):
    """A run with the real stestr on trivial tests."""

    # The program with another directory of tests.
    PROGRAM = """
import pathlib, sys
from trove_ceph.tests.unit import tools
program, root = tools.load('run-functional'), pathlib.Path(sys.argv[1])
program.ROOT, program.TESTS, program.PREFIX = root, root / 'sample_tests', 'sample_tests.'
program.DURATIONS, program.SHORT_SEC = root / 'durations.json', 0
sys.path.insert(0, str(root))
sys.exit(program.main(['--repository', str(root), '--workers', '2', *sys.argv[2:]]))
"""
    MODULE = """
import os, pathlib
from trove_ceph.tests.functional import base

class {name}Test(base.TaggedTestCase):
    def test_one(self):
        note = pathlib.Path({log!r}, self.id())
        note.write_text(str(os.getpid()))

    def test_two(self):
        self.assertTrue({passes})

    @base.long
    def test_three(self):
        self.test_one()

    @base.serial
    def test_four(self):
        self.test_one()
"""

    def setUp(self):
        super().setUp()
        self.root = Path(self.useFixture(fixtures.TempDir()).path)
        self.log = self.root / 'log'
        self.log.mkdir()
        tests = self.root / 'sample_tests'
        tests.mkdir()
        (tests / '__init__.py').touch()
        self.tests = tests
        for name in ('First', 'Second', 'Third'):
            text = self.MODULE.format(name=name, log=str(self.log), passes=name != 'Third')
            self.write_module(name, text)

    def write_module(self, name, text):
        (self.tests / f'test_{name.lower()}.py').write_text(text)

    def run_tests(self, *arguments):
        command = [sys.executable, '-W', 'ignore', '-c', self.PROGRAM, str(self.root), *arguments]
        ended = subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)
        self.addDetail('output', text_content(ended.stdout + ended.stderr))
        self.errors = ended.stderr
        outcomes, failed = summary.count(summary.last_run(str(self.root)))
        return ended.returncode, dict(outcomes), failed

    def test_all_results_are_in_one_run_of_the_repository(self):
        status, outcomes, (failed,) = self.run_tests('--suite', 'all', '--record')
        self.assertEqual((1, {'passed': 11, 'failed': 1}), (status, outcomes))
        self.assertIn('sample_tests.test_third.ThirdTest.test_two', failed)
        processes = {}
        for note in self.log.iterdir():
            processes.setdefault(note.name.rpartition('.')[2], set()).add(note.read_text())
        self.assertEqual(2, len(processes['test_one']))
        self.assertEqual(processes['test_one'], processes['test_three[long]'])
        self.assertEqual(1, len(processes['test_four[serial]']))
        self.assertEqual(set(), processes['test_four[serial]'] & processes['test_one'])
        recorded = json.loads((self.root / 'durations.json').read_text())
        self.assertEqual(11, len(recorded))
        self.assertIn('test_first.FirstTest.test_three', recorded)

    def test_runs_one_test_by_its_name(self):
        status, outcomes, _failed = self.run_tests('First.*test_one')
        self.assertEqual((0, {'passed': 1}), (status, outcomes))

    def test_tests_run_again_whose_process_died(self):
        self.use_dying(deaths=1)
        status, outcomes, failed = self.run_tests('--suite', 'all', 'First', 'Dying')
        self.assertEqual((0, {'passed': 7}, []), (status, outcomes, failed))
        status, printed = self.summarize()
        self.assertEqual(0, status)
        for text in (printed, self.errors):
            self.assertIn('a library: an assertion', text)
            self.assertIn('Fatal Python error: Aborted', text)
            self.assertIn('in test_dies', text)
        self.assertIn(
            f'sample_tests.test_dying.DyingTest.test_dies(only): {summary.DIED}\n', printed
        )
        self.assertNotIn('an hour before', printed)
        self.assertIn('an hour before', self.errors)

    def test_a_test_fails_whose_process_dies_again(self):
        self.use_dying(deaths=2)
        status, outcomes, failed = self.run_tests('Dying')
        self.assertEqual((1, {'passed': 2, 'failed': 1}), (status, outcomes))
        self.assertEqual(
            [f'sample_tests.test_dying.DyingTest.test_dies(only): {summary.DIED}'], failed
        )
        self.assertEqual(1, self.summarize()[0])

    def test_a_failed_test_stays_failed(self):
        self.use_dying(deaths=1)
        status, outcomes, (failed,) = self.run_tests('Third.*test_two', 'Dying')
        self.assertEqual((1, {'passed': 3, 'failed': 1}), (status, outcomes))
        self.assertIn('ThirdTest.test_two: AssertionError', failed)

    def use_dying(self, deaths):
        self.useFixture(fixtures.EnvironmentVariable('PYTHONFAULTHANDLER', '1'))
        self.write_module('Dying', DYING.format(log=str(self.root), deaths=deaths))

    def summarize(self):
        output = self.useFixture(fixtures.StringStream('output')).stream
        with fixtures.MonkeyPatch('sys.stdout', output):
            status = summary.main([str(self.root)])
        output.seek(0)
        return status, output.read()


class MeasuredTest(base.BaseTestCase):
    def test_durations_of_a_stream(self):
        directory = Path(self.useFixture(fixtures.TempDir()).path)
        (directory / 'test_z.py').write_text(
            'import testtools\n'
            'class ZTest(testtools.TestCase):\n'
            '    def test_passes(self): pass\n'
            '    def test_fails(self): self.fail()\n'
        )
        command = [sys.executable, '-m', 'stestr.subunit_runner.run', 'test_z']
        stream = subprocess.run(command, cwd=directory, capture_output=True, check=False).stdout
        self.assertEqual({'test_z.ZTest.test_passes': 0}, run_functional.measured(stream))


class OptionsTest(base.BaseTestCase):
    def test_number_of_workers(self):
        self.assertLessEqual(1, run_functional.usual_workers())
        self.useFixture(fixtures.EnvironmentVariable('TROVE_CEPH_TEST_WORKERS', '7'))
        self.assertEqual(7, run_functional.parse([]).workers)
        self.assertEqual(5, run_functional.parse(['--workers', '5']).workers)

    def test_suite_from_the_environment(self):
        self.assertIsNone(run_functional.parse([]).suite)
        self.useFixture(fixtures.EnvironmentVariable('TROVE_CEPH_TEST_SUITE', 'long'))
        self.assertEqual('long', run_functional.parse(['x']).suite)

    def test_announces_the_share(self):
        output = self.useFixture(fixtures.StringStream('output')).stream
        self.useFixture(fixtures.MonkeyPatch('sys.stdout', output))
        options = argparse.Namespace(suite='due', turn=5, workers=3)
        run_functional.announce([*SHORT, LONG[0]], options)
        output.seek(0)
        text = output.read()
        self.assertIn('16 tests, 3 workers', text)
        shares = run_functional.SHARES
        self.assertIn(f'share {5 % shares + 1} of {shares} of the long suite (turn 5)', text)
        self.assertIn('\n  test_f.SomeTest.test_1[long]\n', text)


class DurationsFileTest(base.BaseTestCase):
    def test_most_keys_are_ids_of_tests(self):
        """A renamed test counts as short: too many of them distribute the work badly."""
        source = {path.stem: path.read_text() for path in run_functional.TESTS.glob('test_*.py')}
        contracts = run_functional.TESTS.with_name('contract').glob('*.py')
        inherited = ''.join(path.read_text() for path in contracts)
        recorded = json.loads(run_functional.DURATIONS.read_text())
        unknown = []
        for key in recorded:
            module, _, method = key.split('.')
            if f'def {method}(' not in source.get(module, '') + inherited:
                unknown.append(key)
        self.assertLess(len(unknown), len(recorded) / 4, unknown)
