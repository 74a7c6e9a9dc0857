# SPDX-License-Identifier: Apache-2.0
import glob
import os
import signal
import subprocess
import sys
import time

import fixtures
from oslotest import base

from trove_ceph.host import freeze_process

FAKE = os.path.join(os.path.dirname(__file__), 'fake_freeze.py')
LONG_SEC = 60
TIMEOUT_SEC = 60
# Long enough to observe the freeze on a busy machine.
SHORT_SEC = 2


class FreezeProcessTestCase(base.BaseTestCase):
    """Run the program as a process; only the two ioctls are fakes."""

    def setUp(self):
        super().setUp()
        self.directory = self.useFixture(fixtures.TempDir()).path
        self.state = os.path.join(self.directory, 'frozen')

    def start(self, limit_sec=LONG_SEC):
        holder = subprocess.Popen(
            [sys.executable, FAKE, self.state, self.directory, str(limit_sec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self.addCleanup(holder.wait, TIMEOUT_SEC)
        for pipe in (holder.stdin, holder.stdout):
            self.addCleanup(pipe.close)
        self.assertEqual('ready\n', holder.stdout.readline())
        self.assertFalse(self.is_frozen())
        return holder

    def freeze(self, limit_sec=LONG_SEC):
        holder = self.start(limit_sec)
        holder.stdin.write('freeze\n')
        self.assertRegex(holder.stdout.readline(), r'^frozen \d+\.\d+$')
        self.assertTrue(self.is_frozen())
        return holder

    def is_frozen(self):
        return os.path.exists(self.state)

    def done(self, word):
        with open(f'{self.state}.log', encoding='ascii') as log:
            return [int(line.split()[1]) for line in log if line.startswith(word)]

    def thawed_by(self):
        """Return the ids of the processes that thawed."""
        return [int(path.rpartition('-')[2]) for path in glob.glob(f'{self.state}.thawed-*')]

    def begun(self):
        return os.path.exists(f'{self.state}.log') and self.done('begin')

    def touch(self, suffix):
        path = self.state + suffix
        with open(path, 'w', encoding='ascii'):
            pass
        self.addCleanup(lambda: os.path.exists(path) and os.unlink(path))
        return path

    def wait_for(self, condition):
        deadline = time.monotonic() + TIMEOUT_SEC
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def wait_until_thawed(self):
        self.wait_for(lambda: not self.is_frozen())

    def timer_of(self, holder):
        path = f'/proc/{holder.pid}/task/{holder.pid}/children'
        with open(path, encoding='ascii') as children:
            (timer,) = map(int, children.read().split())
        return timer

    def is_alive(self, pid):
        try:
            with open(f'/proc/{pid}/stat', encoding='ascii') as stat:
                return stat.read().rpartition(')')[2].split()[0] != 'Z'
        except FileNotFoundError:
            return False

    def test_freezes_until_the_caller_thaws(self):
        holder = self.freeze()
        timer = self.timer_of(holder)

        holder.stdin.write('thaw\n')

        self.assertEqual('thawed held\n', holder.stdout.readline())
        self.assertFalse(self.is_frozen())
        self.assertEqual(0, holder.wait(TIMEOUT_SEC))
        self.assertEqual([holder.pid], self.thawed_by())
        # A late thaw would hit the next freeze.
        self.assertFalse(self.is_alive(timer))

    def test_does_not_freeze_without_the_command(self):
        holder = self.start()

        holder.stdin.close()

        self.assertEqual(0, holder.wait(TIMEOUT_SEC))
        self.assertFalse(os.path.exists(f'{self.state}.log'))

    def test_thaws_when_the_caller_has_ended(self):
        holder = self.freeze()

        holder.stdin.close()

        self.assertEqual('thawed lost the caller has ended\n', holder.stdout.readline())
        self.assertFalse(self.is_frozen())

    def test_thaws_when_the_answer_cannot_be_sent(self):
        holder = self.freeze()

        holder.stdout.close()
        holder.stdin.close()

        self.assertEqual(0, holder.wait(TIMEOUT_SEC))
        self.assertFalse(self.is_frozen())

    def test_thaws_at_the_limit_and_reports_it(self):
        holder = self.freeze(SHORT_SEC)

        self.wait_until_thawed()
        holder.wait(TIMEOUT_SEC)

        self.assertEqual('thawed lost the limit passed\n', holder.stdout.readline())
        self.assertEqual(1, len(self.thawed_by()))

    def test_timer_thaws_at_once_after_a_kill(self):
        holder = self.freeze()
        timer = self.timer_of(holder)

        holder.kill()

        self.wait_until_thawed()
        self.assertEqual([timer], self.thawed_by())
        self.assertEqual('', holder.stdout.readline())
        self.wait_for(lambda: not self.is_alive(timer))

    def test_timer_thaws_at_the_limit_when_the_process_hangs(self):
        holder = self.freeze(SHORT_SEC)
        timer = self.timer_of(holder)

        holder.send_signal(signal.SIGSTOP)
        self.addCleanup(holder.send_signal, signal.SIGCONT)
        self.wait_until_thawed()

        self.assertEqual([timer], self.thawed_by())
        # It must not thaw a later freeze.
        self.wait_for(lambda: not self.is_alive(timer))
        holder.stdin.write('thaw\n')
        holder.send_signal(signal.SIGCONT)
        self.assertEqual('thawed lost the limit passed\n', holder.stdout.readline())

    def test_thaws_when_the_timer_is_killed(self):
        holder = self.freeze()

        os.kill(self.timer_of(holder), signal.SIGKILL)

        self.assertEqual('thawed lost the timer was killed\n', holder.stdout.readline())
        self.assertFalse(self.is_frozen())

    def test_thaws_when_both_receive_sigterm(self):
        holder = self.freeze()
        timer = self.timer_of(holder)

        for pid in (timer, holder.pid):
            os.kill(pid, signal.SIGTERM)

        self.assertEqual(
            'thawed lost the freeze process was terminated\n', holder.stdout.readline()
        )
        self.assertFalse(self.is_frozen())

    def test_a_sigterm_while_freezing_thaws_after_the_freeze(self):
        holder = self.start()
        slow = self.touch('.slow')
        holder.stdin.write('freeze\n')
        self.wait_for(self.begun)

        holder.terminate()
        time.sleep(0.2)
        self.assertIsNone(holder.poll())
        os.unlink(slow)

        self.assertEqual(0, holder.wait(TIMEOUT_SEC))
        self.assertEqual((1, 1), (len(self.done('freeze')), len(self.thawed_by())))

    def test_freezing_for_longer_than_the_limit_is_undone(self):
        holder = self.start(limit_sec=0.2)
        slow = self.touch('.slow')
        holder.stdin.write('freeze\n')
        self.wait_for(self.begun)
        # The timer finds nothing to thaw yet, and must retry.
        time.sleep(0.6)
        os.unlink(slow)

        holder.stdout.readline()
        self.assertRegex(holder.stdout.readline(), '^thawed lost')
        self.assertFalse(self.is_frozen())

    def test_a_freeze_of_another_process_is_left_alone(self):
        holder = self.start()
        self.touch('')

        holder.stdin.write('freeze\n')

        self.assertEqual('failed another process has frozen it\n', holder.stdout.readline())
        self.assertEqual(1, holder.wait(TIMEOUT_SEC))
        self.assertTrue(self.is_frozen())

    def test_a_thaw_by_another_process_is_reported(self):
        holder = self.freeze()
        os.unlink(self.state)

        holder.stdin.write('thaw\n')

        self.assertEqual('thawed lost another process thawed it\n', holder.stdout.readline())

    def test_retries_a_failed_thaw(self):
        holder = self.freeze()
        broken = self.touch('.broken')
        holder.stdin.write('thaw\n')
        self.wait_for(lambda: len(self.done('broken')) > 1)
        self.assertTrue(self.is_frozen())

        os.unlink(broken)

        self.assertEqual('thawed held\n', holder.stdout.readline())
        self.assertFalse(self.is_frozen())

    def test_refuses_a_path_that_is_not_a_separate_volume(self):
        for path in ('/', self.directory, '/nowhere'):
            result = subprocess.run(
                [sys.executable, '-I', '-S', freeze_process.__file__, path, '1'],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SEC,
                check=False,
            )

            self.assertEqual(1, result.returncode, result.stderr)
            self.assertRegex(result.stdout, f'^failed {path} cannot be frozen: ')
