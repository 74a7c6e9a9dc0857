# SPDX-License-Identifier: Apache-2.0
"""The watch of the data volume, which ends a server that is cut off from it.

The process that does it (:mod:`~trove_ceph.host.volume_watch_process`) works on its own: the agent
may hang together with the volume. This module only starts it, and logs its reports.
"""

import socket
import subprocess
import time
from collections.abc import Callable

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

_END_TIMEOUT_SEC = 10
_READ_BYTES = 4096

Start = Callable[[], tuple[subprocess.Popen, socket.socket]]


class VolumeWatch:
    """At most one process that watches the volume.

    :param start: starts the process; returns it and the socket to its standard input and output
    :param clock: seconds of a monotonic clock
    """

    def __init__(self, start: Start, clock: Callable[[], float] = time.monotonic):
        self._start = start
        self._clock = clock
        self._paused_until = clock()
        self._process: subprocess.Popen | None = None
        self._channel: socket.socket | None = None
        self._received = b''

    def ensure_running(self) -> None:
        """Start the process unless it runs or is paused, and log what it has reported; idempotent.

        :raises StorageCommandError: the process cannot be started
        """
        self._log_reports()
        if self._process is not None and self._process.poll() is not None:
            LOG.warning('The watch of the volume has ended with %s', self._process.returncode)
            self._close()
        if self._process is None and self._clock() >= self._paused_until:
            self._process, self._channel = self._start()

    def pause(self, seconds: float) -> None:
        """End the process, which keeps a file of the volume open; start none for this time."""
        self._paused_until = self._clock() + seconds
        self._log_reports()
        self._close()

    def _close(self) -> None:
        process, self._process = self._process, None
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._received = b''
        if process is None:
            return
        try:
            process.wait(_END_TIMEOUT_SEC)
        except subprocess.TimeoutExpired:
            # It ends with the write that hangs.
            LOG.warning(
                'The watch of the volume, process %s, has not ended after %s s',
                *(process.pid, _END_TIMEOUT_SEC),
            )

    def _log_reports(self) -> None:
        while self._channel is not None and self._receive():
            *lines, self._received = self._received.split(b'\n')
            for line in lines:
                _log(line.decode(errors='replace'))

    def _receive(self) -> bool:
        """Read the waiting output of the process; return whether there was any."""
        assert self._channel is not None
        self._channel.settimeout(0)
        try:
            block = self._channel.recv(_READ_BYTES)
        except OSError:
            return False
        self._received += block
        return bool(block)


def _log(report: str) -> None:
    if report.startswith(('lost ', 'failed ')):
        LOG.error('The watch of the data volume reports: %s', report)
    else:
        LOG.info('The watch of the data volume reports: %s', report)
