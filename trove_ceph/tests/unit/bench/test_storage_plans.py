# SPDX-License-Identifier: Apache-2.0
"""Tests of commands in the plans that use the storage directly, with a fake ``rbd``."""

import os
import subprocess
import time
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph_bench import plan_file, shell


class LimitsTest(base.BaseTestCase):
    def test_the_time_limit_ends_the_daemon(self):
        directory = Path(self.useFixture(fixtures.TempDir()).path)
        found = directory / 'pid'
        for name, body in (
            # It leaves the process group, as with --daemonize.
            (
                'qemu-storage-daemon',
                f'setsid sleep 1000 >/dev/null 2>&1 & echo $! >"$3"; cp "$3" {found}',
            ),
            ('fio', 'exec sleep 1000'),
        ):
            stub = directory / name
            stub.write_text(f'#!/bin/sh\n{body}\n')
            stub.chmod(0o755)
        (contender, *_) = plan_file.load('storage-limits', {}).contenders
        environ = {
            'PATH': f'{directory}:{os.environ["PATH"]}',
            'BENCH_VARIANT': contender.name,
            'BENCH_OPERATION': contender.operation,
            'BENCH_DATA_MIB': '1',
            'BENCH_DIRECTORY': str(directory),
        }
        result = shell.run(contender.run, environ, directory / 'log', 3)
        self.assertIsNone(result.exit_code)
        status = Path('/proc') / found.read_text().strip() / 'cmdline'
        deadline = time.monotonic() + 30
        # An ended process without a parent that waits for it has no command line.
        while status.exists() and status.read_text():
            self.assertLess(time.monotonic(), deadline, 'the daemon still runs')
            time.sleep(0.05)


class StreamTest(base.BaseTestCase):
    """The length of a stream of ``rbd export-diff`` counts only if all of it was sent."""

    def setUp(self):
        super().setUp()
        self.directory = Path(self.useFixture(fixtures.TempDir()).path)

    def run_with(self, status, command):
        """Run a command with an ``rbd`` that prints three bytes; return its status and output."""
        stub = self.directory / 'rbd'
        stub.write_text(f'#!/bin/sh\nprintf abc\nexit {status}\n')
        stub.chmod(0o755)
        environ = {
            'PATH': f'{self.directory}:{os.environ["PATH"]}',
            'BENCH_DIRECTORY': str(self.directory),
        }
        done = subprocess.run(
            ['sh', '-ec', command], env=environ, stdout=subprocess.PIPE, text=True, check=False
        )
        return done.returncode, done.stdout.strip()

    def contenders(self, name):
        environ = {'BENCH_INSTANCE_IMAGE': 'volumes/image'}
        return [one for one in plan_file.load(name, environ).contenders if one.name == 'rbd']

    def test_costs(self):
        for name, count in (('storage-copy', 1), ('storage-increment', 3)):
            found = [one.cost['moved_bytes'] for one in self.contenders(name)]
            self.assertEqual(count, len(found))
            self.assertEqual((0, '3'), self.run_with(0, found[0]))
            self.assertEqual((1, '3'), self.run_with(1, found[0]))
            (self.directory / 'export-failed').unlink()

    def test_run_of_backup_increment(self):
        (rbd,) = self.contenders('backup-increment')
        self.assertEqual(0, self.run_with(0, rbd.run)[0])
        self.assertEqual('3', (self.directory / 'moved_bytes').read_text().strip())
        self.assertEqual(1, self.run_with(1, rbd.run)[0])
