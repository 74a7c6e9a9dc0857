# SPDX-License-Identifier: Apache-2.0
"""The data volume on a real loop device with real file systems."""

import os
import pathlib
import shutil
import subprocess
import threading

from oslo_utils import units
from trove.guestagent import volume as trove_volume

from trove_ceph import exceptions
from trove_ceph.host import data_volume, filesystem
from trove_ceph.tests.functional import base

MIB = units.Mi
SMALL_MIB = 512
LARGE_MIB = 1024
UID, GID = 1001, 1001
CAP_SYS_RESOURCE = 24
PATH = os.environ['PATH'] + ':/usr/sbin:/sbin'


class DataVolumeTestCase(base.FunctionalTestCase):
    def setUp(self):
        super().setUp()
        for program in ('mkfs.xfs', 'mkfs.ext4', 'losetup', 'blkid'):
            if not shutil.which(program, path=PATH):
                self.skipTest(f'needs {program}')
        if '\txfs\n' not in pathlib.Path('/proc/filesystems').read_text():
            self.skipTest('needs a kernel with XFS')
        self.image = self.directory / 'volume.img'
        with open(self.image, 'wb') as image:
            image.truncate(SMALL_MIB * MIB)
        self.device = _run('losetup', '--find', '--show', str(self.image)).strip()
        self.addCleanup(_run, 'losetup', '--detach', self.device)
        self.mount_point = self.directory / 'mysql'
        self.addCleanup(self._unmount)
        self.fstab = self.directory / 'fstab'
        self.fstab.write_text('/dev/vda1\t/\text4\tdefaults\t0\t1\n')
        self.storage = filesystem.HostStorage()
        self.volume = data_volume.DataVolume(
            self.device, str(self.mount_point), self.storage, fstab=str(self.fstab)
        )

    def _unmount(self):
        if self.storage.find_mount(str(self.mount_point)):
            _run('umount', str(self.mount_point))

    def _prepare(self):
        self.volume.prepare(
            UID, GID, ready_timeout_sec=5, format_timeout_sec=60, read_ahead_kib=4096
        )

    def _enlarge(self):
        with open(self.image, 'r+b') as image:
            image.truncate(LARGE_MIB * MIB)
        _run('losetup', '--set-capacity', self.device)

    def _total_mib(self):
        stats = os.statvfs(self.mount_point)
        return stats.f_blocks * stats.f_frsize // MIB

    def test_formats_and_mounts_a_blank_volume(self):
        self._prepare()

        device, fstype = self.storage.find_mount(str(self.mount_point))
        self.assertEqual((self.device, 'xfs'), (device, fstype))
        owner = os.stat(self.mount_point)
        self.assertEqual((UID, GID), (owner.st_uid, owner.st_gid))
        self.assertIn(
            f'{self.device}\t{self.mount_point}\txfs\tnoatime,inode64,nofail,',
            self.fstab.read_text(),
        )
        self.assertIn('/dev/vda1\t/\text4', self.fstab.read_text())
        info = _run('xfs_info', str(self.mount_point))
        for expected in ('sectsz=4096', 'reflink=0', 'rmapbt=0', 'bigtime=1', 'sunit=0'):
            self.assertIn(expected, info)
        options = _mount_options(self.device)
        self.assertIn('noatime', options)
        self.assertIn('inode64', options)

    def test_troves_agent_leaves_the_mounted_volume_alone(self):
        self._prepare()

        # The check of trove.cmd.guest before it formats and mounts itself.
        mounted = trove_volume.VolumeDevice(self.device).mount_points(self.device)

        self.assertEqual([str(self.mount_point)], mounted)

    def test_sets_the_block_queue_at_each_start(self):
        self._prepare()
        queue = pathlib.Path('/sys/block', os.path.basename(self.device), 'queue')
        (queue / 'read_ahead_kb').write_text('128')

        self._prepare()

        self.assertEqual('4096', (queue / 'read_ahead_kb').read_text().strip())
        self.assertEqual('0', (queue / 'nomerges').read_text().strip())
        self.assertIn('[none]', (queue / 'scheduler').read_text())

    def test_second_preparation_keeps_the_data(self):
        self._prepare()
        (self.mount_point / 'ibdata1').write_bytes(b'rows')
        fstab = self.fstab.read_text()

        self._prepare()
        self.volume.ensure_unmounted()
        self.assertIsNone(self.storage.find_mount(str(self.mount_point)))
        self._prepare()

        self.assertEqual(b'rows', (self.mount_point / 'ibdata1').read_bytes())
        self.assertEqual(fstab, self.fstab.read_text())

    def test_keeps_ext4_of_a_stock_instance(self):
        _run('mkfs.ext4', '-q', self.device)

        self._prepare()

        self.assertEqual('ext4', self.storage.find_mount(str(self.mount_point))[1])
        self.assertNotIn('inode64', self.fstab.read_text())

    def test_grows_ext4_of_a_stock_instance(self):
        if not _has_capability(CAP_SYS_RESOURCE):
            self.skipTest('needs CAP_SYS_RESOURCE, which ext4 wants for growing while mounted')
        _run('mkfs.ext4', '-q', self.device)
        self._prepare()
        (self.mount_point / 'ibdata1').write_bytes(b'rows')
        before = self._total_mib()
        self._enlarge()

        gained = self.volume.grow(timeout_sec=5)

        self.assertEqual(LARGE_MIB - SMALL_MIB, gained)
        self.assertGreater(self._total_mib(), before + 400)
        self.assertEqual(b'rows', (self.mount_point / 'ibdata1').read_bytes())

    def test_refuses_a_file_system_it_does_not_know(self):
        _run('mkswap', self.device)
        content = _head(self.device)

        error = self.assertRaises(exceptions.VolumeHasDataError, self._prepare)

        self.assertIn('swap', str(error))
        self.assertEqual(content, _head(self.device))

    def test_refuses_a_partition_table(self):
        table = bytearray(512)
        table[446:462] = bytes([0x80, 0, 2, 0, 0x83, 0, 2, 0]) + (2048).to_bytes(4, 'little') * 2
        table[510:512] = b'\x55\xaa'
        _write(self.device, 0, bytes(table))

        error = self.assertRaises(exceptions.VolumeHasDataError, self._prepare)

        self.assertIn('partition table dos', str(error))
        self.assertEqual(bytes(table), _head(self.device)[:512])

    def test_refuses_data_without_a_signature(self):
        _write(self.device, 3 * MIB, b'someone else wrote this')

        error = self.assertRaises(exceptions.VolumeHasDataError, self._prepare)

        self.assertIn('not blank', str(error))
        self.assertIsNone(self.storage.find_mount(str(self.mount_point)))

    def test_finishes_an_interrupted_format(self):
        _run('mkfs.xfs', '-q', self.device)
        # As mkfs.xfs leaves it when it is killed before its last write; with a valid checksum.
        _run('xfs_db', '-x', '-c', 'sb 0', '-c', 'write inprogress 1', self.device)

        self._prepare()

        self.assertEqual('xfs', self.storage.find_mount(str(self.mount_point))[1])

    def test_grows_while_mounted_and_waits_for_the_kernel(self):
        self._prepare()
        before = self._total_mib()
        late = threading.Timer(1.5, self._enlarge)
        late.start()
        self.addCleanup(late.join)

        with open(self.mount_point / 'binlog', 'wb') as open_file:
            gained = self.volume.grow(timeout_sec=20)
            open_file.write(b'written after the growth')

        self.assertEqual(LARGE_MIB - SMALL_MIB, gained)
        self.assertEqual(before + gained, self._total_mib())

    def test_reports_a_size_that_does_not_arrive(self):
        self._prepare()

        error = self.assertRaises(exceptions.VolumeNotReadyError, self.volume.grow, 1)

        self.assertIn(f'still has {SMALL_MIB} MiB', str(error))

    def test_grows_a_file_system_of_a_smaller_snapshot_at_mount(self):
        self._prepare()
        self.volume.ensure_unmounted()
        self._enlarge()

        self._prepare()

        self.assertGreater(self._total_mib(), LARGE_MIB - 100)

    def test_reports_another_device_at_the_mount_point(self):
        self.mount_point.mkdir()
        _run('mount', '-t', 'tmpfs', 'tmpfs', str(self.mount_point))

        error = self.assertRaises(exceptions.VolumeNotReadyError, self._prepare)

        self.assertIn('expected ' + self.device, str(error))


def _has_capability(number):
    for line in pathlib.Path('/proc/self/status').read_text().splitlines():
        if line.startswith('CapEff:'):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False


def _run(*command):
    return subprocess.run(
        command,
        check=True,
        timeout=60,
        text=True,
        stdout=subprocess.PIPE,
        env=os.environ | {'PATH': PATH},
    ).stdout


def _head(device):
    with open(device, 'rb') as source:
        return source.read(8192)


def _write(device, offset, content):
    with open(device, 'r+b') as target:
        target.seek(offset)
        target.write(content)


def _mount_options(device):
    for line in pathlib.Path('/proc/self/mounts').read_text().splitlines():
        if line.split()[0] == device:
            return line.split()[3].split(',')
    return []
