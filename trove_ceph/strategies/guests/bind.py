# SPDX-License-Identifier: Apache-2.0
"""Bind a warm guest to an instance: give it the identity, the volume and the ports of the instance.

There is only one way. The guest replaces its identity before anything of the instance is attached
to it, and never waits again. If any step fails, the server is deleted and the image of the volume
is fenced before another server may get it: Nova also reports a server as deleted whose host is down
and whose process still runs.
"""

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from oslo_log import log as logging

from trove_ceph import exceptions, operation_events, steps, waiting
from trove_ceph.db.guest_record import GuestRecord
from trove_ceph.guestagent import waiting_messages

LOG = logging.getLogger(__name__)

#: Nova attaches a volume in 1 to 2 s; an emulated processor takes up to 10 s.
ATTACH_TIMEOUT_SEC = 120
#: Nova detaches the volume before it reports the server as deleted.
DETACH_TIMEOUT_SEC = 60
_POLL_SEC = 0.5
_LONGEST_HOSTNAME = 63
_ATTACHING = ('reserved', 'attaching')
_ATTACHED = (*_ATTACHING, 'in-use', 'detaching')


@dataclasses.dataclass(frozen=True)
class BindRequest:
    """What a guest becomes.

    :param name: of the server, as ``openstack server list`` shows it
    :param port_ids: the ports of the instance but its management port, which the guest has already
    :param files: contents by path, as cloud-init would write them
    :param is_hot: whether the guest is hot, so that it has the volume already; if the binding
        fails, the instance gets another volume
    """

    instance_id: str
    name: str
    volume_id: str
    port_ids: tuple[str, ...]
    files: Mapping[str, str] = dataclasses.field(repr=False)
    metadata: Mapping[str, str]
    tags: tuple[str, ...]
    is_hot: bool = False


class Agents(Protocol):
    """The agents of waiting guests."""

    def bind(self, guest: GuestRecord, binding: waiting_messages.Binding) -> None:
        """Have a guest replace its identity by that of an instance.

        :raises GuestUnavailableError: it refused, or did not answer
        """


class Servers(Protocol):
    """The servers in Nova. Each verb raises ServiceUnavailableError when Nova refuses."""

    def attach_volume(self, server_id: str, volume_id: str) -> None: ...
    def attach_port(self, server_id: str, port_id: str) -> None: ...
    def describe(
        self, server_id: str, name: str, metadata: Mapping[str, str], tags: tuple[str, ...]
    ) -> None: ...
    def delete(self, server_id: str) -> None:
        """Delete a server and wait until it is gone; idempotent."""


class Ports(Protocol):
    """The ports in Neutron."""

    def find_interface(self, port_id: str) -> waiting_messages.Interface:
        """Return how the interface of a server with a port is configured.

        :raises ServiceUnavailableError: Neutron refuses
        """


class Store(Protocol):
    """The records of warm guests."""

    def mark_bound(self, guest_id: str, instance_id: str) -> None: ...
    def retire(self, guest_id: str, reason: str) -> None: ...


class Fence(Protocol):
    """Returns when Ceph has proved that no present client can write to a volume."""

    def __call__(self, volume_id: str, confirm: Callable[[], None] | None = None) -> None:
        """See :meth:`.VolumeFence.fence`.

        :raises NotFencedError: there is no proof yet
        """


class Volumes(Protocol):
    """The volumes in Cinder."""

    def find_volume(self, volume_id: str) -> Any: ...


@dataclasses.dataclass(frozen=True)
class BindDependencies:
    """What a binding uses.

    :param start_wait: returns the deadline of a wait of so many seconds
    """

    agents: Agents
    servers: Servers
    ports: Ports
    store: Store
    volumes: Volumes
    fence: Fence
    start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline


def hostname_of(name: str) -> str | None:
    """Return the host name of a server with a name; None: the name has no character for it.

    As Nova does, but without dots, which would make it a domain name.
    """
    label = re.sub('[^a-z0-9]+', '-', name.lower())[:_LONGEST_HOSTNAME].strip('-')
    return label or None


class Binding:
    """One guest that becomes the server of one instance.

    :param guest: claimed for this instance
    """

    def __init__(self, deps: BindDependencies, guest: GuestRecord, request: BindRequest):
        self._deps = deps
        self._guest = guest
        # A guest is ready only once its server runs.
        assert guest.server_id is not None
        self._server_id = guest.server_id
        self._request = request
        self._may_write = False
        self._has_ports = False

    def run(self) -> None:
        """Bind the guest.

        :raises NotFencedError: a step failed, and the guest may still write to the volume
        :raises TroveCephError: a step failed; the volume and the ports are free for another server
        """
        guest, instance = self._guest.guest_id, self._request.instance_id
        try:
            with operation_events.reported(
                operation_events.Operation.GUEST_BIND, guest_id=guest, instance_id=instance
            ) as report:
                subject = f'binding of guest {guest} to instance {instance}'
                steps.run(subject, self.steps(), report.enter)
        except Exception as error:
            if self._may_write:
                raise exceptions.NotFencedError(
                    f'volume {self._request.volume_id}: warm guest {guest} could not be bound, and '
                    f'its server {self._server_id} may still write to it: {error}'
                ) from error
            raise

    def steps(self) -> list[steps.Step]:
        """Return the steps of the binding."""
        identity = steps.Step(
            'replace the identity of the guest', self._replace_identity, self._discard
        )
        server = [
            steps.Step('attach the ports', self._attach_ports),
            steps.Step('describe the server', self._describe),
        ]
        if not self._request.is_hot:
            # Nova attaches the volume while it attaches the ports.
            server = [
                steps.Step('request the volume', self._request_volume),
                *server,
                steps.Step('await the volume', self._await_volume),
            ]
        return [identity, *server, steps.Step('record the binding', self._record)]

    def _replace_identity(self) -> None:
        binding = waiting_messages.Binding(
            instance_id=self._request.instance_id,
            files=dict(self._request.files),
            volume_id=self._request.volume_id,
            interfaces=tuple(map(self._deps.ports.find_interface, self._request.port_ids)),
            hostname=hostname_of(self._request.name),
        )
        self._deps.agents.bind(self._guest, binding)

    def _request_volume(self) -> None:
        self._may_write = True
        self._deps.servers.attach_volume(self._server_id, self._request.volume_id)

    def _await_volume(self) -> None:
        volume_id = self._request.volume_id
        deadline = self._deps.start_wait(ATTACH_TIMEOUT_SEC)
        while (status := self._volume_status()) in _ATTACHING:
            if not deadline.pause(_POLL_SEC):
                break
        if status != 'in-use':
            raise exceptions.ServiceUnavailableError(
                f'volume {volume_id} is not attached to server {self._server_id}: expected '
                f'the status in-use, found {status}; see the log of nova-compute'
            )

    def _volume_status(self) -> str | None:
        volume = self._deps.volumes.find_volume(self._request.volume_id)
        return None if volume is None else volume.status

    def _attach_ports(self) -> None:
        self._has_ports = True
        for port_id in self._request.port_ids:
            self._deps.servers.attach_port(self._server_id, port_id)

    def _describe(self) -> None:
        request = self._request
        self._deps.servers.describe(self._server_id, request.name, request.metadata, request.tags)

    def _record(self) -> None:
        self._deps.store.mark_bound(self._guest.guest_id, self._request.instance_id)

    def _discard(self) -> None:
        reason = f'its binding to instance {self._request.instance_id} failed'
        try:
            self._deps.store.retire(self._guest.guest_id, reason)
        finally:
            # Without anything of the instance, the guest is deleted in the background. A hot one
            # has the volume, and could serve beside another server of the instance.
            if self._may_write or self._has_ports or self._request.is_hot:
                self._deps.servers.delete(self._server_id)
            if self._may_write:
                # Only now: until then Nova may still open the image.
                self._deps.fence(self._request.volume_id)
                self._may_write = False
                self._await_free()

    def _await_free(self) -> None:
        """Wait until Cinder has detached the volume; until then Nova boots no server with it."""
        deadline = self._deps.start_wait(DETACH_TIMEOUT_SEC)
        while self._volume_status() in _ATTACHED:
            if not deadline.pause(_POLL_SEC):
                return
