# SPDX-License-Identifier: Apache-2.0
"""An RBD image as a block device and as a file system, on a kernel without an RBD client.

qemu-storage-daemon opens the image by librbd, as a hypervisor does, and shows it as a file through
FUSE; a loop device with direct I/O makes a disk of the file, so that a flush reaches Ceph.
"""

import subprocess
from pathlib import Path

import fixtures

from trove_ceph.tests.functional import workspace

TIMEOUT_SEC = 60


def _run(*words):
    result = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_SEC,
        check=False,
    )
    if result.returncode != 0:
        raise AssertionError(f'{words}: {result.returncode} {result.stderr.strip()}')
    return result.stdout.strip()


class RbdDevice(fixtures.Fixture):
    """Maps an image; `device` is its block device.

    :param cluster: a ceph.Cluster.
    :param directory: an empty directory for the export; it is made.
    """

    def __init__(self, cluster, pool, image, directory):
        super().__init__()
        self._cluster = cluster
        self._source = f'pool={pool},image={image}'
        self._directory = Path(directory)
        self.device = None

    def _setUp(self):
        self._directory.mkdir(parents=True)
        export = self._directory / 'disk'
        export.touch()
        pid_file = self._directory / 'qemu-storage-daemon.pid'
        source = f'{self._source},conf={self._cluster.conf},user=admin'
        _run(
            *('qemu-storage-daemon', '--daemonize', '--pidfile', pid_file),
            *('--blockdev', f'driver=rbd,node-name=disk,{source},discard=unmap'),
            *('--export', f'type=fuse,id=disk,node-name=disk,mountpoint={export},writable=on'),
        )
        pid = int(pid_file.read_text())
        self.addCleanup(self._end, pid)
        self.device = _run('losetup', '--direct-io=on', '--find', '--show', export)
        self.addCleanup(_run, 'losetup', '--detach', self.device)

    def _end(self, pid):
        subprocess.run(['kill', str(pid)], check=False, capture_output=True)
        if not workspace.wait_until_gone(pid, TIMEOUT_SEC):
            raise AssertionError(f'qemu-storage-daemon {pid} did not end')


class Filesystem(fixtures.Fixture):
    """Mounts a device with XFS at a directory that it makes; formats it only on request."""

    def __init__(self, device, mount_point, make=False):
        super().__init__()
        self._device = device
        self.path = Path(mount_point)
        self._make = make

    def _setUp(self):
        if self._make:
            _run('mkfs.xfs', '-q', '-f', '-K', self._device)
        self.path.mkdir(parents=True)
        # A clone carries the identity of its source, which is mounted beside it.
        _run('mount', '-t', 'xfs', '-o', 'nouuid,noatime', self._device, self.path)
        self.addCleanup(_run, 'umount', self.path)
