# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.host import external_resources, processes, rbd_pool, workspace

ENDED = '4194305 1'


class Killed(BaseException):
    """The end of a process."""


class FakeCommand:
    """A fake ``rbd`` command; every call fails while ``broken``."""

    def __init__(self):
        self.images = []
        self.broken = False

    def __call__(self, *words, **options):
        if self.broken:
            raise exceptions.StorageCommandError('Ceph does not answer')
        words = words[5:]
        if words[0] == 'create':
            self.images.append(words[-1].partition('/')[2])
        elif words[0] == 'remove':
            self.images.remove(words[-1].partition('/')[2])
        elif words[0] == 'ls':
            return str(self.images).replace("'", '"')
        return ''


class WorkspaceTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.parent = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.rbd = FakeCommand()
        # The process boundary: a later removal creates a new adapter.
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.host.rbd_pool.RbdPool.__init__', self._adapter())
        )

    def _adapter(self):
        original, rbd = rbd_pool.RbdPool.__init__, self.rbd
        return lambda adapter, conf, user, pool: original(adapter, conf, user, pool, run=rbd)

    def enter(self):
        return workspace.Workspace(parent=self.parent).__enter__()

    def leak(self, resource):
        """Create a resource and release it only after the test, as after a kill of its owner."""
        resource.__enter__()
        self.addCleanup(resource.__exit__, None, None, None)

    def kill_owner(self, space):
        (space.path / 'owner').write_text(ENDED)

    def image(self, space):
        pool = rbd_pool.RbdPool('/c', 'admin', 'pool')
        return external_resources.rbd_image(space.path, pool, 1)

    def test_is_removed_on_exit(self):
        with workspace.Workspace(parent=self.parent) as space:
            (space.path / 'file').touch()
            self.assertEqual(str(space.path), space.environment[workspace.MARK])

        self.assertEqual([], list(self.parent.iterdir()))

    def test_leaves_a_workspace_in_use_alone(self):
        first = self.enter()

        second = self.enter()

        self.assertTrue(first.path.is_dir())
        self.assertTrue(second.path.is_dir())

    def test_clears_the_workspace_of_a_killed_owner_with_its_external_resources(self):
        space = self.enter()
        disk = self.parent / 'disk'
        disk.mkdir()
        self.leak(self.image(space))
        self.leak(external_resources.directory(space.path, disk))
        self.assertEqual(1, len(list(disk.iterdir())))
        self.kill_owner(space)

        self.assertEqual([space.path], workspace.clear_stale(parent=self.parent))

        self.assertEqual([disk], list(self.parent.iterdir()))
        self.assertEqual([], list(disk.iterdir()))
        self.assertEqual([], self.rbd.images)

    def kill_at(self, step, action):
        """Perform an action in a process that is killed instead of one of its steps."""
        with (
            mock.patch.object(processes, 'identity', return_value=ENDED),
            mock.patch(step, side_effect=Killed),
        ):
            self.assertRaises(Killed, action)

    def test_an_owner_killed_while_it_creates_a_workspace(self):
        for step in ('chmod', 'write_text', 'rename'):
            self.kill_at(f'pathlib.Path.{step}', self.enter)
            self.assertEqual(1, len(list(self.parent.iterdir())), step)

            self.assertEqual(1, len(workspace.clear_stale(parent=self.parent)), step)

            self.assertEqual([], list(self.parent.iterdir()), step)

    def test_an_owner_killed_while_it_deletes_a_workspace(self):
        for step in ('os.unlink', 'os.rmdir'):
            space = self.enter()
            self.kill_at(step, lambda space=space: workspace.clear(space.path))
            self.assertEqual(1, len(list(self.parent.iterdir())), step)

            self.assertEqual(1, len(workspace.clear_stale(parent=self.parent)), step)

            self.assertEqual([], list(self.parent.iterdir()), step)

    def test_an_owner_whose_record_a_power_cut_has_emptied(self):
        space = self.enter()
        (space.path / 'owner').write_text('')

        self.assertEqual([space.path], workspace.clear_stale(parent=self.parent))

        self.assertEqual([], list(self.parent.iterdir()))

    def test_a_workspace_that_another_process_creates_or_deletes_is_left_alone(self):
        unnamed = self.parent / f'.{processes.identity(1).replace(" ", "-")}.{workspace.PREFIX}a'
        unnamed.mkdir()

        self.assertEqual([], workspace.clear_stale(parent=self.parent))

        self.assertTrue(unnamed.is_dir())

    def test_a_directory_in_use_is_reported_and_cleared_later(self):
        space = self.enter()
        with mock.patch('os.rmdir', side_effect=OSError('Device or resource busy')):
            error = self.assertRaises(
                exceptions.StorageCommandError, space.__exit__, None, None, None
            )
        self.assertIn('Device or resource busy', str(error))
        (left,) = self.parent.iterdir()

        workspace.clear(left)

        self.assertEqual([], list(self.parent.iterdir()))

    def test_a_workspace_can_be_cleared_twice(self):
        space = self.enter()

        workspace.clear(space.path)
        workspace.clear(space.path)

        self.assertEqual([], list(self.parent.iterdir()))

    def test_the_record_of_an_image_that_cannot_be_removed_stays(self):
        space = self.enter()
        self.leak(self.image(space))
        self.kill_owner(space)
        self.rbd.broken = True

        self.assertEqual([], workspace.clear_stale(parent=self.parent))
        self.rbd.broken = False
        self.assertEqual([space.path], workspace.clear_stale(parent=self.parent))

        self.assertEqual([], self.rbd.images)

    def test_the_first_error_is_not_hidden_by_a_failed_removal(self):
        space = workspace.Workspace(parent=self.parent)

        def fail():
            with space, self.image(space):
                self.rbd.broken = True
                raise ZeroDivisionError

        self.assertRaises(ZeroDivisionError, fail)

    def test_a_directory_of_another_user_is_not_trusted(self):
        space = self.enter()
        self.kill_owner(space)

        with mock.patch.object(os, 'geteuid', return_value=os.geteuid() + 1):
            cleared = workspace.clear_stale(parent=self.parent)

        self.assertEqual([], cleared)
        self.assertTrue(space.path.is_dir())


class ProcessesTest(base.BaseTestCase):
    def test_identity_of_this_and_of_an_ended_process(self):
        self.assertTrue(processes.identity(os.getpid()).startswith(f'{os.getpid()} '))
        self.assertEqual('', processes.identity(int(ENDED.split()[0])))

    def test_cpu_time_grows(self):
        before = processes.cpu_sec(os.getpid())
        while processes.cpu_sec(os.getpid()) == before:
            sum(range(100000))

        self.assertGreater(processes.cpu_sec(os.getpid()), before)

    def test_waiting_for_an_ended_process_returns_at_once(self):
        self.assertTrue(processes.wait_until_gone(int(ENDED.split()[0]), timeout_sec=0))


class MembersTest(base.BaseTestCase):
    """Processes in mount namespaces of their own, as of containers."""

    def setUp(self):
        super().setUp()
        self.proc = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.host.processes.PROC', self.proc))
        listed = [mock.Mock(pid=42, **{'environ.return_value': {}, 'name.return_value': 'mysqld'})]
        self.useFixture(fixtures.MonkeyPatch('psutil.process_iter', lambda: listed))

    def add(self, process, namespace, *mounts):
        """Add a process with the root and the mount point of each of its mounts."""
        directory = self.proc / process
        (directory / 'ns').mkdir(parents=True)
        (directory / 'ns' / 'mnt').symlink_to(f'mnt:[{namespace}]')
        lines = [f'1 0 8:1 {root} {point} rw - ext4 /dev/vda rw' for root, point in mounts]
        (directory / 'mountinfo').write_text('\n'.join(lines))

    def members(self):
        return workspace.members(pathlib.Path('/var/lib/trove-ceph/i'))

    def test_finds_a_process_that_sees_the_workspace(self):
        self.add('self', 1, ('/', '/'))
        self.add('42', 2, ('/var/lib/trove-ceph/i/inspect-1/data', '/var/lib/mysql'))
        self.assertEqual([(42, 'mysqld')], self.members())

    def test_ignores_a_process_that_sees_another_directory(self):
        self.add('self', 1, ('/', '/'))
        self.add('42', 2, ('/var/lib/trove-ceph/i2/inspect-1/data', '/var/lib/mysql'))
        self.assertEqual([], self.members())

    def test_finds_it_if_the_workspace_is_in_a_bind_mount(self):
        self.add('self', 1, ('/', '/'), ('/volumes/storage', '/var/lib/trove-ceph'))
        self.add('42', 2, ('/volumes/storage/i/inspect-1/data', '/var/lib/mysql'))
        self.assertEqual([(42, 'mysqld')], self.members())
