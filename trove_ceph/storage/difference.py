# SPDX-License-Identifier: Apache-2.0
"""What differs between two snapshots of an image, without reading either."""

import heapq
from collections.abc import Iterator

from oslo_utils import units

from trove_ceph.storage import backend, image_types

# How much of an image is looked at in its object map at once: bounds the list of objects.
_WINDOW_BYTES = 16 * 1024 * units.Mi
# So many bytes of neighbouring objects are looked at more closely at once.
_CLOSER_BYTES = 256 * units.Mi


def extents(
    reader: backend.ImageReader, since: str | None, start: int = 0
) -> Iterator[image_types.Extent]:
    """List what changed after a snapshot, in order, from ``start`` on.

    First by object, which costs next to nothing, then to the byte. Without ``since``: what exists,
    by object.
    """
    begin = start - start % reader.object_bytes
    for offset in range(begin, reader.size_bytes, _WINDOW_BYTES):
        length = min(_WINDOW_BYTES, reader.size_bytes - offset)
        for extent in reader.changed_objects(offset, length, since):
            for found in _closer(reader, since, extent):
                if behind := _behind(found, start):
                    yield behind


def _closer(
    reader: backend.ImageReader, since: str | None, extent: image_types.Extent
) -> Iterator[image_types.Extent]:
    if since is None or not extent.exists:
        yield extent
        return
    for at in range(extent.offset, extent.end, _CLOSER_BYTES):
        yield from reader.changes(at, min(_CLOSER_BYTES, extent.end - at), since)


def _behind(extent: image_types.Extent | None, offset: int) -> image_types.Extent | None:
    """Return the part of an extent that lies behind an offset; None when there is nothing."""
    if extent is None or extent.end <= offset:
        return None
    start = max(extent.offset, offset)
    return image_types.Extent(start, extent.end - start, extent.exists)


def in_either(
    one: backend.ImageReader, other: backend.ImageReader, since: str | None
) -> Iterator[image_types.Extent]:
    """List the extents of two images together, in order and without overlap.

    Everything counts as existing, because what does not exist on one side may on the other.
    """
    end = 0
    sides = (extents(side, since) for side in (one, other))
    for extent in heapq.merge(*sides, key=lambda extent: extent.offset):
        start = max(extent.offset, end)
        if extent.end > start:
            yield image_types.Extent(start, extent.end - start)
            end = extent.end


def with_strays(
    source: backend.ImageReader, copy: backend.ImageReader, since: str | None
) -> Iterator[tuple[image_types.Extent, bool]]:
    """List the extents of a source, and between them what differs in its copy alone.

    :returns: each with whether it is one of the latter
    """
    strays = extents(copy, since)
    stray = next(strays, None)
    for extent in extents(source, since):
        while stray and stray.offset < extent.offset:
            end = min(stray.end, extent.offset)
            yield image_types.Extent(stray.offset, end - stray.offset), True
            stray = _behind(stray, end) or next(strays, None)
        yield extent, False
        while stray and stray.offset < extent.end:
            stray = _behind(stray, extent.end) or next(strays, None)
    while stray:
        yield stray, True
        stray = next(strays, None)
