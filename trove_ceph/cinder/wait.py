# SPDX-License-Identifier: Apache-2.0
"""Waiting for the asynchronous operations of Cinder."""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from trove_ceph import exceptions, waiting

# A tenant waits while Cinder manages a snapshot, which takes 0.5 to 1 s; so poll often at first.
_POLL_SEC = (0.1, 0.1, 0.2, 0.2, 0.2, 0.3, 0.3, 0.5, 0.5, 1.0, 2.0)


class Resource(Protocol):
    """A volume or a snapshot."""

    @property
    def under_way(self) -> bool: ...


Found = TypeVar('Found', bound=Resource)


class WaitLimits:
    """The limits of waiting for one change.

    :param timeout_sec: Cinder needs about 1 s for each of these requests and serializes them
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
        """Poll until the resource is not in progress; return it, or None if it is gone.

        :param find: finds a volume or a snapshot by its id
        :raises ServiceUnavailableError: the time limit passed; the outcome is unknown
        """
        deadline = waiting.Deadline(self._timeout_sec, self._clock, self._sleep)
        polls = 0
        while (found := find(found_id)) is not None and found.under_way:
            if not deadline.pause(_POLL_SEC[min(polls, len(_POLL_SEC) - 1)]):
                raise exceptions.ServiceUnavailableError(
                    f'{found}: unchanged for {self._timeout_sec:.0f} s; check that cinder-volume '
                    'is up; if it was restarted and does not continue, set the status to error'
                )
            polls += 1
        return found

    def until_gone(self, find: Callable[[str], Found | None], found_id: str) -> None:
        """Poll until the resource is gone.

        :raises ServiceUnavailableError: Cinder did not delete it
        """
        left = self.until_settled(find, found_id)
        if left is not None:
            raise exceptions.ServiceUnavailableError(
                f'{left}: was not deleted; see the log of cinder-volume'
            )
