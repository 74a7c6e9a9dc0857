# SPDX-License-Identifier: Apache-2.0
"""Commands that run once for a given input, interrupted ones included."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph.tests.unit.lab import LAB, plugins

once = plugins.load('modules/once.py', 'lab_modules_once')


class OnceTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)
        self.mark = self.directory / 'marks' / 'm'
        self.trace = self.directory / 'trace'
        self.trace.touch()
        self.useFixture(fixtures.MonkeyPatch('time.sleep', lambda seconds: None))

    def _say(self, word, then=''):
        return ['/bin/sh', '-c', f'echo {word} >> {self.trace}; {then}']

    def _run(self, *commands, **parameters):
        return plugins.run(
            once,
            mark=str(self.mark),
            log=str(self.directory / 'log'),
            commands=list(commands),
            **parameters,
        )

    def _changed(self, *commands, **parameters):
        """Run the module; return whether it reported a change, and the output of the commands."""
        self.trace.write_text('')
        end = self._run(*commands, **parameters)
        self.assertFalse(end.failed)
        return end.result['changed'], self.trace.read_text().split()


class OnceTest(OnceTestCase):
    def test_second_run_does_nothing(self):
        commands = self._say('a'), self._say('b')
        self.assertEqual((True, ['a', 'b']), self._changed(*commands))
        self.assertEqual((False, []), self._changed(*commands))

    def test_changed_command(self):
        self._changed(self._say('a'))
        self.assertEqual((True, ['b']), self._changed(self._say('b')))

    def test_changed_text(self):
        self._changed(self._say('a'), inputs=['3'])
        self.assertEqual((False, []), self._changed(self._say('a'), inputs=['3']))
        self.assertEqual((True, ['a']), self._changed(self._say('a'), inputs=['4']))
        self.assertEqual((True, ['a']), self._changed(self._say('a'), inputs=['4', '5']))

    def test_digest_separates_inputs(self):
        watched = self.directory / 'w'
        watched.write_text('x')
        for inputs in (['ab', 'c'], ['a', 'bc'], ['abc'], [str(watched)], [f'{watched}x']):
            self.assertEqual((True, ['a']), self._changed(self._say('a'), inputs=inputs), inputs)

    def test_changed_file(self):
        watched = self.directory / 'requirements.txt'
        inputs = [str(watched)]
        self.assertEqual((True, ['a']), self._changed(self._say('a'), inputs=inputs))
        watched.write_text('x')
        self.assertEqual((True, ['a']), self._changed(self._say('a'), inputs=inputs))
        self.assertEqual((False, []), self._changed(self._say('a'), inputs=inputs))
        watched.write_text('y')
        self.assertEqual((True, ['a']), self._changed(self._say('a'), inputs=inputs))
        os.utime(watched, (1, 1))
        self.assertEqual((False, []), self._changed(self._say('a'), inputs=inputs))

    def test_environment_is_added_to_the_present_one(self):
        self.useFixture(fixtures.EnvironmentVariable('KEPT', 'kept'))
        script = ['/bin/sh', '-c', f'echo $KEPT $NUMBER >> {self.trace}']
        self.assertEqual((True, ['kept', '7']), self._changed(script, environment={'NUMBER': 7}))

    def test_converts_numbers_to_strings(self):
        self.assertTrue(self._run(['/usr/bin/test', 1, '-eq', 1]).result['changed'])


class FailureTest(OnceTestCase):
    def test_reports_a_failure_and_repeats_it(self):
        end = self._run(self._say('a', 'echo oh dear >&2; exit 3'), self._say('b'))
        self.assertTrue(end.failed)
        self.assertEqual('/bin/sh failed with exit code 3', end.result['msg'])
        self.assertTrue(end.result['stdout'].endswith('oh dear\n'))
        self.assertEqual(str(self.directory / 'log'), end.result['log'])
        self.assertFalse(self.mark.exists())
        self.assertEqual((True, ['a', 'b']), self._changed(self._say('a'), self._say('b')))

    def test_only_the_end_of_the_log_is_shown(self):
        end = self._run(['/bin/sh', '-c', 'seq 100; exit 1'])
        self.assertEqual([str(n) for n in range(86, 101)], end.result['stdout'].split())

    def test_reports_a_missing_program(self):
        end = self._run(['/nonexistent/program'])
        self.assertTrue(end.failed)
        self.assertIn('/nonexistent/program failed', end.result['msg'])
        self.assertIn('No such file', end.result['stdout'])
        self.assertFalse(self.mark.exists())

    def test_retries_a_failing_command(self):
        flag = self.directory / 'flag'
        flaky = self._say('a', f'test -e {flag} || {{ touch {flag}; exit 1; }}')
        self.assertEqual((True, ['a', 'a', 'b']), self._changed(flaky, self._say('b'), attempts=2))

    def test_limits_the_attempts(self):
        self.assertTrue(self._run(self._say('a', 'exit 1'), attempts=3).failed)
        self.assertEqual(['a'] * 3, self.trace.read_text().split())

    def test_failure_removes_the_mark_of_an_earlier_input(self):
        # The result of the earlier commands may be partly replaced by now.
        self._changed(self._say('a'), inputs=['1'])
        self.assertTrue(self._run(self._say('a', 'exit 1'), inputs=['2']).failed)
        self.assertEqual((True, ['a']), self._changed(self._say('a'), inputs=['1']))


class InterruptionTest(OnceTestCase):
    """Killed before, between and after the commands; the mark must stay correct."""

    def _killed_at(self, step):
        """Run in a process of its own, which is killed at a numbered step; 0 is the first."""
        commands = [self._say(word) for word in 'abc']
        script = f'''
            import os, signal, sys
            sys.path.insert(0, {str(LAB.parent)!r})
            from trove_ceph.tests.unit.lab import plugins
            once = plugins.load('modules/once.py', 'once')
            run, step = once.run, iter(range(9))
            def kill_or_run(*arguments):
                if next(step) == {step}:
                    os.kill(os.getpid(), signal.SIGKILL)
                return run(*arguments)
            once.run = kill_or_run
            rename = os.rename
            os.rename = lambda *names: (next(step) == {step} and os.kill(os.getpid(), 9),
                                        rename(*names))
            plugins.run(once, mark={str(self.mark)!r}, log={str(self.directory / "log")!r},
                        commands={commands!r})
            '''
        done = subprocess.run([sys.executable, '-c', textwrap.dedent(script)], capture_output=True)
        return done.returncode, commands

    def test_killed_before_the_mark(self):
        for step, before in enumerate((['a'] * 0, ['a'], ['a', 'b'], ['a', 'b', 'c'])):
            self.trace.write_text('')
            code, commands = self._killed_at(step)
            self.assertEqual(-signal.SIGKILL, code, step)
            self.assertEqual(before, self.trace.read_text().split())
            self.assertFalse(self.mark.exists(), step)
            self.assertEqual((True, ['a', 'b', 'c']), self._changed(*commands), step)
            self.assertEqual((False, []), self._changed(*commands), step)
            self.mark.unlink()

    def test_undisturbed_run_leaves_a_mark(self):
        code, commands = self._killed_at(step=9)
        self.assertEqual(0, code)
        self.assertEqual((False, []), self._changed(*commands))

    def test_ignores_a_partly_written_mark(self):
        self._changed(self._say('a'))
        self.mark.write_text(self.mark.read_text()[:10])
        self.assertEqual((True, ['a']), self._changed(self._say('a')))

    def test_waits_between_attempts(self):
        with mock.patch('time.sleep') as sleep:
            self._run(self._say('a', 'exit 1'), attempts=3)
        self.assertEqual([mock.call(once.RETRY_WAIT_SEC)] * 2, sleep.call_args_list)
