# SPDX-License-Identifier: Apache-2.0
"""Wait for the interfaces of a new instance while Trove's agent starts.

Nova attaches them only after the guest has replaced its files, and the agent needs as long to
start. It must not take a request before they are ready: it would report a database that no client
can reach, and a request that it has taken is lost if the process ends. So the guest manager, which
Trove makes right before it listens, finishes the wait. An agent that is restarted does not wait.
"""

import threading
import time
from collections.abc import Collection

from oslo_log import log as logging

from trove_ceph import waiting
from trove_ceph.guestagent import network_interface
from trove_ceph.guestagent.waiting_messages import Interface

LOG = logging.getLogger(__name__)


class _Wait:
    """A wait in a thread, which ends with the process.

    The thread reads no configuration, not even to log: Trove's agent reads it again meanwhile.
    """

    def __init__(self, interfaces: Collection[Interface], timeout_sec: int):
        self._began = time.monotonic()
        self._took_sec = 0.0
        self._interfaces = interfaces
        self._deadline = waiting.Deadline(timeout_sec)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name='interface-wait', daemon=True)
        self._thread.start()

    def finish(self) -> None:
        started = time.monotonic()
        self._thread.join()
        if self._error is not None:
            raise self._error
        LOG.info(
            'The interfaces were ready after %.1f s; the start of the agent waited %.1f s for them',
            *(self._took_sec, time.monotonic() - started),
        )

    def _run(self) -> None:
        try:
            network_interface.wait_until_ready(self._interfaces, self._deadline)
        except Exception as error:
            # For the thread that needs the interfaces.
            self._error = error
        self._took_sec = time.monotonic() - self._began


# Trove makes the guest manager by its name alone.
_begun: _Wait | None = None


def begin(interfaces: Collection[Interface], timeout_sec: int) -> None:
    """Begin to wait until the interfaces are attached and configured; return at once."""
    global _begun
    _begun = _Wait(interfaces, timeout_sec)


def finish() -> None:
    """Wait until the interfaces are ready; return at once if no wait was begun.

    :raises InterfaceNotReadyError: one was not ready in time
    """
    if _begun is not None:
        _begun.finish()
