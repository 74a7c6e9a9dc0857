# SPDX-License-Identifier: Apache-2.0
"""The only module that runs block device and file system commands in the guest."""

import collections.abc
import dataclasses
import errno
import os
import re
import shutil
import socket
import subprocess
import sys
import typing

import psutil
from oslo_concurrency import processutils

from trove_ceph import exceptions
from trove_ceph.host import freeze_process

#: Bytes at the start of a device that must be zero before it counts as never written.
BLANK_PROBE_BYTES = 4 * 1024 * 1024
_COMMAND_TIMEOUT_SEC = 60
# Of a first trim on slow disks; the command cannot be ended while the kernel waits for a discard.
_TRIM_TIMEOUT_SEC = 600
# sd_booted(3)
_SYSTEMD = '/run/systemd/system'


@dataclasses.dataclass(frozen=True)
class Signature:
    """What is on a device: ``kind`` is a file system type, or what else was recognised there."""

    kind: str
    is_filesystem: bool


class HostStorage:
    """Block devices and file systems of this machine, changed with root's rights.

    Every method raises :class:`~trove_ceph.exceptions.StorageCommandError` when a command fails or
    does not end within its time.

    :param execute: runs a command; replaced in tests
    :param root_helper: prefix that gives root's rights to a user that has none
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
        return int(self._run('blockdev', '--getsize64', device))

    def find_signature(self, device: str) -> Signature | None:
        """Return what low-level probing recognises on ``device``, None when that is nothing.

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
        """Return whether the first 4 MiB of ``device`` have never been written, or only zeros."""
        _, code = self._run_coded(
            (0, 1), 'cmp', '--silent', f'--bytes={BLANK_PROBE_BYTES}', device, '/dev/zero'
        )
        return code == 0

    def is_unfinished_xfs(self, device: str) -> bool:
        """Return whether mkfs.xfs was interrupted on ``device``.

        mkfs.xfs writes the superblock with ``sb_inprogress`` (byte 126, xfs_format.h) set and
        clears it in the end; the kernel refuses to mount until then, so nothing can be lost.
        """
        return self._run('od', '-An', '-tu1', '-j126', '-N1', device).strip() == '1'

    def make_xfs(self, device: str, label: str, timeout_sec: int) -> None:
        """Format ``device``; the caller has made sure that there is nothing on it."""
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
            '-i',
            'nrext64=0',
            # No stripe unit: RBD objects are not a RAID stripe, a 16 KiB page crosses an object
            # border in at most one of 256 cases, and 4 MiB alignment would waste small volumes.
            '-d',
            'noalign',
            device,
            timeout=timeout_sec,
        )

    def mount(self, device: str, mount_point: str, fstype: str, options: str) -> None:
        """Mount ``device``; the mount point is made when it does not exist."""
        self._run('mkdir', '-p', mount_point)
        self._run('mount', '-t', fstype, '-o', options, device, mount_point)

    def unmount(self, mount_point: str) -> None:
        """Unmount whatever is mounted last at ``mount_point``."""
        self._run('umount', mount_point)

    def find_mount(self, mount_point: str) -> tuple[str, str] | None:
        """Return device and file system type mounted at ``mount_point``, None when nothing is."""
        found = None
        for device, point, fstype, _ in _mounts():
            if point == os.path.realpath(mount_point):
                found = (device, fstype)
        return found

    def mount_options(self, mount_point: str) -> list[str]:
        """Return the options of what is mounted last at ``mount_point``; none when nothing is."""
        found: list[str] = []
        for _, point, _, options in _mounts():
            if point == os.path.realpath(mount_point):
                found = options.split(',')
        return found

    def mounts_below(self, mount_point: str) -> list[str]:
        """Return where other file systems are mounted inside the one at ``mount_point``."""
        prefix = os.path.realpath(mount_point) + '/'
        return [point for _, point, _, _ in _mounts() if point.startswith(prefix)]

    def free_bytes(self, mount_point: str) -> int:
        """Return how much can still be written to the file system at ``mount_point``."""
        stats = os.statvfs(mount_point)
        return stats.f_bavail * stats.f_frsize

    def used_bytes(self, mount_point: str) -> int:
        """Return how much of the file system at ``mount_point`` files and its own data take."""
        stats = os.statvfs(mount_point)
        return (stats.f_blocks - stats.f_bfree) * stats.f_frsize

    def trim(self, mount_point: str, offset: int, length: int, minimum: int) -> int:
        """Discard free blocks within a range of the file system at ``mount_point`` (FITRIM).

        :param offset: in bytes, as ``length``
        :param minimum: free extents with fewer bytes are left out
        :returns: the bytes that were discarded
        """
        output = self._run(
            *('fstrim', '--verbose', '--offset', str(offset), '--length', str(length)),
            *('--minimum', str(minimum), mount_point),
            timeout=_TRIM_TIMEOUT_SEC,
        )
        match = re.search(r'\((\d+) bytes\)', output)
        return int(match[1]) if match else 0

    def find_links(self, directory: str, depth: int) -> list[tuple[str, str]]:
        """Return path and target of the symbolic links down to ``depth``; paths are relative."""
        output = self._run(
            *('find', directory, '-xdev', '-mindepth', '1', '-maxdepth', str(depth)),
            *('-type', 'l', '-printf', r'%P\0%l\0'),
        )
        texts = output.split('\0')
        return list(zip(texts[:-1:2], texts[1::2], strict=True))

    def thaw(self, mount_point: str) -> bool:
        """Thaw the file system at ``mount_point`` and return whether it was frozen."""
        try:
            self._run('fsfreeze', '--unfreeze', mount_point)
        except exceptions.StorageCommandError as error:
            if os.strerror(errno.EINVAL) in str(error):
                return False
            raise
        return True

    def start_freeze_process(
        self, mount_point: str, limit_sec: float
    ) -> tuple[subprocess.Popen, socket.socket]:
        """Start :mod:`freeze_process`, with the other end of its standard input and output.

        Under systemd it is a unit of its own: the manager kills what is left of a service together
        with the service, and the holder has to outlive the agent. Whatever becomes of the unit, its
        last act is to thaw.
        """
        program = [sys.executable, '-I', '-S', freeze_process.__file__, mount_point, str(limit_sec)]
        command = [] if os.geteuid() == 0 else [self._root_helper]
        if os.path.isdir(_SYSTEMD):
            thaw = f'-{_absolute("fsfreeze")} --unfreeze {mount_point}'
            command += [
                *('systemd-run', '--quiet', '--collect', '--pipe', '--wait'),
                '--description=Holder of a backup of the database',
                *('--property=KillMode=mixed', f'--property=ExecStopPost={thaw}', '--'),
            ]
        ours, its = socket.socketpair()
        # Sockets of green threads do not block, which another program does not expect.
        os.set_blocking(its.fileno(), True)
        try:
            with its:
                process = subprocess.Popen(
                    command + program,
                    stdin=its.fileno(),
                    stdout=its.fileno(),
                    stderr=subprocess.DEVNULL,
                    cwd='/',
                    start_new_session=True,
                )
        except OSError as error:
            ours.close()
            raise exceptions.StorageCommandError(
                f'{(command + program)[0]} cannot be run: {error}'
            ) from error
        return process, ours

    def filesystem_bytes(self, device: str, mount_point: str, fstype: str) -> int:
        """Return how much of ``device`` its mounted file system uses."""
        if fstype == 'xfs':
            match = re.search(
                r'^data\s+=\s+bsize=(\d+)\s+blocks=(\d+)',
                self._run('xfs_info', mount_point),
                re.MULTILINE,
            )
            if match:
                return int(match[1]) * int(match[2])
        else:
            header = self._run('dumpe2fs', '-h', device)
            blocks = re.search(r'^Block count:\s+(\d+)', header, re.MULTILINE)
            size = re.search(r'^Block size:\s+(\d+)', header, re.MULTILINE)
            if blocks and size:
                return int(blocks[1]) * int(size[1])
        raise exceptions.StorageCommandError(
            f'Cannot read the size of the {fstype} file system on {device}.'
        )

    def grow_filesystem(self, device: str, mount_point: str, fstype: str) -> None:
        """Extend the mounted file system over all of ``device``; writes go on meanwhile."""
        if fstype == 'xfs':
            self._run('xfs_growfs', '-d', mount_point)
        elif fstype in ('ext3', 'ext4'):
            # A few hundred MB per second of inode tables at most; large growths take minutes.
            self._run('resize2fs', device, timeout=600)
        else:
            raise exceptions.StorageCommandError(
                f'Do not know how to grow the {fstype} file system on {device}.'
            )

    def rescan(self, device: str) -> None:
        """Make the kernel ask for the size of a SCSI disk again; virtio-blk is told by itself."""
        path = f'/sys/class/block/{_kernel_name(device)}/device/rescan'
        if os.path.exists(path):
            self._run('tee', path, process_input='1')

    def set_queue(self, device: str, attribute: str, value: str) -> bool:
        """Set a block queue attribute; return False when the kernel has no such attribute."""
        path = f'/sys/class/block/{_kernel_name(device)}/queue/{attribute}'
        if not os.path.exists(path):
            return False
        self._run('tee', path, process_input=value)
        return True

    def set_owner(self, path: str, uid: int, gid: int, recursive: bool = False) -> None:
        """Give ``path`` to a user and group."""
        flags = ['-R'] if recursive else []
        self._run('chown', *flags, f'{uid}:{gid}', path, timeout=600)

    def owner(self, path: str) -> tuple[int, int]:
        """Return user and group id of ``path``."""
        uid, gid = self._run('stat', '-c', '%u %g', path).split()
        return int(uid), int(gid)

    def write_fstab(self, path: str, content: str) -> None:
        """Replace an fstab file by a complete new one, or leave the old one."""
        self._run('tee', f'{path}.new', process_input=content)
        self._run('sync', f'{path}.new')
        self._run('mv', f'{path}.new', path)

    def _run(self, *command: str, **kwargs: typing.Any) -> str:
        return self._run_coded((0,), *command, **kwargs)[0]

    def _run_coded(
        self,
        codes: tuple[int, ...],
        *command: str,
        timeout: int = _COMMAND_TIMEOUT_SEC,
        **kwargs: typing.Any,
    ) -> tuple[str, int]:
        """Run ``command`` and return its output and exit code, which must be one of ``codes``."""
        try:
            output, _ = self._execute(
                *command,
                run_as_root=os.geteuid() != 0,
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


def _kernel_name(device: str) -> str:
    return os.path.basename(os.path.realpath(device))


def _mounts() -> collections.abc.Iterator[tuple[str, str, str, str]]:
    """Give device, mount point, file system type and options of all mounts, the oldest first."""
    for mount in psutil.disk_partitions(all=True):
        yield mount.device, mount.mountpoint, mount.fstype, mount.opts


def _absolute(program: str) -> str:
    """Return the path of a program of the system; users' search paths seldom hold these."""
    path = shutil.which(program, path='/usr/sbin:/usr/bin:/sbin:/bin')
    if path is None:
        raise exceptions.StorageCommandError(f'{program} is not installed')
    return path
