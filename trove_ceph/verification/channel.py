# SPDX-License-Identifier: Apache-2.0
"""Exchange JSON documents, one per line and of bounded length, with an untrusted process.

The tenant who wrote the data that the other side reads may control it.
"""

import json
import os
import select
import time
from collections.abc import Callable
from typing import Any

from trove_ceph import exceptions

#: Limit of one line. The longest lines are a GTID set and a page of table names.
MAX_LINE_BYTES = 4 * 1024**2
_CHUNK_BYTES = 64 * 1024
_POLL_SEC = 0.5


class Channel:
    """A pair of file descriptors, one per direction; the caller closes them.

    :param watch: called twice a second while ``receive`` waits; an exception ends the wait
    """

    def __init__(
        self,
        read_from: int,
        write_to: int,
        watch: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._read_from = read_from
        self._write_to = write_to
        self._watch = watch
        self._clock = clock
        self._buffer = bytearray()

    def send(self, document: Any) -> None:
        """Send one document.

        :raises OSError: the other side has closed the channel
        """
        line = json.dumps(document).encode() + b'\n'
        while line:
            line = line[os.write(self._write_to, line) :]

    def receive(self, timeout_sec: float | None = None) -> Any:
        """Wait for one document and return it.

        :raises EOFError: the other side has closed the channel
        :raises TimeoutError: no document arrived in time
        :raises ServerFailedError: the line is too long or is not JSON
        """
        deadline = None if timeout_sec is None else self._clock() + timeout_sec
        while (end := self._buffer.find(b'\n')) < 0:
            if len(self._buffer) > MAX_LINE_BYTES:
                raise exceptions.ServerFailedError(
                    f'the confined program sent a line of more than {MAX_LINE_BYTES} bytes'
                )
            self._fill(deadline)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        return _parse(line)

    def _fill(self, deadline: float | None) -> None:
        waiting = select.poll()
        waiting.register(self._read_from, select.POLLIN)
        while not waiting.poll(_POLL_SEC * 1000):
            self._watch()
            if deadline is not None and self._clock() >= deadline:
                raise TimeoutError('the confined program did not answer in time')
        chunk = os.read(self._read_from, _CHUNK_BYTES)
        if not chunk:
            raise EOFError('the confined program has ended')
        self._buffer += chunk


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise exceptions.ServerFailedError(
            f'the confined program sent a line that is not JSON: {error}'
        ) from error
