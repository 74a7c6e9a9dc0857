# SPDX-License-Identifier: Apache-2.0
"""Tests of commands in the plans that use the storage directly, with a fake ``rbd``."""

import os
import subprocess
from pathlib import Path

import fixtures
from oslotest import base

from trove_ceph_bench import plan_file


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
