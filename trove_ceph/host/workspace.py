# SPDX-License-Identifier: Apache-2.0
"""A directory for all resources of a sandbox, which removes them even after a kill.

Processes, mounts and loop devices outlive their files, and a killed owner cannot clean up. So every
resource can be found from outside: each process has the directory's path in its environment, each
mount point and each backing file lies below the directory, and it has a record of each resource
elsewhere. The next workspace removes what a killed owner left; so does::

    python -m trove_ceph.host.workspace

A workspace is a directory only while it has a record of its owner. While it is created or deleted,
its name begins with a dot and names the process that does it, so a kill then leaves nothing either.

``PR_SET_PDEATHSIG`` does not tie children to their parent: the kernel sends that signal when the
*thread* that started them ends, so a server entered in a thread pool would die with the pool.
"""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import psutil
from oslo_log import log as logging

from trove_ceph import exceptions, waiting
from trove_ceph.host import external_resources, processes

LOG = logging.getLogger(__name__)

MARK = 'TROVE_CEPH_WORKSPACE'
PREFIX = 'trove-ceph-sandbox-'
SYSFS = Path('/sys/block')
KILL_TIMEOUT_SEC = 20
# Stopped last, in this order: a storage daemon serves the loop device of a file system, and the
# Ceph of a test serves the storage daemon.
_STORAGE_DAEMON = 'qemu-storage-daemon'
_CEPH = 'ceph'
# The type of the file system through which a storage daemon exports an image.
_EXPORT = 'fuse'
_OWNER = 'owner'
# The pid and start of the process that creates or deletes a workspace, and the name of that.
_UNNAMED = re.compile(r'\.(\d+)-(\d+)\.(.+)')
# The kernel truncates the name of a program.
_COMM_CHARACTERS = 15


class Workspace:
    """A new directory below ``parent``; entering it first clears those of killed owners.

    :param parent: default the directory for temporary files
    """

    def __init__(self, prefix: str = PREFIX, parent: Path | None = None):
        self._prefix = prefix
        self._parent = parent or Path(tempfile.gettempdir())
        self.path = Path()

    def __enter__(self) -> 'Workspace':
        clear_stale(self._prefix, self._parent)
        unnamed = Path(tempfile.mkdtemp(prefix=_unnamed(self._prefix), dir=self._parent))
        # mysqld runs as another user and must reach the directory of its socket.
        unnamed.chmod(0o711)
        (unnamed / _OWNER).write_text(processes.identity(os.getpid()))
        self.path = unnamed.rename(unnamed.with_name(_name(unnamed)))
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop, unmount, detach and delete all resources.

        :raises StorageCommandError: an RBD image or the directory could not be removed; the
            workspace of a later owner tries again
        """
        try:
            clear(self.path)
        except exceptions.StorageCommandError as error:
            if not exception or exception[0] is None:
                raise
            LOG.error('Cannot clear %s: %s', self.path, error)

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment for every process of this workspace."""
        return os.environ | {MARK: str(self.path)}


def launcher_environment(directory: Path) -> dict[str, str]:
    """Return the environment of programs that set up a sandbox in a workspace.

    It has nothing of this process but the mark by which remains of the workspace are found.
    """
    return {'PATH': os.defpath + ':/usr/sbin:/sbin', MARK: str(directory)}


def clear_stale(prefix: str = PREFIX, parent: Path | None = None) -> list[Path]:
    """Clear every workspace of this user whose owner has ended, and return their directories."""
    cleared = []
    parent = parent or Path(tempfile.gettempdir())
    for directory in (*parent.glob(f'{prefix}*'), *parent.glob(f'.*.{prefix}*')):
        with contextlib.suppress(FileNotFoundError):
            # Only this user may write the records, since clearing removes what they name.
            if directory.is_symlink() or directory.stat().st_uid != os.geteuid():
                continue
            owner = _owner_of(directory)
            # A power cut may have emptied the record.
            if owner and owner == processes.identity(int(owner.split()[0])):
                continue
            try:
                clear(directory)
            except exceptions.StorageCommandError as error:
                LOG.warning('Cannot clear %s, which its owner left: %s', directory, error)
            else:
                cleared.append(directory)
    return cleared


def clear(directory: Path) -> None:
    """Stop every process of a workspace, remove its mounts and loop devices, delete its files.

    :raises StorageCommandError: an RBD image could not be removed, whose record stays; or the
        directory could not, because something still uses it
    """
    # A file system uses a loop device, which uses the export of a process, so release them in that
    # order. The export is unmounted after the loop device is detached: the device is found by the
    # path of the export.
    _kill_all(directory, exclude=(_STORAGE_DAEMON, _CEPH))
    _unmount_all(directory, exclude=_EXPORT)
    _detach_all(directory)
    _terminate_storage_daemons(directory)
    _unmount_all(directory)
    external_resources.remove_all(directory)
    _kill_all(directory)
    _detach_all(directory)
    _delete(directory)


def _delete(directory: Path) -> None:
    unnamed = directory.with_name(_unnamed(_name(directory)))
    # Another process may have cleared what a killed owner left.
    with contextlib.suppress(FileNotFoundError):
        directory.rename(unnamed)
        try:
            shutil.rmtree(unnamed)
        except OSError as error:
            raise exceptions.StorageCommandError(f'Cannot delete {unnamed}: {error}') from error


def _unnamed(name: str) -> str:
    """Return the name of a workspace that this process creates or deletes."""
    return f'.{processes.identity(os.getpid()).replace(" ", "-")}.{name}'


def _name(directory: Path) -> str:
    unnamed = _UNNAMED.fullmatch(directory.name)
    return unnamed[3] if unnamed else directory.name


def _owner_of(directory: Path) -> str:
    """Return the identity of the process that owns, creates or deletes a workspace."""
    if unnamed := _UNNAMED.fullmatch(directory.name):
        return f'{unnamed[1]} {unnamed[2]}'
    return (directory / _OWNER).read_text()


def members(directory: Path) -> list[tuple[int, str]]:
    """List the pid and program name of the processes of a workspace and of those below it."""
    found = []
    source = _source_of(directory)
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(OSError, psutil.Error):
            if _is_marked(process, directory) or _mounts_privately(process.pid, source):
                found.append((process.pid, process.name()))
    return found


def _is_marked(process: psutil.Process, directory: Path) -> bool:
    mark = process.environ().get(MARK, '')
    return mark == str(directory) or mark.startswith(f'{directory}/')


def _mounts_privately(pid: int, source: str) -> bool:
    """Return whether a process sees the workspace through mounts in its own namespace.

    A container has another environment, and outlives the process that created its namespaces.
    """
    # psutil does not read namespaces.
    entry = processes.PROC / str(pid)
    namespace = os.readlink(entry / 'ns' / 'mnt')
    if namespace == os.readlink(processes.PROC / 'self' / 'ns' / 'mnt'):
        return False
    lines = (entry / 'mountinfo').read_text().splitlines()
    return any(line.split()[3].startswith(f'{source}/') for line in lines)


def _source_of(directory: Path) -> str:
    """Return the path of a directory in its file system, as a bind mount's source is shown.

    It differs from the directory's own path if that is in a bind mount, such as a volume of a
    container.
    """
    root, point = '/', '/'
    for line in (processes.PROC / 'self' / 'mountinfo').read_text().splitlines():
        _, _, _, its_root, its_point, *_ = line.split()
        # A later mount hides an earlier one at the same point.
        if directory.is_relative_to(its_point) and len(its_point) >= len(point):
            root, point = its_root, its_point
    return str(Path(root) / directory.relative_to(point))


def _alive(directory: Path, exclude: tuple[str, ...]) -> list[int]:
    return [
        pid
        for pid, program in members(directory)
        if not any(program.startswith(name[:_COMM_CHARACTERS]) for name in exclude)
    ]


def _kill_all(directory: Path, exclude: tuple[str, ...] = ()) -> None:
    deadline = waiting.Deadline(KILL_TIMEOUT_SEC)
    while deadline.left_sec and (alive := _alive(directory, exclude)):
        for pid in alive:
            processes.kill(pid, timeout_sec=5)


def _terminate_storage_daemons(directory: Path) -> None:
    """Terminate them in order: the watch of a killed one would keep the image busy for 30 s."""
    for pid in _alive(directory, exclude=(_CEPH,)):
        processes.terminate(pid, KILL_TIMEOUT_SEC)


def mounts(directory: Path, exclude: str = '') -> list[str]:
    """List the mount points below a directory, the innermost first.

    :param exclude: skip file systems whose type begins with this
    """
    found = [
        one.mountpoint
        for one in psutil.disk_partitions(all=True)
        if one.mountpoint.startswith(f'{directory}/')
        and not (exclude and one.fstype.startswith(exclude))
    ]
    return sorted(found, key=len, reverse=True)


def _unmount_all(directory: Path, exclude: str = '') -> None:
    for point in mounts(directory, exclude):
        subprocess.run(['umount', '--lazy', point], capture_output=True, check=False)


def loop_devices(directory: Path) -> list[str]:
    """List the loop devices of files below a directory, deleted files included."""
    devices = []
    for entry in SYSFS.glob('loop*/loop/backing_file'):
        with contextlib.suppress(OSError):
            if entry.read_text().startswith(f'{directory}/'):
                devices.append(f'/dev/{entry.parent.parent.name}')
    return devices


def _detach_all(directory: Path) -> None:
    for device in loop_devices(directory):
        subprocess.run(['losetup', '--detach', device], capture_output=True, check=False)


if __name__ == '__main__':
    for stale in clear_stale():
        print(f'cleared {stale}')
