# SPDX-License-Identifier: Apache-2.0
"""Move what differs from one image to another, in order, with much under way at once."""

import collections
import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import backend, difference, image_types, throttle, verify

#: After so much was moved, what is on disk is remembered.
MARK_BYTES = 256 * units.Mi
# Zeros are left out by the page of InnoDB: finer, half-filled pages would become many requests.
_BLOCK_BYTES = 16 * 1024
_ZERO_BLOCK = bytes(_BLOCK_BYTES)


@dataclasses.dataclass(frozen=True)
class Mark:
    """A place of the image before which everything is on disk.

    :param checksum: of what was read of the source before it, as ``verify`` calculates it
    """

    position_bytes: int = 0
    checksum: int = 0


@dataclasses.dataclass(frozen=True)
class _Piece:
    """One request for data, or for zeros, and what became of it.

    :param read: None where nothing is stored
    :param writes: begun when the read has ended
    """

    extent: image_types.Extent
    read: Future[bytes] | None
    writes: list[Future[None]] = dataclasses.field(default_factory=list)

    @property
    def data_bytes(self) -> int:
        return self.extent.length if self.extent.exists else 0


class Transfer:
    """Reads run ahead of writes; both together hold no more than the limits allow.

    :param since: the snapshot at which the writer's image is; None for an empty image, or one with
        a part of this same transfer
    :param remember: called with a mark now and then, and at the end
    """

    def __init__(
        self,
        reader: backend.ImageReader,
        writer: backend.ImageWriter,
        since: str | None,
        limits: throttle.Throttle,
        remember: Callable[[Mark], None],
    ):
        self.copied_bytes = 0
        self.zeroed_bytes = 0
        self._reader = reader
        self._writer = writer
        self._since = since
        self._limits = limits
        self._remember = remember
        self._reading: collections.deque[_Piece] = collections.deque()
        # Each with the mark that is reached when it and all before it have ended.
        self._writing: collections.deque[tuple[_Piece, Mark]] = collections.deque()
        self._in_flight = 0
        self._unmarked_bytes = 0
        self._begun = self._done = Mark()

    def run(self, start: Mark) -> Mark:
        """Move all that lies behind ``start``; return the mark of the end.

        :raises CanceledError: it was asked to stop; what is on disk was marked
        """
        self._begun = self._done = start
        position, read_bytes = start.position_bytes, 0
        try:
            for extent in throttle.pieces(difference.extents(self._reader, self._since, position)):
                self._limits.take(extent.length if extent.exists else 0)
                piece = self._begin(extent)
                position, read_bytes = extent.end, read_bytes + piece.data_bytes
                if self._unmarked_bytes >= MARK_BYTES:
                    self._remember(self._done)
                    self._unmarked_bytes = 0
                self._limits.progress(
                    throttle.Progress('copying', position, self._reader.size_bytes, read_bytes)
                )
            return self._settle(self._reader.size_bytes)
        except exceptions.CanceledError:
            self._settle(position)
            raise
        finally:
            self._wait_for_all()

    def _wait_for_all(self) -> None:
        for piece in [*self._reading, *(piece for piece, _ in self._writing)]:
            if piece.read:
                piece.read.exception()
            for write in piece.writes:
                write.exception()

    def _begin(self, extent: image_types.Extent) -> _Piece:
        """Begin with a piece when there is room, and go on with those that can go on."""
        while self._in_flight + throttle.cost(extent) > self._limits.in_flight_bytes:
            if self._writing:
                self._end_next()
            else:
                self._write_next()
        self._in_flight += throttle.cost(extent)
        read = self._reader.read(extent.offset, extent.length) if extent.exists else None
        piece = _Piece(extent, read)
        self._reading.append(piece)
        while self._reading and (not (read := self._reading[0].read) or read.done()):
            self._write_next()
        while self._writing and all(write.done() for write in self._writing[0][0].writes):
            self._end_next()
        return piece

    def _write_next(self) -> None:
        piece = self._reading[0]
        data = piece.read.result() if piece.read else b''
        self._reading.popleft()
        checksum = verify.checksum(data, self._begun.checksum)
        self._begun = Mark(piece.extent.end, checksum)
        self._writing.append((piece, self._begun))
        if not piece.read:
            self._zero(piece, 0, piece.extent.length)
        for start, end, is_zero in runs(data):
            if is_zero:
                self._zero(piece, start, end)
            else:
                part = data if end - start == len(data) else data[start:end]
                self.copied_bytes += len(part)
                piece.writes.append(self._writer.write(piece.extent.offset + start, part))

    def _zero(self, piece: _Piece, start: int, end: int) -> None:
        if self._since is not None:
            self.zeroed_bytes += end - start
            piece.writes.append(self._writer.zero(piece.extent.offset + start, end - start))

    def _end_next(self) -> None:
        piece, mark = self._writing[0]
        for write in piece.writes:
            write.result()
        self._writing.popleft()
        self._in_flight -= throttle.cost(piece.extent)
        self._unmarked_bytes += piece.data_bytes
        self._done = mark

    def _settle(self, position: int) -> Mark:
        while self._reading:
            self._write_next()
        while self._writing:
            self._end_next()
        self._writer.flush()
        reached = Mark(position, self._done.checksum)
        self._remember(reached)
        return reached


def runs(data: bytes) -> Iterator[tuple[int, int, bool]]:
    """Divide data into runs of blocks that are zero and of blocks that are not."""
    begin, was_zero = 0, False
    for start in range(0, len(data), _BLOCK_BYTES):
        block = data[start : start + _BLOCK_BYTES] if data[start] == 0 else b''
        is_zero = bool(block) and block == _ZERO_BLOCK[: len(block)]
        if start and is_zero != was_zero:
            yield begin, start, was_zero
            begin = start
        was_zero = is_zero
    if data:
        yield begin, len(data), was_zero
