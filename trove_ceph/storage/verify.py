# SPDX-License-Identifier: Apache-2.0
"""Verify a copy against its source, by a checksum of the transferred data or byte for byte.

The checksum is the CRC-32 of all data of a difference, in order. It misses one in 4·10⁹ wrong
copies, but always detects two swapped blocks. It costs little compared with the transfer. Unlike a
longer digest it can be saved at any position and continued from there, so an interrupted copy does
not read its source again.
"""

import collections
import contextlib
import dataclasses
import hashlib
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.storage import backend, difference, image_types, throttle

LOG = logging.getLogger(__name__)

_ZEROS = bytes(throttle.CHUNK_BYTES)
# An extent and the readers to read it from; an extent that does not exist must read as zeros.
_ReadRequest = tuple[image_types.Extent, Sequence[backend.ImageReader]]


def checksum(data: bytes, before: int = 0) -> int:
    """Return the checksum of data appended to data with the checksum ``before``."""
    return zlib.crc32(data, before)


def verify(
    source: backend.ImageReader,
    copy: backend.ImageReader,
    since: str | None,
    expected: int,
    limits: throttle.Throttle,
    label: str,
) -> int:
    """Read a copy back and return how many bytes of it were verified.

    The data of the difference must have the checksum that it had during the transfer, and ranges
    that the source does not store must read as zeros. Ranges that changed only in the copy must
    equal the source, which is read only for those. If any check fails, source and copy are
    compared: the checksum does not show where they differ, and a wrong one does not prove that they
    differ, since Ceph may report the difference in other extents after a snapshot was removed.

    :param since: a snapshot that both have and that was verified before; None for a full copy
    :param expected: the checksum of all data of the difference
    :param label: name of the copy in the error
    :raises CorruptCopyError: they differ; the message has the first position
    :raises CanceledError: the copy was canceled
    """
    _check_sizes(source, copy, label)
    verified = 0
    found = 0
    parts = _parts_of_copy(source, copy, since)
    with contextlib.closing(_read(parts, source.size_bytes, limits)) as reads:
        for extent, (observed, *others) in reads:
            verified += extent.length
            if others:
                is_equal = observed == others[0]
            elif extent.exists:
                is_equal = True
                found = checksum(observed, found)
            else:
                is_equal = _ZEROS.startswith(observed)
            if not is_equal:
                break
        else:
            if found == expected:
                return verified
    LOG.warning('%s: its checksum differs from that of its source; comparing both', label)
    return compare(source, copy, since, limits, label)


def _parts_of_copy(
    source: backend.ImageReader, copy: backend.ImageReader, since: str | None
) -> Iterator[_ReadRequest]:
    for extent, is_stray in difference.with_strays(source, copy, since):
        if not is_stray:
            yield extent, (copy,)
        elif since is None:
            yield dataclasses.replace(extent, exists=False), (copy,)
        else:
            yield dataclasses.replace(extent, exists=True), (copy, source)


def compare(
    source: backend.ImageReader,
    copy: backend.ImageReader,
    since: str | None,
    limits: throttle.Throttle,
    label: str,
) -> int:
    """Read source and copy, and return how many bytes of each were compared.

    Objects that neither has are not read. With ``since``, a snapshot that both have and that was
    compared before, only the changes of either side after it are read.

    :param label: name of the copy in the error
    :raises CorruptCopyError: they differ; the message has the first position
    :raises CanceledError: the copy was canceled
    """
    _check_sizes(source, copy, label)
    compared = 0
    parts = ((extent, (copy, source)) for extent in difference.in_either(source, copy, since))
    with contextlib.closing(_read(parts, source.size_bytes, limits)) as reads:
        for extent, (observed, expected) in reads:
            if observed != expected:
                raise _corrupt(extent, observed, expected, label)
            compared += extent.length
    return compared


def _read(
    parts: Iterable[_ReadRequest], size_bytes: int, limits: throttle.Throttle
) -> Generator[tuple[image_types.Extent, list[bytes]], None, None]:
    """Read parts in order, in chunks, with as many requests in flight as the limits allow."""
    started: collections.deque[tuple[image_types.Extent, list[Future[bytes]]]] = collections.deque()
    in_flight = 0
    read_bytes = 0
    try:
        for extent, readers in parts:
            for chunk in throttle.chunks([dataclasses.replace(extent, exists=True)]):
                cost = len(readers) * throttle.cost(chunk)
                while started and in_flight + cost > limits.in_flight_bytes:
                    done, reads = started[0]
                    yield done, [read.result() for read in reads]
                    in_flight -= len(reads) * throttle.cost(done)
                    started.popleft()
                limits.take(chunk.length if extent.exists else 0)
                reads = [reader.read(chunk.offset, chunk.length) for reader in readers]
                started.append((dataclasses.replace(chunk, exists=extent.exists), reads))
                in_flight += cost
                read_bytes += chunk.length
                limits.progress(
                    throttle.Progress('verifying', chunk.offset, size_bytes, read_bytes)
                )
        for done, reads in started:
            yield done, [read.result() for read in reads]
    finally:
        for _, reads in started:
            for read in reads:
                read.exception()


def _check_sizes(source: backend.ImageReader, copy: backend.ImageReader, label: str) -> None:
    if source.size_bytes != copy.size_bytes:
        raise exceptions.CorruptCopyError(
            f'{label}: has {copy.size_bytes} bytes, expected {source.size_bytes} as its source'
        )


def _corrupt(
    extent: image_types.Extent, observed: bytes, expected: bytes, label: str
) -> exceptions.CorruptCopyError:
    first = next(n for n, (x, y) in enumerate(zip(observed, expected, strict=True)) if x != y)
    return exceptions.CorruptCopyError(
        f'{label}: differs from its source at byte {extent.offset + first}; BLAKE2b of the '
        f'{extent.length} bytes at {extent.offset} is {_digest(observed)}, expected '
        f'{_digest(expected)}'
    )


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
