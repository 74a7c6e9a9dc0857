# SPDX-License-Identifier: Apache-2.0
"""How much of a copy is under way at once, how fast it goes, and whether it goes on."""

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import image_types

#: Enough to keep OSDs busy. A process takes three to six times as much, for what librbd holds of it
#: and malloc keeps of what was freed.
IN_FLIGHT_BYTES = 24 * units.Mi
#: Requests are no larger, and never cross this boundary, so that each concerns one object.
PIECE_BYTES = 4 * units.Mi
#: Requests to zero carry nothing, so they may be large.
_ZERO_PIECE_BYTES = 256 * units.Mi
# Small requests are dear by their number: the OSDs have other clients.
_LEAST_COST_BYTES = 256 * 1024


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a copy is.

    :param phase: ``copying`` or ``verifying``
    :param position_bytes: everything of the image before it is done
    :param moved_bytes: what was read in this run and phase
    """

    phase: str
    position_bytes: int
    size_bytes: int
    moved_bytes: int


class Throttle:
    """The limits of one copy.

    :param in_flight_bytes: the most that is read and not yet written or compared
    :param bytes_per_sec: the most that is read in a second, of the source while it is moved and of
        the copy while it is verified; None is no limit
    :param cancel: once set, the copy ends with CanceledError
    :param progress: called in the thread of the copy, after each piece
    """

    def __init__(
        self,
        in_flight_bytes: int = IN_FLIGHT_BYTES,
        bytes_per_sec: int | None = None,
        cancel: threading.Event | None = None,
        progress: Callable[[Progress], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        if in_flight_bytes < 2 * PIECE_BYTES:
            raise ValueError(f'{in_flight_bytes} bytes in flight are less than two pieces')
        self.in_flight_bytes = in_flight_bytes
        self.progress = progress
        self._bytes_per_sec = bytes_per_sec
        self._cancel = cancel or threading.Event()
        self._clock = clock
        self._allowed_at = clock()

    def take(self, count: int) -> None:
        """Wait until the limit lets so many bytes be read.

        What was not read in the past is not made up for.

        :raises CanceledError: the copy is to end
        """
        wait_sec = 0.0
        if self._bytes_per_sec:
            now = self._clock()
            begins = max(now, self._allowed_at)
            self._allowed_at = begins + count / self._bytes_per_sec
            wait_sec = begins - now
        if self._cancel.wait(wait_sec) if wait_sec > 0 else self._cancel.is_set():
            raise exceptions.CanceledError('canceled')


def cost(piece: image_types.Extent) -> int:
    """Return what a request counts for in the bytes that are under way."""
    return max(min(piece.length, PIECE_BYTES), _LEAST_COST_BYTES)


def pieces(extents: Iterable[image_types.Extent]) -> Iterator[image_types.Extent]:
    """Cut extents into single requests."""
    for extent in extents:
        step = PIECE_BYTES if extent.exists else _ZERO_PIECE_BYTES
        offset = extent.offset
        while offset < extent.end:
            end = min((offset // step + 1) * step, extent.end)
            yield image_types.Extent(offset, end - offset, extent.exists)
            offset = end
