# SPDX-License-Identifier: Apache-2.0
"""List the differences between two snapshots of an image, without reading their data."""

import heapq
from collections.abc import Iterator

from oslo_utils import units

from trove_ceph.storage import backend, image_types

# How much of an image is compared by its object map at once, which limits the list of objects.
_WINDOW_BYTES = 16 * 1024 * units.Mi
# How many bytes of adjacent objects are compared exactly at once.
_EXACT_BYTES = 256 * units.Mi


def extents(
    reader: backend.ImageReader, since: str | None, start: int = 0
) -> Iterator[image_types.Extent]:
    """Yield the extents that changed after a snapshot, in order, from ``start`` on.

    Objects are compared first, which is cheap, and then bytes.

    :param since: the snapshot; None yields the objects that exist
    """
    begin = start - start % reader.object_bytes
    for offset in range(begin, reader.size_bytes, _WINDOW_BYTES):
        length = min(_WINDOW_BYTES, reader.size_bytes - offset)
        for extent in reader.changed_objects(offset, length, since):
            for found in _exact_extents(reader, since, extent):
                if remaining := _after(found, start):
                    yield remaining


def _exact_extents(
    reader: backend.ImageReader, since: str | None, extent: image_types.Extent
) -> Iterator[image_types.Extent]:
    if since is None or not extent.exists:
        yield extent
        return
    for at in range(extent.offset, extent.end, _EXACT_BYTES):
        yield from reader.changes(at, min(_EXACT_BYTES, extent.end - at), since)


def _after(extent: image_types.Extent | None, offset: int) -> image_types.Extent | None:
    """Return the part of an extent after an offset, or None."""
    if extent is None or extent.end <= offset:
        return None
    start = max(extent.offset, offset)
    return image_types.Extent(start, extent.end - start, extent.exists)


def in_either(
    one: backend.ImageReader, other: backend.ImageReader, since: str | None
) -> Iterator[image_types.Extent]:
    """Yield the extents of two images together, in order and without overlap.

    Every extent counts as existing, since it may exist on either side.
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
    """Yield the extents of a source, and in between those that changed only in its copy.

    :returns: pairs of an extent and whether it changed only in the copy
    """
    strays = extents(copy, since)
    stray = next(strays, None)
    for extent in extents(source, since):
        while stray and stray.offset < extent.offset:
            end = min(stray.end, extent.offset)
            yield image_types.Extent(stray.offset, end - stray.offset), True
            stray = _after(stray, end) or next(strays, None)
        yield extent, False
        while stray and stray.offset < extent.end:
            stray = _after(stray, extent.end) or next(strays, None)
    while stray:
        yield stray, True
        stray = next(strays, None)
