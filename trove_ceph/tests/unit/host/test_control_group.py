# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import subprocess

import fixtures
from oslotest import base

from trove_ceph.host import control_group


class ControlGroupTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.own = self.root / 'self'
        self.own.write_text('')

    def group(self):
        return control_group.ControlGroup('one', 2**30, 512, self.root, self.own)

    def name(self):
        return f'{control_group.PREFIX}.{os.getpid()}.one'

    def empty(self, *groups):
        """Remove the files; those of a real control group are removed with it."""
        for group in groups:
            for file in group.iterdir():
                file.unlink()


class Version1Test(ControlGroupTestCase):
    def setUp(self):
        super().setUp()
        self.own.write_text('4:memory:/service\n8:pids:/\n9:name=systemd:/\n0::/\n')
        (self.root / 'memory' / 'service').mkdir(parents=True)
        (self.root / 'pids').mkdir()
        self.groups = (
            self.root / 'memory' / 'service' / self.name(),
            self.root / 'pids' / self.name(),
        )

    def test_limits_below_its_own_group(self):
        memory, pids = self.groups
        with self.group() as group:
            self.assertTrue(group.is_made)
            self.assertEqual(str(2**30), (memory / 'memory.limit_in_bytes').read_text())
            self.assertEqual('512', (pids / 'pids.max').read_text())
            self.empty(memory, pids)
        self.assertFalse(memory.exists() or pids.exists())

    def test_a_command_joins_before_it_runs(self):
        with self.group() as group:
            program = subprocess.run(
                [*group.prefix(), 'sh', '-c', 'echo $$'], capture_output=True, text=True, check=True
            )
            for path in self.groups:
                self.assertEqual(program.stdout, (path / 'cgroup.procs').read_text())
            self.empty(*self.groups)

    def test_a_group_that_the_container_cannot_see(self):
        self.own.write_text('4:memory:/docker/1234\n')
        with self.group():
            path = self.root / 'memory' / self.name()
            self.assertTrue(path.is_dir())
            self.empty(path, self.groups[1])


class Version2Test(ControlGroupTestCase):
    def test_limits_beside_the_service(self):
        (self.root / 'cgroup.controllers').write_text('cpu memory pids')
        parent = self.root / control_group.PREFIX
        with self.group():
            path = parent / self.name()
            self.assertEqual('+memory +pids', (parent / 'cgroup.subtree_control').read_text())
            self.assertEqual(str(2**30), (path / 'memory.max').read_text())
            self.assertEqual('0', (path / 'memory.swap.max').read_text())
            self.assertEqual('512', (path / 'pids.max').read_text())
            self.empty(path)
        self.assertFalse(path.exists())


class WithoutTest(ControlGroupTestCase):
    def test_works_without_control_groups(self):
        with self.group() as group:
            self.assertFalse(group.is_made)
            self.assertEqual([], group.prefix())

    def test_removes_the_first_group_if_the_second_fails(self):
        (self.root / 'memory').mkdir()
        remove = pathlib.Path.rmdir

        def empty_and_remove(path):
            self.empty(path)
            remove(path)

        self.useFixture(fixtures.MonkeyPatch('pathlib.Path.rmdir', empty_and_remove))
        with self.group() as group:
            self.assertFalse(group.is_made)
        self.assertEqual([], list((self.root / 'memory').iterdir()))


class ClearTest(ControlGroupTestCase):
    def test_removes_groups_of_ended_processes(self):
        dead = self.root / 'memory' / f'{control_group.PREFIX}.999999999.inspect-a'
        alive = self.root / 'memory' / f'{control_group.PREFIX}.{os.getpid()}.inspect-b'
        for path in (dead, alive):
            path.mkdir(parents=True)
        control_group.clear_killed(self.root, self.own)
        self.assertEqual([alive], list((self.root / 'memory').iterdir()))
