# SPDX-License-Identifier: Apache-2.0
"""Prove that the disk below a mounted clone works: now, and without a fault since it was opened.

A server cannot tell a damaged page from one that its disk did not give it. So what a server says
against a backup counts only if the disk is proved to work before and after: the storage daemon is
the process that it was, blocks from all parts of the device can be read past any cache, and the
file system still takes a write, which XFS refuses for good after the first failure of its log.
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

#: For all that is tried in one proof.
TIMEOUT_SEC = 30.0
_BLOCK_BYTES = 65536
_PARTS = 16
# Past the cache of the host: what was read before proves nothing.
_READ = 'dd if={device} of=/dev/null bs=65536 count=1 skip={block} iflag=direct status=none'
_WRITE = 'dd if=/dev/zero of={probe} bs=4096 count=1 oflag=nofollow conv=fsync status=none'

Run = Callable[[Sequence[str], float], str | None]


def run(command: Sequence[str], timeout_sec: float) -> str | None:
    """Run a command and return what went wrong with it; None where nothing did.

    Unlike :mod:`subprocess` it does not wait for a process that waits for a disk in the kernel,
    which cannot be killed before the disk answers.
    """
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    except OSError as error:
        return f'{command[0]} cannot be run: {error}'
    try:
        _, told = process.communicate(timeout=timeout_sec)
    except subprocess.TimeoutExpired:
        process.kill()
        return f'{" ".join(command)} does not end'
    if process.returncode == 0:
        return None
    return told.decode(errors='replace').strip() or f'{" ".join(command)} failed'


class DeviceHealth:
    """The disk below one clone.

    :param daemon: the pid of its storage daemon
    :param device: the block device
    :param volume: where it is mounted; None as long as it is not
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
        """Do nothing if the disk works.

        :raises InspectionFaultError: that could not be proved within the time
        """
        self._check_daemon()
        deadline = self._clock() + TIMEOUT_SEC
        for block in self._blocks():
            self._try(_READ.format(device=self._device, block=block), deadline)
        if self.volume is not None:
            # The tenant's files lie here, and may have any name but this.
            probe = self.volume / f'.trove-ceph-{uuid.uuid4()}'
            self._try(_WRITE.format(probe=probe), deadline)
            self._try(f'rm -f {probe}', deadline)
        # It may have died, or been replaced, since it was looked at.
        self._check_daemon()

    def abort(self) -> None:
        """Kill the storage daemon: all that waits for the disk in the kernel fails then."""
        if self._is_daemon_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._daemon, signal.SIGKILL)

    def _is_daemon_alive(self) -> bool:
        return bool(self._identity) and processes.identity(self._daemon) == self._identity

    def _check_daemon(self) -> None:
        if not self._is_daemon_alive():
            raise exceptions.InspectionFaultError(
                f'{self._device}: its storage daemon {self._daemon} is gone'
            )

    def _blocks(self) -> list[int]:
        """Return which blocks are read: the first, the last, and some between."""
        try:
            with open(self._device, 'rb') as device:
                count = device.seek(0, os.SEEK_END) // _BLOCK_BYTES
        except OSError as error:
            raise exceptions.InspectionFaultError(f'{self._device}: {error}') from error
        if not count:
            raise exceptions.InspectionFaultError(f'{self._device}: has no blocks')
        return sorted({count * part // _PARTS for part in range(_PARTS)} | {count - 1})

    def _try(self, command: str, deadline: float) -> None:
        problem = self._run(command.split(), max(0.0, deadline - self._clock()))
        if problem:
            raise exceptions.InspectionFaultError(f'{self._device}: {problem}')
