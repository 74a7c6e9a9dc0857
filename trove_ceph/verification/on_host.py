# SPDX-License-Identifier: Apache-2.0
"""Opens a clone on this host: device, file system and server, and leaves nothing of them."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.host import commands, confinement, filesystem, rbd_device, workspace
from trove_ceph.mysql import installation, mysqld
from trove_ceph.storage import image_types
from trove_ceph.verification import data_directory, device_health, evidence, report, server

LOG = logging.getLogger(__name__)

PREFIX = 'inspect-'
_FILESYSTEMS = Path('/proc/filesystems')
_USER_TYPE = 'client.'


class HostSandbox:
    """One clone, one server. Needs root, to mount and to become the data's owner.

    :param ceph_conf: path of the cluster's ceph.conf, which names the keyring
    :param ceph_user: cephx name with its type
    """

    def __init__(self, ceph_conf: str, ceph_user: str, settings: report.InspectionSettings):
        self._ceph_conf = ceph_conf
        self._ceph_user = ceph_user.removeprefix(_USER_TYPE)
        self._settings = settings
        self._stack = contextlib.ExitStack()
        self._place: workspace.Workspace | None = None
        self._health: device_health.DeviceHealth | None = None

    def clear_killed(self) -> None:
        """Give back what inspections on this host held when their process was killed.

        :raises NotInspectableError: this process may not do what inspections need
        """
        if os.geteuid() != 0:
            raise exceptions.NotInspectableError('inspecting needs root, to mount and to confine')
        self._settings.directory.mkdir(mode=0o711, parents=True, exist_ok=True)
        for cleared in workspace.clear_stale(PREFIX, self._settings.directory):
            LOG.warning('Cleared %s, which a killed process had left', cleared)

    def open(self, clone: image_types.ImageRef) -> None:
        """Mount a clone; ``close`` gives back what was made, however it ends.

        :raises Finding: there is no file system, or XFS says that it is damaged
        :raises StorageCommandError: the clone cannot be opened
        :raises InspectionFaultError: its disk does not work
        """
        stack = self._stack
        place = stack.enter_context(workspace.Workspace(PREFIX, self._settings.directory))
        disk = stack.enter_context(
            rbd_device.RbdDevice(
                self._ceph_conf,
                self._ceph_user,
                clone.pool,
                clone.name,
                place.path / 'export',
                environment=place.environment,
            )
        )
        # Before anything is believed that is read of it.
        self._health = device_health.DeviceHealth(disk.daemon_pid, disk.device)
        self._health.prove()
        self._mount(stack, disk.device, place.path / 'volume')
        self._health.volume = place.path / 'volume'
        self._place = place

    def prove_healthy(self) -> None:
        """Do nothing if the disk below the clone works, and did so since it was opened.

        :raises InspectionFaultError: that could not be proved
        """
        if self._health is None:
            raise exceptions.InspectionFaultError('the clone was not opened')
        self._health.prove()

    def abort(self) -> None:
        """Have all that waits for the disk below the clone fail, at once; ``close`` comes after."""
        if self._health is not None:
            self._health.abort()

    def serve(self, version: str) -> server.Server:
        """Prepare a server for the clone that is open.

        :param version: of the datastore
        :raises Finding: there is no data that a server could open
        :raises NotInspectableError: no server is configured that could
        """
        if self._place is None:
            raise RuntimeError('no clone is open')
        volume = self._place.path / 'volume'
        found = data_directory.read(volume / installation.DATA)
        root = self._settings.root_for(version)
        _check_not_older(root, found)
        if not (found.uid and found.gid):
            raise report.Finding(report.CORRUPT, f'{installation.DATA} belongs to root')
        memory_bytes = self._settings.memory_bytes
        confined = confinement.Confinement(
            found.uid,
            found.gid,
            memory_bytes,
            # Should nobody be there to watch the time.
            self._settings.time_limit_sec * (os.cpu_count() or 1),
        )
        running = mysqld.Mysqld(
            installation.Rootfs(root, confined),
            volume,
            self._place.path / 'run',
            server.options(found, memory_bytes),
            environment={
                'PATH': os.defpath + ':/usr/sbin:/sbin',
                workspace.MARK: str(self._place.path),
            },
        )
        self._stack.callback(running.kill)
        return server.Server(running, found)

    def close(self) -> None:
        """End the server and give back what belongs to the clone; nothing if none is open.

        :raises StorageCommandError: something could not be given back
        """
        self._place = None
        self._stack.close()
        self._health = None

    @staticmethod
    def _mount(stack: contextlib.ExitStack, device: str, mount_point: Path) -> None:
        signature = filesystem.HostStorage().find_signature(device)
        if signature is None:
            raise report.Finding(report.INCOMPLETE, 'the image holds nothing, expected XFS')
        if signature.kind != 'xfs':
            raise exceptions.NotInspectableError(
                f'the image holds {signature.kind}, and only XFS is inspected'
            )
        try:
            stack.enter_context(rbd_device.Filesystem(device, mount_point))
        except exceptions.StorageCommandError as error:
            if '\txfs\n' not in _FILESYSTEMS.read_text():
                raise exceptions.NotInspectableError(
                    f'the kernel of this host knows no XFS: {error}'
                ) from error
            raise evidence.of_mount(str(error)) from error


def _check_not_older(root: Path, found: data_directory.DataDirectory) -> None:
    """Refuse a mysqld that is older than the data; a newer one may be able to upgrade it.

    :raises NotInspectableError: it is older, or not to be had
    """
    told = mysqld_version(root)
    if told < found.version:
        raise exceptions.NotInspectableError(
            f'the data is of MySQL {found.version_text}; the mysqld in {root} is older: '
            f'{".".join(map(str, told))}'
        )


def mysqld_version(root: Path, run: Callable[..., str] = commands.run) -> tuple[int, int, int]:
    """Return the version of the mysqld in a root file system.

    :raises NotInspectableError: there is none
    """
    try:
        told = run('chroot', root, 'mysqld', '--no-defaults', '--version')
        words = told.partition(' Ver ')[2].split()
        major, minor, patch = words[0].partition('-')[0].split('.')[:3]
        return int(major), int(minor), int(patch)
    except (exceptions.StorageCommandError, IndexError, ValueError) as error:
        raise exceptions.NotInspectableError(f'{root}: has no mysqld that runs: {error}') from error
