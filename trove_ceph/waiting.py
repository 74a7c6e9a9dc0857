# SPDX-License-Identifier: Apache-2.0
"""Waiting with a deadline, for loops that look, pause and look again."""

import time
from collections.abc import Callable

# Less is the rounding of floating-point numbers, and no time that is left.
_LEAST_SEC = 0.001


class Deadline:
    """The end of a wait, by a clock that tests replace::

        deadline = Deadline(timeout_sec, clock, sleep)
        while not is_done():
            if not deadline.pause(poll_sec):
                raise ...

    Whatever the pauses, the last look is at the deadline, and there is one at least.

    :param timeout_sec: from now on
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
        """The seconds that are left; 0 when it has passed."""
        left_sec = self._at - self._clock()
        return left_sec if left_sec >= _LEAST_SEC else 0.0

    def pause(self, seconds: float) -> bool:
        """Sleep, but not beyond the deadline; return False at once when that has passed."""
        left_sec = self.left_sec
        if not left_sec:
            return False
        self._sleep(min(seconds, left_sec))
        return True
