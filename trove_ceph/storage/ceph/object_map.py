# SPDX-License-Identifier: Apache-2.0
"""Decode the object map of an image.

The map is an object beside the image's header. It has two bits for each data object of the image,
the first in the highest bits of a byte (src/common/bit_vector.hpp and src/librbd/object_map in
Ceph's source). The Python binding of librbd returns differences between snapshots, but not the map.
"""

import struct
from collections.abc import Iterator

# The header: its length, its version, its compatible version, its length again, and the entries.
_HEADER = struct.Struct('<IBBIQ')
_BITS = 2
_PER_BYTE = 8 // _BITS
_MASK = 2**_BITS - 1
# OBJECT_EXISTS, and OBJECT_EXISTS_CLEAN if it is unchanged since the latest snapshot.
_EXIST = (1, 3)


def object_name(image_id: str, snapshot_id: int | None = None) -> str:
    """Return the name of the object with the map of an image, or of a snapshot of it."""
    name = f'rbd_object_map.{image_id}'
    return name if snapshot_id is None else f'{name}.{snapshot_id:016x}'


def marked(data: bytes) -> Iterator[int]:
    """Yield the numbers of the objects that are marked as existing in a map.

    Objects beyond the end of a truncated map are not marked; librbd ignores such a map.
    """
    count = _HEADER.unpack_from(data)[-1] if len(data) >= _HEADER.size else 0
    for number in range(min(count, (len(data) - _HEADER.size) * _PER_BYTE)):
        byte, position = divmod(number, _PER_BYTE)
        shift = (_PER_BYTE - 1 - position) * _BITS
        if data[_HEADER.size + byte] >> shift & _MASK in _EXIST:
            yield number
