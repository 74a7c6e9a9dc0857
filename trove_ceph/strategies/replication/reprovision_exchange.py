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
server that is switched off without its guest and without its pool. A detachment that a Nova which
was restarted does not continue is rolled back in Cinder, and requested again.

A server that is paused, for example, can neither get nor lose a volume: an operator has to act.
"""

import datetime

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.strategies.guests.dependencies import ServerFacts
from trove_ceph.strategies.replication import reprovision_rules as rules
from trove_ceph.strategies.replication.reprovision_attempt import Attempt

LOG = logging.getLogger(__name__)

_RUNNING, _SWITCHED_OFF = 'ACTIVE', 'SHUTOFF'
#: What an operator does about a request that Nova has accepted, and does not carry out.
_LOOK = 'see whether nova-compute of its host is up, and its log'


class Exchange:
    """The exchange of two volumes in one attempt."""

    def __init__(self, attempt: Attempt):
        self._attempt = attempt

    def run(self, old_id: str, new_id: str) -> None:
        """Return when the server runs, and has the new volume instead of the old one.

        :raises InProgressError: the guest, Nova or Cinder have not done their part yet
        :raises OperatorNeededError: the server has a status that Nova does not leave by itself
        :raises ServiceUnavailableError: Nova or Cinder refuses
        """
        self._settle()
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
                f'{record}: its guest has not released its volume: {error}',
                'its guest has not released its volume',
            ) from error

    def _settle(self) -> None:
        """Return when the server runs or is switched off, and Nova does nothing with it."""
        server_id = self._attempt.find_server().server_id
        self._attempt.wait(
            self._is_settled,
            f'Nova still changes the state of server {server_id}; {_LOOK}',
            'Nova still changes the state of its server',
        )
        if self._attempt.find_server().status == rules.FAILED:
            self._switch_off()

    def _is_settled(self) -> bool:
        server = self._attempt.find_server()
        # A request to switch it off, which Nova has accepted, may be under way.
        if server.task:
            return False
        # Nova switches a server off that has failed, and starts it again.
        is_final = server.status in rules.REPAIRS
        if is_final and not (server.status == rules.FAILED and self._is_overdue()):
            fault = f': {server.fault}' if server.fault else ''
            raise exceptions.OperatorNeededError(
                f'{self._attempt.record}: server {server.server_id} is {server.status}, expected '
                f'{_RUNNING} or {_SWITCHED_OFF}; {rules.REPAIRS[server.status]}{fault}',
                f'its server is {server.status}, expected {_RUNNING} or {_SWITCHED_OFF}; your '
                f'operator has to {rules.REPAIRS[server.status]}',
            )
        return is_final or server.status in (_RUNNING, _SWITCHED_OFF)

    def _take_off(self, volume_id: str) -> None:
        deps, server = self._attempt.deps, self._attempt.find_server()
        server_id = server.server_id
        has_volume = volume_id in deps.servers.find_volumes(server_id)
        if has_volume:
            self._free(server)
        # Nova refuses a second request while the first one is under way.
        is_requested = not (has_volume and deps.volumes.is_attached(volume_id))
        if not is_requested:
            deps.servers.detach_volume(server_id, volume_id)
        try:
            self._attempt.wait(
                lambda: volume_id not in deps.servers.find_volumes(server_id),
                f'Nova still detaches volume {volume_id} from server {server_id}; {_LOOK}',
                'Nova still detaches a volume from its server',
            )
            deps.volumes.detach(volume_id, server_id)
        except exceptions.InProgressError:
            if is_requested:
                self._roll_back(volume_id)
            raise

    def _roll_back(self, volume_id: str) -> None:
        """Roll back a detachment that another attempt has requested, if it takes too long."""
        if self._is_overdue():
            LOG.warning('%s: rolls back a detachment of %s', self._attempt.record, volume_id)
            self._attempt.deps.volumes.roll_back_detachment(volume_id)

    def _free(self, server: ServerFacts) -> None:
        """Return when the guest does not use its volume any more, or is switched off."""
        if server.status == _SWITCHED_OFF:
            return
        if self._is_overdue():
            self._switch_off()
        else:
            self.release()

    def _is_overdue(self) -> bool:
        began_at = self._attempt.record.exchange_began_at
        assert began_at is not None
        limit = datetime.timedelta(seconds=self._attempt.deps.exchange_timeout_sec)
        return self._attempt.deps.store.now() - began_at > limit

    def _switch_off(self) -> None:
        server = self._attempt.find_server()
        LOG.warning(
            '%s: server %s in %s is switched off, because its guest has not released its volume '
            'within %.0f s',
            *(self._attempt.record, server.server_id, server.status),
            self._attempt.deps.exchange_timeout_sec,
        )
        self._attempt.deps.servers.stop(server.server_id)
        self._attempt.wait(
            lambda: self._attempt.find_server().status == _SWITCHED_OFF,
            f'Nova still switches server {server.server_id} off; {_LOOK}',
            'Nova still switches its server off',
        )

    def _put_on(self, volume_id: str) -> None:
        deps, server_id = self._attempt.deps, self._attempt.find_server().server_id
        if others := set(deps.volumes.find_servers(volume_id)) - {server_id}:
            raise exceptions.OperatorNeededError(
                f'{self._attempt.record}: volume {volume_id} is attached to server '
                f'{", ".join(sorted(others))}, expected to none but {server_id}; detach it there',
                'a volume of it is attached to another server; your operator has to detach it',
            )
        had_volume = volume_id in deps.servers.find_volumes(server_id)
        if not had_volume:
            deps.servers.attach_volume(server_id, volume_id)
        try:
            self._attempt.wait(
                lambda: self._is_attached(server_id, volume_id),
                f'Nova still attaches volume {volume_id} to server {server_id}; {_LOOK}',
                'Nova still attaches a volume to its server',
            )
        except exceptions.InProgressError:
            if had_volume:
                self._roll_back(volume_id)
            raise

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
            lambda: self._is_settled() and self._attempt.find_server().status == _RUNNING,
            f'server {server.server_id} starts',
            'its server starts',
        )
