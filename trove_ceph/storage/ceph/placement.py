# SPDX-License-Identifier: Apache-2.0
"""Compute the placement group of an object.

Ceph hashes the name of an object with Robert Jenkins' function of 1996, which is in the public
domain (http://burtleburtle.net/bob/hash/evahash.html; src/common/ceph_hash.cc), and maps the result
to the number of placement groups (ceph_stable_mod in src/include/rados.h).
"""

import itertools
import struct

_GOLDEN_RATIO = 0x9E3779B9
_WORD = 0xFFFFFFFF


def one_object_per_group(groups: int) -> list[str]:
    """Return object names such that one is in each of a pool's placement groups.

    The objects do not exist.

    :param groups: number of placement groups of the pool
    """
    names: dict[int, str] = {}
    candidates = (f'trove_ceph.nothing.{number}' for number in itertools.count())
    while len(names) < groups:
        name = next(candidates)
        names.setdefault(group_of(name, groups), name)
    return list(names.values())


def group_of(name: str, groups: int) -> int:
    """Return the number of the placement group of an object without namespace and locator."""
    mask = (1 << (groups - 1).bit_length()) - 1
    value = _hash(name.encode())
    return value & mask if value & mask < groups else value & (mask >> 1)


def _hash(key: bytes) -> int:
    a = b = _GOLDEN_RATIO
    c = 0
    whole = len(key) // 12 * 12
    for x, y, z in struct.iter_unpack('<III', key[:whole]):
        a, b, c = _mix(a + x, b + y, c + z)
    # The rest fills a, b and the upper three bytes of c, whose lowest byte is the length.
    rest = key[whole:].ljust(12, b'\0')
    x, y = struct.unpack_from('<II', rest)
    z = int.from_bytes(rest[8:11], 'little') << 8
    return _mix(a + x, b + y, c + len(key) + z)[2]


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    for first, second, third in ((13, 8, 13), (12, 16, 5), (3, 10, 15)):
        a = (a - b - c & _WORD) ^ ((c & _WORD) >> first)
        b = (b - c - a & _WORD) ^ (a << second & _WORD)
        c = (c - a - b & _WORD) ^ (b >> third)
    return a, b, c
