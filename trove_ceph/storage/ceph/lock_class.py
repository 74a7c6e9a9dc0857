# SPDX-License-Identifier: Apache-2.0
"""What librados does not offer of the OSDs' advisory locks, in their own encoding.

A lock is an attribute of an object, which the object class ``lock`` keeps (src/cls/lock in Ceph's
source). librados takes and renews locks, but cannot make a request depend on one, nor tell who
holds it to Python.
"""

import struct

from trove_ceph.storage import ledger
from trove_ceph.storage.ceph import encoding

_EXCLUSIVE = 1
# Expiry, as seconds and nanoseconds.
_TIME = struct.Struct('<II')


def attribute(lock_name: str) -> str:
    """Name the attribute that is the lock."""
    return f'lock.{lock_name}'


def assert_locked(lock_name: str, cookie: str) -> bytes:
    """Return the argument of ``assert_locked``, which answers EBUSY where the lock is not ours."""
    tag = ''
    return encoding.versioned(
        encoding.string(lock_name)
        + bytes([_EXCLUSIVE])
        + encoding.string(cookie)
        + encoding.string(tag)
    )


def get_info(lock_name: str) -> bytes:
    """Return the argument of ``get_info``."""
    return encoding.versioned(encoding.string(lock_name))


def read_holder(answer: bytes) -> ledger.Holder | None:
    """Read the answer of ``get_info``, which leaves out who let the lock expire."""
    reader = encoding.Reader(answer)
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
