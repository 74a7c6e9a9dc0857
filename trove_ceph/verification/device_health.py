# SPDX-License-Identifier: Apache-2.0
"""Prove that the disk below a mounted clone works, and has worked since it was opened.

A server cannot distinguish a damaged page from a page that its disk failed to return. So a finding
of the server counts only if the disk is proved to work before and after: the storage daemon is the
same process, blocks from all parts of the device can be read past any cache, and the file system
still accepts a write, which XFS refuses for good after the first failure of its log.
"""

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from trove_ceph import exceptions
from trove_ceph.host import processes

#: Time limit of one proof as a whole.
TIMEOUT_SEC = 30.0
_BLOCK_BYTES = 65536
_PARTS = 16
# Direct I/O: a block from the cache of the host proves nothing.
_READ = 'dd if={device} of=/dev/null bs=65536 count=1 skip={block} iflag=direct status=none'
_WRITE = 'dd if=/dev/zero of={probe} bs=4096 count=1 oflag=nofollow conv=fsync status=none'

Run = Callable[[Sequence[str], float], str | None]


def run(command: Sequence[str], timeout_sec: float) -> str | None:
    """Run a command and return a description of its failure, or None when it succeeds.

    Unlike :mod:`subprocess` it does not wait for a process that is blocked on a disk in the kernel:
    such a process cannot be killed before the disk answers.
    """
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    except OSError as error:
        return f'{command[0]} cannot be run: {error}'
    try:
        _, errors = process.communicate(timeout=timeout_sec)
    except subprocess.TimeoutExpired:
        process.kill()
        return f'{" ".join(command)} did not end within its time limit'
    if process.returncode == 0:
        return None
    return errors.decode(errors='replace').strip() or f'{" ".join(command)} failed'


class DeviceHealth:
    """The disk below one clone.

    :param daemon: pid of its storage daemon
    :param device: path of the block device
    :param volume: its mount point; None while it is not mounted
    """

    def __init__(
        self,
        daemon: int,
        device: str,
        volume: Path | None = None,
        run: Run = run,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.volume = volume
        self._daemon = daemon
        self._identity = processes.identity(daemon)
        self._device = device
        self._run = run
        self._clock = clock

    def prove(self) -> None:
        """Prove that the disk works.

        :raises InspectionFaultError: the disk failed, or the proof was not done within TIMEOUT_SEC
        """
        self._check_daemon()
        deadline = self._clock() + TIMEOUT_SEC
        for block in self._blocks():
            self._try(_READ.format(device=self._device, block=block), deadline)
        if self.volume is not None:
            # A random name: the tenant's files are in the same directory.
            probe = self.volume / f'.trove-ceph-{uuid.uuid4()}'
            self._try(_WRITE.format(probe=probe), deadline)
            self._try(f'rm -f {probe}', deadline)
        # The daemon may have died, or been replaced, since the first check.
        self._check_daemon()

    def abort(self) -> None:
        """Kill the storage daemon, so that everything that waits for the disk fails."""
        if self._is_daemon_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._daemon, signal.SIGKILL)

    def _is_daemon_alive(self) -> bool:
        return bool(self._identity) and processes.identity(self._daemon) == self._identity

    def _check_daemon(self) -> None:
        if not self._is_daemon_alive():
            raise exceptions.InspectionFaultError(
                f'{self._device}: its storage daemon, process {self._daemon}, has ended'
            )

    def _blocks(self) -> list[int]:
        """Return the numbers of the blocks to read: the first, the last and some between."""
        try:
            with open(self._device, 'rb') as device:
                count = device.seek(0, os.SEEK_END) // _BLOCK_BYTES
        except OSError as error:
            raise exceptions.InspectionFaultError(f'{self._device}: {error}') from error
        if not count:
            raise exceptions.InspectionFaultError(f'{self._device}: the device is empty')
        return sorted({count * part // _PARTS for part in range(_PARTS)} | {count - 1})

    def _try(self, command: str, deadline: float) -> None:
        problem = self._run(command.split(), max(0.0, deadline - self._clock()))
        if problem:
            raise exceptions.InspectionFaultError(f'{self._device}: {problem}')
