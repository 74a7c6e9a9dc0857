# SPDX-License-Identifier: Apache-2.0
"""Ceph's binary encoding: little-endian numbers and length-prefixed data.

For requests to object classes that the Python bindings do not offer (src/include/encoding.h in
Ceph's source).
"""

import struct
from collections.abc import Mapping


class Reader:
    """Decodes an answer from its beginning."""

    _HEADER_BYTES = 1 + 1 + 4

    def __init__(self, data: bytes):
        self._data = data
        self._at = 0

    def skip(self, count: int) -> None:
        self._at += count

    def skip_header(self) -> None:
        """Skip the header of a structure: its version, its compatible version and its length."""
        self.skip(self._HEADER_BYTES)

    def skip_structure(self) -> None:
        self.skip(1 + 1)
        self.skip(self.number())

    def structure(self) -> 'Reader':
        """Return a reader of the next structure, whatever its version."""
        self.skip(1 + 1)
        length = self.number()
        content = self._data[self._at : self._at + length]
        self.skip(length)
        return Reader(content)

    def byte(self) -> int:
        self.skip(1)
        return self._data[self._at - 1]

    def number(self) -> int:
        (found,) = struct.unpack_from('<I', self._data, self._at)
        self.skip(4)
        return found

    def signed_long_number(self) -> int:
        (found,) = struct.unpack_from('<q', self._data, self._at)
        self.skip(8)
        return found

    def string(self) -> str:
        length = self.number()
        found = self._data[self._at : self._at + length]
        self.skip(length)
        return found.decode()

    def strings(self) -> dict[str, str]:
        return {self.string(): self.string() for _ in range(self.number())}


def versioned(content: bytes) -> bytes:
    """Encode a structure of version 1."""
    return struct.pack('<BBI', 1, 1, len(content)) + content


def long_number(number: int) -> bytes:
    return struct.pack('<Q', number)


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack('<I', len(data)) + data


def strings(entries: Mapping[str, str]) -> bytes:
    """Encode a map of strings."""
    pairs = [string(key) + string(value) for key, value in entries.items()]
    return struct.pack('<I', len(pairs)) + b''.join(pairs)
