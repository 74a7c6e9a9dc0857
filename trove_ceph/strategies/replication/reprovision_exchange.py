# SPDX-License-Identifier: Apache-2.0
"""Exchange the data volume of a replica for another one, on the same server.

No volume is on two servers at any time: the volume that the server gets is attached to this server
only, and Cinder refuses a second attachment. No server has both volumes: the second one is attached
when Nova and Cinder both say that the first one is detached. The guest could not tell them apart
otherwise, since it finds its data by the name of the device, which is free again then.

Each step looks at Nova and Cinder before it acts, not at what a former attempt has recorded. So it
continues after a crash between any two requests, after a lost answer, and after an operator's
repair.

A guest releases its volume before Nova detaches it. A guest that cannot do that hangs in I/O on a
pool that is lost, or its agent does not answer; a detachment that Nova has accepted then never
ends. Once this has taken too long, Nova switches the server off. Nova detaches a volume from a
server that is switched off without its guest and without its pool.
"""

import datetime

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.strategies.guests.dependencies import ServerFacts
from trove_ceph.strategies.replication.reprovision_attempt import Attempt

LOG = logging.getLogger(__name__)

_RUNNING, _SWITCHED_OFF = 'ACTIVE', 'SHUTOFF'


class Exchange:
    """The exchange of two volumes in one attempt."""

    def __init__(self, attempt: Attempt):
        self._attempt = attempt

    def run(self, old_id: str, new_id: str) -> None:
        """Return when the server runs, and has the new volume instead of the old one.

        :raises InProgressError: the guest, Nova or Cinder have not done their part yet
        :raises ServiceUnavailableError: Nova or Cinder refuses
        """
        self._take_off(old_id)
        self._put_on(new_id)
        self._start()

    def release(self) -> None:
        """Return when MySQL is stopped and the guest uses no data volume.

        :raises InProgressError: its agent has not answered so
        """
        record = self._attempt.record
        try:
            self._attempt.deps.agents.release_volume(record.instance_id)
        except exceptions.GuestUnavailableError as error:
            raise exceptions.InProgressError(
                f'{record}: its guest has not released its volume: {error}'
            ) from error

    def _take_off(self, volume_id: str) -> None:
        deps, server = self._attempt.deps, self._attempt.find_server()
        if volume_id in deps.servers.find_volumes(server.server_id):
            self._free(server)
            # Nova refuses a second request while the first one is under way.
            if deps.volumes.is_attached(volume_id):
                deps.servers.detach_volume(server.server_id, volume_id)
            self._attempt.wait(
                lambda: volume_id not in deps.servers.find_volumes(server.server_id),
                f'Nova still detaches volume {volume_id} from server {server.server_id}',
            )
        deps.volumes.detach(volume_id, server.server_id)

    def _free(self, server: ServerFacts) -> None:
        """Return when the guest does not use its volume any more, or is switched off."""
        if server.status == _SWITCHED_OFF:
            return
        if self._is_overdue():
            self._switch_off(server)
        elif server.status == _RUNNING:
            self.release()
        else:
            raise exceptions.InProgressError(
                f'{self._attempt.record}: server {server.server_id} is {server.status}, expected '
                f'{_RUNNING}'
            )

    def _is_overdue(self) -> bool:
        began_at = self._attempt.record.exchange_began_at
        assert began_at is not None
        limit = datetime.timedelta(seconds=self._attempt.deps.exchange_timeout_sec)
        return self._attempt.deps.store.now() - began_at > limit

    def _switch_off(self, server: ServerFacts) -> None:
        LOG.warning(
            '%s: server %s is switched off, because its guest has not released its volume within '
            '%.0f s',
            *(self._attempt.record, server.server_id, self._attempt.deps.exchange_timeout_sec),
        )
        self._attempt.deps.servers.stop(server.server_id)
        self._attempt.wait(
            lambda: self._attempt.find_server().status == _SWITCHED_OFF,
            f'Nova still switches server {server.server_id} off',
        )

    def _put_on(self, volume_id: str) -> None:
        deps, server_id = self._attempt.deps, self._attempt.find_server().server_id
        if others := set(deps.volumes.find_servers(volume_id)) - {server_id}:
            raise exceptions.ServiceUnavailableError(
                f'{self._attempt.record}: volume {volume_id} is attached to server '
                f'{", ".join(sorted(others))}, expected to none but {server_id}; detach it there'
            )
        if volume_id not in deps.servers.find_volumes(server_id):
            deps.servers.attach_volume(server_id, volume_id)
        self._attempt.wait(
            lambda: self._is_attached(server_id, volume_id),
            f'Nova still attaches volume {volume_id} to server {server_id}',
        )

    def _is_attached(self, server_id: str, volume_id: str) -> bool:
        deps = self._attempt.deps
        is_listed = volume_id in deps.servers.find_volumes(server_id)
        if is_listed and deps.volumes.is_attached(volume_id):
            return True
        if not is_listed and not deps.volumes.find_servers(volume_id):
            raise exceptions.ServiceUnavailableError(
                f'{self._attempt.record}: Nova did not attach volume {volume_id} to server '
                f'{server_id}; see the log of nova-compute'
            )
        return False

    def _start(self) -> None:
        server = self._attempt.find_server()
        if server.status == _SWITCHED_OFF:
            self._attempt.deps.servers.start(server.server_id)
        self._attempt.wait(
            lambda: self._attempt.find_server().status == _RUNNING,
            f'server {server.server_id} starts',
        )
