# SPDX-License-Identifier: Apache-2.0
"""Threads that must not end before the process does."""

import threading
from collections.abc import Callable

from oslo_log import log as logging

LOG = logging.getLogger(__name__)


class WatchedThread(threading.Thread):
    """Runs a function that goes on until it is told to end, and tells if it ends before.

    :param function: called once
    :param is_ending: whether it was told to end
    :param on_death: called in the thread with what happened, once the function has ended before
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], None],
        is_ending: Callable[[], bool],
        on_death: Callable[[str], None],
    ):
        super().__init__(name=name, daemon=True)
        self._function = function
        self._is_ending = is_ending
        self._on_death = on_death

    def run(self) -> None:
        reason = 'it returned'
        try:
            self._function()
        except BaseException as error:
            reason = f'{type(error).__name__}: {error}'
            LOG.exception('Thread %s failed', self.name)
        if not self._is_ending():
            self._on_death(f'thread {self.name} has ended: {reason}')
