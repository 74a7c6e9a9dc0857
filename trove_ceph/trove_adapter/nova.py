# SPDX-License-Identifier: Apache-2.0
"""The taskmanager's own calls to Nova, beyond those of Trove."""

import contextlib
import datetime
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import keystoneauth1.exceptions
import novaclient.client
import novaclient.exceptions

from trove_ceph import exceptions, waiting
from trove_ceph.db import transactions
from trove_ceph.strategies.guests.dependencies import ServerFacts
from trove_ceph.trove_adapter import compute_hosts

# Of Ussuri: the first version that can change delete_on_termination of an attached volume.
API_VERSION = '2.85'

_ATTACH_RETRY_SEC = 10
_DELETE_TIMEOUT_SEC = 180
_POLL_SEC = 0.5
_OFF = ('SHUTOFF', 'SOFT_DELETED', 'SHELVED', 'SHELVED_OFFLOADED')
_POWERING_OFF = 'powering-off'
#: Two reports of a host (report_interval, 10 s), and some time for a slow one.
_REPORTED_LATELY = datetime.timedelta(seconds=25)


def find_flavor(client: Any, flavor_id: str) -> Mapping[str, Any]:
    """Return the facts of a flavor, from which Trove renders my.cnf.

    :param client: a novaclient
    :raises OperatorNeededError: Nova has no such flavor any more
    :raises ServiceUnavailableError: Nova refused, or does not answer
    """
    with _translated('showing it', flavor_id, 'flavor'):
        try:
            found: Mapping[str, Any] = client.flavors.get(flavor_id).to_dict()
        except novaclient.exceptions.NotFound as error:
            text = (
                f'flavor {flavor_id}: does not exist any more; an operator can create it again '
                'with this id'
            )
            raise exceptions.OperatorNeededError(text, text) from error
    return found


class Nova:
    """A client of Nova in one region, with the rights of one token.

    :param client: a novaclient, API_VERSION or later
    :param start_wait: returns the deadline of a wait of so many seconds
    :param now: returns the time in UTC, without a time zone
    """

    def __init__(
        self,
        client: Any,
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
        now: Callable[[], datetime.datetime] = transactions.utcnow,
    ):
        self._client = client
        self._start_wait = start_wait
        self._now = now

    @classmethod
    def of_session(
        cls,
        session: Any,
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
        **options: Any,
    ) -> 'Nova':
        """Return a client that uses a session of keystoneauth1.

        :param options: of novaclient.client.Client, such as ``region_name``
        """
        client = novaclient.client.Client(API_VERSION, session=session, **options)
        return cls(client, start_wait)

    def keep_volume(self, server_id: str, volume_id: str) -> None:
        """Keep a volume when its server is deleted; do nothing if it is not attached to it.

        :raises ServiceUnavailableError: Nova refused, for example because of a running resize
        """
        with (
            _translated(f'setting delete_on_termination=False for volume {volume_id}', server_id),
            contextlib.suppress(novaclient.exceptions.NotFound),
        ):
            self._client.volumes.update_server_volume(
                server_id, volume_id, volume_id, delete_on_termination=False
            )

    def find(self, server_id: str) -> ServerFacts | None:
        """Return a server, even one that Nova keeps for a while before it deletes it; None: gone.

        :raises ServiceUnavailableError: Nova refused, or does not answer
        """
        with _translated('showing it', server_id):
            try:
                server = self._client.servers.get(server_id)
            except novaclient.exceptions.NotFound:
                return None
        return None if server.status == 'DELETED' else facts(server)

    def find_ram_mib(self, flavor_id: str) -> int:
        """Return the memory of a flavor.

        :raises ServiceUnavailableError: Nova refused, does not answer, or has no such flavor
        """
        return int(find_flavor(self._client, flavor_id)['ram'])

    def is_off(self, server_id: str) -> bool:
        """Return whether a server is powered off and stays so, or is gone.

        :raises ServiceUnavailableError: Nova refused, or does not answer
        """
        found = self.find(server_id)
        return found is None or (found.status in _OFF and not found.task)

    def has_host_down(self, server_id: str) -> bool:
        """Return whether Nova counts the host of a server as down, and another one as up.

        :raises ServiceUnavailableError: Nova refused, or does not answer
        """
        found = self.find(server_id)
        if found is None or found.host is None:
            return False
        with _translated(f'showing its host {found.host}', server_id):
            return compute_hosts.is_down(self._client, found.host)

    def request_deletion(self, server_id: str) -> None:
        """Request the deletion of a server; idempotent.

        A Nova that keeps deleted servers for a while, with their volumes and ports, does not do so.

        :raises ServiceUnavailableError: Nova refused, or does not answer
        """
        with (
            _translated('deleting it', server_id),
            contextlib.suppress(novaclient.exceptions.NotFound),
        ):
            self._client.servers.force_delete(server_id)

    def attach_volume(self, server_id: str, volume_id: str) -> None:
        """Request to attach a volume, which then outlives the server.

        :raises ServiceUnavailableError: Nova refused, or does not answer
        """
        deadline = self._start_wait(_ATTACH_RETRY_SEC)
        with _translated(f'attaching volume {volume_id}', server_id):
            while True:
                try:
                    self._client.volumes.create_server_volume(
                        server_id, volume_id, delete_on_termination=False
                    )
                    return
                except novaclient.exceptions.BadRequest:
                    # Nova shows a server as deleted before it forgets the server's volumes.
                    if not deadline.pause(_POLL_SEC):
                        raise

    def find_volumes(self, server_id: str) -> Collection[str]:
        """Return the ids of the volumes that a server has, or is about to get or to lose.

        :raises ServiceUnavailableError: Nova refused, or does not answer
        """
        with _translated('listing its volumes', server_id):
            found = self._client.volumes.get_server_volumes(server_id)
        return {one.volumeId for one in found}

    def detach_volume(self, server_id: str, volume_id: str) -> None:
        """Request to detach a volume; do nothing if the server does not have it.

        A running guest must agree. A server that is switched off is not asked.

        :raises ServiceUnavailableError: Nova refused, or does not answer
        """
        with (
            _translated(f'detaching volume {volume_id}', server_id),
            contextlib.suppress(novaclient.exceptions.NotFound),
        ):
            self._client.volumes.delete_server_volume(server_id, volume_id)

    def stop(self, server_id: str) -> None:
        """Request that a server is powered off, and stays so; do nothing if it is off or gone.

        A guest that has not ended after shutdown_timeout of Nova (60 s) is killed.

        :raises ServiceUnavailableError: Nova refused, or does not answer
        """
        with _translated('powering it off', server_id):
            try:
                self._client.servers.stop(server_id)
            except novaclient.exceptions.NotFound:
                return
            except novaclient.exceptions.Conflict:
                # As if it is off, or is being powered off; but also if Nova does something else
                # with it, such as a reboot that goes on when its host works again.
                found = self.find(server_id)
                if found is None or found.task == _POWERING_OFF:
                    return
                if found.task or found.status not in _OFF:
                    raise

    def start(self, server_id: str) -> None:
        """Request to start a server that is switched off; harmless when repeated.

        :raises ServiceUnavailableError: Nova refused, or does not answer
        """
        with (
            _translated('starting it', server_id),
            contextlib.suppress(novaclient.exceptions.Conflict),
        ):
            self._client.servers.start(server_id)

    def attach_port(self, server_id: str, port_id: str) -> None:
        """Attach a port, which then outlives the server; return when it is attached.

        :raises ServiceUnavailableError: Nova refused, or does not answer
        """
        with _translated(f'attaching port {port_id}', server_id):
            self._client.servers.interface_attach(server_id, port_id, None, None)

    def describe(
        self, server_id: str, name: str, metadata: Mapping[str, str], tags: Sequence[str]
    ) -> None:
        """Set the name and the tags of a server, and add metadata to it.

        :raises ServiceUnavailableError: Nova refused, or does not answer
        """
        with _translated(f'setting its name to {name}, its metadata and its tags', server_id):
            self._client.servers.set_tags(server_id, list(tags))
            self._client.servers.set_meta(server_id, dict(metadata))
            self._client.servers.update(server_id, name=name)

    def delete(self, server_id: str) -> None:
        """Delete a server and wait until it is gone; idempotent.

        Nothing is requested before Nova knows whether the host of the server works, as
        :meth:`check_host` says: the host may have failed just now.

        :raises ServiceUnavailableError: Nova refused, or the server is still there at the deadline
        """
        deadline = self._start_wait(_DELETE_TIMEOUT_SEC)
        since = self._now()
        is_requested = False
        while (found := self.find(server_id)) is not None:
            reason = f'its status is {found.status}'
            if not is_requested:
                try:
                    self.check_host(found, since)
                except exceptions.InProgressError as error:
                    reason = str(error)
                else:
                    self.request_deletion(server_id)
                    is_requested = True
                    continue
            if not deadline.pause(_POLL_SEC):
                raise exceptions.ServiceUnavailableError(
                    f'server {server_id}: Nova did not delete it within {_DELETE_TIMEOUT_SEC} s; '
                    f'{reason}'
                )

    def check_host(self, server: ServerFacts, since: datetime.datetime | None) -> None:
        """Check that Nova knows whether the host of a server works, before it is deleted.

        Nova sends the request to a host that it counts as up, which includes a host that failed
        within service_down_time (60 s). Such a host finds the request when it returns, and unbinds
        the ports of the server, which another server has by then. A server on a host that counts as
        down Nova deletes by itself.

        :param since: the host must have reported since this time, in UTC, by the clock of Trove's
            database, because it may have failed then; None: its last report may be older
        :raises InProgressError: Nova does not know that yet
        :raises ServiceUnavailableError: Nova refused, or does not answer
        """
        if server.host is None:
            return
        with _translated(f'showing its host {server.host}', server.server_id):
            found = self._client.services.list(host=server.host, binary='nova-compute')
        for service in found:
            # Nova shows no state of a host in a cell that does not answer.
            if getattr(service, 'state', None) != 'up' or not service.updated_at:
                continue
            reported_at = datetime.datetime.fromisoformat(service.updated_at)
            age = self._now() - reported_at
            if age > _REPORTED_LATELY or (since is not None and reported_at <= since):
                raise exceptions.InProgressError(
                    f'server {server.server_id}: its host {server.host} last reported to Nova '
                    f'{age.total_seconds():.0f} s ago and still counts as up, so that Nova does '
                    'not know yet whether it works; the server is deleted when the host reports '
                    'or counts as down; if neither happens, compare the clocks of this host, of '
                    "Trove's database and of Nova",
                    'waits until it is known whether the host of a server works',
                )


def facts(server: Any) -> ServerFacts:
    """Return the facts of a server of novaclient."""
    # The host is shown to administrators only.
    host = getattr(server, 'OS-EXT-SRV-ATTR:host', None)
    fault = getattr(server, 'fault', None) or {}
    task = getattr(server, 'OS-EXT-STS:task_state', None) or ''
    # Nova shows no name of a server in a cell that does not answer.
    name = getattr(server, 'name', '')
    return ServerFacts(server.id, name, server.status, host, fault.get('message', ''), task)


@contextlib.contextmanager
def _translated(action: str, resource_id: str, kind: str = 'server') -> Iterator[None]:
    """Raise the errors of Nova as ServiceUnavailableError.

    :param action: what was requested of the resource
    """
    try:
        yield
    except (
        novaclient.exceptions.ClientException,
        keystoneauth1.exceptions.ClientException,
    ) as error:
        raise exceptions.ServiceUnavailableError(
            f'{kind} {resource_id}: Nova failed at {action}: {error}'
        ) from error
