# SPDX-License-Identifier: Apache-2.0
"""Threads whose unexpected end must be handled."""

import threading
from collections.abc import Callable

from oslo_log import log as logging

LOG = logging.getLogger(__name__)


class WatchedThread(threading.Thread):
    """Runs a function until it is stopped, and calls ``on_death`` if it ends earlier.

    :param function: called once
    :param is_stopping: returns whether the thread was stopped
    :param on_death: called in the thread with the reason if the function ends unexpectedly
    """

    def __init__(
        self,
        name: str,
        function: Callable[[], None],
        is_stopping: Callable[[], bool],
        on_death: Callable[[str], None],
    ):
        super().__init__(name=name, daemon=True)
        self._function = function
        self._is_stopping = is_stopping
        self._on_death = on_death

    def run(self) -> None:
        reason = 'it returned'
        try:
            self._function()
        except BaseException as error:
            reason = f'{type(error).__name__}: {error}'
            LOG.exception('Thread %s failed', self.name)
        if not self._is_stopping():
            self._on_death(f'thread {self.name} has ended: {reason}')
