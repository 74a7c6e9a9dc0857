# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.host import external_resources, processes, rbd_pool, workspace

NOBODY = '4194305 1'


class FakeCommand:
    """Stands for the ``rbd`` command; refuses everything while ``broken``."""

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
        # The process boundary; an image that is removed later is removed by a new adapter.
        self.useFixture(
            fixtures.MonkeyPatch('trove_ceph.host.rbd_pool.RbdPool.__init__', self._adapter())
        )

    def _adapter(self):
        original, rbd = rbd_pool.RbdPool.__init__, self.rbd
        return lambda adapter, conf, user, pool: original(adapter, conf, user, pool, run=rbd)

    def enter(self):
        return workspace.Workspace(parent=self.parent).__enter__()

    def leave_behind(self, made):
        """Enter what is not left before the test's end, as when its owner is killed."""
        made.__enter__()
        self.addCleanup(made.__exit__, None, None, None)

    def kill_owner(self, place):
        (place.path / 'owner').write_text(NOBODY)

    def image(self, place):
        pool = rbd_pool.RbdPool('/c', 'admin', 'pool')
        return external_resources.rbd_image(place.path, pool, 1)

    def test_is_gone_when_left(self):
        with workspace.Workspace(parent=self.parent) as place:
            (place.path / 'file').touch()
            self.assertEqual(str(place.path), place.environment[workspace.MARK])

        self.assertEqual([], list(self.parent.iterdir()))

    def test_one_in_use_is_left_alone(self):
        first = self.enter()

        second = self.enter()

        self.assertTrue(first.path.is_dir())
        self.assertTrue(second.path.is_dir())

    def test_a_killed_owner_s_is_cleared_with_all_it_made_elsewhere(self):
        place = self.enter()
        disk = self.parent / 'disk'
        disk.mkdir()
        self.leave_behind(self.image(place))
        self.leave_behind(external_resources.directory(place.path, disk))
        self.assertEqual(1, len(list(disk.iterdir())))
        self.kill_owner(place)

        self.assertEqual([place.path], workspace.clear_stale(parent=self.parent))

        self.assertEqual([disk], list(self.parent.iterdir()))
        self.assertEqual([], list(disk.iterdir()))
        self.assertEqual([], self.rbd.images)

    def test_an_image_that_cannot_be_removed_stays_remembered(self):
        place = self.enter()
        self.leave_behind(self.image(place))
        self.kill_owner(place)
        self.rbd.broken = True

        self.assertEqual([], workspace.clear_stale(parent=self.parent))
        self.rbd.broken = False
        self.assertEqual([place.path], workspace.clear_stale(parent=self.parent))

        self.assertEqual([], self.rbd.images)

    def test_the_first_error_is_not_hidden_by_a_failed_removal(self):
        place = workspace.Workspace(parent=self.parent)

        def fail():
            with place, self.image(place):
                self.rbd.broken = True
                raise ZeroDivisionError

        self.assertRaises(ZeroDivisionError, fail)

    def test_a_directory_of_somebody_else_is_not_believed(self):
        place = self.enter()
        self.kill_owner(place)

        with mock.patch.object(os, 'geteuid', return_value=os.geteuid() + 1):
            cleared = workspace.clear_stale(parent=self.parent)

        self.assertEqual([], cleared)
        self.assertTrue(place.path.is_dir())


class ProcessesTest(base.BaseTestCase):
    def test_identity_of_this_process_and_of_none(self):
        self.assertTrue(processes.identity(os.getpid()).startswith(f'{os.getpid()} '))
        self.assertEqual('', processes.identity(int(NOBODY.split()[0])))

    def test_processor_time_grows(self):
        before = processes.cpu_sec(os.getpid())
        while processes.cpu_sec(os.getpid()) == before:
            sum(range(100000))

        self.assertGreater(processes.cpu_sec(os.getpid()), before)

    def test_one_that_is_gone_has_been_waited_for(self):
        self.assertTrue(processes.wait_until_gone(int(NOBODY.split()[0]), timeout_sec=0))
