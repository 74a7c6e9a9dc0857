# SPDX-License-Identifier: Apache-2.0
"""Hold a copy against its source: by a checksum of what was moved, or byte for byte.

The checksum is the CRC-32 of all data of a difference, in its order. It lets one in 4·10⁹ wrong
copies pass; blocks in each other's place are not among them. It costs little beside moving the
data, and unlike longer digests it can be written down anywhere and gone on with from there, so a
copy that was interrupted does not read its source again.
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

_ZEROS = bytes(throttle.PIECE_BYTES)
# A part of an image, and what it is read from; one that does not exist must read as zeros.
_Part = tuple[image_types.Extent, Sequence[backend.ImageReader]]


def checksum(data: bytes, before: int = 0) -> int:
    """Return the checksum of data that follows on data with the checksum ``before``."""
    return zlib.crc32(data, before)


def verify(
    source: backend.ImageReader,
    copy: backend.ImageReader,
    since: str | None,
    expected: int,
    limits: throttle.Throttle,
    label: str,
) -> int:
    """Read a copy back and return how many bytes of it were held against its source.

    The data of the difference must have the checksum that it had when it was moved, and what the
    source does not store must read as zeros. What changed in the copy alone, whoever did it, must
    be as in the source, which is read only for that. Where anything is not so, both are compared:
    the checksum does not tell where they differ, nor whether the difference is told in the same
    way as before; it may not be where a snapshot was removed in the meantime.

    :param since: a snapshot that both have and that was verified before; None for a full copy
    :param expected: the checksum of all data of the difference
    :param label: what the error calls the copy
    :raises CorruptCopyError: they differ; the message tells the first place
    :raises CanceledError: it was asked to stop
    """
    _check_sizes(source, copy, label)
    verified = 0
    found = 0
    parts = _parts_of_copy(source, copy, since)
    with contextlib.closing(_read(parts, source.size_bytes, limits)) as reads:
        for extent, (observed, *others) in reads:
            verified += extent.length
            if others:
                is_right = observed == others[0]
            elif extent.exists:
                is_right = True
                found = checksum(observed, found)
            else:
                is_right = _ZEROS.startswith(observed)
            if not is_right:
                break
        else:
            if found == expected:
                return verified
    LOG.warning('%s does not hold what was read of its source; comparing the two', label)
    return compare(source, copy, since, limits, label)


def _parts_of_copy(
    source: backend.ImageReader, copy: backend.ImageReader, since: str | None
) -> Iterator[_Part]:
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
    """Read both and return how many bytes of each were compared.

    Objects that neither has are not read. With ``since``, a snapshot that both have and that was
    compared before, only that is read which either side has changed after it, whoever did it.

    :param label: what the error calls the copy
    :raises CorruptCopyError: they differ; the message tells the first place
    :raises CanceledError: it was asked to stop
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
    parts: Iterable[_Part], size_bytes: int, limits: throttle.Throttle
) -> Generator[tuple[image_types.Extent, list[bytes]], None, None]:
    """Read parts in order, in pieces, with as much under way at once as the limits allow."""
    begun: collections.deque[tuple[image_types.Extent, list[Future[bytes]]]] = collections.deque()
    in_flight = 0
    read_bytes = 0
    try:
        for extent, readers in parts:
            for piece in throttle.pieces([dataclasses.replace(extent, exists=True)]):
                cost = len(readers) * throttle.cost(piece)
                while begun and in_flight + cost > limits.in_flight_bytes:
                    done, reads = begun[0]
                    yield done, [read.result() for read in reads]
                    in_flight -= len(reads) * throttle.cost(done)
                    begun.popleft()
                limits.take(piece.length if extent.exists else 0)
                reads = [reader.read(piece.offset, piece.length) for reader in readers]
                begun.append((dataclasses.replace(piece, exists=extent.exists), reads))
                in_flight += cost
                read_bytes += piece.length
                limits.progress(
                    throttle.Progress('verifying', piece.offset, size_bytes, read_bytes)
                )
        for done, reads in begun:
            yield done, [read.result() for read in reads]
    finally:
        for _, reads in begun:
            for read in reads:
                read.exception()


def _check_sizes(source: backend.ImageReader, copy: backend.ImageReader, label: str) -> None:
    if source.size_bytes != copy.size_bytes:
        raise exceptions.CorruptCopyError(
            f'{label}: has {copy.size_bytes} bytes, its source {source.size_bytes}'
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
