# SPDX-License-Identifier: Apache-2.0
import dataclasses
import pathlib

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests.unit.verification import world
from trove_ceph.verification import on_host, report, volume_head


class RootsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        roots = {'9.7.4': pathlib.Path('/exact'), '9.7': pathlib.Path('/series')}
        self.settings = dataclasses.replace(world.SETTINGS, roots=roots)

    def test_finds_the_root_of_the_version_or_of_its_series(self):
        self.assertEqual('/exact', str(self.settings.root_for('9.7.4')))
        self.assertEqual('/series', str(self.settings.root_for('9.7.5')))
        self.assertEqual('/series', str(self.settings.root_for('9.7')))

    def test_refuses_another_series(self):
        for version in ('9.8.1', '9', '8.4.2', ''):
            error = self.assertRaises(
                exceptions.NotInspectableError, self.settings.root_for, version
            )
            self.assertIn('configured are 9.7, 9.7.4', str(error))


class FileSystemTest(base.BaseTestCase):
    def check(self, head):
        device = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'device'
        device.write_bytes(head.ljust(128 * 1024, b'\0'))
        volume_head.check_file_system(device)

    def test_xfs(self):
        self.check(b'XFSB')

    def test_a_blank_image_is_incomplete(self):
        found = self.assertRaises(report.NotSoundError, self.check, b'')
        self.assertEqual(report.INCOMPLETE, found.verdict)

    def test_another_file_system_is_not_inspectable(self):
        """Volumes of older instances may have ext4."""
        for head, expected in ((bytes(1080) + b'\x53\xef', 'ext4'), (b'LUKS', 'an unknown format')):
            error = self.assertRaises(exceptions.NotInspectableError, self.check, head)
            self.assertIn(expected, str(error))


class OwnerTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.data = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'data'

    def assert_found(self, verdict, reason):
        found = self.assertRaises(report.NotSoundError, volume_head.owner, self.data)
        self.assertEqual((verdict, reason), (found.verdict, found.reason))

    def test_refuses_a_path_that_is_not_a_data_directory(self):
        self.assert_found(report.INCOMPLETE, 'data is not there')
        self.data.symlink_to('/etc')
        self.assert_found(report.CORRUPT, 'data is not a directory')
        self.data.unlink()
        self.data.touch()
        self.assert_found(report.CORRUPT, 'data is not a directory')


class WrittenTest(base.BaseTestCase):
    def test_refuses_to_write_more_than_is_allowed(self):
        sysfs = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.host.workspace.SYSFS', sysfs))
        (sysfs / 'loop3').mkdir()
        settings = dataclasses.replace(world.SETTINGS, max_written_bytes=4096)
        sandbox = on_host.HostSandbox('/etc/ceph/ceph.conf', 'client.x', settings)
        sandbox._device = '/dev/loop3'
        # A loop device counts the writes of all its users.
        sandbox._written_before = 100 * 512
        (sysfs / 'loop3' / 'stat').write_text('1 0 800 5 9 0 108 5 0 0 0\n')
        sandbox._check_written()
        (sysfs / 'loop3' / 'stat').write_text('1 0 800 5 9 0 109 5 0 0 0\n')
        self.assertRaises(exceptions.NotInspectableError, sandbox._check_written)
