# SPDX-License-Identifier: Apache-2.0
"""Waiting for Cinder, which answers first and works afterwards."""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from trove_ceph import exceptions

_POLL_SEC = (0.1, 0.2, 0.5, 1.0, 2.0)


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
        began = self._clock()
        looks = 0
        while (found := find(found_id)) is not None and found.under_way:
            waited = self._clock() - began
            if waited > self._timeout_sec:
                raise exceptions.ServiceUnavailableError(
                    f'{found} for {waited:.0f} s: see whether cinder-volume is up; if it was '
                    'restarted meanwhile and will not go on, set the status to error'
                )
            self._sleep(_POLL_SEC[min(looks, len(_POLL_SEC) - 1)])
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
