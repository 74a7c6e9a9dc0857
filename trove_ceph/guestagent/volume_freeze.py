# SPDX-License-Identifier: Apache-2.0
"""The caller's side of :mod:`freeze_holder`."""

import os
import select
import subprocess
import time
import typing

from oslo_log import log as logging

from trove_ceph import exceptions

LOG = logging.getLogger(__name__)

# Where processors are emulated, sudo and an interpreter take seconds.
START_TIMEOUT_SEC = 60
#: Thawing takes no time; the process that does it may have to wait for a processor.
THAW_TIMEOUT_SEC = 30
END_TIMEOUT_SEC = 10
_READ_BYTES = 4096


class VolumeFreeze:
    """One freeze of the data volume; what was not thawed is thawed when this process ends.

    :param process: runs :mod:`freeze_holder`, with pipes to its standard input and output
    :param limit_sec: after which the holder thaws by itself
    """

    def __init__(self, process: subprocess.Popen, limit_sec: float):
        self._process = process
        self._limit_sec = limit_sec
        self._received = b''

    def wait_until_ready(self) -> None:
        """Wait until freezing needs nothing that takes long; nothing is frozen yet.

        :raises NotQuiescedError: the volume cannot be frozen, or the holder did not start in time
        """
        self._expect('ready', START_TIMEOUT_SEC)

    def freeze(self) -> float:
        """Freeze and return how many seconds that took; blocks for at most the limit.

        :raises NotQuiescedError: it is not frozen, or will not be any more as soon as it can be
        """
        self._send('freeze')
        return float(self._expect('frozen', self._limit_sec))

    def is_frozen(self) -> bool:
        """Return whether it is still frozen, after :meth:`freeze`."""
        return self._process.poll() is None and not self._readable(0)

    def thaw(self) -> str:
        """Thaw, and return why the volume was not frozen all the time; empty if it was."""
        try:
            self._send('thaw')
            outcome = self._expect('thawed', THAW_TIMEOUT_SEC)
        except exceptions.NotQuiescedError as error:
            return str(error)
        return outcome.removeprefix('held').removeprefix('lost ')

    def close(self) -> None:
        """Let the holder end, and with it the freeze; harmless when repeated."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(END_TIMEOUT_SEC)
        except subprocess.TimeoutExpired:
            LOG.warning('The holder of a freeze, process %s, has not ended', self._process.pid)

    def _send(self, command: str) -> None:
        try:
            os.write(_descriptor(self._process.stdin), f'{command}\n'.encode())
        except OSError as error:
            # What it has said before it ended tells more.
            if not self._readable(0):
                raise exceptions.NotQuiescedError('the holder of the freeze is gone') from error

    def _expect(self, word: str, timeout_sec: float) -> str:
        """Read a line that begins with a word, and return its rest."""
        line = self._read_line(timeout_sec)
        first, _, rest = line.partition(' ')
        if first != word:
            # A limit may have passed while nobody listened.
            raise exceptions.NotQuiescedError(
                f'The data volume is not frozen: {rest.removeprefix("lost ") or line}'
            )
        return rest

    def _read_line(self, timeout_sec: float) -> str:
        deadline = time.monotonic() + timeout_sec
        while b'\n' not in self._received:
            if not self._readable(max(deadline - time.monotonic(), 0)):
                raise exceptions.NotQuiescedError(
                    f'The holder of the freeze did not answer within {timeout_sec:g} s'
                )
            block = os.read(_descriptor(self._process.stdout), _READ_BYTES)
            if not block:
                raise exceptions.NotQuiescedError('the holder of the freeze is gone')
            self._received += block
        line, _, self._received = self._received.partition(b'\n')
        return line.decode(errors='replace')

    def _readable(self, timeout_sec: float) -> bool:
        if self._received:
            return True
        return bool(select.select([_descriptor(self._process.stdout)], [], [], timeout_sec)[0])


def _descriptor(pipe: typing.IO[bytes] | None) -> int:
    if pipe is None:
        raise ValueError('the holder was started without pipes')
    return pipe.fileno()
