# SPDX-License-Identifier: Apache-2.0
"""The object map of an image, in Ceph's own encoding.

An object beside the image's header, with two bits for each object of its data, the first in the
highest bits of a byte (src/common/bit_vector.hpp, src/librbd/object_map in Ceph's source). librbd
shows to Python what differs between snapshots, and not what the map says.
"""

import struct
from collections.abc import Iterator

# The length of the header, its version, the oldest it fits, its length again, and the entries.
_HEADER = struct.Struct('<IBBIQ')
_BITS = 2
_PER_BYTE = 8 // _BITS
_MASK = 2**_BITS - 1
# OBJECT_EXISTS, and OBJECT_EXISTS_CLEAN where it is as in the latest snapshot.
_EXIST = (1, 3)


def object_name(image_id: str) -> str:
    """Name the object that holds the map of an image as it is now."""
    return f'rbd_object_map.{image_id}'


def marked(data: bytes) -> Iterator[int]:
    """List the numbers of the objects that exist as a map has it.

    One that is cut short has none beyond its end: librbd does not believe it at all.
    """
    count = _HEADER.unpack_from(data)[-1] if len(data) >= _HEADER.size else 0
    for number in range(min(count, (len(data) - _HEADER.size) * _PER_BYTE)):
        at, place = divmod(number, _PER_BYTE)
        shift = (_PER_BYTE - 1 - place) * _BITS
        if data[_HEADER.size + at] >> shift & _MASK in _EXIST:
            yield number
