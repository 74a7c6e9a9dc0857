# SPDX-License-Identifier: Apache-2.0
"""Run one program in separate namespaces, with bubblewrap(1).

The program sees a read-only root file system with one directory for the data, one for sockets and
logs, and a small /tmp. It sees no other processes and no network, has no capabilities, and cannot
create namespaces. When the program or its parent ends, all its processes are killed.
"""

import contextlib
import dataclasses
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from trove_ceph import exceptions
from trove_ceph.host import bounded_files, confinement, control_group, syscall_filter

PROGRAM = 'bwrap'
#: The uid and gid that the program sees as its own.
INNER_ID = 999
_LAUNCHERS = ('bwrap: ', 'setpriv: ', 'prlimit: ', 'nice: ', 'env: ')
_ERROR_BYTES = 2000
_TMP_BYTES = 64 * 1024**2
_ROOT_BYTES = 1024**2
# Directories of a running machine are replaced or left out.
_REPLACED = frozenset(('dev', 'proc', 'run', 'sys', 'tmp'))
# Entries of /proc that describe the machine rather than the program's own processes.
_HIDDEN_FILES = (
    *('cmdline', 'config.gz', 'diskstats', 'iomem', 'ioports', 'kallsyms', 'kcore', 'key-users'),
    *('keys', 'kmsg', 'latency_stats', 'modules', 'partitions', 'sched_debug', 'slabinfo'),
    *('sysrq-trigger', 'timer_list', 'vmallocinfo', 'zoneinfo'),
)
_HIDDEN_DIRECTORIES = ('acpi', 'bus', 'driver', 'fs', 'irq', 'mtrr', 'scsi')


@dataclasses.dataclass(frozen=True)
class View:
    """The directories of the host that the program sees.

    :param root: the root file system, of which directories such as /proc and /run are replaced
    :param read_only: further directories of the host, by their paths inside
    :param writable: the same, writable; their paths lie in directories of the root, or below /run
    """

    root: Path
    read_only: Mapping[str, Path]
    writable: Mapping[str, Path]

    def words(self) -> list[str]:
        words = ['--size', str(_ROOT_BYTES), '--tmpfs', '/']
        for entry in sorted(self.root.iterdir()):
            target = f'/{entry.name}'
            if entry.name in _REPLACED:
                continue
            if entry.is_symlink():
                words += ['--symlink', os.readlink(entry), target]
            elif entry.is_dir():
                words += ['--ro-bind', str(entry), target]
        words += ['--proc', '/proc', *_hide(), '--dev', '/dev', '--remount-ro', '/dev']
        words += ['--perms', '1777', '--size', str(_TMP_BYTES), '--tmpfs', '/tmp', '--dir', '/run']
        for target, path in self.read_only.items():
            words += ['--ro-bind', str(path), target]
        for target, path in self.writable.items():
            words += ['--bind', str(path), target]
        return [*words, '--remount-ro', '/']


def spawn(
    command: list[str],
    view: View,
    limits: confinement.Confinement,
    group: control_group.ControlGroup,
    environment: Mapping[str, str],
    outside: Mapping[str, str],
    errors: IO[bytes],
) -> subprocess.Popen:
    """Start a program with pipes to its standard input and output. Needs root.

    The program is killed when the thread that starts it ends.

    :param environment: of the program
    :param outside: environment of bubblewrap itself
    :param errors: receives the standard error; its file system should have a size limit
    :raises NotInspectableError: bubblewrap or libseccomp is not installed
    """
    if shutil.which(PROGRAM) is None:
        raise exceptions.NotInspectableError(
            f'{PROGRAM}, which confines the server, is not installed: install the package '
            'bubblewrap'
        )
    with contextlib.ExitStack() as stack:
        filter_ = syscall_filter.make()
        stack.callback(os.close, filter_)
        words = [*group.prefix(), *limits.prefix(), PROGRAM, *_isolation(filter_)]
        words += ['--clearenv']
        for name, value in environment.items():
            words += ['--setenv', name, value]
        words += [*view.words(), '--', *command]
        return start_process(words, outside, [filter_], errors, subprocess.PIPE)


def start_process(
    words: Sequence[str],
    environment: Mapping[str, str],
    passed: Sequence[int],
    errors: IO[bytes],
    stdio: int,
) -> subprocess.Popen:
    """Start a program in a session of its own.

    :param passed: descriptors that the program inherits
    :param errors: receives the standard error
    :param stdio: the standard input and output: ``subprocess.PIPE`` or ``subprocess.DEVNULL``
    :raises ServerFailedError: the program cannot be started
    """
    try:
        return subprocess.Popen(
            words,
            env=dict(environment),
            stdin=stdio,
            stdout=stdio,
            stderr=errors,
            pass_fds=passed,
            start_new_session=True,
        )
    except OSError as error:
        raise exceptions.ServerFailedError(f'{words[0]} cannot be run: {error}') from error


def find_error(errors: Path, programs: Sequence[str] = (), tail_bytes: int = _ERROR_BYTES) -> str:
    """Return the last error of the commands that set up the sandbox; empty if there is none.

    Output of the confined program is left out.

    :param programs: further programs whose errors count
    :param tail_bytes: how much of the end of the file is read
    """
    prefixes = (*_LAUNCHERS, *(f'{program}: ' for program in programs))
    with contextlib.suppress(OSError):
        tail, _ = bounded_files.read_tail(errors, tail_bytes)
        for line in reversed(tail.decode(errors='replace').splitlines()):
            if line.startswith(prefixes) and line.isprintable():
                return line
    return ''


def _isolation(filter_: int) -> list[str]:
    return [
        *('--unshare-user', '--disable-userns', '--uid', str(INNER_ID), '--gid', str(INNER_ID)),
        *('--unshare-pid', '--unshare-net', '--unshare-ipc', '--unshare-uts', '--unshare-cgroup'),
        *('--hostname', 'inspection', '--cap-drop', 'ALL', '--die-with-parent', '--new-session'),
        *('--seccomp', str(filter_), '--chdir', '/'),
    ]


def _hide() -> list[str]:
    words = []
    for name in _HIDDEN_FILES:
        if Path('/proc', name).exists():
            words += ['--ro-bind', '/dev/null', f'/proc/{name}']
    for name in _HIDDEN_DIRECTORIES:
        if Path('/proc', name).is_dir():
            words += ['--size', '4096', '--tmpfs', f'/proc/{name}', '--remount-ro', f'/proc/{name}']
    return words
