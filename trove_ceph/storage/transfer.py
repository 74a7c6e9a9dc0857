# SPDX-License-Identifier: Apache-2.0
"""Move what differs from one image to another, in order, with much under way at once."""

import collections
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from trove_ceph import exceptions
from trove_ceph.storage import backend, difference, flow, model

#: After so much was moved, what is on disk is remembered.
MARK_BYTES = 256 * model.MIB
# Zeros are left out by the page of InnoDB: finer, half-filled pages would become many requests.
_BLOCK_BYTES = 16 * 1024
_ZERO_BLOCK = bytes(_BLOCK_BYTES)


class Transfer:
    """Reads run ahead of writes; both together hold no more than the limits allow.

    :param since: the snapshot at which the writer's image is; None for an empty image, or one with
        a part of this same transfer
    :param mark: called with a position before which everything is on disk
    """

    def __init__(
        self,
        reader: backend.ImageReader,
        writer: backend.ImageWriter,
        since: str | None,
        limits: flow.Flow,
        mark: Callable[[int], None],
    ):
        self.copied_bytes = 0
        self.zeroed_bytes = 0
        self._reader = reader
        self._writer = writer
        self._since = since
        self._limits = limits
        self._mark = mark
        self._reads: collections.deque[tuple[model.Extent, Future[bytes]]] = collections.deque()
        # With what each holds of the bytes in flight.
        self._writes: collections.deque[tuple[int, Future[None]]] = collections.deque()
        self._in_flight = 0

    def run(self, start: int) -> None:
        """Move all that lies behind ``start``, and mark the end.

        :raises CanceledError: it was asked to stop; what is on disk was marked
        """
        position = start
        marked_at = 0
        read_bytes = 0
        try:
            for piece in flow.pieces(difference.extents(self._reader, self._since, start)):
                self._limits.take(piece.length if piece.exists else 0)
                self._begin(piece)
                position = piece.end
                read_bytes += piece.length if piece.exists else 0
                if read_bytes - marked_at >= MARK_BYTES:
                    self._settle(position)
                    marked_at = read_bytes
                self._limits.progress(
                    flow.Progress('copying', position, self._reader.size_bytes, read_bytes)
                )
            self._settle(self._reader.size_bytes)
        except exceptions.CanceledError:
            self._settle(position)
            raise
        finally:
            self._wait_for_all()

    def _wait_for_all(self) -> None:
        for _, read in self._reads:
            read.exception()
        for _, write in self._writes:
            write.exception()

    def _begin(self, piece: model.Extent) -> None:
        self._make_room(min(piece.length, flow.PIECE_BYTES))
        if piece.exists:
            self._in_flight += piece.length
            self._reads.append((piece, self._reader.read(piece.offset, piece.length)))
        else:
            self._zero(piece.offset, piece.length)
        while self._reads and self._reads[0][1].done():
            self._write_next()

    def _make_room(self, count: int) -> None:
        while self._in_flight + count > self._limits.in_flight_bytes:
            if self._writes:
                self._end_write()
            else:
                self._write_next()

    def _write_next(self) -> None:
        piece, read = self._reads.popleft()
        data = read.result()
        self._in_flight -= piece.length
        for start, end, is_zero in runs(data):
            if is_zero:
                self._zero(piece.offset + start, end - start)
            else:
                part = data if end - start == len(data) else data[start:end]
                self.copied_bytes += len(part)
                self._note_write(len(part), self._writer.write(piece.offset + start, part))

    def _zero(self, offset: int, length: int) -> None:
        if self._since is not None:
            self.zeroed_bytes += length
            # It holds no data, but there should not be any number of them.
            cost = min(length, flow.PIECE_BYTES)
            self._note_write(cost, self._writer.zero(offset, length))

    def _note_write(self, cost: int, future: Future[None]) -> None:
        self._in_flight += cost
        self._writes.append((cost, future))

    def _end_write(self) -> None:
        cost, write = self._writes.popleft()
        write.result()
        self._in_flight -= cost

    def _settle(self, position: int) -> None:
        while self._reads:
            self._write_next()
        while self._writes:
            self._end_write()
        self._writer.flush()
        self._mark(position)


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
