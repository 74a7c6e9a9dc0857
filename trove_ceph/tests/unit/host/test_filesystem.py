# SPDX-License-Identifier: Apache-2.0
import errno
import os
import stat
import struct
import subprocess
import sys
from unittest import mock

import fixtures
import psutil
from oslo_concurrency import processutils
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.host import filesystem, freeze_process, volume_watch_process

DUMPE2FS = 'Inode count: 65536\nBlock count:              262144\nBlock size:               4096\n'


class FakeExecute:
    """A fake process boundary: answers by program name and records the commands."""

    def __init__(self, **answers):
        self.answers = answers
        self.commands = []
        self.inputs = {}
        self.options = []

    def __call__(self, *command, process_input=None, **options):
        self.commands.append(command)
        self.options.append(options)
        if process_input is not None:
            self.inputs[command[-1]] = process_input
        answer = self.answers.get(command[0].replace('.', '_'), '')
        if isinstance(answer, Exception):
            raise answer
        return answer, ''


def failed(exit_code, stderr='', stdout=''):
    return processutils.ProcessExecutionError(
        exit_code=exit_code, stderr=stderr, stdout=stdout, cmd='x'
    )


class HostStorageTestCase(base.BaseTestCase):
    def storage(self, **answers):
        self.execute = FakeExecute(**answers)
        return filesystem.HostStorage(execute=self.execute)

    def test_trim_of_a_range(self):
        storage = self.storage(fstrim='/mnt: 1.5 MiB (1572864 bytes) trimmed\n')

        self.assertEqual(1572864, storage.trim('/mnt', 4096, 8192, 65536))

        options = ('--offset', '4096', '--length', '8192', '--minimum', '65536')
        self.assertEqual([('fstrim', '--verbose', *options, '/mnt')], self.execute.commands)

    def test_a_device_without_discard_is_an_error(self):
        message = 'fstrim: /mnt: the discard operation is not supported'
        storage = self.storage(fstrim=failed(1, message))

        error = self.assertRaises(
            exceptions.StorageCommandError, storage.trim, '/mnt', 0, 8192, 65536
        )

        self.assertIn(message, str(error))

    def test_files(self):
        self.assertTrue(self.storage(test='').exists('/mnt/mark'))
        self.assertFalse(self.storage(test=failed(1)).exists('/mnt/mark'))
        broken = self.storage(test=failed(2, 'sudo: a password is required'))
        self.assertRaises(exceptions.StorageCommandError, broken.exists, '/mnt/mark')
        storage = self.storage(touch='', rm='')
        storage.create_file('/mnt/mark')
        storage.remove_file('/mnt/mark')
        self.assertEqual(
            [('touch', '/mnt/mark'), ('rm', '--force', '/mnt/mark')], self.execute.commands
        )

    def test_used_bytes(self):
        stats = mock.Mock(f_blocks=1000, f_bfree=900, f_bavail=800, f_frsize=4096, f_bsize=65536)
        self.useFixture(fixtures.MockPatch('os.statvfs', return_value=stats))

        self.assertEqual(100 * 4096, self.storage().used_bytes('/mnt'))

    def test_signature_of_a_file_system(self):
        storage = self.storage(blkid='DEVNAME=/dev/vdb\nUUID=1\nTYPE=xfs\nUSAGE=filesystem\n')

        found = storage.find_signature('/dev/vdb')

        self.assertEqual(filesystem.Signature('xfs', True), found)
        self.assertIn('--probe', self.execute.commands[0])

    def test_no_signature(self):
        self.assertIsNone(self.storage(blkid=failed(2)).find_signature('/dev/vdb'))

    def test_partition_table_is_a_signature(self):
        found = self.storage(blkid='PTTYPE=gpt\n').find_signature('/dev/vdb')

        self.assertEqual(filesystem.Signature('partition table gpt', False), found)

    def test_contradicting_signatures_are_a_signature(self):
        found = self.storage(blkid=failed(8)).find_signature('/dev/vdb')

        self.assertFalse(found.is_filesystem)

    def test_unreadable_device_is_not_taken_for_blank(self):
        storage = self.storage(blkid=failed(4, 'Input/output error'))

        error = self.assertRaises(
            exceptions.StorageCommandError, storage.find_signature, '/dev/vdb'
        )

        self.assertIn('Input/output error', str(error))

    def test_zeroed_device(self):
        self.assertTrue(self.storage(cmp='').is_zeroed('/dev/vdb'))
        self.assertFalse(self.storage(cmp=failed(1)).is_zeroed('/dev/vdb'))
        self.assertRaises(
            exceptions.StorageCommandError, self.storage(cmp=failed(2)).is_zeroed, '/dev/vdb'
        )

    def test_missing_device_is_not_ready(self):
        self.assertRaises(
            exceptions.VolumeNotReadyError, self.storage().size_bytes, '/dev/does-not-exist'
        )

    def test_xfs_is_made_with_the_given_timeout(self):
        self.storage().make_xfs('/dev/vdb', 'trove-data', timeout_sec=300)

        command = self.execute.commands[-1]
        self.assertEqual(('mkfs.xfs', '/dev/vdb'), (command[0], command[-1]))
        self.assertIn('-K', command)
        self.assertEqual(300, self.execute.options[-1]['timeout'])

    def test_xfs_is_filled_from_a_prototype(self):
        self.storage().make_xfs('/dev/vdb', 'trove-data', 300, '/tmp/prototype')

        self.assertEqual(('-p', '/tmp/prototype', '/dev/vdb'), self.execute.commands[-1][-3:])

    def test_xfs_has_no_features_that_older_kernels_lack(self):
        for version, expected in (
            ('6.1.0', ['nrext64=0']),
            ('6.10.0', ['nrext64=0', 'exchange=0', 'parent=0']),
            ('7.2.0', ['nrext64=0', 'exchange=0', 'parent=0']),
        ):
            storage = self.storage(mkfs_xfs=f'mkfs.xfs version {version}\n')
            storage.make_xfs('/dev/vdb', 'trove-data', timeout_sec=300)
            switched_off = ('nrext64=0', 'exchange=0', 'parent=0')
            command = self.execute.commands[-1]
            self.assertEqual(expected, [one for one in switched_off if one in command], version)

    def test_a_command_that_does_not_end_is_an_error(self):
        storage = self.storage(umount=subprocess.TimeoutExpired('umount', 60))

        error = self.assertRaises(exceptions.StorageCommandError, storage.unmount, '/var/lib/mysql')

        self.assertIn('did not end within 60 s', str(error))

    def test_a_program_that_is_not_installed_is_an_error(self):
        storage = self.storage(mkfs_xfs=FileNotFoundError('mkfs.xfs'))

        self.assertRaises(exceptions.StorageCommandError, storage.make_xfs, '/dev/vdb', 'l', 60)

    def test_runs_as_root_only_when_needed(self):
        for euid, expected in ((0, False), (1000, True)):
            storage = self.storage()
            with mock.patch('os.geteuid', return_value=euid):
                storage.unmount('/mnt')
            self.assertEqual(expected, self.execute.options[0]['run_as_root'])

    def test_file_system_sizes(self):
        # blocksize, rtextsize, agblocks, agcount, logblocks, sectsize, inodesize, imaxpct,
        # datablocks
        geometry = struct.pack('=8IQ', 4096, 1, 65536, 4, 16384, 4096, 512, 25, 262144)
        storage = self.storage(dumpe2fs=DUMPE2FS)

        with self.answered(geometry.ljust(112, b'\0')):
            found = storage.filesystem_bytes('/dev/vdb', self.directory(), 'xfs')

        self.assertEqual(1024**3, found)
        self.assertEqual(1024**3, storage.filesystem_bytes('/dev/vdb', '/mnt', 'ext4'))

    def test_an_unreadable_file_system_size_is_an_error(self):
        storage = self.storage(dumpe2fs='something else')

        for mount_point, fstype, expected in (
            ('/mnt', 'ext4', 'ext4 file system on /dev/vdb'),
            ('/does-not-exist', 'xfs', 'at /does-not-exist: No such file'),
        ):
            error = self.assertRaises(
                exceptions.StorageCommandError,
                *(storage.filesystem_bytes, '/dev/vdb', mount_point, fstype),
            )
            self.assertIn(expected, str(error))

    def directory(self):
        return self.useFixture(fixtures.TempDir()).path

    def answered(self, answer):
        """Have the kernel answer each request about a file."""
        return mock.patch('fcntl.ioctl', side_effect=[answer])

    def test_xfs_grows_by_mount_point_and_is_never_repaired(self):
        """Defect 14: stock repairs a file system that is mounted."""
        self.storage().grow_filesystem('/dev/vdb', '/var/lib/mysql', 'xfs')

        self.assertEqual([('xfs_growfs', '-d', '/var/lib/mysql')], self.execute.commands)

    def test_ext4_grows_by_device(self):
        self.storage().grow_filesystem('/dev/vdb', '/var/lib/mysql', 'ext4')

        self.assertEqual([('resize2fs', '/dev/vdb')], self.execute.commands)

    def test_unknown_file_system_does_not_grow(self):
        self.assertRaises(
            exceptions.StorageCommandError,
            self.storage().grow_filesystem,
            '/dev/vdb',
            '/mnt',
            'btrfs',
        )

    def test_a_missing_queue_attribute(self):
        self.assertFalse(self.storage().set_queue('/dev/does-not-exist', 'scheduler', 'none'))
        self.assertEqual([], self.execute.commands)

    def devices(self, **files):
        """Make the kernel show block devices, and return the directory that it shows them in."""
        directory = self.directory()
        self.useFixture(fixtures.MonkeyPatch(f'{filesystem.__name__}._SYS_BLOCK', directory))
        for name, content in files.items():
            path = os.path.join(directory, name.replace('__', '/'))
            os.makedirs(os.path.dirname(path))
            with open(path, 'w') as file:
                file.write(content)
        return directory

    def test_size_of_a_device(self):
        self.devices(null__size='2097152\n')
        self.assertEqual(1024**3, self.storage().size_bytes('/dev/null'))

    def test_name_in_sysfs_differs_from_that_of_the_node(self):
        """As /dev/cciss/c0d0, which sysfs shows as cciss!c0d0."""
        devices = self.devices(dm_d7__size='8\n')
        os.rename(f'{devices}/dm_d7', f'{devices}/dm-7')
        os.symlink(f'{devices}/dm-7', f'{devices}/253:7')
        numbers = f'{filesystem.__name__}._SYS_NUMBERS'
        node = mock.Mock(st_mode=stat.S_IFBLK, st_rdev=os.makedev(253, 7))
        with (
            mock.patch(numbers, devices),
            mock.patch('os.stat', return_value=node),
            mock.patch('os.path.exists', return_value=True),
        ):
            self.assertEqual(8 * 512, self.storage().size_bytes('/dev/mapper/data'))

    def test_a_file_that_is_no_device_has_no_size(self):
        self.devices()
        error = self.assertRaises(
            exceptions.StorageCommandError, self.storage().size_bytes, '/dev/null'
        )
        self.assertIn('size of /dev/null', str(error))

    def test_queue_attributes(self):
        path = f'{self.devices(vdb__queue__scheduler="[mq-deadline] none")}/vdb/queue/scheduler'
        for euid, expected in ((0, {}), (1000, {path: 'none'})):
            storage = self.storage()
            with mock.patch('os.geteuid', return_value=euid):
                self.assertTrue(storage.set_queue('/dev/vdb', 'scheduler', 'none'))
            self.assertEqual(expected, self.execute.inputs)
        with open(path) as scheduler:
            self.assertEqual('none', scheduler.read())

    def test_a_queue_attribute_that_the_kernel_refuses(self):
        self.devices(vdb__queue__scheduler='')
        refusal = mock.patch('builtins.open', side_effect=OSError(errno.EINVAL, 'Invalid argument'))
        with mock.patch('os.geteuid', return_value=0), refusal:
            error = self.assertRaises(
                exceptions.StorageCommandError,
                *(self.storage().set_queue, '/dev/vdb', 'scheduler', 'fast'),
            )
        self.assertIn('Cannot write fast', str(error))

    def test_owner(self):
        directory = self.directory()
        self.assertEqual((os.getuid(), os.getgid()), self.storage().owner(directory))
        self.assertRaises(
            exceptions.StorageCommandError, self.storage().owner, f'{directory}/missing'
        )

    def test_fstab_is_replaced_in_one_step(self):
        self.storage().write_fstab('/etc/fstab', 'line\n')

        self.assertEqual('line\n', self.execute.inputs['/etc/fstab.new'])
        self.assertEqual(('mv', '/etc/fstab.new', '/etc/fstab'), self.execute.commands[-1])

    def test_thawing_as_root(self):
        directory = self.directory()
        for answer, expected in ((0, True), (OSError(errno.EINVAL, 'Invalid argument'), False)):
            with mock.patch('os.geteuid', return_value=0), self.answered(answer):
                self.assertEqual(expected, self.storage().thaw(directory))
            self.assertEqual([], self.execute.commands)

    def test_a_failed_thaw_as_root_is_an_error(self):
        failure = OSError(errno.EIO, 'Input/output error')
        with mock.patch('os.geteuid', return_value=0), self.answered(failure):
            self.assertRaises(exceptions.StorageCommandError, self.storage().thaw, self.directory())

    def test_thawing(self):
        with mock.patch('os.geteuid', return_value=1000):
            self.assertTrue(self.storage().thaw('/mnt'))
        self.assertEqual([('fsfreeze', '--unfreeze', '/mnt')], self.execute.commands)

    def test_nothing_to_thaw(self):
        storage = self.storage(
            fsfreeze=failed(1, 'fsfreeze: /mnt: unfreeze failed: Invalid argument')
        )

        with mock.patch('os.geteuid', return_value=1000):
            self.assertFalse(storage.thaw('/mnt'))

    def test_a_failed_thaw_is_an_error(self):
        storage = self.storage(
            fsfreeze=failed(1, 'fsfreeze: /mnt: unfreeze failed: Input/output error')
        )

        with mock.patch('os.geteuid', return_value=1000):
            self.assertRaises(exceptions.StorageCommandError, storage.thaw, '/mnt')

    def mounts(self, text):
        """Make psutil read a given table of mounts."""
        path = self.useFixture(fixtures.TempDir()).path
        os.mkdir(f'{path}/self')
        with open(f'{path}/self/mounts', 'w') as mounts:
            mounts.write(text)
        self.patch(psutil, 'PROCFS_PATH', path)

    def test_mounts(self):
        self.mounts(
            '/dev/vda1 / ext4 rw 0 0\n'
            '/dev/vdb /srv/my\\040sql xfs rw,noatime 0 0\n'
            '/dev/vdc /srv/my\\040sql/shop xfs rw 0 0\n'
            '/dev/vdd /srv/my\\040sqlite xfs rw 0 0\n'
        )
        storage = self.storage()

        self.assertEqual(('/dev/vdb', 'xfs'), storage.find_mount('/srv/my sql'))
        self.assertEqual(['rw', 'noatime'], storage.mount_options('/srv/my sql'))
        self.assertEqual(['/srv/my sql/shop'], storage.mounts_below('/srv/my sql'))
        self.assertIsNone(storage.find_mount('/srv'))
        self.assertEqual([], storage.mount_options('/srv'))

    def test_links(self):
        storage = self.storage(find='shop\0/srv/shop\0a\nb/t.MYD\0../c\0')

        self.assertEqual(
            [('shop', '/srv/shop'), ('a\nb/t.MYD', '../c')], storage.find_links('/mnt/data', 2)
        )
        self.assertEqual([], self.storage().find_links('/mnt/data', 2))

    def freeze_command(self, uid, systemd):
        popen = self.useFixture(fixtures.MockPatch('subprocess.Popen')).mock
        self.useFixture(fixtures.MockPatch('os.geteuid', return_value=uid))
        self.useFixture(
            fixtures.MonkeyPatch(
                f'{filesystem.__name__}._SYSTEMD', '/proc' if systemd else '/nowhere'
            )
        )
        self.useFixture(fixtures.MockPatch('shutil.which', return_value='/usr/sbin/fsfreeze'))

        process, channel = self.storage().start_freeze_process('/mnt', 12.5)

        self.assertIs(popen.return_value, process)
        # Only the freeze process has the other end of the socket.
        self.assertEqual(b'', channel.recv(1))
        channel.close()
        self.assertTrue(popen.call_args.kwargs['start_new_session'])
        return popen.call_args.args[0]

    def test_freeze_process_is_run_by_its_path(self):
        self.assertEqual(
            [sys.executable, '-I', '-S', freeze_process.__file__, '/mnt', '12.5'],
            self.freeze_command(uid=0, systemd=False),
        )
        self.assertEqual('sudo', self.freeze_command(uid=1000, systemd=False)[0])

    def test_freeze_process_has_its_own_unit(self):
        command = self.freeze_command(uid=1000, systemd=True)

        self.assertEqual(['sudo', 'systemd-run'], command[:2])
        self.assertIn('--pipe', command)
        self.assertIn('--property=ExecStopPost=-/usr/sbin/fsfreeze --unfreeze /mnt', command)
        program = command[command.index('--') + 1 :]
        self.assertEqual(self.freeze_command(uid=0, systemd=False), program)

    def test_the_watch_of_the_volume_ends_with_the_agent(self):
        """It is a process of the agent's service, in whose log its reports are."""
        for uid, prefix in ((0, []), (1000, ['sudo'])):
            with (
                mock.patch('os.geteuid', return_value=uid),
                mock.patch('subprocess.Popen') as popen,
            ):
                process, channel = self.storage().start_volume_watch('/mnt', 90)
            channel.close()
            self.assertIs(popen.return_value, process)
            program = [sys.executable, '-I', '-S', volume_watch_process.__file__, '/mnt', '90']
            self.assertEqual([*prefix, *program], popen.call_args.args[0])
            self.assertIsNone(popen.call_args.kwargs['stderr'])

    def test_a_freeze_process_that_cannot_start_is_an_error(self):
        self.useFixture(fixtures.MockPatch('subprocess.Popen', side_effect=FileNotFoundError()))

        self.assertRaises(
            exceptions.StorageCommandError, self.storage().start_freeze_process, '/mnt', 1
        )

    def test_serial_numbers(self):
        volume_id = '33333333-0000-4000-8000-333333333333'
        devices = self.devices()
        for name, attribute, content in (
            ('vdb', 'serial', volume_id[:20].encode()),
            ('vdc', 'serial', b'\n'),
            ('sdb', 'device/vpd_pg80', b'\0\x80\0\x24' + volume_id.encode()),
        ):
            path = os.path.join(devices, name, attribute)
            os.makedirs(os.path.dirname(path))
            with open(path, 'wb') as file:
                file.write(content)

        storage = self.storage()

        self.assertEqual(volume_id[:20], storage.find_serial('/dev/vdb'))
        self.assertEqual(volume_id, storage.find_serial('/dev/sdb'))
        self.assertIsNone(storage.find_serial('/dev/vdc'))
        self.assertIsNone(storage.find_serial('/dev/vdd'))
