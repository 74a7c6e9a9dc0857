# SPDX-License-Identifier: Apache-2.0
"""The status of the server, known as soon as it accepts clients.

Trove asks docker, which probes a container that starts every five or ten seconds. A probe starts
processes in the container, which delay the server on a small machine.
"""

from collections.abc import Callable

import docker
from trove.guestagent.datastore import service as base_service
from trove.instance import service_status

# Docker calls such a container "starting", or "unhealthy" once three probes have failed, which also
# happens to a server that recovers for half a minute.
_PERHAPS_READY = (
    service_status.ServiceStatuses.RUNNING,
    service_status.ServiceStatuses.CRASHED,
)


class ServerStatus(base_service.BaseDbStatus):
    """Docker's view of the container, but a server that no probe has reached is asked itself.

    :param accepts_clients: returns whether the server accepts clients; it must not raise
    """

    def __init__(self, docker_client: docker.DockerClient, accepts_clients: Callable[[], bool]):
        super().__init__(docker_client)
        self._accepts_clients = accepts_clients

    def get_actual_db_status(self):
        """Return the status of the server."""
        status = super().get_actual_db_status()
        if status in _PERHAPS_READY and self._accepts_clients():
            return service_status.ServiceStatuses.HEALTHY
        return status
