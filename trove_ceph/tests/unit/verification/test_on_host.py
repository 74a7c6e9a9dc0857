# SPDX-License-Identifier: Apache-2.0
import contextlib
import dataclasses
import pathlib

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.host import filesystem
from trove_ceph.tests.unit.verification import world
from trove_ceph.verification import on_host, report

ROOT = pathlib.Path('/srv/mysql')
TOLD = '/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))'


class VersionTest(base.BaseTestCase):
    def test_of_a_root_file_system(self):
        def run(*words):
            self.assertEqual(('chroot', ROOT, 'mysqld', '--no-defaults', '--version'), words)
            return TOLD

        self.assertEqual((9, 7, 4), on_host.mysqld_version(ROOT, run))

    def test_no_mysqld_in_it(self):
        def refuse(*_):
            raise exceptions.StorageCommandError('chroot failed')

        for run in (refuse, lambda *_: 'something else', lambda *_: 'mysqld Ver new for Linux'):
            error = self.assertRaises(
                exceptions.NotInspectableError, on_host.mysqld_version, ROOT, run
            )
            self.assertIn('/srv/mysql: has no mysqld', str(error))


class RootsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        roots = {'9.7.4': pathlib.Path('/exact'), '9.7': pathlib.Path('/series')}
        self.settings = dataclasses.replace(world.SETTINGS, roots=roots)

    def test_its_own_or_that_of_its_series(self):
        self.assertEqual('/exact', str(self.settings.root_for('9.7.4')))
        self.assertEqual('/series', str(self.settings.root_for('9.7.5')))
        self.assertEqual('/series', str(self.settings.root_for('9.7')))

    def test_none_for_another_series(self):
        for version in ('9.8.1', '9', '8.4.2', ''):
            error = self.assertRaises(
                exceptions.NotInspectableError, self.settings.root_for, version
            )
            self.assertIn('known are 9.7, 9.7.4', str(error))


class MountTest(base.BaseTestCase):
    def mount(self, signature):
        finder = 'trove_ceph.host.filesystem.HostStorage.find_signature'
        self.useFixture(fixtures.MonkeyPatch(finder, lambda *_: signature))
        with contextlib.ExitStack() as stack:
            on_host.HostSandbox._mount(stack, '/dev/loop9', pathlib.Path('/nowhere'))

    def test_nothing_is_incomplete(self):
        found = self.assertRaises(report.Finding, self.mount, None)
        self.assertEqual(report.INCOMPLETE, found.verdict)

    def test_another_file_system_is_no_fault_of_the_backup(self):
        """Volumes of older instances may have ext4."""
        ext4 = filesystem.Signature('ext4', True)
        error = self.assertRaises(exceptions.NotInspectableError, self.mount, ext4)
        self.assertIn('the image holds ext4', str(error))
