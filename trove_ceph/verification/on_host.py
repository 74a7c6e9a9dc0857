# SPDX-License-Identifier: Apache-2.0
"""Mount a clone with this host's kernel and run a server on it in separate namespaces.

The server and the reader of the files run as a user that owns nothing else on this host, and see
nothing of the host but the server's root file system. The kernel of the host remains exposed: it
reads the tenant's XFS and replays its log.
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
#: The name of this isolation in the record of an inspection.
ISOLATION = 'namespace'
_FILESYSTEMS = Path('/proc/filesystems')
_USER_TYPE = 'client.'
_MIB = 1024**2
# In addition to the server's memory: the reader of its files, and the tmpfs.
_EXTRA_BYTES = 192 * _MIB
_RUN_BYTES = 32 * _MIB
_TASKS = 1024
_SECTOR_BYTES = 512
# Field number in /sys/block/*/stat.
_SECTORS_WRITTEN = 6
_KILL_TIMEOUT_SEC = 20
_ERRORS = 'confined.log'
_DEVICE = re.compile(r'/dev/loop(\d+)')


class HostSandbox:
    """A sandbox for one clone and one server. Needs root, to mount and to confine.

    :param ceph_conf: path of the cluster's ceph.conf, which names the keyring
    :param ceph_user: cephx name with its type
    """

    isolation = ISOLATION

    def __init__(self, ceph_conf: str, ceph_user: str, settings: report.InspectionSettings):
        self._ceph_conf = ceph_conf
        self._ceph_user = ceph_user.removeprefix(_USER_TYPE)
        self._settings = settings
        self._stack = contextlib.ExitStack()
        self._directory: Path | None = None
        self._device = ''
        self._written_before = 0
        self._process: subprocess.Popen | None = None
        #: What limits the server's memory: ``cgroup``, or ``process`` for each process alone.
        self.memory_limit: str | None = None
        self._health: device_health.DeviceHealth | None = None

    def clear_killed(self) -> None:
        """Release the resources of inspections on this host whose process was killed.

        :raises NotInspectableError: this process does not run as root
        """
        clear_killed(self._settings.directory)

    def open(self, clone: image_types.ImageRef) -> None:
        """Mount a clone; ``close`` releases everything, even after an error.

        :raises NotSoundError: there is no file system, or XFS reports damage
        :raises StorageCommandError: the clone cannot be opened
        :raises InspectionFaultError: its disk does not work
        """
        stack = self._stack
        space = stack.enter_context(workspace.Workspace(PREFIX, self._settings.directory))
        disk = stack.enter_context(self.disk(clone, space))
        # Before anything that is read from the disk counts.
        self._health = device_health.DeviceHealth(disk.daemon_pid, disk.device)
        self._health.prove()
        self._mount(stack, disk.device, space.path / 'disk')
        self._health.volume = space.path / 'disk'
        self._directory, self._device = space.path, disk.device
        self._written_before = _written_bytes(disk.device)

    def prove_healthy(self) -> None:
        """Prove that the disk below the clone works, and has worked since it was opened.

        :raises InspectionFaultError: there is no proof
        """
        if self._health is None:
            raise exceptions.InspectionFaultError('the clone was not opened')
        self._health.prove()

    def abort(self) -> None:
        """Make every operation that waits for the disk fail at once; ``close`` is called next."""
        if self._health is not None:
            self._health.abort()

    def disk(self, clone: image_types.ImageRef, space: workspace.Workspace) -> rbd_device.RbdDevice:
        """Return the context manager that maps a clone to a loop device."""
        return rbd_device.RbdDevice(
            self._ceph_conf,
            self._ceph_user,
            clone.pool,
            clone.name,
            space.path / 'export',
            environment=space.environment,
        )

    def serve(self, version: str) -> confined_server.ConfinedServer:
        """Prepare a server for the open clone.

        :param version: of the datastore
        :raises NotSoundError: there is no data that a server can open
        :raises NotInspectableError: no configured server can open the data, or the server cannot be
            confined
        """
        if self._directory is None:
            raise RuntimeError('no clone is open')
        root = self._settings.root_for(version)
        disk_ids = volume_head.owner(self._directory / 'disk' / installation.DATA)
        limits = self._limits(self._directory / 'disk')
        self._share(disk_ids, limits)
        group = self._stack.enter_context(
            control_group.ControlGroup(
                self._directory.name, self._settings.memory_bytes + _EXTRA_BYTES, _TASKS
            )
        )
        self.memory_limit = 'cgroup' if group.is_made else 'process'
        with (self._directory / 'run' / _ERRORS).open('xb') as errors:
            self._process = bubblewrap.spawn(
                program.command(),
                self._view(root),
                limits,
                group,
                program.environment(),
                workspace.launcher_environment(self._directory),
                errors,
            )
        self._stack.callback(self._stop)
        assert self._process.stdin and self._process.stdout
        line = channel.Channel(
            self._process.stdout.fileno(), self._process.stdin.fileno(), self._check_written
        )
        served = confined_server.ConfinedServer(self, line)
        served.read(self._settings.memory_bytes)
        return served

    def kill(self) -> None:
        """Kill the server and every other process of the sandbox."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(_KILL_TIMEOUT_SEC)

    def why_ended(self) -> str:
        """Return how the confined program ended."""
        if self._process is None:
            return 'it was not started'
        try:
            code = self._process.wait(_KILL_TIMEOUT_SEC)
        except subprocess.TimeoutExpired:
            return 'it closed its output but still runs'
        if code in (-9, 137):
            limit = (self._settings.memory_bytes + _EXTRA_BYTES) // _MIB
            return f'it was killed, for example because it used more than {limit} MiB of memory'
        message = ''
        if self._directory is not None:
            message = bubblewrap.find_error(self._directory / 'run' / _ERRORS)
        return f'with exit code {code}{message and ": "}{message}'

    def close(self) -> None:
        """Stop the server and release the clone; do nothing if no clone is open.

        :raises StorageCommandError: a resource could not be released
        """
        self._directory = None
        self._stack.close()
        self._health = None

    def _stop(self) -> None:
        process = self._process
        if process is not None:
            self.kill()
            for stream in (process.stdin, process.stdout):
                if stream:
                    stream.close()

    def _share(self, disk_ids: tuple[int, int], limits: confinement.Confinement) -> None:
        """Create the directories that the confined program sees: data, logs, and the program."""
        assert self._directory is not None
        ids = (limits.uid, limits.gid)
        program.pack(self._directory / 'program')
        run = self._directory / 'run'
        run.mkdir()
        options = f'mode=700,uid={ids[0]},gid={ids[1]},size={_RUN_BYTES},nr_inodes=256'
        commands.run(
            *('mount', '-t', 'tmpfs', '-o', f'nosuid,nodev,noexec,{options}', 'inspection', run),
            # If this process is killed now, the next inspection finds the command and ends it.
            environment=workspace.launcher_environment(self._directory),
        )
        self._stack.callback(commands.run, 'umount', '--lazy', run)
        self._stack.enter_context(
            idmapped_mount.IdmappedMount(
                self._directory / 'disk', self._directory / 'volume', disk_ids, ids
            )
        )

    def _view(self, root: Path) -> bubblewrap.View:
        assert self._directory is not None
        return bubblewrap.View(
            root,
            {program.DIRECTORY: self._directory / 'program'},
            {
                str(confined.VOLUME): self._directory / 'volume',
                str(confined.RUN): self._directory / 'run',
            },
        )

    def _limits(self, mount_point: Path) -> confinement.Confinement:
        # A loop device has one user at a time on a host, so a uid derived from its number is
        # unique.
        number = _DEVICE.fullmatch(self._device)
        assert number is not None
        uid = self._settings.first_uid + int(number[1])
        size = os.statvfs(mount_point)
        return confinement.Confinement(
            uid,
            uid,
            self._settings.memory_bytes,
            # In case this process ends before it can enforce the time limit.
            self._settings.time_limit_sec * (os.cpu_count() or 1),
            size.f_blocks * size.f_frsize,
            _TASKS,
        )

    def _check_written(self) -> None:
        """Check how much the server has written to the clone.

        :raises NotInspectableError: it wrote more than ``max_written_bytes``
        """
        limit = self._settings.max_written_bytes
        if not limit:
            return
        written = _written_bytes(self._device) - self._written_before
        if written > limit:
            raise exceptions.NotInspectableError(
                f'the server wrote {written // _MIB} MiB to the clone; up to '
                f'{limit // _MIB} MiB are allowed (option max_written_mib)'
            )

    @staticmethod
    def _mount(stack: contextlib.ExitStack, device: str, mount_point: Path) -> None:
        volume_head.check_file_system(Path(device))
        try:
            stack.enter_context(rbd_device.Filesystem(device, mount_point))
        except exceptions.StorageCommandError as error:
            if '\txfs\n' not in _FILESYSTEMS.read_text():
                raise exceptions.NotInspectableError(
                    f'the kernel of this host does not support XFS: {error}'
                ) from error
            raise evidence.of_mount(str(error)) from error


def clear_killed(directory: Path) -> None:
    """Release the resources of inspections on this host whose process was killed.

    :param directory: the directory of inspections; created if it is missing
    :raises NotInspectableError: this process does not run as root
    """
    if os.geteuid() != 0:
        raise exceptions.NotInspectableError(
            'an inspection mounts and confines, which needs root: run the service as root'
        )
    directory.mkdir(mode=0o711, parents=True, exist_ok=True)
    for cleared in workspace.clear_stale(PREFIX, directory):
        LOG.warning('Removed %s, which a killed process left', cleared)
    control_group.clear_killed()


def _written_bytes(device: str) -> int:
    """Return the bytes written to a device since it exists on this host, by earlier users too."""
    counters = (workspace.SYSFS / Path(device).name / 'stat').read_text().split()
    return int(counters[_SECTORS_WRITTEN]) * _SECTOR_BYTES
