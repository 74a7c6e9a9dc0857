# SPDX-License-Identifier: Apache-2.0
"""A thread that calls functions every few seconds, beside Trove's own periodic tasks."""

import threading
from collections.abc import Callable, Sequence

from oslo_log import log as logging

LOG = logging.getLogger(__name__)


class Background:
    """Calls functions in turn, in rounds, and logs the errors that they raise.

    :param spacing_sec: the pause between two rounds
    """

    def __init__(self, spacing_sec: float, functions: Sequence[Callable[[], None]]):
        self._spacing_sec = spacing_sec
        self._functions = functions
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start the thread, with the first round at once; harmless when repeated."""
        with self._mutex:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name='trove-ceph-background', daemon=True
                )
                self._thread.start()

    def stop(self) -> None:
        """Stop after the current round, and wait for its end."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            for function in self._functions:
                try:
                    function()
                except Exception:
                    LOG.exception('%s failed; the next round retries it', function.__name__)
            if self._stopping.wait(self._spacing_sec):
                return
