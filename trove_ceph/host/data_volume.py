# SPDX-License-Identifier: Apache-2.0
"""The instance's data volume: format it once, mount it at every start, grow it while in use."""

import collections.abc
import os
import time

from oslo_log import log as logging
from oslo_utils import units

from trove_ceph import exceptions, waiting
from trove_ceph.host import filesystem

LOG = logging.getLogger(__name__)

LABEL = 'trove-data'
#: The file that marks a clone. It is on the volume, so that the instance's next server sees it.
CLONE_MARK = '.trove-ceph-clone'
FSTAB = '/etc/fstab'

#: By file system type. XFS: Seagate, "OLTP-Level Performance Using NVMe SSDs with MySQL and Ceph"
#: (2017). There is no barrier option any more: XFS and ext4 always flush. No online ``discard``:
#: one dropped table would send thousands of requests; :mod:`volume_trim` discards at its own pace.
MOUNT_OPTIONS = {'xfs': 'noatime,inode64', 'ext4': 'noatime', 'ext3': 'noatime'}
# At boot: a machine starts without its volume, so that it can be repaired, but docker does not,
# whatever the unit of its image says. It would start MySQL on an empty directory of the root disk.
_BOOT_OPTIONS = 'nofail,x-systemd.before=docker.service,x-systemd.required-by=docker.service'

# The kernel reports a device that is a few sectors larger than the file system as growable.
_GROWTH_STEP_BYTES = units.Mi
_POLL_SEC = 0.5
# Nova gives a disk the id of its volume as serial number, of which virtio-blk has the beginning.
_SERIAL_LENGTH = 20


class DataVolume:
    """One block device and its mount point.

    All methods may be repeated; the next call completes an interrupted one.

    :param device: device path, the same for the life of the instance
    :param mount_point: where the database expects its data
    :param storage: runs the commands
    """

    def __init__(
        self,
        device: str,
        mount_point: str,
        storage: filesystem.HostStorage,
        fstab: str = FSTAB,
        clock: collections.abc.Callable[[], float] = time.monotonic,
        sleep: collections.abc.Callable[[float], None] = time.sleep,
    ):
        self.device = device
        self.mount_point = mount_point
        self._storage = storage
        self._fstab = fstab
        self._clock = clock
        self._sleep = sleep

    def prepare(
        self,
        uid: int,
        gid: int,
        ready_timeout_sec: int,
        format_timeout_sec: int,
        read_ahead_kib: int,
        volume_id: str = '',
    ) -> None:
        """Bring the volume into service: wait for it, tune, format if blank, mount, thaw, grow.

        Blocks for at most ``ready_timeout_sec`` plus the time of the commands.

        :param uid: owner of the mounted file system, as ``gid``
        :param volume_id: of the only volume to use, if the device has a serial number; '': any. A
            machine that has mounted its volume before uses any, since it may have got another one
        :raises VolumeNotReadyError: the device did not appear in time
        :raises VolumeHasDataError: the device holds data that is not a known file system
        """
        self._wait_for_device(ready_timeout_sec, '' if self._is_in_fstab() else volume_id)
        self.configure_queue(read_ahead_kib)
        self.ensure_formatted(format_timeout_sec)
        self._use()
        self._ensure_owner(uid, gid)

    def prepare_replacement(self, ready_timeout_sec: int, read_ahead_kib: int) -> None:
        """Bring a volume with data into service that was attached instead of another one.

        As :meth:`prepare`, but it is never formatted.

        :raises VolumeNotReadyError: the device did not appear in time, or has no file system
        """
        self._wait_for_device(ready_timeout_sec, '')
        self.configure_queue(read_ahead_kib)
        self._use()

    def _use(self) -> None:
        self.ensure_mounted()
        self.ensure_thawed()
        # A volume cloned from a snapshot may be larger than the file system on it.
        self._grow_if_smaller()

    def ensure_formatted(self, timeout_sec: int) -> None:
        """Create an XFS on a blank device; keep an existing file system.

        :raises VolumeHasDataError: the device is not blank and carries no known file system
        """
        if self._storage.find_mount(self.mount_point):
            return
        signature = self._storage.find_signature(self.device)
        if signature is None:
            if not self._storage.is_zeroed(self.device):
                probed_mib = filesystem.BLANK_PROBE_BYTES // units.Mi
                raise exceptions.VolumeHasDataError(
                    f'{self.device} carries no known file system but is not blank: its first '
                    f'{probed_mib} MiB are not all zero. Not formatting.'
                )
        elif signature.kind == 'xfs' and self._storage.is_unfinished_xfs(self.device):
            LOG.warning('An earlier format of %s was interrupted, starting over', self.device)
        elif signature.kind in MOUNT_OPTIONS:
            LOG.info('%s carries a file system of type %s', self.device, signature.kind)
            return
        else:
            raise exceptions.VolumeHasDataError(
                f'{self.device} carries {signature.kind}, expected nothing or one of '
                f"{', '.join(sorted(MOUNT_OPTIONS))}. Not formatting."
            )
        started = self._clock()
        LOG.info('Formatting %s', self.device)
        self._storage.make_xfs(self.device, LABEL, timeout_sec)
        LOG.info('Formatted %s in %.1f s', self.device, self._clock() - started)

    def ensure_mounted(self, at_boot: bool = True) -> str:
        """Mount the volume unless it is mounted, and return its file system type.

        :param at_boot: also mount it at each boot, before docker starts the database
        :raises VolumeNotReadyError: another device is mounted there, or this one has no file system
        """
        mounted = self._storage.find_mount(self.mount_point)
        if mounted is None:
            signature = self._storage.find_signature(self.device)
            if signature is None or signature.kind not in MOUNT_OPTIONS:
                raise exceptions.VolumeNotReadyError(
                    f'{self.device} cannot be mounted at {self.mount_point}: it carries '
                    f"{signature.kind if signature else 'no file system'}."
                )
            fstype = signature.kind
            self._storage.mount(self.device, self.mount_point, fstype, MOUNT_OPTIONS[fstype])
            LOG.info('Mounted %s (%s) at %s', self.device, fstype, self.mount_point)
        else:
            source, fstype = mounted
            if os.path.realpath(source) != os.path.realpath(self.device):
                raise exceptions.VolumeNotReadyError(
                    f'{source} is mounted at {self.mount_point}, expected {self.device}.'
                )
            if fstype not in MOUNT_OPTIONS:
                raise exceptions.VolumeNotReadyError(
                    f'{self.device} is mounted at {self.mount_point} as {fstype}, expected one of '
                    f"{', '.join(sorted(MOUNT_OPTIONS))}."
                )
        if at_boot:
            self._update_fstab(fstype)
        return fstype

    def ensure_thawed(self) -> None:
        """Thaw the volume if an earlier process left it frozen."""
        if self._storage.thaw(self.mount_point):
            LOG.warning('Thawed the volume at %s, which was left frozen', self.mount_point)

    def ensure_unmounted(self) -> None:
        """Unmount the volume if it is mounted."""
        if self._storage.find_mount(self.mount_point):
            self._storage.unmount(self.mount_point)
            LOG.info('Unmounted %s', self.mount_point)

    def grow(self, timeout_sec: int, old_mib: int | None = None) -> int:
        """Extend the file system to a volume that was just resized; return the MiB gained.

        The database may write meanwhile. Blocks for at most ``timeout_sec`` plus the command's
        time.

        :param timeout_sec: how long to wait until the kernel sees the new size
        :param old_mib: a size of the device before it was resized: if it is larger now, the file
            system may have been extended before, by a start of the agent; None: not known
        :raises VolumeNotReadyError: the kernel did not see the new size in time
        """
        fstype = self.ensure_mounted()
        before = self._storage.filesystem_bytes(self.device, self.mount_point, fstype)
        if old_mib is None or self.size_mib() <= old_mib:
            self._wait_for_size(before + _GROWTH_STEP_BYTES, timeout_sec)
        return self._grow(fstype, before) if self._has_room(before) else 0

    def ensure_size(self, size_bytes: int, timeout_sec: int) -> None:
        """Wait until the device has a size, and extend the file system to it, if it is smaller.

        :param timeout_sec: see :meth:`grow`
        :raises VolumeNotReadyError: the kernel did not see the size in time
        """
        self._wait_for_size(size_bytes, timeout_sec)
        self._grow_if_smaller()

    def _wait_for_size(self, size_bytes: int, timeout_sec: int) -> None:
        deadline = self._deadline(timeout_sec)
        while self._storage.size_bytes(self.device) < size_bytes:
            self._storage.rescan(self.device)
            if not deadline.pause(_POLL_SEC):
                raise exceptions.VolumeNotReadyError(
                    f'{self.device} still has {self.size_mib()} MiB after {timeout_sec} s, less '
                    f'than {size_bytes // units.Mi} MiB: the new size has not reached this machine.'
                )

    def configure_queue(self, read_ahead_kib: int) -> None:
        """Configure the block queue, until the machine stops or the device is detached.

        Ceph orders requests itself, so the guest must not (``scheduler``). Completions run on the
        CPU that sent the request (``rq_affinity``). Merging stays on: two adjacent pages sent as
        one request cost one round trip and one operation of the volume's IOPS limit. The Seagate
        study has it on as well (``nomerges`` 0), for local NVMe devices and on the hosts of OSDs.
        """
        settings = {
            'scheduler': 'none',
            'rq_affinity': '2',
            'nomerges': '0',
            'read_ahead_kb': str(read_ahead_kib),
        }
        for attribute, value in settings.items():
            try:
                if not self._storage.set_queue(self.device, attribute, value):
                    LOG.warning('%s has no queue attribute %s', self.device, attribute)
            except exceptions.StorageCommandError as error:
                # The database works with a slower queue.
                LOG.warning('Cannot set %s of %s: %s', attribute, self.device, error)

    def size_mib(self) -> int:
        """Return the size of the device in MiB."""
        return self._storage.size_bytes(self.device) // units.Mi

    def filesystem_bytes(self) -> int:
        """Return the size of the mounted file system in bytes.

        :raises VolumeNotReadyError: the volume is not mounted
        """
        return self._storage.filesystem_bytes(self.device, self.mount_point, self._mounted_fstype())

    def trim(self, offset: int, length: int, minimum: int) -> int:
        """Discard the free blocks within a range, and return the number of bytes discarded.

        :param offset: in bytes, as ``length``
        :param minimum: free extents with fewer bytes are skipped
        :raises VolumeNotReadyError: the volume is not mounted
        :raises StorageCommandError: the device does not support discard
        """
        self._mounted_fstype()
        return self._storage.trim(self.mount_point, offset, length, minimum)

    def mark_clone(self) -> None:
        """Record on the mounted volume that its image reads from another one; idempotent.

        The record is as durable as what MySQL commits afterwards: the file is empty, so the next
        flush of the file system's log has all of it.

        :raises VolumeNotReadyError: the volume is not mounted
        """
        self._mounted_fstype()
        self._storage.create_file(self._clone_mark)

    def unmark_clone(self) -> None:
        """Record on the mounted volume that its image has all its data; idempotent.

        :raises VolumeNotReadyError: the volume is not mounted
        """
        self._mounted_fstype()
        self._storage.remove_file(self._clone_mark)

    def is_clone(self) -> bool:
        """Return whether the mounted volume is marked as a clone."""
        return self._storage.exists(self._clone_mark)

    @property
    def _clone_mark(self) -> str:
        return os.path.join(self.mount_point, CLONE_MARK)

    def _mounted_fstype(self) -> str:
        mounted = self._storage.find_mount(self.mount_point)
        if mounted is None or os.path.realpath(mounted[0]) != os.path.realpath(self.device):
            raise exceptions.VolumeNotReadyError(
                f'The data volume {self.device} is not mounted at {self.mount_point}.'
            )
        return mounted[1]

    def _wait_for_device(self, timeout_sec: int, volume_id: str) -> None:
        deadline = self._deadline(timeout_sec)
        while (missing := self._find_missing(volume_id)) is not None:
            if not deadline.pause(_POLL_SEC):
                raise exceptions.VolumeNotReadyError(f'{missing} within {timeout_sec} s.')

    def _find_missing(self, volume_id: str) -> str | None:
        if not self._exists():
            return f'The data volume {self.device} did not appear'
        serial = self._storage.find_serial(self.device) if volume_id else None
        if serial and serial[:_SERIAL_LENGTH] != volume_id[:_SERIAL_LENGTH]:
            return (
                f'The data volume {volume_id} did not appear as {self.device}, which has the '
                f'serial number {serial},'
            )
        return None

    def _exists(self) -> bool:
        try:
            return self._storage.size_bytes(self.device) > 0
        except exceptions.VolumeNotReadyError:
            return False

    def _deadline(self, timeout_sec: float) -> waiting.Deadline:
        return waiting.Deadline(timeout_sec, self._clock, self._sleep)

    def _has_room(self, filesystem_bytes: int) -> bool:
        size = self._storage.size_bytes(self.device)
        return size - filesystem_bytes >= _GROWTH_STEP_BYTES

    def _grow_if_smaller(self) -> None:
        fstype = self.ensure_mounted()
        before = self._storage.filesystem_bytes(self.device, self.mount_point, fstype)
        if self._has_room(before):
            self._grow(fstype, before)

    def _grow(self, fstype: str, before: int) -> int:
        started = self._clock()
        self._storage.grow_filesystem(self.device, self.mount_point, fstype)
        after = self._storage.filesystem_bytes(self.device, self.mount_point, fstype)
        LOG.info(
            'Grew the %s file system at %s from %s to %s MiB in %.1f s',
            fstype,
            self.mount_point,
            before // units.Mi,
            after // units.Mi,
            self._clock() - started,
        )
        return (after - before) // units.Mi

    def _ensure_owner(self, uid: int, gid: int) -> None:
        # A recursive change at every start would touch each file of a large database in vain.
        if self._storage.owner(self.mount_point) != (uid, gid):
            self._storage.set_owner(self.mount_point, uid, gid, recursive=True)

    def _is_in_fstab(self) -> bool:
        with open(self._fstab, encoding='utf-8') as fstab:
            return any(line.split()[1:2] == [self.mount_point] for line in fstab)

    def _update_fstab(self, fstype: str) -> None:
        """Add the mount to fstab: docker restarts the database at boot, before the agent runs."""
        options = f'{MOUNT_OPTIONS[fstype]},{_BOOT_OPTIONS}'
        entry = f'{self.device}\t{self.mount_point}\t{fstype}\t{options}\t0\t0'
        with open(self._fstab, encoding='utf-8') as fstab:
            lines = fstab.read().splitlines()
        others = [line for line in lines if line.split()[1:2] != [self.mount_point]]
        if [*others, entry] != lines:
            self._storage.write_fstab(self._fstab, '\n'.join([*others, entry]) + '\n')
