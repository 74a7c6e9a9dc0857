# SPDX-License-Identifier: Apache-2.0
"""Encode requests of the OSDs' advisory locks that librados does not offer.

A lock is an attribute of an object that the object class ``lock`` manages (src/cls/lock in Ceph's
source). librados cannot guard a request by a lock, and its Python binding does not return the
holder of a lock. A lock that the binding takes also has a random duration: the binding does not
initialize the microseconds, which add up to 4.3 seconds.
"""

import struct

from trove_ceph.storage import lock_store
from trove_ceph.storage.ceph import encoding

_EXCLUSIVE = 1
_TAG = ''
_MUST_RENEW = 2
# Expiry, as seconds and nanoseconds.
_TIME = struct.Struct('<II')


def attribute(lock_name: str) -> str:
    """Return the name of the attribute that holds a lock."""
    return f'lock.{lock_name}'


def lock(
    lock_name: str, holder: lock_store.Holder, duration_sec: int, must_renew: bool = False
) -> bytes:
    """Return the argument of ``lock``, which takes a lock or renews it.

    It answers EBUSY if another client holds the lock, and EEXIST if this client holds it. With
    ``must_renew`` it extends a lock that this client holds, and answers ENOENT otherwise.
    """
    return encoding.versioned(
        _identity(lock_name, holder.cookie)
        + encoding.string(holder.description)
        + _TIME.pack(duration_sec, 0)
        + bytes([_MUST_RENEW if must_renew else 0])
    )


def assert_locked(lock_name: str, cookie: str) -> bytes:
    """Return the argument of ``assert_locked``; it answers EBUSY if another holds the lock."""
    return encoding.versioned(_identity(lock_name, cookie))


def _identity(lock_name: str, cookie: str) -> bytes:
    return (
        encoding.string(lock_name)
        + bytes([_EXCLUSIVE])
        + encoding.string(cookie)
        + encoding.string(_TAG)
    )


def get_info(lock_name: str) -> bytes:
    """Return the argument of ``get_info``."""
    return encoding.versioned(encoding.string(lock_name))


def read_holder(answer: bytes) -> lock_store.Holder | None:
    """Return the holder from the answer of ``get_info``, which leaves out expired locks."""
    reader = encoding.Reader(answer)
    reader.skip_header()
    if reader.number() == 0:
        return None
    reader.skip_header()
    # Type and number of the client.
    reader.skip(1 + 8)
    cookie = reader.string()
    reader.skip_header()
    reader.skip(_TIME.size)
    # The address of the client: a marker of its encoding, then a structure.
    reader.skip(1)
    reader.skip_structure()
    return lock_store.Holder(cookie, reader.string())
