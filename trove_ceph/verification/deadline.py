# SPDX-License-Identifier: Apache-2.0
"""Ends an inspection that must not go on, whatever it waits for.

What it waits for may not come at all: a request to Ceph that no OSD answers, or a process in the
kernel that waits for a disk and cannot be killed. So nothing is waited for without a limit, and
what cannot be ended is left behind in a thread of its own.
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
#: How long a call may take to fail once it was made to end.
END_SEC = 60.0


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

    def call(
        self,
        what: str,
        function: Callable[[], Answer],
        end: Callable[[], None] | None = None,
        limit_sec: float | None = None,
    ) -> Answer:
        """Return what a function returns that may wait for ever.

        It runs in a thread of its own. When it must not go on, ``end`` is called, which should make
        it fail. If it does not, or nothing can, it is left behind: whatever it does later must be
        harmless.

        :param what: it does, for the error
        :param limit_sec: for a call that has to be made although the inspection is over, such as
            the removal of what it made; the inspection's own limit does not count then
        :raises InspectionFaultError: the time is up
        :raises CanceledError: the inspection was asked to end, or is not allowed to go on
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
            if reason := self._find_reason_to_leave(what, deadline):
                if end is not None:
                    end()
                if end is None or not done.wait(END_SEC):
                    LOG.error('%s: does not end, and is left behind', what)
                raise reason
        return outcome[0]()

    def _find_reason_to_leave(self, what: str, deadline: float | None) -> Exception | None:
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
        except (exceptions.CanceledError, report.Finding) as reason:
            return reason
        return None


def _throw(error: BaseException) -> Any:
    raise error
