# SPDX-License-Identifier: Apache-2.0
"""One JSON document per line, in both directions, none longer than was agreed.

The other side may be in the hands of whoever wrote the data that it reads.
"""

import json
import os
import select
import time
from collections.abc import Callable
from typing import Any

from trove_ceph import exceptions

#: Of one line. The longest is a position, or a page of names of tables.
MAX_LINE_BYTES = 4 * 1024**2
_PIECE_BYTES = 64 * 1024
_POLL_SEC = 0.5


class Channel:
    """Both directions, by their descriptors; the descriptors stay the caller's.

    :param watch: called twice a second while an answer is waited for; what it raises ends that
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

        :raises OSError: nobody reads any more
        """
        line = json.dumps(document).encode() + b'\n'
        while line:
            line = line[os.write(self._write_to, line) :]

    def receive(self, timeout_sec: float | None = None) -> Any:
        """Wait for one document and return it.

        :raises EOFError: the other side is gone
        :raises TimeoutError: nothing came in time
        :raises ServerFailedError: what came is no document of ours
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
                raise TimeoutError('the confined program does not answer')
        piece = os.read(self._read_from, _PIECE_BYTES)
        if not piece:
            raise EOFError('the confined program has ended')
        self._buffer += piece


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise exceptions.ServerFailedError(
            f'the confined program sent something else than JSON: {error}'
        ) from error
