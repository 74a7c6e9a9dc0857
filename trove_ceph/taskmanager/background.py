# SPDX-License-Identifier: Apache-2.0
"""A thread that does the same every few seconds, beside Trove's own periodic tasks."""

import threading
from collections.abc import Callable, Sequence

from oslo_log import log as logging

LOG = logging.getLogger(__name__)


class Background:
    """Calls functions one after the other, again and again; what one raises is logged.

    :param spacing_sec: between two rounds
    """

    def __init__(self, spacing_sec: float, functions: Sequence[Callable[[], None]]):
        self._spacing_sec = spacing_sec
        self._functions = functions
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin with the first round at once, in a thread; harmless when repeated."""
        with self._mutex:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name='trove-ceph-background', daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """End after the present round, and wait for that."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            for function in self._functions:
                try:
                    function()
                except Exception:
                    LOG.exception('%s failed; it is tried again', function.__name__)
            if self._ended.wait(self._spacing_sec):
                return
