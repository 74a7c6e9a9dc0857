# SPDX-License-Identifier: Apache-2.0
"""What librados does not offer of the OSDs' advisory locks, in their own encoding.

A lock is an attribute of an object, which the object class ``lock`` keeps (src/cls/lock in Ceph's
source). librados cannot make a request depend on a lock, nor tell who holds it to Python, and what
it takes for Python has a random duration: the binding leaves the microseconds unset, which are up
to 4.3 seconds.
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
    """Name the attribute that is the lock."""
    return f'lock.{lock_name}'


def lock(
    lock_name: str, holder: lock_store.Holder, duration_sec: int, must_renew: bool = False
) -> bytes:
    """Return the argument of ``lock``, which takes a lock or renews it.

    It answers EBUSY where the lock is somebody else's. Where it is ours already it answers EEXIST;
    with ``must_renew`` it prolongs that, and answers ENOENT where it is not.
    """
    return encoding.versioned(
        _identity(lock_name, holder.cookie)
        + encoding.string(holder.description)
        + _TIME.pack(duration_sec, 0)
        + bytes([_MUST_RENEW if must_renew else 0])
    )


def assert_locked(lock_name: str, cookie: str) -> bytes:
    """Return the argument of ``assert_locked``, which answers EBUSY where the lock is not ours."""
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
    return lock_store.Holder(cookie, reader.string())
