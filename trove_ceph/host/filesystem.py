# SPDX-License-Identifier: Apache-2.0
"""Use block devices and file systems by the kernel's interfaces and by commands.

No other module of the guest runs such commands. The start of one takes some tenths of a second on
an emulated processor, so what the kernel answers itself is asked without one.
"""

import collections.abc
import contextlib
import dataclasses
import errno
import fcntl
import os
import re
import shutil
import socket
import stat
import struct
import subprocess
import sys
import typing

import psutil
from oslo_concurrency import processutils

from trove_ceph import exceptions
from trove_ceph.host import freeze_process, volume_watch_process

#: Bytes at the start of a device that must be zero before it counts as never written.
BLANK_PROBE_BYTES = 4 * 1024 * 1024
_COMMAND_TIMEOUT_SEC = 60
# For a first trim on slow disks; the command cannot be killed while the kernel waits for a discard.
_TRIM_TIMEOUT_SEC = 600
_XFSPROGS = re.compile(r'version (\d+)\.(\d+)')
#: The release of xfsprogs whose mkfs.xfs has the options ``exchange`` and ``parent``.
_PARENT_POINTERS = (6, 10)
_SYS_BLOCK = '/sys/class/block'
_SYS_NUMBERS = '/sys/dev/block'
# The kernel counts in these, whatever the sectors of a device have.
_SECTOR_BYTES = 512
# xfs_fs.h: XFS_IOC_FSGEOMETRY_V1 and the beginning of struct xfs_fsop_geom_v1, which has the bytes
# of a block first and the blocks of the data section last
_XFS_GEOMETRY = 0x80705864
_XFS_GEOMETRY_BYTES = 112
_XFS_GEOMETRY_FORMAT = '=8IQ'
# sd_booted(3)
_SYSTEMD = '/run/systemd/system'


@dataclasses.dataclass(frozen=True)
class Signature:
    """The content of a device: ``kind`` is a file system type or another recognised format."""

    kind: str
    is_filesystem: bool


class HostStorage:
    """Uses the block devices and file systems of this machine, as root.

    Every method raises :class:`~trove_ceph.exceptions.StorageCommandError` when the kernel refuses,
    or a command fails or does not end within its time.

    :param execute: runs a command; replaced in tests
    :param root_helper: command prefix that runs a command as root
    """

    def __init__(
        self,
        execute: collections.abc.Callable[..., tuple[str, str]] = processutils.execute,
        root_helper: str = 'sudo',
    ):
        self._execute = execute
        self._root_helper = root_helper

    def size_bytes(self, device: str) -> int:
        """Return the size of ``device`` as the kernel sees it now.

        :raises VolumeNotReadyError: there is no such device
        """
        if not os.path.exists(device):
            raise exceptions.VolumeNotReadyError(f'The data volume {device} does not exist.')
        with _storage_errors(f'Cannot read the size of {device}'):
            with open(f'{_SYS_BLOCK}/{_kernel_name(device)}/size', encoding='ascii') as size:
                return int(size.read()) * _SECTOR_BYTES

    def find_serial(self, device: str) -> str | None:
        """Return the serial number of a disk; None: it has none."""
        directory = f'{_SYS_BLOCK}/{_kernel_name(device)}'
        # virtio-blk, then SCSI, where four bytes of a header precede it.
        for name, start in (('serial', 0), ('device/vpd_pg80', 4)):
            try:
                with open(f'{directory}/{name}', 'rb') as file:
                    serial = file.read()[start:].decode(errors='replace').strip(' \0\n')
            except OSError:
                continue
            if serial:
                return serial
        return None

    def find_signature(self, device: str) -> Signature | None:
        """Return what low-level probing recognises on ``device``, or None.

        The cache of blkid is not used: it may describe the volume that was attached before.
        """
        # 0: found, 2: nothing found, 8: several contradicting signatures
        output, code = self._run_coded((0, 2, 8), 'blkid', '--probe', '--output', 'export', device)
        if code == 2:
            return None
        tags = dict(line.split('=', 1) for line in output.splitlines() if '=' in line)
        if code == 8:
            return Signature('several contradicting signatures', False)
        if 'TYPE' in tags:
            return Signature(tags['TYPE'], tags.get('USAGE', 'filesystem') == 'filesystem')
        return Signature(f"partition table {tags.get('PTTYPE', 'of unknown type')}", False)

    def is_zeroed(self, device: str) -> bool:
        """Return whether the first 4 MiB of ``device`` read as zeros."""
        _, code = self._run_coded(
            (0, 1), 'cmp', '--silent', f'--bytes={BLANK_PROBE_BYTES}', device, '/dev/zero'
        )
        return code == 0

    def is_unfinished_xfs(self, device: str) -> bool:
        """Return whether mkfs.xfs was interrupted on ``device``.

        mkfs.xfs writes the superblock with ``sb_inprogress`` (byte 126, xfs_format.h) set and
        clears it at the end. The kernel refuses to mount until then, so there is no data to lose.
        """
        return self._run('od', '-An', '-tu1', '-j126', '-N1', device).strip() == '1'

    def make_xfs(
        self, device: str, label: str, timeout_sec: int, prototype: str | None = None
    ) -> None:
        """Format ``device``; the caller has verified that it is blank.

        :param prototype: path of a file with the content of the file system
            (:mod:`.xfs_prototype`); None: it is empty
        """
        self._run(
            'mkfs.xfs',
            # The device was proved blank; -f is for the remains of an interrupted format.
            '-f',
            # RBD images are thin: there is nothing to discard on a new one, and without an object
            # map a discard costs one request for each 4 MiB object.
            '-K',
            '-q',
            '-L',
            label,
            # 4 KiB is the allocation unit of BlueStore on flash; smaller log writes would be
            # read-modify-write there.
            '-s',
            'size=4096',
            # Features are pinned so that a volume mounts on every kernel since 5.10, wherever a
            # clone of it is checked. InnoDB shares no extents, so reflink and the reverse map
            # would only reserve space and add log traffic.
            '-m',
            'crc=1,finobt=1,bigtime=1,inobtcount=1,reflink=0,rmapbt=0',
            *self._without_later_xfs_features(),
            # No stripe unit: RBD objects are not a RAID stripe, a 16 KiB page crosses an object
            # border in at most one of 256 cases, and 4 MiB alignment would waste small volumes.
            '-d',
            'noalign',
            *(('-p', prototype) if prototype else ()),
            device,
            timeout=timeout_sec,
        )

    def _without_later_xfs_features(self) -> list[str]:
        """Return the options against defaults of mkfs.xfs that came after Linux 5.10."""
        options = ['-i', 'nrext64=0']
        version = _XFSPROGS.search(self._run('mkfs.xfs', '-V'))
        # Earlier ones refuse the options of the features that they do not know.
        if version and (int(version[1]), int(version[2])) >= _PARENT_POINTERS:
            options += ['-i', 'exchange=0', '-n', 'parent=0']
        return options

    def mount(self, device: str, mount_point: str, fstype: str, options: str) -> None:
        """Mount ``device``; create the mount point if it does not exist."""
        if not os.path.isdir(mount_point):
            self._run('mkdir', '-p', mount_point)
        self._run('mount', '-t', fstype, '-o', options, device, mount_point)

    def unmount(self, mount_point: str) -> None:
        """Unmount the topmost file system at ``mount_point``."""
        self._run('umount', mount_point)

    def find_mount(self, mount_point: str) -> tuple[str, str] | None:
        """Return the device and the type of the file system at ``mount_point``, or None."""
        found = None
        for device, point, fstype, _ in _mounts():
            if point == os.path.realpath(mount_point):
                found = (device, fstype)
        return found

    def mount_options(self, mount_point: str) -> list[str]:
        """Return the options of the topmost mount at ``mount_point``; empty without a mount."""
        found: list[str] = []
        for _, point, _, options in _mounts():
            if point == os.path.realpath(mount_point):
                found = options.split(',')
        return found

    def mounts_below(self, mount_point: str) -> list[str]:
        """Return the mount points of other file systems below ``mount_point``."""
        prefix = os.path.realpath(mount_point) + '/'
        return [point for _, point, _, _ in _mounts() if point.startswith(prefix)]

    def free_bytes(self, mount_point: str) -> int:
        """Return the free space of the file system at ``mount_point``."""
        stats = os.statvfs(mount_point)
        return stats.f_bavail * stats.f_frsize

    def used_bytes(self, mount_point: str) -> int:
        """Return the used space of the file system at ``mount_point``, metadata included."""
        stats = os.statvfs(mount_point)
        return (stats.f_blocks - stats.f_bfree) * stats.f_frsize

    def trim(self, mount_point: str, offset: int, length: int, minimum: int) -> int:
        """Discard free blocks within a range of the file system at ``mount_point`` (FITRIM).

        :param offset: in bytes, as ``length``
        :param minimum: free extents with fewer bytes are skipped
        :returns: the number of bytes discarded
        """
        output = self._run(
            *('fstrim', '--verbose', '--offset', str(offset), '--length', str(length)),
            *('--minimum', str(minimum), mount_point),
            timeout=_TRIM_TIMEOUT_SEC,
        )
        match = re.search(r'\((\d+) bytes\)', output)
        return int(match[1]) if match else 0

    def find_links(self, directory: str, depth: int) -> list[tuple[str, str]]:
        """Return (relative path, target) of the symbolic links down to ``depth``."""
        output = self._run(
            *('find', directory, '-xdev', '-mindepth', '1', '-maxdepth', str(depth)),
            *('-type', 'l', '-printf', r'%P\0%l\0'),
        )
        texts = output.split('\0')
        return list(zip(texts[:-1:2], texts[1::2], strict=True))

    def thaw(self, mount_point: str) -> bool:
        """Thaw the file system at ``mount_point`` and return whether it was frozen."""
        try:
            if _is_root():
                with _storage_errors(f'Cannot thaw {mount_point}'), _opened(mount_point) as volume:
                    fcntl.ioctl(volume, freeze_process.FITHAW, 0)
            else:
                self._run('fsfreeze', '--unfreeze', mount_point)
        except exceptions.StorageCommandError as error:
            if os.strerror(errno.EINVAL) in str(error):
                return False
            raise
        return True

    def start_freeze_process(
        self, mount_point: str, limit_sec: float
    ) -> tuple[subprocess.Popen, socket.socket]:
        """Start :mod:`freeze_process`; return it and the socket to its standard input and output.

        Under systemd it runs in its own unit: systemd kills all processes of a service with the
        service, and the freeze process must outlive the agent. However the unit ends, it thaws
        the file system last.
        """
        program = [sys.executable, '-I', '-S', freeze_process.__file__, mount_point, str(limit_sec)]
        command = [] if _is_root() else [self._root_helper]
        if os.path.isdir(_SYSTEMD):
            thaw = f'-{_absolute("fsfreeze")} --unfreeze {mount_point}'
            command += [
                *('systemd-run', '--quiet', '--collect', '--pipe', '--wait'),
                '--description=Freeze of the data volume for a backup',
                *('--property=KillMode=mixed', f'--property=ExecStopPost={thaw}', '--'),
            ]
        return _start(command + program, stderr=subprocess.DEVNULL)

    def start_volume_watch(
        self, mount_point: str, limit_sec: float
    ) -> tuple[subprocess.Popen, socket.socket]:
        """Start :mod:`volume_watch_process`; return it and the socket to its input and output.

        It ends with this process, and its reports are also in the log of this process's service.
        """
        program = [sys.executable, '-I', '-S', volume_watch_process.__file__]
        command = [] if _is_root() else [self._root_helper]
        return _start([*command, *program, mount_point, str(limit_sec)], stderr=None)

    def filesystem_bytes(self, device: str, mount_point: str, fstype: str) -> int:
        """Return the size of the mounted file system on ``device``."""
        if fstype == 'xfs':
            return _xfs_bytes(mount_point)
        header = self._run('dumpe2fs', '-h', device)
        blocks = re.search(r'^Block count:\s+(\d+)', header, re.MULTILINE)
        size = re.search(r'^Block size:\s+(\d+)', header, re.MULTILINE)
        if blocks and size:
            return int(blocks[1]) * int(size[1])
        raise exceptions.StorageCommandError(
            f'Cannot read the size of the {fstype} file system on {device}.'
        )

    def grow_filesystem(self, device: str, mount_point: str, fstype: str) -> None:
        """Extend the mounted file system to the size of ``device``; it stays writable."""
        if fstype == 'xfs':
            self._run('xfs_growfs', '-d', mount_point)
        elif fstype in ('ext3', 'ext4'):
            # It writes inode tables with at most a few hundred MB/s; a large growth takes minutes.
            self._run('resize2fs', device, timeout=600)
        else:
            raise exceptions.StorageCommandError(
                f'Cannot grow the {fstype} file system on {device}: expected xfs, ext3 or ext4.'
            )

    def rescan(self, device: str) -> None:
        """Make the kernel read the size of a SCSI disk again; virtio-blk needs no rescan."""
        path = f'{_SYS_BLOCK}/{_kernel_name(device)}/device/rescan'
        if os.path.exists(path):
            self._write(path, '1')

    def set_queue(self, device: str, attribute: str, value: str) -> bool:
        """Set a block queue attribute; return False if the kernel does not have the attribute."""
        path = f'{_SYS_BLOCK}/{_kernel_name(device)}/queue/{attribute}'
        if not os.path.exists(path):
            return False
        self._write(path, value)
        return True

    def set_owner(self, path: str, uid: int, gid: int, recursive: bool = False) -> None:
        """Change the owner and group of ``path``."""
        flags = ['-R'] if recursive else []
        self._run('chown', *flags, f'{uid}:{gid}', path, timeout=600)

    def owner(self, path: str) -> tuple[int, int]:
        """Return the uid and gid of ``path``."""
        with _storage_errors(f'Cannot read the owner of {path}'):
            found = os.stat(path)
        return found.st_uid, found.st_gid

    def exists(self, path: str) -> bool:
        """Return whether a file exists."""
        return self._run_coded((0, 1), 'test', '-e', path)[1] == 0

    def create_file(self, path: str) -> None:
        """Create an empty file, unless it exists."""
        self._run('touch', path)

    def remove_file(self, path: str) -> None:
        """Remove a file, if it exists."""
        self._run('rm', '--force', path)

    def write_fstab(self, path: str, content: str) -> None:
        """Replace an fstab file atomically."""
        self._run('tee', f'{path}.new', process_input=content)
        self._run('sync', f'{path}.new')
        self._run('mv', f'{path}.new', path)

    def _write(self, path: str, value: str) -> None:
        """Write to a file of the kernel."""
        if not _is_root():
            self._run('tee', path, process_input=value)
            return
        with _storage_errors(f'Cannot write {value} to {path}'):
            with open(path, 'w', encoding='ascii') as file:
                file.write(value)

    def _run(self, *command: str, **kwargs: typing.Any) -> str:
        return self._run_coded((0,), *command, **kwargs)[0]

    def _run_coded(
        self,
        codes: tuple[int, ...],
        *command: str,
        timeout: int = _COMMAND_TIMEOUT_SEC,
        **kwargs: typing.Any,
    ) -> tuple[str, int]:
        """Run ``command``; return its output and its exit code, which must be in ``codes``."""
        try:
            output, _ = self._execute(
                *command,
                run_as_root=not _is_root(),
                root_helper=self._root_helper,
                check_exit_code=[0],
                timeout=timeout,
                **kwargs,
            )
            return output, 0
        except processutils.ProcessExecutionError as error:
            if error.exit_code in codes:
                return error.stdout or '', error.exit_code
            reason = (error.stderr or error.stdout or str(error)).strip()
            raise exceptions.StorageCommandError(
                f"{' '.join(command)} failed with exit code {error.exit_code}: {reason}"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise exceptions.StorageCommandError(
                f"{' '.join(command)} did not end within {timeout} s"
            ) from error
        except OSError as error:
            raise exceptions.StorageCommandError(f'{command[0]} cannot be run: {error}') from error


def _start(command: list[str], stderr: int | None) -> tuple[subprocess.Popen, socket.socket]:
    """Start a program; return it and the socket to its standard input and output."""
    ours, its = socket.socketpair()
    # Sockets of green threads are non-blocking, which the program does not expect.
    os.set_blocking(its.fileno(), True)
    try:
        with its:
            process = subprocess.Popen(
                command,
                stdin=its.fileno(),
                stdout=its.fileno(),
                stderr=stderr,
                cwd='/',
                start_new_session=True,
            )
    except OSError as error:
        ours.close()
        raise exceptions.StorageCommandError(f'{command[0]} cannot be run: {error}') from error
    return process, ours


def _is_root() -> bool:
    return os.geteuid() == 0


@contextlib.contextmanager
def _storage_errors(action: str) -> collections.abc.Iterator[None]:
    """Raise errors of the kernel as those of a command."""
    try:
        yield
    except OSError as error:
        raise exceptions.StorageCommandError(f'{action}: {error.strerror}') from error


@contextlib.contextmanager
def _opened(directory: str) -> collections.abc.Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _xfs_bytes(mount_point: str) -> int:
    """Return the size of a mounted XFS; statvfs(2) leaves its log out."""
    with (
        _storage_errors(f'Cannot read the size of the file system at {mount_point}'),
        _opened(mount_point) as volume,
    ):
        geometry = fcntl.ioctl(volume, _XFS_GEOMETRY, bytes(_XFS_GEOMETRY_BYTES))
    block_bytes, *_, blocks = struct.unpack_from(_XFS_GEOMETRY_FORMAT, geometry)
    return int(block_bytes) * int(blocks)


def _kernel_name(device: str) -> str:
    """Return the name of a block device in sysfs, which its node need not have."""
    with contextlib.suppress(OSError):
        found = os.stat(device)
        link = f'{_SYS_NUMBERS}/{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}'
        if stat.S_ISBLK(found.st_mode) and os.path.exists(link):
            return os.path.basename(os.path.realpath(link))
    return os.path.basename(os.path.realpath(device))


def _mounts() -> collections.abc.Iterator[tuple[str, str, str, str]]:
    """Yield device, mount point, file system type and options of all mounts, oldest first."""
    for mount in psutil.disk_partitions(all=True):
        yield mount.device, mount.mountpoint, mount.fstype, mount.opts


def _absolute(program: str) -> str:
    """Return the path of a system program; the PATH of a user often lacks its directory."""
    path = shutil.which(program, path='/usr/sbin:/usr/bin:/sbin:/bin')
    if path is None:
        raise exceptions.StorageCommandError(f'{program} is not installed')
    return path
