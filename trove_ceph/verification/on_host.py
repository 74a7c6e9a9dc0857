# SPDX-License-Identifier: Apache-2.0
"""Opens a clone on this host, mounted by its kernel, for a server in name spaces of its own.

Neither the server nor what reads the files runs as a user that anything else on this host belongs
to, or sees anything of the host but the root file system of the server. What remains is the kernel:
it reads the tenant's XFS, whose log it must replay.
"""

import contextlib
import os
import re
import subprocess
from pathlib import Path

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.host import (
    bubblewrap,
    commands,
    confinement,
    control_group,
    idmapped_mount,
    rbd_device,
    workspace,
)
from trove_ceph.mysql import installation
from trove_ceph.storage import image_types
from trove_ceph.verification import (
    channel,
    confined,
    confined_server,
    device_health,
    evidence,
    program,
    report,
    volume_head,
)

LOG = logging.getLogger(__name__)

PREFIX = 'inspect-'
#: How the confinement is called in the record of an inspection.
ISOLATION = 'namespace'
_FILESYSTEMS = Path('/proc/filesystems')
_USER_TYPE = 'client.'
_MIB = 1024**2
# Beside the server's memory: the reader of its files, and what lies in the tmpfs.
_EXTRA_BYTES = 192 * _MIB
_RUN_BYTES = 32 * _MIB
_TASKS = 1024
_SECTOR_BYTES = 512
# In /sys/block/*/stat.
_SECTORS_WRITTEN = 6
_KILL_TIMEOUT_SEC = 20
_ERRORS = 'confined.log'
_DEVICE = re.compile(r'/dev/loop(\d+)')


class HostSandbox:
    """One clone, one server. Needs root, to mount and to make the confined place.

    :param ceph_conf: path of the cluster's ceph.conf, which names the keyring
    :param ceph_user: cephx name with its type
    """

    isolation = ISOLATION

    def __init__(self, ceph_conf: str, ceph_user: str, settings: report.InspectionSettings):
        self._ceph_conf = ceph_conf
        self._ceph_user = ceph_user.removeprefix(_USER_TYPE)
        self._settings = settings
        self._stack = contextlib.ExitStack()
        self._place: Path | None = None
        self._device = ''
        self._written_before = 0
        self._process: subprocess.Popen | None = None
        #: What holds the server to its memory: ``cgroup``, or ``process`` for each by itself.
        self.memory_limit: str | None = None
        self._health: device_health.DeviceHealth | None = None

    def clear_killed(self) -> None:
        """Give back what inspections on this host held when their process was killed.

        :raises NotInspectableError: this process may not do what inspections need
        """
        clear_killed(self._settings.directory)

    def open(self, clone: image_types.ImageRef) -> None:
        """Mount a clone; ``close`` gives back what was made, however it ends.

        :raises Finding: there is no file system, or XFS says that it is damaged
        :raises StorageCommandError: the clone cannot be opened
        :raises InspectionFaultError: its disk does not work
        """
        stack = self._stack
        place = stack.enter_context(workspace.Workspace(PREFIX, self._settings.directory))
        disk = stack.enter_context(self.disk(clone, place))
        # Before anything is believed that is read of it.
        self._health = device_health.DeviceHealth(disk.daemon_pid, disk.device)
        self._health.prove()
        self._mount(stack, disk.device, place.path / 'disk')
        self._health.volume = place.path / 'disk'
        self._place, self._device = place.path, disk.device
        self._written_before = _written_bytes(disk.device)

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

    def disk(self, clone: image_types.ImageRef, place: workspace.Workspace) -> rbd_device.RbdDevice:
        """Return what makes a loop device of a clone."""
        return rbd_device.RbdDevice(
            self._ceph_conf,
            self._ceph_user,
            clone.pool,
            clone.name,
            place.path / 'export',
            environment=place.environment,
        )

    def serve(self, version: str) -> confined_server.ConfinedServer:
        """Prepare a server for the clone that is open.

        :param version: of the datastore
        :raises Finding: there is no data that a server could open
        :raises NotInspectableError: no server is configured that could, or it cannot be confined
        """
        if self._place is None:
            raise RuntimeError('no clone is open')
        root = self._settings.root_for(version)
        disk_ids = volume_head.owner(self._place / 'disk' / installation.DATA)
        limits = self._limits(self._place / 'disk')
        self._share(disk_ids, limits)
        group = self._stack.enter_context(
            control_group.ControlGroup(
                self._place.name, self._settings.memory_bytes + _EXTRA_BYTES, _TASKS
            )
        )
        self.memory_limit = 'cgroup' if group.is_made else 'process'
        with (self._place / 'run' / _ERRORS).open('xb') as errors:
            self._process = bubblewrap.spawn(
                program.command(),
                self._view(root),
                limits,
                group,
                program.environment(),
                {'PATH': os.defpath + ':/usr/sbin:/sbin', workspace.MARK: str(self._place)},
                errors,
            )
        self._stack.callback(self._end)
        assert self._process.stdin and self._process.stdout
        line = channel.Channel(
            self._process.stdout.fileno(), self._process.stdin.fileno(), self._check_written
        )
        served = confined_server.ConfinedServer(self, line)
        served.read(self._settings.memory_bytes)
        return served

    def kill(self) -> None:
        """End the server, and all that runs beside it."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(_KILL_TIMEOUT_SEC)

    def why_ended(self) -> str:
        """Say how the confined program ended."""
        if self._process is None:
            return 'it was not started'
        try:
            code = self._process.wait(_KILL_TIMEOUT_SEC)
        except subprocess.TimeoutExpired:
            return 'it closed its output, and runs on'
        if code in (-9, 137):
            limit = (self._settings.memory_bytes + _EXTRA_BYTES) // _MIB
            return f'it was killed, for instance for taking more than {limit} MiB of memory'
        complaint = ''
        if self._place is not None:
            complaint = bubblewrap.find_complaint(self._place / 'run' / _ERRORS)
        return f'with exit code {code}{complaint and ": "}{complaint}'

    def close(self) -> None:
        """End the server and give back what belongs to the clone; nothing if none is open.

        :raises StorageCommandError: something could not be given back
        """
        self._place = None
        self._stack.close()
        self._health = None

    def _end(self) -> None:
        process = self._process
        if process is not None:
            self.kill()
            for stream in (process.stdin, process.stdout):
                if stream:
                    stream.close()

    def _share(self, disk_ids: tuple[int, int], limits: confinement.Confinement) -> None:
        """Make what the program inside sees of this host: the data, room for logs, and itself."""
        assert self._place is not None
        ids = (limits.uid, limits.gid)
        program.pack(self._place / 'program')
        run = self._place / 'run'
        run.mkdir()
        what = f'mode=700,uid={ids[0]},gid={ids[1]},size={_RUN_BYTES},nr_inodes=256'
        commands.run(
            *('mount', '-t', 'tmpfs', '-o', f'nosuid,nodev,noexec,{what}', 'inspection', run)
        )
        self._stack.callback(commands.run, 'umount', '--lazy', run)
        self._stack.enter_context(
            idmapped_mount.IdmappedMount(
                self._place / 'disk', self._place / 'volume', disk_ids, ids
            )
        )

    def _view(self, root: Path) -> bubblewrap.View:
        assert self._place is not None
        return bubblewrap.View(
            root,
            {program.PLACE: self._place / 'program'},
            {
                str(confined.VOLUME): self._place / 'volume',
                str(confined.RUN): self._place / 'run',
            },
        )

    def _limits(self, mount_point: Path) -> confinement.Confinement:
        # A loop device has one user at a time on a host, and so has the id that is counted by it.
        number = _DEVICE.fullmatch(self._device)
        assert number is not None
        uid = self._settings.first_uid + int(number[1])
        size = os.statvfs(mount_point)
        return confinement.Confinement(
            uid,
            uid,
            self._settings.memory_bytes,
            # Should nobody be there to watch the time.
            self._settings.time_limit_sec * (os.cpu_count() or 1),
            size.f_blocks * size.f_frsize,
            _TASKS,
        )

    def _check_written(self) -> None:
        """Look at how much the server has written to the clone.

        :raises NotInspectableError: more than is allowed
        """
        limit = self._settings.max_written_bytes
        if not limit:
            return
        written = _written_bytes(self._device) - self._written_before
        if written > limit:
            raise exceptions.NotInspectableError(
                f'the server wrote {written // _MIB} MiB to the clone, and up to '
                f'{limit // _MIB} MiB are allowed'
            )

    @staticmethod
    def _mount(stack: contextlib.ExitStack, device: str, mount_point: Path) -> None:
        volume_head.check_file_system(Path(device))
        try:
            stack.enter_context(rbd_device.Filesystem(device, mount_point))
        except exceptions.StorageCommandError as error:
            if '\txfs\n' not in _FILESYSTEMS.read_text():
                raise exceptions.NotInspectableError(
                    f'the kernel of this host knows no XFS: {error}'
                ) from error
            raise evidence.of_mount(str(error)) from error


def clear_killed(directory: Path) -> None:
    """Give back what inspections on this host held when their process was killed.

    :param directory: of inspections; made when missing
    :raises NotInspectableError: this process may not do what inspections need
    """
    if os.geteuid() != 0:
        raise exceptions.NotInspectableError('inspecting needs root, to mount and to confine')
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    for cleared in workspace.clear_stale(PREFIX, directory):
        LOG.warning('Cleared %s, which a killed process had left', cleared)
    control_group.clear_killed()


def _written_bytes(device: str) -> int:
    """Return what was written to a device since this host made it, which others used before."""
    counters = (workspace.SYSFS / Path(device).name / 'stat').read_text().split()
    return int(counters[_SECTORS_WRITTEN]) * _SECTOR_BYTES
