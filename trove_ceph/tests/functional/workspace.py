# SPDX-License-Identifier: Apache-2.0
"""One directory that holds everything a test run makes, and gives all of it back.

Processes, mounts and loop devices outlive the files they belong to, and a killed run cannot clean
up. So everything is findable from outside: each process carries the directory's name in its
environment, each mount point and each backing file lies below it. The next run clears what a
killed one left.
"""

import atexit
import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MARK = 'TROVE_CEPH_TEST_WORKSPACE'
PREFIX = 'trove-ceph-test-'
PROC = Path('/proc')
SYSFS = Path('/sys/block')
KILL_TIMEOUT_SEC = 20

_shared = None


def shared():
    """Return the workspace of this process, made at its first use and cleared at its end."""
    global _shared
    if _shared is None:
        clear_stale()
        _shared = Path(tempfile.mkdtemp(prefix=PREFIX))
        (_shared / 'owner').write_text(_identity(os.getpid()))
        os.environ[MARK] = str(_shared)
        atexit.register(clear, _shared)
        # A terminated run leaves like any other: through atexit.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    return _shared


def clear_stale():
    """Clear every workspace whose owner is gone.

    :returns: the workspaces that were cleared.
    """
    stale = []
    for directory in Path(tempfile.gettempdir()).glob(PREFIX + '*'):
        with contextlib.suppress(FileNotFoundError):
            owner = (directory / 'owner').read_text()
            if owner and owner == _identity(int(owner.split()[0])):
                continue
            clear(directory)
            stale.append(directory)
    return stale


def _identity(pid):
    """Name a process so that a reused pid is not taken for it; empty when it is gone."""
    try:
        stat = (PROC / str(pid) / 'stat').read_text()
    except OSError:
        return ''
    # The name in the second field may hold anything; the start time is the 22nd of all.
    return f'{pid} {stat.rpartition(")")[2].split()[19]}'


def clear(directory):
    """Stop every process of a workspace, undo its mounts and loop devices, delete its files."""
    # A file system may hold the loop device, which holds the export of a process, so take turns.
    _kill_all(directory, keep=('qemu-storage-daemon', 'ceph'))
    _unmount_all(directory)
    _detach_all(directory)
    _kill_all(directory, keep=('ceph',))
    _unmount_all(directory)
    _kill_all(directory)
    _detach_all(directory)
    shutil.rmtree(directory, ignore_errors=True)


def processes(directory):
    """List the processes that a workspace's run started, as pairs of pid and program."""
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if _is_marked(entry, directory) or _mounts_privately(entry, directory):
                found.append((int(entry.name), (entry / 'comm').read_text().strip()))
    return found


def _is_marked(entry, directory):
    return f'{MARK}={directory}'.encode() in (entry / 'environ').read_bytes().split(b'\0')


def _mounts_privately(entry, directory):
    """Whether a process sees the workspace through mounts of its own.

    A container has another environment, and outlives whatever made its namespaces.
    """
    namespace = os.readlink(entry / 'ns' / 'mnt')
    if namespace == os.readlink(PROC / 'self' / 'ns' / 'mnt'):
        return False
    # The source of a bind mount is named from the root of its own file system.
    mount_point = _mount_point_of(directory)
    source = '/' + str(directory.relative_to(mount_point))
    lines = (entry / 'mountinfo').read_text().splitlines()
    return any(line.split()[3].startswith(f'{source}/') for line in lines)


def _mount_point_of(directory):
    point = directory
    while not point.is_mount():
        point = point.parent
    return point


def _kill_all(directory, keep=()):
    deadline = time.monotonic() + KILL_TIMEOUT_SEC
    while time.monotonic() < deadline:
        # The kernel cuts a program's name at 15 characters.
        alive = [
            pid
            for pid, program in processes(directory)
            if not any(program.startswith(name[:15]) for name in keep)
        ]
        if not alive:
            return
        for pid in alive:
            _kill(pid)


def _kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until_gone(pid, timeout_sec=5)


def wait_until_gone(pid, timeout_sec=KILL_TIMEOUT_SEC):
    """Wait for the end of any process.

    :returns: whether it ended in time.
    """
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return True
    try:
        return bool(select.select([handle], [], [], timeout_sec)[0])
    finally:
        os.close(handle)


def mounts(directory):
    """List the mount points below a directory, the innermost first."""
    lines = Path('/proc/self/mountinfo').read_text().splitlines()
    points = [line.split()[4] for line in lines]
    return sorted((p for p in points if p.startswith(f'{directory}/')), key=len, reverse=True)


def _unmount_all(directory):
    for point in mounts(directory):
        subprocess.run(['umount', '--lazy', point], capture_output=True, check=False)


def loop_devices(directory):
    """List the loop devices over files below a directory, unlinked ones too."""
    devices = []
    for entry in SYSFS.glob('loop*/loop/backing_file'):
        with contextlib.suppress(OSError):
            if entry.read_text().startswith(f'{directory}/'):
                devices.append(f'/dev/{entry.parent.parent.name}')
    return devices


def _detach_all(directory):
    for device in loop_devices(directory):
        subprocess.run(['losetup', '--detach', device], capture_output=True, check=False)


if __name__ == '__main__':
    for cleared in clear_stale():
        print(f'cleared {cleared}')
