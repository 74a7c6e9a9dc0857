# SPDX-License-Identifier: Apache-2.0
"""Transfer the differences of an image to another, in order, with many requests in flight."""

import collections
import dataclasses
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import backend, difference, image_types, throttle, verify

#: A checkpoint is saved each time that so much data was written.
CHECKPOINT_BYTES = 256 * units.Mi
# Zeros are skipped in units of an InnoDB page; smaller units would split half-filled pages into
# many requests.
_BLOCK_BYTES = 16 * 1024
_ZERO_BLOCK = bytes(_BLOCK_BYTES)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A position of the image before which all data is on disk.

    :param checksum: of the source's data before the position, as ``verify`` calculates it
    :param copied_bytes: the bytes that all runs have copied of the data before the position
    """

    position_bytes: int = 0
    checksum: int = 0
    copied_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class _Chunk:
    """One read, or a range of zeros, and its writes.

    :param read: None for a range of zeros
    :param writes: started after the read has completed
    """

    extent: image_types.Extent
    read: Future[bytes] | None
    writes: list[Future[None]] = dataclasses.field(default_factory=list)

    @property
    def data_bytes(self) -> int:
        return self.extent.length if self.extent.exists else 0


class Transfer:
    """A transfer in which reads run ahead of writes, within the limit of bytes in flight.

    :param since: the snapshot whose state the writer's image has; None for an empty image, or one
        with a part of this same transfer
    :param save: called with a checkpoint from time to time, and at the end
    """

    def __init__(
        self,
        reader: backend.ImageReader,
        writer: backend.ImageWriter,
        since: str | None,
        limits: throttle.Throttle,
        save: Callable[[Checkpoint], None],
    ):
        self.copied_bytes = 0
        self.zeroed_bytes = 0
        self._reader = reader
        self._writer = writer
        self._since = since
        self._limits = limits
        self._save = save
        self._reading: collections.deque[_Chunk] = collections.deque()
        # Each with the checkpoint that is reached when it and all chunks before it are written.
        self._writing: collections.deque[tuple[_Chunk, Checkpoint]] = collections.deque()
        self._in_flight = 0
        self._unsaved_bytes = 0
        self._started = self._done = Checkpoint()

    def run(self, start: Checkpoint) -> Checkpoint:
        """Transfer everything after ``start``; return the checkpoint of the end.

        :raises CanceledError: the copy was canceled; the last checkpoint was saved
        """
        self._started = self._done = start
        position, read_bytes = start.position_bytes, 0
        try:
            for extent in throttle.chunks(difference.extents(self._reader, self._since, position)):
                self._limits.take(extent.length if extent.exists else 0)
                chunk = self._start(extent)
                position, read_bytes = extent.end, read_bytes + chunk.data_bytes
                if self._unsaved_bytes >= CHECKPOINT_BYTES:
                    self._save(self._done)
                    self._unsaved_bytes = 0
                self._limits.progress(
                    throttle.Progress('copying', position, self._reader.size_bytes, read_bytes)
                )
            return self._finish_all(self._reader.size_bytes)
        except exceptions.CanceledError:
            self._finish_all(position)
            raise
        finally:
            self._wait_for_all()

    def _wait_for_all(self) -> None:
        for chunk in [*self._reading, *(chunk for chunk, _ in self._writing)]:
            if chunk.read:
                chunk.read.exception()
            for write in chunk.writes:
                write.exception()

    def _start(self, extent: image_types.Extent) -> _Chunk:
        """Start a chunk when there is room, and advance chunks whose requests have completed."""
        while self._in_flight + throttle.cost(extent) > self._limits.in_flight_bytes:
            if self._writing:
                self._finish_next()
            else:
                self._write_next()
        self._in_flight += throttle.cost(extent)
        read = self._reader.read(extent.offset, extent.length) if extent.exists else None
        chunk = _Chunk(extent, read)
        self._reading.append(chunk)
        while self._reading and (not (read := self._reading[0].read) or read.done()):
            self._write_next()
        while self._writing and all(write.done() for write in self._writing[0][0].writes):
            self._finish_next()
        return chunk

    def _write_next(self) -> None:
        chunk = self._reading[0]
        data = chunk.read.result() if chunk.read else b''
        self._reading.popleft()
        parts = list(runs(data))
        copied_bytes = sum(end - start for start, end, is_zero in parts if not is_zero)
        self.copied_bytes += copied_bytes
        self._started = Checkpoint(
            chunk.extent.end,
            verify.checksum(data, self._started.checksum),
            self._started.copied_bytes + copied_bytes,
        )
        self._writing.append((chunk, self._started))
        if not chunk.read:
            self._zero(chunk, 0, chunk.extent.length)
        for start, end, is_zero in parts:
            if is_zero:
                self._zero(chunk, start, end)
            else:
                part = data if end - start == len(data) else data[start:end]
                chunk.writes.append(self._writer.write(chunk.extent.offset + start, part))

    def _zero(self, chunk: _Chunk, start: int, end: int) -> None:
        if self._since is not None:
            self.zeroed_bytes += end - start
            chunk.writes.append(self._writer.zero(chunk.extent.offset + start, end - start))

    def _finish_next(self) -> None:
        chunk, checkpoint = self._writing[0]
        for write in chunk.writes:
            write.result()
        self._writing.popleft()
        self._in_flight -= throttle.cost(chunk.extent)
        self._unsaved_bytes += chunk.data_bytes
        self._done = checkpoint

    def _finish_all(self, position: int) -> Checkpoint:
        while self._reading:
            self._write_next()
        while self._writing:
            self._finish_next()
        self._writer.flush()
        reached = dataclasses.replace(self._done, position_bytes=position)
        self._save(reached)
        return reached


def runs(data: bytes) -> Iterator[tuple[int, int, bool]]:
    """Yield (start, end, is_zero) of consecutive blocks that are all zero, or all not."""
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
