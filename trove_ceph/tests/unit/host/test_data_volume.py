# SPDX-License-Identifier: Apache-2.0
import os
import tempfile

from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.host import data_volume, filesystem

MIB = units.Mi
DEVICE = '/dev/fake-volume'
MOUNT_POINT = '/var/lib/mysql'


class FakeStorage:
    """A fake device and file system that behave like the real commands."""

    def __init__(self, size_mib=1024):
        self.size_mib = size_mib
        self.later_sizes = []
        self.present = True
        self.serial = None
        self.signature = None
        self.zeroed = True
        self.unfinished = False
        self.frozen = False
        self.fs_mib = 0
        self.mounts = {}
        self.owners = {}
        self.queue = {}
        self.broken_queue = set()
        self.files = set()
        self.done = []

    def exists(self, path):
        return path in self.files

    def create_file(self, path):
        self.files.add(path)

    def remove_file(self, path):
        self.files.discard(path)

    def size_bytes(self, device):
        if self.later_sizes:
            self.size_mib = self.later_sizes.pop(0)
        if not self.present:
            raise exceptions.VolumeNotReadyError(f'{device} does not exist')
        return self.size_mib * MIB

    def find_serial(self, device):
        return self.serial

    def find_signature(self, device):
        return self.signature and filesystem.Signature(self.signature, True)

    def is_zeroed(self, device):
        return self.zeroed

    def is_unfinished_xfs(self, device):
        return self.unfinished

    def make_xfs(self, device, label, timeout_sec):
        self.done.append('format')
        self.signature, self.unfinished, self.fs_mib = 'xfs', False, self.size_mib

    def mount(self, device, mount_point, fstype, options):
        self.done.append(f'mount {fstype} {options}')
        self.mounts[mount_point] = (device, fstype)

    def unmount(self, mount_point):
        self.done.append('unmount')
        del self.mounts[mount_point]

    def find_mount(self, mount_point):
        return self.mounts.get(mount_point)

    def filesystem_bytes(self, device, mount_point, fstype):
        return self.fs_mib * MIB

    def grow_filesystem(self, device, mount_point, fstype):
        assert not self.frozen, 'would wait for the thaw'
        self.done.append(f'grow {fstype}')
        self.fs_mib = self.size_mib

    def trim(self, mount_point, offset, length, minimum):
        self.done.append(f'trim {offset} {length} {minimum}')
        return length

    def thaw(self, mount_point):
        was_frozen, self.frozen = self.frozen, False
        return was_frozen

    def rescan(self, device):
        self.done.append('rescan')

    def set_queue(self, device, attribute, value):
        if attribute in self.broken_queue:
            raise exceptions.StorageCommandError('tee failed')
        self.queue[attribute] = value
        return True

    def owner(self, path):
        return self.owners.get(path, (0, 0))

    def set_owner(self, path, uid, gid, recursive=False):
        self.done.append('chown')
        self.owners[path] = (uid, gid)

    def write_fstab(self, path, content):
        self.done.append('fstab')
        with open(path, 'w') as fstab:
            fstab.write(content)


class FakeClock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class DataVolumeTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        handle, self.fstab = tempfile.mkstemp()
        os.close(handle)
        self.addCleanup(os.unlink, self.fstab)
        self.storage = FakeStorage()
        self.clock = FakeClock()
        self.volume = data_volume.DataVolume(
            DEVICE,
            MOUNT_POINT,
            self.storage,
            fstab=self.fstab,
            clock=self.clock,
            sleep=self.clock.sleep,
        )

    def prepare(self, **options):
        self.volume.prepare(1001, 1001, 120, 300, 4096, **options)

    def read_fstab(self):
        with open(self.fstab) as fstab:
            return fstab.read()

    def test_blank_volume(self):
        self.prepare()

        self.assertEqual(
            ['format', 'mount xfs noatime,inode64', 'fstab', 'chown'], self.storage.done
        )
        self.assertEqual('none', self.storage.queue['scheduler'])
        self.assertEqual('4096', self.storage.queue['read_ahead_kb'])

    def test_a_second_start_changes_nothing_but_the_queue(self):
        self.prepare()
        self.storage.done.clear()
        self.storage.queue.clear()

        self.prepare()

        self.assertEqual([], self.storage.done)
        self.assertEqual('none', self.storage.queue['scheduler'])

    def test_only_the_volume_itself_is_trimmed(self):
        for mounted in (None, ('/dev/other', 'xfs')):
            if mounted:
                self.storage.mounts[MOUNT_POINT] = mounted
            self.assertRaises(exceptions.VolumeNotReadyError, self.volume.trim, 0, 8, 4)
            self.assertRaises(exceptions.VolumeNotReadyError, self.volume.filesystem_bytes)
        self.assertEqual([], self.storage.done)
        self.storage.mounts.clear()
        self.prepare()
        self.assertEqual(8, self.volume.trim(16, 8, 4))
        self.assertEqual('trim 16 8 4', self.storage.done[-1])
        self.assertEqual(1024 * MIB, self.volume.filesystem_bytes())

    def test_the_mark_of_a_clone_is_on_the_volume(self):
        for change in (self.volume.mark_clone, self.volume.unmark_clone):
            self.assertRaises(exceptions.VolumeNotReadyError, change)
        self.prepare()
        self.assertFalse(self.volume.is_clone())
        for _again in range(2):
            self.volume.mark_clone()
        self.assertEqual({f'{MOUNT_POINT}/.trove-ceph-clone'}, self.storage.files)
        self.assertTrue(self.volume.is_clone())
        for _again in range(2):
            self.volume.unmark_clone()
            self.assertFalse(self.volume.is_clone())

    def test_start_may_be_interrupted_anywhere(self):
        steps = ['make_xfs', 'mount', 'write_fstab', 'set_owner']
        for step in steps:
            self.storage = FakeStorage()
            self.volume._storage = self.storage
            open(self.fstab, 'w').close()
            original = getattr(self.storage, step)

            def fail(*args, **kwargs):
                raise exceptions.StorageCommandError('killed')

            setattr(self.storage, step, fail)
            self.assertRaises(exceptions.StorageCommandError, self.prepare)
            setattr(self.storage, step, original)

            self.prepare()

            self.assertEqual((DEVICE, 'xfs'), self.storage.find_mount(MOUNT_POINT), step)
            self.assertEqual((1001, 1001), self.storage.owner(MOUNT_POINT), step)
            self.assertEqual(1, self.read_fstab().count(MOUNT_POINT), step)
            self.assertEqual(1, self.storage.done.count('format'), step)

    def test_volume_with_a_file_system_is_never_formatted(self):
        for kind in ('xfs', 'ext4', 'ext3'):
            self.storage = FakeStorage()
            self.storage.signature, self.storage.fs_mib = kind, 1024
            self.storage.zeroed = False
            self.volume._storage = self.storage

            self.prepare()

            self.assertNotIn('format', self.storage.done)

    def test_foreign_content_is_refused(self):
        self.storage.signature = 'crypto_LUKS'

        error = self.assertRaises(exceptions.VolumeHasDataError, self.prepare)

        self.assertIn('crypto_LUKS', str(error))
        self.assertEqual([], self.storage.done)

    def test_data_without_signature_is_refused(self):
        self.storage.zeroed = False

        self.assertRaises(exceptions.VolumeHasDataError, self.prepare)

        self.assertEqual([], self.storage.done)

    def test_interrupted_format_is_repeated(self):
        self.storage.signature, self.storage.unfinished = 'xfs', True
        self.storage.zeroed = False

        self.prepare()

        self.assertEqual('format', self.storage.done[0])

    def test_interrupted_xfs_mark_means_nothing_on_ext4(self):
        self.storage.signature, self.storage.unfinished = 'ext4', True
        self.storage.fs_mib = 1024

        self.prepare()

        self.assertNotIn('format', self.storage.done)

    def test_a_volume_that_never_appears_is_an_error(self):
        self.storage.present = False

        error = self.assertRaises(exceptions.VolumeNotReadyError, self.prepare)

        self.assertIn('did not appear within 120 s', str(error))
        self.assertGreaterEqual(self.clock.now, 120)

    def test_only_the_disk_of_the_volume_is_used(self):
        """Another disk may have the device name at first."""
        volume_id = '33333333-0000-4000-8000-333333333333'
        self.storage.serial = '44444444-0000-4000-8'

        error = self.assertRaises(exceptions.VolumeNotReadyError, self.prepare, volume_id=volume_id)

        self.assertIn(f'volume {volume_id} did not appear as {DEVICE}', str(error))
        self.assertIn(self.storage.serial, str(error))
        self.assertEqual([], self.storage.done)
        for serial in (volume_id, volume_id[:20], None):
            open(self.fstab, 'w').close()
            self.storage.serial = serial
            self.prepare(volume_id=volume_id)

    def test_volume_that_replaced_the_first_one_is_used(self):
        volume_id = '33333333-0000-4000-8000-333333333333'
        self.storage.serial = volume_id[:20]
        self.prepare(volume_id=volume_id)
        self.storage.mounts.clear()
        self.storage.serial = '44444444-0000-4000-8'

        self.prepare(volume_id=volume_id)

        self.assertEqual(2, self.storage.done.count('mount xfs noatime,inode64'))

    def test_replacement_is_mounted_and_grown(self):
        self.storage.signature, self.storage.fs_mib = 'xfs', 512
        self.volume.prepare_replacement(60, 4096)
        self.assertEqual(['mount xfs noatime,inode64', 'fstab', 'grow xfs'], self.storage.done)
        self.assertEqual('4096', self.storage.queue['read_ahead_kb'])

    def test_replacement_is_never_formatted(self):
        self.assertRaises(exceptions.VolumeNotReadyError, self.volume.prepare_replacement, 60, 4096)
        self.assertEqual([], self.storage.done)

    def test_without_an_id_any_disk_is_used(self):
        self.storage.serial = '44444444-0000-4000-8'

        self.prepare()

    def test_restored_volume_is_grown_at_its_first_mount(self):
        """Defect 10: a file system that was restored to a larger volume keeps its old size."""
        self.storage.signature, self.storage.fs_mib = 'xfs', 512

        self.prepare()

        self.assertIn('grow xfs', self.storage.done)
        self.assertEqual(1024, self.storage.fs_mib)

    def test_start_continues_if_a_queue_attribute_cannot_be_set(self):
        self.storage.broken_queue.add('scheduler')

        self.prepare()

        self.assertEqual('4096', self.storage.queue['read_ahead_kb'])
        self.assertIsNotNone(self.storage.find_mount(MOUNT_POINT))

    def test_other_lines_of_fstab_stay(self):
        with open(self.fstab, 'w') as fstab:
            fstab.write(f'/dev/vda1 / ext4 defaults 0 0\n/dev/old {MOUNT_POINT} ext4 x 0 0\n')

        self.prepare()

        self.assertEqual(
            f'/dev/vda1 / ext4 defaults 0 0\n{DEVICE}\t{MOUNT_POINT}\txfs\tnoatime,inode64,nofail,'
            'x-systemd.before=docker.service,x-systemd.required-by=docker.service\t0\t0\n',
            self.read_fstab(),
        )

    def test_fstab_of_an_earlier_release(self):
        """A machine whose volume cannot be mounted would not boot."""
        with open(self.fstab, 'w') as fstab:
            fstab.write(f'{DEVICE}\t{MOUNT_POINT}\txfs\tnoatime,inode64\t0\t0\n')
        self.prepare()
        (line,) = self.read_fstab().splitlines()
        self.assertIn('nofail', line.split()[3].split(','))

    def test_mount_without_fstab(self):
        self.storage.signature = 'xfs'

        self.volume.ensure_mounted(at_boot=False)

        self.assertEqual('', self.read_fstab())

    def test_blank_volume_cannot_be_mounted(self):
        error = self.assertRaises(exceptions.VolumeNotReadyError, self.volume.ensure_mounted)

        self.assertIn('no file system', str(error))

    def test_unmount_is_repeatable(self):
        self.prepare()

        self.volume.ensure_unmounted()
        self.volume.ensure_unmounted()

        self.assertEqual(1, self.storage.done.count('unmount'))

    def test_grow_waits_for_the_new_size(self):
        """Defect 15: the file system may be grown before the guest knows of its larger disk."""
        self.prepare()
        self.storage.later_sizes = [1024, 1024, 1024, 2048]

        gained = self.volume.grow(timeout_sec=60)

        self.assertEqual(1024, gained)
        self.assertEqual(3, self.storage.done.count('rescan'))
        self.assertAlmostEqual(1.5, self.clock.now)

    def test_grow_gives_up(self):
        self.prepare()

        error = self.assertRaises(exceptions.VolumeNotReadyError, self.volume.grow, 60)

        self.assertIn('still has 1024 MiB after 60 s', str(error))
        self.assertNotIn('grow xfs', self.storage.done)

    def test_grow_after_a_start_of_the_agent_has_grown_it(self):
        """Or after a growth whose rest failed."""
        self.prepare()
        self.assertEqual(0, self.volume.grow(timeout_sec=60, old_mib=512))
        self.assertEqual(0, self.clock.now)
        self.assertNotIn('grow xfs', self.storage.done)

    def test_grow_from_a_known_size(self):
        self.prepare()
        self.storage.later_sizes = [1024, 1024, 1024, 2048]
        self.assertEqual(1024, self.volume.grow(timeout_sec=60, old_mib=1024))

    def test_size_that_is_there(self):
        self.prepare()

        self.volume.ensure_size(1024 * MIB, timeout_sec=60)

        self.assertEqual(0, self.clock.now)
        self.assertNotIn('grow xfs', self.storage.done)

    def test_size_that_comes_later(self):
        self.prepare()
        self.storage.later_sizes = [1024, 1024, 2048]

        self.volume.ensure_size(2048 * MIB, timeout_sec=60)

        self.assertEqual(1, self.storage.done.count('grow xfs'))

    def test_size_that_does_not_come(self):
        self.prepare()

        error = self.assertRaises(
            exceptions.VolumeNotReadyError, self.volume.ensure_size, 2048 * MIB, 60
        )

        self.assertIn('still has 1024 MiB after 60 s, less than 2048 MiB', str(error))
        self.assertNotIn('grow xfs', self.storage.done)

    def test_grow_after_an_offline_resize_mounts_first(self):
        self.storage.signature, self.storage.fs_mib, self.storage.size_mib = 'xfs', 1024, 2048

        self.assertEqual(1024, self.volume.grow(timeout_sec=60))

        self.assertIsNotNone(self.storage.find_mount(MOUNT_POINT))

    def test_another_device_at_the_mount_point_is_refused(self):
        self.storage.mounts[MOUNT_POINT] = ('/dev/other', 'xfs')

        error = self.assertRaises(exceptions.VolumeNotReadyError, self.prepare)

        self.assertIn('/dev/other is mounted', str(error))

    def test_an_unknown_file_system_type_is_refused(self):
        self.storage.mounts[MOUNT_POINT] = (DEVICE, 'btrfs')

        self.assertRaises(exceptions.VolumeNotReadyError, self.prepare)

    def test_volume_that_was_left_frozen_is_thawed(self):
        self.prepare()
        self.storage.frozen = True
        self.storage.size_mib *= 2

        self.prepare()

        self.assertFalse(self.storage.frozen)
