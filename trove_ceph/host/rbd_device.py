# SPDX-License-Identifier: Apache-2.0
"""Map an RBD image to a block device without the kernel's RBD client.

qemu-storage-daemon opens the image with librbd, as a hypervisor does, and exports it as a file
through FUSE. A loop device with direct I/O turns the file into a disk whose flushes reach Ceph.
"""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from oslo_log import log as logging

from trove_ceph import exceptions, waiting
from trove_ceph.host import commands, data_volume, filesystem, processes, workspace

LOG = logging.getLogger(__name__)

TIMEOUT_SEC = 60
_RELEASE_SEC = 10.0
_POLL_SEC = 0.01
#: File name in the directory of the export.
PID_FILE = 'qemu-storage-daemon.pid'


class RbdDevice:
    """Maps an image while entered; ``device`` is its block device. Needs root.

    :param conf: path of the cluster's ceph.conf
    :param user: cephx name without ``client.``
    :param directory: of the export; is created
    :param direct: as QEMU's ``cache=none``: do not use librbd's cache
    :param environment: of the daemon and of losetup; default this process's environment
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
        #: Pid of the storage daemon; 0 while the image is not mapped.
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
            self.device = commands.run(
                *('losetup', '--direct-io=on', '--find', '--show', export),
                environment=self._environment,
            )
            stack.callback(detach, self.device)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def _export(self, stack: contextlib.ExitStack) -> Path:
        self._directory.mkdir(parents=True)
        export = self._directory / 'disk'
        export.touch()
        pid_file = self._directory / PID_FILE
        export_options = {
            'type': 'fuse',
            'id': 'disk',
            'node-name': 'disk',
            'mountpoint': str(export),
            'writable': True,
        }
        commands.run(
            *('qemu-storage-daemon', '--daemonize', '--pidfile', pid_file),
            *('--blockdev', json.dumps(self._node), '--export', json.dumps(export_options)),
            timeout_sec=TIMEOUT_SEC,
            environment=self._environment,
        )
        self.daemon_pid = int(pid_file.read_text())
        stack.callback(_terminate, self.daemon_pid)
        return export


def detach(device: str) -> None:
    """Detach a loop device, and wait until its file has all that was written to the device.

    A sandbox that is started on this host has the mounts of the host until it leaves its old root.
    So long a file system is not written back, although it is unmounted here, and the kernel
    detaches its device later.
    """
    backing = workspace.SYSFS / Path(device).name / 'loop' / 'backing_file'
    # Another file may be on the device as soon as it is free.
    with contextlib.suppress(OSError):
        file = backing.read_text()
        commands.run('losetup', '--detach', device)
        deadline = waiting.Deadline(_RELEASE_SEC)
        while backing.read_text() == file:
            if not deadline.pause(_POLL_SEC):
                LOG.warning('%s is still in use after %s s', device, _RELEASE_SEC)
                return


class Filesystem:
    """Mounts a device with XFS while entered, as a guest mounts its volume. Needs root.

    :param mount_point: is created
    :param make: format the device first, whatever it holds
    """

    def __init__(self, device: str, mount_point: Path, make: bool = False):
        self.path = Path(mount_point)
        self._device = device
        self._make = make
        self._storage = filesystem.HostStorage()

    @property
    def mount_options(self) -> str:
        # A clone has the UUID of its source, which may be mounted too. The files are untrusted.
        return data_volume.MOUNT_OPTIONS['xfs'] + ',nouuid,nosuid,nodev,noexec'

    def __enter__(self) -> 'Filesystem':
        """Mount.

        :raises StorageCommandError: the device cannot be formatted, or it carries no XFS
        """
        if self._make:
            self._storage.make_xfs(self._device, data_volume.LABEL, TIMEOUT_SEC)
        self._storage.mount(self._device, str(self.path), 'xfs', self.mount_options)
        return self

    def __exit__(self, *exception: object) -> None:
        self._storage.unmount(str(self.path))


def _terminate(pid: int) -> None:
    if not processes.terminate(pid, TIMEOUT_SEC):
        raise exceptions.StorageCommandError(
            f'qemu-storage-daemon, process {pid}, did not end {TIMEOUT_SEC} s after SIGKILL'
        )
