# SPDX-License-Identifier: Apache-2.0
"""Commands in a root file system (``tools/in-root``), for which these tests take the machine's."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from trove_ceph.host import processes
from trove_ceph.tests.functional import base

TOOL = base.CHECKOUT / 'tools' / 'in-root'
TIMEOUT_SEC = 120


class InRootTest(base.FunctionalTestCase):
    def setUp(self):
        super().setUp()
        self.mounts = self._mounts()

    @staticmethod
    def _mounts():
        """Return the mounts by which a root is entered; other tests may mount other things."""
        lines = Path('/proc/self/mountinfo').read_text().splitlines()
        return {line for line in lines if '/mnt/upper' in line or '/mnt ' in line}

    def run_inside(self, script, *arguments):
        return subprocess.run(
            [TOOL, '/', 'sh', '-c', script, 'sh', *arguments],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SEC,
            check=False,
        )

    def test_command_has_this_checkout(self):
        done = self.run_inside('pwd && ls tools/in-root && exit 3')
        self.assertEqual(3, done.returncode, done.stderr)
        self.assertEqual([str(base.CHECKOUT), 'tools/in-root'], done.stdout.splitlines())

    def test_only_what_is_shared_stays(self):
        shared = self.directory / 'shared'
        done = self.run_inside('echo kept >"$1" && echo gone >/opt/file', str(shared))
        self.assertEqual((0, ''), (done.returncode, done.stderr))
        self.assertEqual('kept\n', shared.read_text())
        self.assertFalse(Path('/opt/file').exists())
        self.assertEqual(self.mounts, self._mounts())

    def test_killed_command_leaves_no_mount(self):
        process = subprocess.Popen(
            [TOOL, '/', 'sh', '-c', 'echo inside && exec sleep 1000'],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertEqual('inside\n', process.stdout.readline())
        inside = Path(f'/proc/{process.pid}/mountinfo').read_text()
        self.assertIn('lowerdir=/,', inside)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        self.assertTrue(processes.wait_until_gone(process.pid, TIMEOUT_SEC))
        self.assertEqual(self.mounts, self._mounts())

    def test_terminated_command_ends_in_its_own_way(self):
        """No process stands between the caller and the command."""
        program = 'import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); '
        program += 'print("ready", flush=True); signal.pause()'
        with subprocess.Popen(
            [TOOL, '/', sys.executable, '-c', program], stdout=subprocess.PIPE, text=True
        ) as process:
            self.assertEqual('ready\n', process.stdout.readline())
            process.terminate()
            self.assertEqual(7, process.wait(TIMEOUT_SEC))

    def test_refuses_without_a_command(self):
        done = subprocess.run([TOOL, '/'], capture_output=True, text=True, check=False)
        self.assertEqual(2, done.returncode)
        self.assertIn('usage: in-root ROOT COMMAND', done.stderr)
