# SPDX-License-Identifier: Apache-2.0
"""A deadline for loops that poll a condition."""

import time
from collections.abc import Callable

# Shorter times are rounding errors of floating-point numbers.
_LEAST_SEC = 0.001


class Deadline:
    """The end of a wait, by a clock that tests replace::

        deadline = Deadline(timeout_sec, clock, sleep)
        while not is_done():
            if not deadline.pause(poll_sec):
                raise ...

    The condition is polled at least once, and for the last time at the deadline.

    :param timeout_sec: seconds from now to the deadline
    """

    def __init__(
        self,
        timeout_sec: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._clock = clock
        self._sleep = sleep
        self._at = clock() + timeout_sec

    @property
    def left_sec(self) -> float:
        """The seconds until the deadline; 0: it has passed."""
        left_sec = self._at - self._clock()
        return left_sec if left_sec >= _LEAST_SEC else 0.0

    def pause(self, seconds: float) -> bool:
        """Sleep, but not beyond the deadline; return False at once if it has passed."""
        left_sec = self.left_sec
        if not left_sec:
            return False
        self._sleep(min(seconds, left_sec))
        return True
