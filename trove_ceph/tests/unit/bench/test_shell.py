# SPDX-License-Identifier: Apache-2.0
import time
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph.tests import signals
from trove_ceph_bench import shell


class ShellTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.Timeout(60, gentle=True))
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)

    def run_command(self, command, timeout_sec=60, **environment):
        return shell.run(command, environment, self.directory / 'log', timeout_sec)

    def test_output_exit_code_and_environment(self):
        result = self.run_command('echo $BENCH_NAME; echo bad >&2; exit 3', BENCH_NAME='shop')

        self.assertEqual((3, 'shop\nbad', 'shop'), self.values(result))
        self.assertFalse(result.succeeded)
        self.assertRegex(result.failure(), r'^exit code 3 after \d+\.\d s: bad$')
        self.assertEqual('shop\nbad\n', (self.directory / 'log').read_text())

    @staticmethod
    def values(result):
        return result.exit_code, result.output, result.first_line

    def test_stops_at_the_first_failing_line(self):
        result = self.run_command('echo a\nfalse\necho b')
        self.assertEqual((1, 'a', 'a'), self.values(result))

    def test_phases(self):
        result = self.run_command('echo phase request; sleep 2; echo phase copy; printf 17')

        self.assertEqual(['request', 'copy'], [each['name'] for each in result.phases])
        self.assertGreater(result.phases[1]['seconds'], 0.5)
        self.assertLessEqual(sum(each['seconds'] for each in result.phases), result.seconds)
        self.assertEqual((0, '17', '17'), self.values(result))

    def test_operation_begins_when_the_command_says_so(self):
        started = time.monotonic()
        result = self.run_command('sleep 0.5; echo begin; echo phase request')

        self.assertGreaterEqual(result.began, started + 0.4)
        self.assertLessEqual(result.phases[0]['seconds'], result.seconds)
        self.assertLessEqual(result.began + result.seconds, time.monotonic())
        self.assertEqual((0, '', ''), self.values(result))

    def test_durations_reported_by_the_command(self):
        result = self.run_command('echo took verifying 12.5; echo took a seat; echo phase done')
        self.assertEqual(['verifying', 'done'], [each['name'] for each in result.phases])
        self.assertEqual(12.5, result.phases[0]['seconds'])
        self.assertEqual('took a seat', result.output)

    def test_result_has_the_last_lines_only(self):
        result = self.run_command('seq 1000')
        self.assertEqual([str(n) for n in range(981, 1001)], result.output.splitlines())
        self.assertEqual(1000, len((self.directory / 'log').read_text().splitlines()))

    def test_no_output(self):
        self.assertEqual((0, '', ''), self.values(self.run_command('true')))

    def test_timeout(self):
        result = self.run_command('echo begun; sleep 600', timeout_sec=3)

        self.assertIsNone(result.exit_code)
        self.assertFalse(result.succeeded)
        self.assertIn('timed out', result.failure())
        self.assertEqual('begun', result.output)

    def test_stops_background_processes(self):
        result = self.run_command('sleep 600 & echo $!')
        self.assertEqual(0, result.exit_code)
        self.assert_gone(int(result.first_line))

    def assert_gone(self, pid):
        """Assert that a process exits; it may stay a zombie until its new parent reaps it."""
        while True:
            try:
                stat = Path(f'/proc/{pid}/stat').read_text()
            except FileNotFoundError:
                return
            if stat.rpartition(')')[2].split()[0] in 'ZX':
                return
            time.sleep(0.05)

    def test_interrupted(self):
        self.useFixture(signals.TakesCtrlC())
        # The shell's parent is this process.
        pid = self.directory / 'pid'
        command = f'echo $$ >{pid}; sleep 0.5; kill -INT $PPID; exec sleep 600'
        self.assertRaises(KeyboardInterrupt, self.run_command, command)
        self.assert_gone(int(pid.read_text()))

    def test_reads_all_output_before_the_exit(self):
        for number in range(50):
            result = self.run_command(f'echo {number}; exit 1')
            self.assertEqual((1, str(number), str(number)), self.values(result))

    def test_endless_output_of_a_child(self):
        result = self.run_command('yes & echo done', timeout_sec=20)
        self.assertEqual(0, result.exit_code)
