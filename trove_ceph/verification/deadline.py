# SPDX-License-Identifier: Apache-2.0
"""Stop an inspection when its time is up or it is canceled, even while it is blocked.

It may block for ever: on a request to Ceph that no OSD answers, or on a process that waits for a
disk in the kernel and cannot be killed. So every wait has a limit, and a call that cannot be
stopped is abandoned in its own thread.
"""

import contextlib
import functools
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.verification import report

LOG = logging.getLogger(__name__)

Answer = TypeVar('Answer')

_POLL_SEC = 0.2
#: How long a call may take to fail after ``end`` was called.
END_SEC = 60.0


class Deadline:
    """The time limit of an inspection, and the conditions that stop it earlier.

    :param cancel: once set, the inspection stops
    :param is_allowed: once it returns False, the inspection stops
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
        """Check that this process still holds the leases of the inspection.

        :raises CanceledError: another process may hold them by now
        """
        if not self._is_allowed():
            raise exceptions.CanceledError('the leases of the inspection are lost')

    def check(self) -> None:
        """Check that the inspection may continue.

        :raises CanceledError: the inspection was canceled, or its leases are lost
        :raises NotSoundError: its time is up
        """
        self.check_allowed()
        if self._cancel.is_set():
            raise exceptions.CanceledError('canceled')
        if self.left_sec <= 0:
            raise report.NotSoundError(
                report.UNFINISHED, f'not done within the time limit of {self._time_limit_sec} s'
            )

    @contextlib.contextmanager
    def watching(self, end: Callable[[], None]) -> Iterator[None]:
        """Call ``end`` as soon as the inspection must stop, so that the blocked call fails.

        An error after that moment has that cause, whether ``end`` or the call's own timeout led
        to it: the exception of ``check`` is raised in its place.
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
            # The watcher may not have polled since.
            reason = reasons[0] if reasons else self._find_reason()
            if reason:
                raise reason from error
            raise
        finally:
            done.set()
            watcher.join()

    def call(
        self,
        what: str,
        function: Callable[[], Answer],
        end: Callable[[], None] | None = None,
        limit_sec: float | None = None,
    ) -> Answer:
        """Call a function that may block for ever, and return its result.

        It runs in its own thread. When the inspection must stop, ``end`` is called to make the
        function fail. If it does not fail, or there is no ``end``, its thread is abandoned:
        whatever the function does later must be harmless.

        :param what: what the function does, for the error
        :param limit_sec: time limit of a call that must run even after the inspection stopped,
            such as cleanup; the limit of the inspection does not apply then
        :raises InspectionFaultError: the time is up
        :raises CanceledError: the inspection was canceled, or its leases are lost
        """
        outcome: list[Callable[[], Answer]] = []
        done = threading.Event()

        def run() -> None:
            try:
                answer = function()
                outcome.append(lambda: answer)
            except BaseException as error:
                outcome.append(functools.partial(_throw, error))
            finally:
                done.set()

        deadline = None if limit_sec is None else self._clock() + limit_sec
        threading.Thread(target=run, name=f'inspection: {what}', daemon=True).start()
        while not done.wait(_POLL_SEC):
            if reason := self._find_reason_to_abandon(what, deadline):
                if end is not None:
                    end()
                if end is None or not done.wait(END_SEC):
                    LOG.error('%s: still blocked; abandoned its thread', what)
                raise reason
        return outcome[0]()

    def _find_reason_to_abandon(self, what: str, deadline: float | None) -> Exception | None:
        if deadline is not None:
            is_late = self._clock() >= deadline
        else:
            is_late = self.left_sec <= 0
            if not is_late and isinstance(reason := self._find_reason(), exceptions.CanceledError):
                return reason
        if is_late:
            return exceptions.InspectionFaultError(f'{what}: did not end within its time limit')
        return None

    def _find_reason(self) -> Exception | None:
        try:
            self.check()
        except (exceptions.CanceledError, report.NotSoundError) as reason:
            return reason
        return None


def _throw(error: BaseException) -> Any:
    raise error
