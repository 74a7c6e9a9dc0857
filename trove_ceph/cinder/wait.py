# SPDX-License-Identifier: Apache-2.0
"""Waiting for Cinder, which answers first and works afterwards."""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from trove_ceph import exceptions, waiting

# Managing a snapshot takes half a second to a second, of which a tenant waits for each.
_POLL_SEC = (0.1, 0.1, 0.2, 0.2, 0.2, 0.3, 0.3, 0.5, 0.5, 1.0, 2.0)


class Resource(Protocol):
    """A volume or a snapshot."""

    @property
    def under_way(self) -> bool: ...


Found = TypeVar('Found', bound=Resource)


class WaitLimits:
    """How long to wait for one change.

    :param timeout_sec: Cinder does what is asked of it here in about a second, one after another
    """

    def __init__(
        self,
        timeout_sec: float = 120,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._timeout_sec = timeout_sec
        self._clock = clock
        self._sleep = sleep

    def until_settled(self, find: Callable[[str], Found | None], found_id: str) -> Found | None:
        """Look until nothing is under way with it; None when it is gone.

        :param find: looks for a volume or a snapshot by its id
        :raises ServiceUnavailableError: that took too long; nobody knows how it will end
        """
        deadline = waiting.Deadline(self._timeout_sec, self._clock, self._sleep)
        looks = 0
        while (found := find(found_id)) is not None and found.under_way:
            if not deadline.pause(_POLL_SEC[min(looks, len(_POLL_SEC) - 1)]):
                raise exceptions.ServiceUnavailableError(
                    f'{found} for {self._timeout_sec:.0f} s: see whether cinder-volume is up; if '
                    'it was restarted meanwhile and will not go on, set the status to error'
                )
            looks += 1
        return found

    def until_gone(self, find: Callable[[str], Found | None], found_id: str) -> None:
        """Look until it is gone.

        :raises ServiceUnavailableError: Cinder did not delete it
        """
        left = self.until_settled(find, found_id)
        if left is not None:
            raise exceptions.ServiceUnavailableError(
                f'{left} was not deleted: cinder-volume\'s log tells why'
            )
