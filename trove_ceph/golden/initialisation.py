# SPDX-License-Identifier: Apache-2.0
"""Initialise a data directory in a sandbox, so that no server and no account of it is left.

``mysqld --initialize`` logs no transaction and shuts down cleanly. It gives root a random password
that has expired, and writes it to the error log only; the log goes with its directory.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.host import (
    bounded_files,
    bubblewrap,
    confinement,
    control_group,
    reserved_user,
    workspace,
)
from trove_ceph.mysql import fixed_options, installation
from trove_ceph.verification import confined, data_directory, error_log, report, virtual_machine

_TASKS = 256
_FILE_BYTES = units.Gi
_LOG_BYTES = units.Mi
_POLL_SEC = 0.2
_KILL_TIMEOUT_SEC = 20
# The directory with the error log and the socket of the server.
_RUN = 'run'
_ERRORS = 'sandbox.log'
_OPTIONS = {
    # As little memory as suffices.
    'innodb-buffer-pool-size': 64 * units.Mi,
    'max-connections': 10,
    # A guest resizes the redo log to its own size at the first start.
    'innodb-redo-log-capacity': 16 * units.Mi,
    'skip-log-bin': 'ON',
    # Each server makes its own at its first start.
    'loose-auto-generate-certs': 'OFF',
    'loose-caching-sha2-password-auto-generate-rsa-keys': 'OFF',
    'loose-sha256-password-auto-generate-rsa-keys': 'OFF',
    'loose-mysqlx': 'OFF',
    'secure-file-priv': 'NULL',
}
#: The identity of the server, which each instance must make itself.
_UUID_FILE = 'auto.cnf'
_SECRETS = '*.pem'


class Initialiser:
    """Initialises data directories with the servers of ``mysqld_roots``. Needs root, to confine."""

    def __init__(self, settings: report.InspectionSettings):
        self._settings = settings

    def initialise(self, version: str, directory: Path, check: Callable[[], None]) -> Path:
        """Return a directory that is to become a volume, with an initialised data directory.

        :param version: of MySQL, with three numbers
        :param directory: of the sandbox; is filled
        :param check: called while the server works; raises to stop it
        :raises NotInspectableError: no server of this version is configured, or none can be
            confined
        :raises ServerFailedError: the server failed, or left what a golden volume must not have
        """
        root = self._settings.root_for(version)
        volume, run = directory / 'volume', directory / _RUN
        with reserved_user.ReservedUser(
            self._settings.first_uid + virtual_machine.FIRST_ID, virtual_machine.IDS
        ) as user:
            for path in (volume, run):
                path.mkdir(mode=0o750)
                os.chown(path, user.uid, user.uid)
            self._run(root, directory, user.uid, check)
        (volume / installation.DATA / _UUID_FILE).unlink(missing_ok=True)
        _check(volume / installation.DATA, version)
        # As in a guest, where other users may enter the mount point.
        volume.chmod(0o755)
        return volume

    def _run(self, root: Path, directory: Path, uid: int, check: Callable[[], None]) -> None:
        view = bubblewrap.View(
            root,
            {},
            {
                str(confined.VOLUME): directory / 'volume',
                str(confined.RUN): directory / _RUN,
            },
        )
        limits = confinement.Confinement(
            uid,
            uid,
            self._settings.memory_bytes,
            self._settings.time_limit_sec * (os.cpu_count() or 1),
            _FILE_BYTES,
            _TASKS,
        )
        with (
            control_group.ControlGroup(
                directory.name, self._settings.memory_bytes, _TASKS
            ) as group,
            (directory / _ERRORS).open('xb') as errors,
        ):
            process = bubblewrap.spawn(
                _command(),
                view,
                limits,
                group,
                {'PATH': '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'},
                workspace.launcher_environment(directory),
                errors,
            )
            code = _wait(process, check)
        if code != 0:
            raise exceptions.ServerFailedError(
                f'mysqld --initialize failed with exit code {code}: {_reason(directory)}'
            )


def _command() -> list[str]:
    options = {**fixed_options.INITIAL, **_OPTIONS}
    return [
        *('mysqld', '--no-defaults', '--initialize'),
        f'--pid-file={confined.RUN}/mysqld.pid',
        f'--datadir={confined.VOLUME}/{installation.DATA}',
        f'--log-error={confined.RUN}/mysqld.log',
        *(f'--{name.replace("_", "-")}={value}' for name, value in options.items()),
    ]


def _wait(process: subprocess.Popen, check: Callable[[], None]) -> int:
    """Return the exit code; kill the process if it must stop."""
    try:
        with contextlib.ExitStack() as stack:
            for stream in (process.stdin, process.stdout):
                if stream:
                    stack.callback(stream.close)
            while True:
                check()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return process.wait(_POLL_SEC)
    except BaseException:
        process.kill()
        process.wait(_KILL_TIMEOUT_SEC)
        raise


def _reason(directory: Path) -> str:
    """Return why the server failed, without the password in its log, which no error has."""
    if error := bubblewrap.find_error(directory / _ERRORS):
        return error
    try:
        log = bounded_files.read_head(directory / _RUN / 'mysqld.log', _LOG_BYTES)
    except OSError:
        return 'it has written no log'
    messages = error_log.errors(error_log.read(log.decode(errors='replace')))
    return '; '.join(map(str, messages)) or 'its log has no error'


def _check(data: Path, version: str) -> None:
    """Check that a data directory is complete, of the version, and without secrets."""
    try:
        found = data_directory.read(data)
    except report.NotSoundError as error:
        raise exceptions.ServerFailedError(
            f'mysqld --initialize left no complete data directory: {error}'
        ) from error
    if found.version_text != version:
        raise exceptions.NotInspectableError(
            f'the mysqld that is configured for MySQL {version} is of version '
            f'{found.version_text}: add an entry {version} to mysqld_roots'
        )
    if secrets := sorted(path.name for path in data.glob(_SECRETS)):
        raise exceptions.ServerFailedError(
            f'mysqld --initialize made {", ".join(secrets)}, which all instances would share'
        )
