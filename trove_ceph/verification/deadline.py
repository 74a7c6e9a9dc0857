# SPDX-License-Identifier: Apache-2.0
"""Ends an inspection that must not go on, whatever it waits for."""

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

from trove_ceph import exceptions
from trove_ceph.verification import report

_POLL_SEC = 0.2


class Deadline:
    """The time that an inspection has, and who may end it earlier.

    :param cancel: once set, it ends
    :param is_allowed: once it says no, it ends
    """

    def __init__(
        self,
        time_limit_sec: float,
        cancel: threading.Event | None = None,
        is_allowed: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._time_limit_sec = time_limit_sec
        self._cancel = cancel or threading.Event()
        self._is_allowed = is_allowed
        self._clock = clock
        self._deadline = clock() + time_limit_sec

    @property
    def left_sec(self) -> float:
        return max(0.0, self._deadline - self._clock())

    def check_allowed(self) -> None:
        """Do nothing as long as what is worked on is ours.

        :raises CanceledError: somebody else may have it by now
        """
        if not self._is_allowed():
            raise exceptions.CanceledError('not allowed to go on')

    def check(self) -> None:
        """Do nothing while it may go on.

        :raises CanceledError: it was asked to end, or is not allowed any more
        :raises Finding: its time is up
        """
        self.check_allowed()
        if self._cancel.is_set():
            raise exceptions.CanceledError('canceled')
        if self.left_sec <= 0:
            raise report.Finding(
                report.UNFINISHED, f'not done within the time limit of {self._time_limit_sec} s'
            )

    @contextlib.contextmanager
    def watching(self, end: Callable[[], None]) -> Iterator[None]:
        """Call ``end`` as soon as it must not go on, so that whatever it waits for fails.

        What fails once it must not go on fails because of that, whether it was ended here or saw
        it by itself: the reason is raised then, as ``check`` raises it.
        """
        done = threading.Event()
        reasons: list[Exception] = []

        def watch() -> None:
            while not done.wait(_POLL_SEC):
                if reason := self._find_reason():
                    reasons.append(reason)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        end()

        watcher = threading.Thread(target=watch, name='inspection', daemon=True)
        watcher.start()
        try:
            yield
        except Exception as error:
            # The watcher may not have looked since.
            reason = reasons[0] if reasons else self._find_reason()
            if reason:
                raise reason from error
            raise
        finally:
            done.set()
            watcher.join()

    def _find_reason(self) -> Exception | None:
        try:
            self.check()
        except (exceptions.CanceledError, report.Finding) as reason:
            return reason
        return None
