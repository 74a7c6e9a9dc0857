# SPDX-License-Identifier: Apache-2.0
"""Runs one program in name spaces of its own, with bubblewrap(1).

Inside there is a root file system that cannot be written, with one directory for the data, one for
sockets and logs, and a small /tmp. There are no other processes, no network, no capabilities, and
no way to make name spaces. When the program ends, or whoever started it, all that it started ends.
"""

import contextlib
import dataclasses
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from trove_ceph import exceptions
from trove_ceph.host import bounded_files, confinement, control_group, syscall_filter

PROGRAM = 'bwrap'
#: What the program is inside; which user of the host that is does not show.
INNER_ID = 999
_MAKERS = ('bwrap: ', 'setpriv: ', 'prlimit: ', 'nice: ', 'env: ')
_COMPLAINT_BYTES = 2000
_TMP_BYTES = 64 * 1024**2
_ROOT_BYTES = 1024**2
# What a root file system has for the running of a machine is made anew, or left out.
_NOT_OF_THE_ROOT = frozenset(('dev', 'proc', 'run', 'sys', 'tmp'))
# Each tells of the machine rather than of the program's own processes.
_HIDDEN_FILES = (
    *('cmdline', 'config.gz', 'diskstats', 'iomem', 'ioports', 'kallsyms', 'kcore', 'key-users'),
    *('keys', 'kmsg', 'latency_stats', 'modules', 'partitions', 'sched_debug', 'slabinfo'),
    *('sysrq-trigger', 'timer_list', 'vmallocinfo', 'zoneinfo'),
)
_HIDDEN_DIRECTORIES = ('acpi', 'bus', 'driver', 'fs', 'irq', 'mtrr', 'scsi')


@dataclasses.dataclass(frozen=True)
class View:
    """What is seen inside.

    :param root: the root file system; its parts are seen, without those of a running machine
    :param read_only: further directories of the host, by the place where they are seen
    :param writable: the same; the places lie in directories of the root, or below /run
    """

    root: Path
    read_only: Mapping[str, Path]
    writable: Mapping[str, Path]

    def words(self) -> list[str]:
        words = ['--size', str(_ROOT_BYTES), '--tmpfs', '/']
        for entry in sorted(self.root.iterdir()):
            place = f'/{entry.name}'
            if entry.name in _NOT_OF_THE_ROOT:
                continue
            if entry.is_symlink():
                words += ['--symlink', os.readlink(entry), place]
            elif entry.is_dir():
                words += ['--ro-bind', str(entry), place]
        words += ['--proc', '/proc', *_hide(), '--dev', '/dev', '--remount-ro', '/dev']
        words += ['--perms', '1777', '--size', str(_TMP_BYTES), '--tmpfs', '/tmp', '--dir', '/run']
        for place, path in self.read_only.items():
            words += ['--ro-bind', str(path), place]
        for place, path in self.writable.items():
            words += ['--bind', str(path), place]
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
    """Start a program, talking to it through its standard input and output. Needs root.

    It ends with the thread that starts it.

    :param environment: inside
    :param outside: of bubblewrap itself
    :param errors: takes the standard error; its file system should have a bound
    :raises NotInspectableError: bubblewrap or the filter of system calls is not to be had
    """
    if shutil.which(PROGRAM) is None:
        raise exceptions.NotInspectableError(
            f'{PROGRAM} is not installed, which confines the server; it is in the package '
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
        try:
            return subprocess.Popen(
                words,
                env=dict(outside),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                pass_fds=[filter_],
                start_new_session=True,
            )
        except OSError as error:
            raise exceptions.ServerFailedError(f'{words[0]} cannot be run: {error}') from error


def find_complaint(errors: Path) -> str:
    """Return the last words of those that make the confined place; empty where there are none.

    Whatever the program inside has written is left out.
    """
    with contextlib.suppress(OSError):
        tail, _ = bounded_files.read_tail(errors, _COMPLAINT_BYTES)
        for line in reversed(tail.decode(errors='replace').splitlines()):
            if line.startswith(_MAKERS) and line.isprintable():
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
