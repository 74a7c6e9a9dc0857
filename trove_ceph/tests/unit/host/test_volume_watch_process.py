# SPDX-License-Identifier: Apache-2.0
import errno
import os
import pathlib
import signal
import subprocess
import sys
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph import waiting
from trove_ceph.host import processes, volume_watch_process
from trove_ceph.host.volume_watch_process import FAILED_BASE, SYNCING, WRITING, WRITTEN

FAKE = os.path.join(os.path.dirname(__file__), 'fake_volume_watch.py')
TIMEOUT_SEC = 60
LIMIT_SEC = 90
EIO = FAILED_BASE + errno.EIO
ENOSPC = FAILED_BASE + errno.ENOSPC


class WatchTest(base.BaseTestCase):
    """The decision, without any process."""

    def setUp(self):
        super().setUp()
        self.watch = volume_watch_process.Watch(LIMIT_SEC)
        self.note(WRITING, SYNCING)
        self.assertEqual('watching', self.watch.note(WRITTEN))

    def note(self, *reports):
        """Note reports after which nothing has happened."""
        for report in reports:
            self.assertIsNone(self.watch.note(report))

    def tick(self, seconds):
        """Let as many ticks pass, each a second; return what happened, with its second."""
        found = [(second, self.watch.tick(1.0)) for second in range(1, seconds + 1)]
        return [(second, happened) for second, happened in found if happened]

    def test_a_write_that_hangs_for_the_limit(self):
        self.note(WRITING, SYNCING)
        ((second, happened),) = self.tick(10 * LIMIT_SEC)
        self.assertEqual(LIMIT_SEC, second)
        self.assertEqual('lost a write has not ended after 90 s', happened)
        self.assertEqual('back', self.watch.note(WRITTEN))

    def test_slow_writes(self):
        for _ in range(10):
            self.note(WRITING, SYNCING)
            self.assertEqual([], self.tick(LIMIT_SEC - 1))
            self.note(WRITTEN)

    def test_a_write_that_a_freeze_blocks(self):
        """As for a backup, while definitions and files are quiesced."""
        self.note(WRITING)
        self.assertFalse(self.watch.is_syncing)
        self.assertEqual([], self.tick(10 * LIMIT_SEC))
        self.note(SYNCING, WRITTEN)

    def test_pauses_between_writes_do_not_count(self):
        self.assertEqual([], self.tick(10 * LIMIT_SEC))

    def test_a_machine_that_was_suspended(self):
        self.note(WRITING, SYNCING)
        self.assertEqual([], self.tick(LIMIT_SEC - 2))
        self.assertIsNone(self.watch.tick(100 * LIMIT_SEC))
        self.note(WRITTEN)

    def test_a_machine_on_which_each_tick_is_late(self):
        self.note(WRITING, SYNCING)
        for _ in range(LIMIT_SEC - 1):
            self.assertIsNone(self.watch.tick(60.0))
        self.note(WRITTEN)

    def test_failures_in_a_row(self):
        self.note(WRITING, EIO, WRITING, SYNCING, EIO, WRITING)
        self.assertEqual(
            'lost 3 writes failed: Input/output error',
            self.watch.note(FAILED_BASE + errno.EIO),
        )
        # The servers are killed once.
        self.note(*[WRITING, EIO] * 10)
        self.note(WRITING, SYNCING)
        self.assertEqual('back', self.watch.note(WRITTEN))
        self.note(WRITING, EIO, WRITING, EIO, WRITING)
        self.assertIn('3 writes failed', self.watch.note(EIO))

    def test_a_read_only_file_system(self):
        self.note(*[FAILED_BASE + errno.EROFS] * 2)
        self.assertIn('Read-only', self.watch.note(FAILED_BASE + errno.EROFS))

    def test_single_failures(self):
        for _ in range(10):
            self.note(WRITING, EIO, WRITING, SYNCING, EIO, WRITING, SYNCING, WRITTEN)

    def test_a_full_volume(self):
        self.note(*[WRITING, ENOSPC] * 100)
        self.note(WRITING, EIO, WRITING, ENOSPC, WRITING, EIO, WRITING, EIO, WRITING)
        self.assertIn('3 writes failed', self.watch.note(EIO))

    def test_a_hang_after_failures(self):
        """XFS may wait for its log before it gives up."""
        self.note(WRITING, EIO, WRITING, SYNCING)
        ((second, _happened),) = self.tick(LIMIT_SEC)
        self.assertEqual(LIMIT_SEC, second)


class ProcessTest(base.BaseTestCase):
    """The program, on a directory whose writes hang or fail."""

    def setUp(self):
        super().setUp()
        self.directory = self.useFixture(fixtures.TempDir()).path

    def start_writing(self, limit_sec):
        process = subprocess.Popen(
            [sys.executable, FAKE, self.directory, str(limit_sec)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.addCleanup(process.wait, TIMEOUT_SEC)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stdin.close)
        self.addCleanup(process.kill)
        return process

    def start(self, limit_sec):
        process = self.start_writing(limit_sec)
        self.assertEqual('watching\n', process.stdout.readline())
        return process

    def touch(self, name):
        path = os.path.join(self.directory, name)
        with open(path, 'w', encoding='ascii'):
            pass
        return path

    def writer_of(self, process):
        path = f'/proc/{process.pid}/task/{process.pid}/children'
        with open(path, encoding='ascii') as children:
            (writer,) = map(int, children.read().split())
        return writer

    def check_killed(self):
        killed = os.path.join(self.directory, 'killed')
        with open(killed, encoding='ascii') as file:
            self.assertEqual(str(os.stat(self.directory).st_dev), file.read())
        os.unlink(killed)

    def test_a_write_hangs(self):
        # A busy machine may stop the process that writes for a while.
        process = self.start(limit_sec=2)
        hanging = self.touch('hanging')
        line = process.stdout.readline()
        self.assertRegex(line, r'^lost a write has not ended .*; killed mysqld, process 7, 8\n')
        self.check_killed()
        os.unlink(hanging)
        self.assertEqual('back\n', process.stdout.readline())
        path = os.path.join(self.directory, volume_watch_process.FILE_NAME)
        self.assertEqual(4096, os.path.getsize(path))
        process.stdin.close()
        self.assertEqual(0, process.wait(TIMEOUT_SEC))

    def test_the_first_write_hangs(self):
        """As when the agent starts on a machine that is cut off."""
        hanging = self.touch('hanging')
        process = self.start_writing(limit_sec=2)
        self.assertRegex(process.stdout.readline(), '^lost a write has not ended ')
        self.check_killed()
        os.unlink(hanging)
        self.assertEqual('back\n', process.stdout.readline())

    def test_writes_fail(self):
        process = self.start(limit_sec=1000)
        broken = self.touch('broken')
        self.assertIn('lost 3 writes failed: Input/output error', process.stdout.readline())
        self.check_killed()
        os.unlink(broken)
        self.assertEqual('back\n', process.stdout.readline())

    def test_it_ends_with_its_caller_even_while_it_waits(self):
        process = self.start(limit_sec=1000)
        writer = self.writer_of(process)
        self.touch('hanging')
        process.stdin.close()
        self.assertEqual(0, process.wait(TIMEOUT_SEC))
        self.assertFalse(processes.identity(writer))

    def test_the_writer_ends_with_it(self):
        process = self.start(limit_sec=1000)
        writer = self.writer_of(process)
        process.kill()
        self.assertTrue(processes.wait_until_gone(writer, TIMEOUT_SEC))

    def test_the_writer_was_killed(self):
        process = self.start(limit_sec=1000)
        os.kill(self.writer_of(process), signal.SIGKILL)
        self.assertEqual('failed the process that writes has ended\n', process.stdout.readline())
        self.assertEqual(1, process.wait(TIMEOUT_SEC))

    def test_a_directory_without_a_mount(self):
        for path, expected in (
            (self.directory, 'is not mounted'),
            (os.path.join(self.directory, 'missing'), 'No such file'),
        ):
            program = [sys.executable, '-I', '-S', volume_watch_process.__file__, path, '90']
            ended = subprocess.run(
                program, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            self.assertEqual(1, ended.returncode)
            self.assertRegex(ended.stdout, f'^failed .*{expected}')
            # Its caller may hang, its service's log does not.
            self.assertEqual(ended.stdout, ended.stderr)


class KillServersTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        # No server may have this name.
        self.name = f'db{os.getpid()}'
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.host.volume_watch_process._SERVER', self.name)
        )
        program = self.useFixture(fixtures.TempDir()).join(self.name)
        os.symlink('/bin/sleep', program)
        self.server = subprocess.Popen([program, '1000'])
        self.addCleanup(self.server.wait)
        self.addCleanup(self.server.kill)
        # The kernel names the process a moment after its start has succeeded.
        deadline = waiting.Deadline(TIMEOUT_SEC)
        while pathlib.Path(f'/proc/{self.server.pid}/comm').read_text().strip() != self.name:
            self.assertTrue(deadline.pause(0.01))

    def kill(self, device):
        """Return the servers that are found, and those that are killed."""
        with mock.patch('os.kill') as killed:
            found = volume_watch_process.kill_servers(device)
        return found, killed.mock_calls

    def test_servers_that_have_the_volume(self):
        expected = [mock.call(self.server.pid, signal.SIGKILL)]
        self.assertEqual(([self.server.pid], expected), self.kill(os.stat('/proc').st_dev))

    def test_servers_on_other_volumes(self):
        self.assertEqual(([], []), self.kill(os.makedev(4000, 4000)))

    def test_a_process_ends_meanwhile(self):
        with mock.patch('os.listdir', return_value=['self', str(2**22 + 1)]):
            self.assertEqual(([], []), self.kill(os.stat('/proc').st_dev))
