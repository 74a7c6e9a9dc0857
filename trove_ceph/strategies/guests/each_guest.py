# SPDX-License-Identifier: Apache-2.0
"""Do something for each of several guests, although it fails for some."""

from collections.abc import Callable, Iterable

from trove_ceph import exceptions
from trove_ceph.db.guest_record import GuestRecord


def for_each(guests: Iterable[GuestRecord], action: Callable[[GuestRecord], None]) -> None:
    """Call a function for each guest; at the end raise the first error.

    :raises ClaimLostError: at once
    """
    failed: exceptions.TroveCephError | None = None
    for guest in guests:
        try:
            action(guest)
        except exceptions.ClaimLostError:
            raise
        except exceptions.TroveCephError as error:
            failed = failed or error
    if failed is not None:
        raise failed
