# SPDX-License-Identifier: Apache-2.0
"""Limit the bytes in flight and the rate of a copy, report its progress and cancel it."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import image_types

#: Enough to keep OSDs busy. The process uses three to six times as much memory, since librbd holds
#: copies and malloc does not return freed memory at once.
IN_FLIGHT_BYTES = 24 * units.Mi
#: Maximum size of a request, and a boundary that no request crosses, so that each is on one object.
CHUNK_BYTES = 4 * units.Mi
#: Requests to zero carry no data, so they may be large.
_ZERO_CHUNK_BYTES = 256 * units.Mi
# The cost of a small request: many of them would load the OSDs, which have other clients.
_LEAST_COST_BYTES = 256 * 1024


@dataclasses.dataclass(frozen=True)
class Progress:
    """The progress of a copy.

    :param phase: ``copying`` or ``verifying``
    :param position_bytes: position of the image before which everything is done
    :param moved_bytes: bytes read in this run and phase
    """

    phase: str
    position_bytes: int
    size_bytes: int
    moved_bytes: int


class Throttle:
    """The limits of one copy.

    :param in_flight_bytes: maximum of bytes that are read and not yet written or compared
    :param bytes_per_sec: read rate, of the source while copying and of the copy while verifying;
        None is no limit
    :param cancel: once set, the copy ends with CanceledError
    :param progress: called in the thread of the copy, after each chunk
    """

    def __init__(
        self,
        in_flight_bytes: int = IN_FLIGHT_BYTES,
        bytes_per_sec: int | None = None,
        cancel: threading.Event | None = None,
        progress: Callable[[Progress], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        if in_flight_bytes < 2 * CHUNK_BYTES:
            raise ValueError(
                f'in_flight_bytes {in_flight_bytes}: must be at least {2 * CHUNK_BYTES}'
            )
        self.in_flight_bytes = in_flight_bytes
        self.progress = progress
        self._bytes_per_sec = bytes_per_sec
        self._cancel = cancel or threading.Event()
        self._clock = clock
        self._allowed_at = clock()

    def take(self, count: int) -> None:
        """Wait until the rate limit allows reading ``count`` bytes.

        Unused rate of the past is not made up for.

        :raises CanceledError: the copy was canceled
        """
        wait_sec = 0.0
        if self._bytes_per_sec:
            now = self._clock()
            begins = max(now, self._allowed_at)
            self._allowed_at = begins + count / self._bytes_per_sec
            wait_sec = begins - now
        if self._cancel.wait(wait_sec) if wait_sec > 0 else self._cancel.is_set():
            raise exceptions.CanceledError('canceled')


def cost(chunk: image_types.Extent) -> int:
    """Return the bytes that a request counts as in flight."""
    return max(min(chunk.length, CHUNK_BYTES), _LEAST_COST_BYTES)


def chunks(extents: Iterable[image_types.Extent]) -> Iterator[image_types.Extent]:
    """Split extents into requests."""
    for extent in extents:
        step = CHUNK_BYTES if extent.exists else _ZERO_CHUNK_BYTES
        offset = extent.offset
        while offset < extent.end:
            end = min((offset // step + 1) * step, extent.end)
            yield image_types.Extent(offset, end - offset, extent.exists)
            offset = end
