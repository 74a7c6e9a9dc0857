# SPDX-License-Identifier: Apache-2.0
"""What librados does not offer of the OSDs' advisory locks, in their own encoding.

A lock is an attribute of an object, which the object class ``lock`` keeps (src/cls/lock in Ceph's
source). librados takes and renews locks, but cannot make a request depend on one, nor tell who
holds it to Python.
"""

import struct

from trove_ceph.storage import ledger

_EXCLUSIVE = 1
# Expiry, as seconds and nanoseconds.
_TIME = struct.Struct('<II')


def attribute(lock_name: str) -> str:
    """Name the attribute that is the lock."""
    return f'lock.{lock_name}'


def assert_locked(lock_name: str, cookie: str) -> bytes:
    """Return the argument of ``assert_locked``, which answers EBUSY where the lock is not ours."""
    tag = ''
    return _versioned(_string(lock_name) + bytes([_EXCLUSIVE]) + _string(cookie) + _string(tag))


def get_info(lock_name: str) -> bytes:
    """Return the argument of ``get_info``."""
    return _versioned(_string(lock_name))


def read_holder(answer: bytes) -> ledger.Holder | None:
    """Read the answer of ``get_info``, which leaves out who let the lock expire."""
    reader = _Reader(answer)
    reader.skip_header()
    if reader.number() == 0:
        return None
    reader.skip_header()
    # The client's type and number.
    reader.skip(1 + 8)
    cookie = reader.string()
    reader.skip_header()
    reader.skip(_TIME.size)
    # The client's address: a marker of its encoding, then a structure.
    reader.skip(1)
    reader.skip_structure()
    return ledger.Holder(cookie, reader.string())


class _Reader:
    """Ceph's encoding: little-endian numbers, and lengths before what has one."""

    _HEADER_BYTES = 1 + 1 + 4

    def __init__(self, data: bytes):
        self._data = data
        self._at = 0

    def skip(self, count: int) -> None:
        self._at += count

    def skip_header(self) -> None:
        """Enter a structure, which begins with its version, the oldest it fits, and its length."""
        self.skip(self._HEADER_BYTES)

    def skip_structure(self) -> None:
        self.skip(1 + 1)
        self.skip(self.number())

    def number(self) -> int:
        (found,) = struct.unpack_from('<I', self._data, self._at)
        self.skip(4)
        return found

    def string(self) -> str:
        length = self.number()
        found = self._data[self._at : self._at + length]
        self.skip(length)
        return found.decode()


def _versioned(content: bytes) -> bytes:
    return struct.pack('<BBI', 1, 1, len(content)) + content


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack('<I', len(data)) + data
