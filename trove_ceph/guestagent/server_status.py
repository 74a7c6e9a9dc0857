# SPDX-License-Identifier: Apache-2.0
"""The status of the server, by what it answers itself.

Trove reads the health of the container. Docker finds it by a program that it starts in the
container every ten seconds, for each database, for ever. On a small machine these programs take
more of the processor than the idle server, and what they find is up to ten seconds old. So the
containers of our servers have none (``MySqlServer.HEALTHCHECK``).
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator

import docker
from trove.guestagent.datastore import service as base_service
from trove.guestagent.utils import docker as docker_util
from trove.instance import service_status

#: After about this time, docker would call the container unhealthy with Trove's own settings.
CRASHED_AFTER_SEC = 40
#: How long the failure of an upgrade is reported, of which Trove looks every five seconds.
FAILED_UPGRADE_SEC = 60

_RUNNING = 'running'
# Docker does not answer.
_UNKNOWN = 'unknown'
_OTHERS = {
    # Docker starts a server that ends at once again and again.
    'restarting': service_status.ServiceStatuses.CRASHED,
    'paused': service_status.ServiceStatuses.CRASHED,
    'created': service_status.ServiceStatuses.SHUTDOWN,
    'exited': service_status.ServiceStatuses.SHUTDOWN,
    'removing': service_status.ServiceStatuses.SHUTDOWN,
    'dead': service_status.ServiceStatuses.SHUTDOWN,
    'not running': service_status.ServiceStatuses.SHUTDOWN,
}


class ServerStatus(base_service.BaseDbStatus):
    """The server is healthy if it accepts clients, and has crashed if it is silent for long.

    :param accepts_clients: returns whether the server accepts clients; the argument is the answer
        if it refuses the account of Trove. It must not raise.
    :param clock: a monotonic clock, s
    """

    def __init__(
        self,
        docker_client: docker.DockerClient,
        accepts_clients: Callable[[bool], bool],
        clock: Callable[[], float] = time.monotonic,
    ):
        super().__init__(docker_client)
        self._accepts_clients = accepts_clients
        self._clock = clock
        self._silent_since: float | None = None
        self._has_database = False
        self._upgrade: service_status.ServiceStatus | None = None
        self._upgrade_until = math.inf

    @contextlib.contextmanager
    def of_existing_database(self) -> Iterator[None]:
        """Count a server as healthy within the context that refuses the account of Trove.

        For the start of a server on data that exists: nothing prepares a database there, so a
        refusal proves that the server has started, on a new root disk, too.
        """
        self._has_database = True
        try:
            yield
        finally:
            self._has_database = False

    @contextlib.contextmanager
    def of_upgrade(self) -> Iterator[None]:
        """Report an upgrade of the server within the context, and its failure for a minute.

        Trove takes the first report of a healthy server for the end of the upgrade, but it stays
        healthy until the new image is there, and if there is none.
        """
        self._upgrade, self._upgrade_until = service_status.ServiceStatuses.UPGRADING, math.inf
        try:
            yield
        except Exception:
            self._upgrade = service_status.ServiceStatuses.FAILED
            self._upgrade_until = self._clock() + FAILED_UPGRADE_SEC
            self.set_status(self._upgrade)
            raise
        self._upgrade = None

    def get_reported_status(self):
        """Return the status to report: that of an upgrade, or else of the server."""
        if self._upgrade is None or self._clock() >= self._upgrade_until:
            return self.get_actual_db_status()
        return self._upgrade

    def get_actual_db_status(self):
        """Return the status of the server."""
        state = docker_util.get_container_status(self.docker_client)
        if state not in (_RUNNING, _UNKNOWN):
            self._silent_since = None
            return _OTHERS.get(state, service_status.ServiceStatuses.UNKNOWN)
        # While an instance is created, the server that refuses may be the one without a network
        # which prepares the database.
        if self._accepts_clients(self._has_database or bool(self.is_installed)):
            self._silent_since = None
            return service_status.ServiceStatuses.HEALTHY
        if state == _UNKNOWN:
            return service_status.ServiceStatuses.UNKNOWN
        return self._status_of_silence()

    def _status_of_silence(self):
        now = self._clock()
        if self._silent_since is None:
            self._silent_since = now
        if now - self._silent_since < CRASHED_AFTER_SEC:
            return service_status.ServiceStatuses.RUNNING
        return service_status.ServiceStatuses.CRASHED
