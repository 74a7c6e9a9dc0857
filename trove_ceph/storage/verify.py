# SPDX-License-Identifier: Apache-2.0
"""Compare a copy with its source, byte for byte."""

import collections
import hashlib
from concurrent.futures import Future

from trove_ceph import exceptions
from trove_ceph.storage import backend, difference, flow, model

_Pair = tuple[model.Extent, Future[bytes], Future[bytes]]


def compare(
    source: backend.ImageReader,
    copy: backend.ImageReader,
    since: str | None,
    limits: flow.Flow,
    label: str,
) -> int:
    """Read both and return how many bytes of each were compared.

    Objects that neither has are not read. With ``since``, a snapshot that both have and that was
    compared before, only that is read which either side has changed after it, whoever did it.

    :param label: what the error calls the copy
    :raises CorruptCopyError: they differ; the message tells the first place
    :raises CanceledError: it was asked to stop
    """
    if source.size_bytes != copy.size_bytes:
        raise exceptions.CorruptCopyError(
            f'{label}: has {copy.size_bytes} bytes, its source {source.size_bytes}'
        )
    compared = 0
    pairs: collections.deque[_Pair] = collections.deque()
    try:
        for piece in flow.pieces(difference.in_either(source, copy, since)):
            limits.take(piece.length)
            while (len(pairs) + 1) * 2 * flow.PIECE_BYTES > limits.in_flight_bytes:
                _check(pairs.popleft(), label)
            reads = (source.read(piece.offset, piece.length), copy.read(piece.offset, piece.length))
            pairs.append((piece, *reads))
            compared += piece.length
            limits.progress(flow.Progress('verifying', piece.offset, source.size_bytes, compared))
        while pairs:
            _check(pairs.popleft(), label)
    finally:
        for _, *begun in pairs:
            for future in begun:
                future.exception()
    return compared


def _check(pair: _Pair, label: str) -> None:
    piece, source_read, copy_read = pair
    expected, observed = source_read.result(), copy_read.result()
    if expected == observed:
        return
    first = next(n for n, (x, y) in enumerate(zip(expected, observed, strict=True)) if x != y)
    raise exceptions.CorruptCopyError(
        f'{label}: differs from its source at byte {piece.offset + first}; BLAKE2b of the '
        f'{piece.length} bytes at {piece.offset} is {_digest(observed)}, expected '
        f'{_digest(expected)}'
    )


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
