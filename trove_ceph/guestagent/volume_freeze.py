# SPDX-License-Identifier: Apache-2.0
"""The client of :mod:`freeze_process`."""

import socket
import subprocess
import time

from oslo_log import log as logging

from trove_ceph import exceptions

LOG = logging.getLogger(__name__)

# On emulated processors, sudo and an interpreter take seconds to start.
START_TIMEOUT_SEC = 60
#: Thawing is instant, but the process may have to wait for a processor.
THAW_TIMEOUT_SEC = 30
END_TIMEOUT_SEC = 10
_READ_BYTES = 4096
_GONE = 'The freeze process has ended'


class VolumeFreeze:
    """One freeze of the data volume; the end of this process thaws it.

    :param process: the process that runs :mod:`freeze_process`
    :param channel: socket connected to its standard input and output. Not pipes, because green
        threads repeat a write to a pipe without a reader for ever
    :param limit_sec: time after which the freeze process thaws by itself
    """

    def __init__(self, process: subprocess.Popen, channel: socket.socket, limit_sec: float):
        self._process = process
        self._channel = channel
        self._limit_sec = limit_sec
        self._received = b''
        self._has_ended = False

    def wait_until_ready(self) -> None:
        """Wait until the process is ready to freeze at once; nothing is frozen yet.

        :raises NotQuiescedError: the volume cannot be frozen, or the process did not start in time
        """
        self._expect('ready', START_TIMEOUT_SEC)

    def freeze(self) -> float:
        """Freeze the volume and return the duration in seconds; blocks for at most the limit.

        :raises NotQuiescedError: the volume is not frozen, or will thaw as soon as possible
        """
        self._send('freeze')
        return float(self._expect('frozen', self._limit_sec))

    def is_frozen(self) -> bool:
        """Return whether the volume is still frozen after :meth:`freeze`."""
        return self._process.poll() is None and not self._has_message()

    def thaw(self) -> str:
        """Thaw; return why the volume was not frozen all the time, or an empty text."""
        try:
            self._send('thaw')
            outcome = self._expect('thawed', THAW_TIMEOUT_SEC)
        except exceptions.NotQuiescedError as error:
            return str(error)
        return outcome.removeprefix('held').removeprefix('lost ')

    def close(self) -> None:
        """End the process, and with it the freeze; idempotent."""
        self._channel.close()
        try:
            self._process.wait(END_TIMEOUT_SEC)
        except subprocess.TimeoutExpired:
            LOG.warning(
                'The freeze process %s has not ended after %s s',
                *(self._process.pid, END_TIMEOUT_SEC),
            )

    def _send(self, command: str) -> None:
        self._channel.settimeout(THAW_TIMEOUT_SEC)
        try:
            self._channel.sendall(f'{command}\n'.encode())
        except OSError as error:
            # A message from before its end gives the reason.
            if not self._has_message():
                raise exceptions.NotQuiescedError(_GONE) from error

    def _expect(self, word: str, timeout_sec: float) -> str:
        """Read a line that begins with a word, and return the rest of it."""
        line = self._read_line(timeout_sec)
        first, _, rest = line.partition(' ')
        if first != word:
            # The process may have reached its limit before.
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
                    f'The freeze process did not answer within {timeout_sec:g} s'
                )
        line, _, self._received = self._received.partition(b'\n')
        return line.decode(errors='replace')

    def _has_message(self) -> bool:
        return bool(self._received) or self._has_ended or self._receive(0)

    def _receive(self, timeout_sec: float) -> bool:
        """Wait for data or the end of the stream; return whether either arrived."""
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
