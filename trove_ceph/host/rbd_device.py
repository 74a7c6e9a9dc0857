# SPDX-License-Identifier: Apache-2.0
"""An RBD image as a block device and as a file system, on a kernel without an RBD client.

qemu-storage-daemon opens the image by librbd, as a hypervisor does, and shows it as a file through
FUSE; a loop device with direct I/O makes a disk of the file, so that a flush reaches Ceph.
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from trove_ceph import exceptions
from trove_ceph.host import commands, data_volume, filesystem, processes

TIMEOUT_SEC = 60
#: In the export's directory.
PID_FILE = 'qemu-storage-daemon.pid'


class RbdDevice:
    """Maps an image while entered; ``device`` is its block device. Needs root.

    :param conf: path of the cluster's ceph.conf
    :param user: cephx name without ``client.``
    :param directory: for the export; it is made
    :param direct: as QEMU's ``cache=none``: without librbd's cache in front of the image
    :param environment: of the process; default this process's own
    """

    def __init__(
        self,
        conf: str,
        user: str,
        pool: str,
        image: str,
        directory: Path,
        direct: bool = False,
        environment: Mapping[str, str] | None = None,
    ):
        self.device = ''
        #: The storage daemon's; 0 as long as the image is not mapped.
        self.daemon_pid = 0
        self._node = {
            'driver': 'rbd',
            'node-name': 'disk',
            'pool': pool,
            'image': image,
            'conf': str(conf),
            'user': user,
            'discard': 'unmap',
            'cache': {'direct': direct},
        }
        self._directory = Path(directory)
        self._environment = environment
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> 'RbdDevice':
        """Map the image.

        :raises StorageCommandError: the image cannot be opened, or there is no loop device
        """
        with contextlib.ExitStack() as stack:
            export = self._export(stack)
            self.device = commands.run('losetup', '--direct-io=on', '--find', '--show', export)
            stack.callback(commands.run, 'losetup', '--detach', self.device)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _export(self, stack: contextlib.ExitStack) -> Path:
        self._directory.mkdir(parents=True)
        export = self._directory / 'disk'
        export.touch()
        pid_file = self._directory / PID_FILE
        shown = {
            'type': 'fuse',
            'id': 'disk',
            'node-name': 'disk',
            'mountpoint': str(export),
            'writable': True,
        }
        commands.run(
            *('qemu-storage-daemon', '--daemonize', '--pidfile', pid_file),
            *('--blockdev', json.dumps(self._node), '--export', json.dumps(shown)),
            timeout_sec=TIMEOUT_SEC,
            environment=self._environment,
        )
        self.daemon_pid = int(pid_file.read_text())
        stack.callback(_end, self.daemon_pid)
        return export


class Filesystem:
    """Mounts a device with XFS while entered, as a guest mounts its volume. Needs root.

    :param mount_point: it is made
    :param make: format the device first, whatever is on it
    """

    def __init__(self, device: str, mount_point: Path, make: bool = False):
        self.path = Path(mount_point)
        self._device = device
        self._make = make
        self._storage = filesystem.HostStorage()

    @property
    def mount_options(self) -> str:
        # A clone carries the identity of its source, which may be mounted beside it. Whoever had
        # the volume before may have left anything there.
        return data_volume.MOUNT_OPTIONS['xfs'] + ',nouuid,nosuid,nodev,noexec'

    def __enter__(self) -> 'Filesystem':
        """Mount.

        :raises StorageCommandError: the device carries no XFS, or it cannot be made
        """
        if self._make:
            self._storage.make_xfs(self._device, data_volume.LABEL, TIMEOUT_SEC)
        self._storage.mount(self._device, str(self.path), 'xfs', self.mount_options)
        return self

    def __exit__(self, *exception: object) -> None:
        self._storage.unmount(str(self.path))


def _end(pid: int) -> None:
    if not processes.end(pid, TIMEOUT_SEC):
        raise exceptions.StorageCommandError(f'qemu-storage-daemon {pid} did not end')
