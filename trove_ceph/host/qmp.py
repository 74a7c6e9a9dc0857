# SPDX-License-Identifier: Apache-2.0
"""Speak QMP, the JSON protocol by which QEMU is observed and controlled."""

import collections
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from trove_ceph import exceptions

TIMEOUT_SEC = 30.0
#: Of one message; the statistics of two disks take a few KiB.
_MAX_LINE_BYTES = 1024**2
_PIECE_BYTES = 65536
#: More events than an inspection can have; the last ones tell.
_MAX_EVENTS = 1000


class QmpClient:
    """One connection to one QEMU; threads may share it.

    Every method raises InspectionFaultError when QEMU is gone, refuses, or does not answer in time.

    :param connection: connected to the monitor; it stays the caller's
    """

    def __init__(
        self, connection: socket.socket, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._lock = threading.Lock()
        self._buffer = bytearray()
        self._is_ready = False
        self._requests = 0
        #: The names of the latest events, such as ``BLOCK_IO_ERROR``.
        self.events: collections.deque[str] = collections.deque(maxlen=_MAX_EVENTS)

    def execute(self, command: str, timeout_sec: float = TIMEOUT_SEC, **arguments: Any) -> Any:
        """Run a command and return its result."""
        deadline = self._clock() + timeout_sec
        if not self._lock.acquire(timeout=timeout_sec):
            raise exceptions.InspectionFaultError(f'QEMU: {command}: the monitor is busy')
        try:
            if not self._is_ready:
                self._receive('the greeting', deadline)
                self._exchange('qmp_capabilities', {}, deadline)
                self._is_ready = True
            return self._exchange(command, arguments, deadline)
        except OSError as error:
            raise exceptions.InspectionFaultError(f'QEMU: {command}: {error}') from error
        finally:
            self._lock.release()

    def _exchange(self, command: str, arguments: dict[str, Any], deadline: float) -> Any:
        # The answer to an earlier command may come late.
        self._requests += 1
        number = self._requests
        request = {'execute': command, 'arguments': arguments, 'id': number}
        self._connection.settimeout(max(0.0, deadline - self._clock()) or 0.001)
        self._connection.sendall(json.dumps(request).encode() + b'\n')
        while True:
            match self._receive(command, deadline):
                case {'return': result, 'id': answered} if answered == number:
                    return result
                case {'error': {'desc': text}, 'id': answered} if answered == number:
                    raise exceptions.InspectionFaultError(f'QEMU: {command}: {text}')
                case {'event': str(name)}:
                    self.events.append(name)

    def _receive(self, command: str, deadline: float) -> Any:
        while True:
            # Also between messages: QEMU may send events without end.
            left_sec = deadline - self._clock()
            if left_sec <= 0:
                raise TimeoutError('no answer in time')
            if (end := self._buffer.find(b'\n')) >= 0:
                break
            if len(self._buffer) > _MAX_LINE_BYTES:
                raise exceptions.InspectionFaultError(f'QEMU: {command}: the answer is too long')
            self._connection.settimeout(left_sec)
            piece = self._connection.recv(_PIECE_BYTES)
            if not piece:
                raise ConnectionError('QEMU is gone')
            self._buffer += piece
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise exceptions.InspectionFaultError(
                f'QEMU: {command}: the answer is not JSON: {error}'
            ) from error
