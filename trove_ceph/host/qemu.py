# SPDX-License-Identifier: Apache-2.0
"""Run a QEMU virtual machine as an unprivileged user, in namespaces of its own.

It ends with the thread that starts it.
"""

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from trove_ceph import exceptions
from trove_ceph.host import (
    bubblewrap,
    confinement,
    control_group,
    qemu_machine,
    qmp,
)

_KILL_TIMEOUT_SEC = 20
_ERROR_BYTES = 4000
_CONSOLE_BYTES = 4096
_PIECE_BYTES = 65536


class VirtualMachine:
    """A virtual machine that runs.

    :param machine: its parts
    :param limits: the user that QEMU runs as, and its resource limits
    :param group: the control group of QEMU
    :param environment: of bubblewrap and of QEMU
    :param errors: the file for error messages of QEMU
    :param key: the cephx key for the RBD disks, as base64 text
    :raises NotInspectableError: QEMU or bubblewrap is not installed
    """

    def __init__(
        self,
        machine: qemu_machine.Machine,
        limits: confinement.Confinement,
        group: control_group.ControlGroup,
        environment: Mapping[str, str],
        errors: Path,
        key: str | None = None,
    ):
        for program in (qemu_machine.PROGRAM, bubblewrap.PROGRAM):
            if shutil.which(program) is None:
                raise exceptions.NotInspectableError(f'{program} is not installed')
        self._errors = errors
        self._console = bytearray()
        pairs = [socket.socketpair() for _ in range(3)]
        self._ours = [ours for ours, _ in pairs]
        #: The host's end of the serial line.
        self.line, monitor, self._console_end = self._ours
        self._console_end.setblocking(False)
        self.monitor = qmp.QmpClient(monitor)
        prefix = [*group.prefix(), *limits.prefix(), *_isolation(), *machine.view(), '--']
        try:
            with contextlib.ExitStack() as stack:
                descriptors = [stack.enter_context(theirs).fileno() for _, theirs in pairs]
                if key is not None:
                    descriptors.append(_memory_file(key))
                    stack.callback(os.close, descriptors[-1])
                stderr = stack.enter_context(errors.open('wb'))
                words = [*prefix, *machine.words(*descriptors)]
                self._process = _spawn(words, environment, descriptors, stderr)
        except BaseException:
            self._close_ends()
            raise

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait(self, timeout_sec: float) -> int | None:
        """Wait for its end and return QEMU's exit code; None where it runs on."""
        try:
            return self._process.wait(timeout_sec)
        except subprocess.TimeoutExpired:
            return None

    def quit(self, timeout_sec: float) -> None:
        """Have QEMU close its disks and end; kill it if it does not within the time limit."""
        if self.is_alive:
            with contextlib.suppress(exceptions.InspectionFaultError):
                self.monitor.execute('quit', timeout_sec)
            if self.wait(timeout_sec) is None:
                self.kill()

    def kill(self) -> None:
        """Kill QEMU; Ceph still counts it as a user of its disks for half a minute.

        :raises TimeoutExpired: the kernel does not end it
        """
        if self.is_alive:
            self._process.kill()
            self._process.wait(_KILL_TIMEOUT_SEC)

    def close(self) -> None:
        """Kill QEMU and close the connections to it."""
        self.kill()
        self._close_ends()

    def disk_statistics(self, name: str) -> dict[str, int]:
        """Return the statistics of a disk since the start; see QMP's ``query-blockstats``.

        :raises InspectionFaultError: QEMU does not answer
        """
        for found in self.monitor.execute('query-blockstats'):
            if found.get('node-name') == name:
                return found['stats']
        raise exceptions.InspectionFaultError(f'QEMU does not know the disk {name}')

    def disk_size(self, name: str) -> int:
        """Return the size of a disk in bytes.

        :raises InspectionFaultError: QEMU does not answer
        """
        for found in self.monitor.execute('query-named-block-nodes', flat=True):
            if found.get('node-name') == name:
                return found['image']['virtual-size']
        raise exceptions.InspectionFaultError(f'QEMU does not know the disk {name}')

    def read_disk(self, name: str, start: int, count: int, timeout_sec: float) -> None:
        """Have QEMU read a part of a disk through its driver, as it does for the guest.

        :raises InspectionFaultError: QEMU cannot read it
        """
        command = f'qemu-io {name} "read -q {start} {count}"'
        told = self.monitor.execute(
            'human-monitor-command', timeout_sec, **{'command-line': command}
        )
        if told.strip():
            raise exceptions.InspectionFaultError(
                f'QEMU cannot read disk {name} at {start}: {told.strip()[:200]}'
            )

    def read_console(self) -> str:
        """Return the last lines that the guest has written to its console so far."""
        with contextlib.suppress(OSError):
            while piece := self._console_end.recv(_PIECE_BYTES):
                self._console += piece
                del self._console[:-_CONSOLE_BYTES]
        return self._console.decode(errors='replace')

    def find_error(self) -> str:
        """Return the last error of QEMU or of the programs that start it; empty if none."""
        programs = (qemu_machine.PROGRAM, 'qemu')
        return bubblewrap.find_error(self._errors, programs, _ERROR_BYTES)

    def _close_ends(self) -> None:
        for end in self._ours:
            end.close()


def _isolation() -> list[str]:
    # QEMU shares the network of the host, to reach Ceph.
    return [
        *(bubblewrap.PROGRAM, '--unshare-user', '--unshare-pid', '--unshare-ipc', '--unshare-uts'),
        *('--unshare-cgroup', '--cap-drop', 'ALL', '--die-with-parent', '--new-session'),
        *('--chdir', '/'),
    ]


def _spawn(
    words: Sequence[str], environment: Mapping[str, str], passed: Sequence[int], stderr: IO[bytes]
) -> subprocess.Popen:
    return bubblewrap.start_process(words, environment, passed, stderr, subprocess.DEVNULL)


def _memory_file(content: str) -> int:
    """Return the descriptor of a file in memory, which only a process that inherits it can open."""
    descriptor = os.memfd_create('key', os.MFD_CLOEXEC)
    os.write(descriptor, content.encode())
    return descriptor
