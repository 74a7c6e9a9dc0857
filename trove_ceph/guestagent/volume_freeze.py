# SPDX-License-Identifier: Apache-2.0
"""The caller's side of :mod:`freeze_process`."""

import socket
import subprocess
import time

from oslo_log import log as logging

from trove_ceph import exceptions

LOG = logging.getLogger(__name__)

# Where processors are emulated, sudo and an interpreter take seconds.
START_TIMEOUT_SEC = 60
#: Thawing takes no time; the process that does it may have to wait for a processor.
THAW_TIMEOUT_SEC = 30
END_TIMEOUT_SEC = 10
_READ_BYTES = 4096
_GONE = 'The holder of the freeze is gone'


class VolumeFreeze:
    """One freeze of the data volume; what was not thawed is thawed when this process ends.

    :param process: runs :mod:`freeze_process`
    :param channel: the other end of its standard input and output. Not pipes: green threads repeat
        a write for ever when nobody is left to read it
    :param limit_sec: after which the holder thaws by itself
    """

    def __init__(self, process: subprocess.Popen, channel: socket.socket, limit_sec: float):
        self._process = process
        self._channel = channel
        self._limit_sec = limit_sec
        self._received = b''
        self._has_ended = False

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
        return self._process.poll() is None and not self._has_spoken()

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
        self._channel.close()
        try:
            self._process.wait(END_TIMEOUT_SEC)
        except subprocess.TimeoutExpired:
            LOG.warning('The holder of a freeze, process %s, has not ended', self._process.pid)

    def _send(self, command: str) -> None:
        self._channel.settimeout(THAW_TIMEOUT_SEC)
        try:
            self._channel.sendall(f'{command}\n'.encode())
        except OSError as error:
            # What it has said before it ended tells more.
            if not self._has_spoken():
                raise exceptions.NotQuiescedError(_GONE) from error

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
            if self._has_ended:
                raise exceptions.NotQuiescedError(_GONE)
            if not self._receive(max(deadline - time.monotonic(), 0)):
                raise exceptions.NotQuiescedError(
                    f'The holder of the freeze did not answer within {timeout_sec:g} s'
                )
        line, _, self._received = self._received.partition(b'\n')
        return line.decode(errors='replace')

    def _has_spoken(self) -> bool:
        return bool(self._received) or self._has_ended or self._receive(0)

    def _receive(self, timeout_sec: float) -> bool:
        """Wait for more, and return whether there is: words, or the end."""
        self._channel.settimeout(timeout_sec)
        try:
            block = self._channel.recv(_READ_BYTES)
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            block = b''
        self._received += block
        self._has_ended = not block
        return True
