# SPDX-License-Identifier: Apache-2.0
"""What the replacement of a server needs, and the values that it exchanges with other services."""

import dataclasses
import datetime
import enum
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from trove_ceph.db import heartbeat
from trove_ceph.db.guest_record import GuestRecord
from trove_ceph.db.replacement_record import ReplacementRecord
from trove_ceph.db.replacements import ReplacementStore
from trove_ceph.strategies.guests.bind import BindRequest
from trove_ceph.strategies.guests.dependencies import ServerFacts


@dataclasses.dataclass(frozen=True)
class InstanceFacts:
    """An instance, as Trove records it.

    :param task: the name of its task, such as NONE or MIGRATING
    :param service_status: such as HEALTHY
    :param agent_seen_at: when the guest agent last reported, by the clock of the database
    :param has_our_guest_agent: its datastore version names a guest manager of trove_ceph
    :param source_id: of the instance whose replica it is; None: it is no replica
    :param source_status: the service status of that instance
    :param source_seen_at: when the guest agent of that instance last reported
    :param source_change: what makes a replica the source, or an instance of its own, as far as it
        concerns this instance, such as ``is being promoted``; None: nothing does
    :param is_unfinished_source: an ejection has made it the source while its agent was silent, and
        it accepts no writes until that answers
    :param is_being_cloned: the volume of a new replica is being cloned from it
    :param is_in_cluster: it belongs to a cluster of the datastore
    :param is_being_backed_up: a backup of it has not ended
    :param is_agent_backing_up: its guest agent takes that backup, such as one in Swift
    """

    instance_id: str
    project_id: str
    name: str
    volume_id: str | None
    server_id: str | None
    flavor_id: str
    version_id: str
    task: str
    service_status: str | None = None
    agent_seen_at: datetime.datetime | None = None
    is_deleted: bool = False
    has_our_guest_agent: bool = True
    source_id: str | None = None
    source_status: str | None = None
    source_seen_at: datetime.datetime | None = None
    source_change: str | None = None
    is_unfinished_source: bool = False
    is_being_cloned: bool = False
    is_in_cluster: bool = False
    is_being_backed_up: bool = False
    is_agent_backing_up: bool = False


@dataclasses.dataclass(frozen=True)
class ServerNeeds:
    """What a server needs before the old one is given up, as OpenStack has it now.

    :param availability_zone: in which the old server was requested; None: in none
    :param image_id: of the guest image of the datastore version
    """

    availability_zone: str | None
    image_id: str


@dataclasses.dataclass(frozen=True)
class Ports:
    """The ports of a server.

    :param instance: those with the addresses of the instance, in the order of its interfaces
    :param management: those of its agent in the management network
    """

    instance: tuple[str, ...]
    management: tuple[str, ...]


class StartState(enum.StrEnum):
    """What the guest agent of a new server says of MySQL."""

    STARTING = 'starting'
    SERVING = 'serving'
    FAILED = 'failed'


@dataclasses.dataclass(frozen=True)
class StartProgress:
    """The answer of the guest agent of a new server; the agent is not trusted.

    :param error: why MySQL does not start, one line
    """

    state: StartState
    error: str = ''


class Instances(Protocol):
    """Trove's tables, and what Trove derives from them."""

    def find(self, instance_id: str) -> InstanceFacts | None:
        """Return an instance, even a deleted one."""

    def bind_request(self, record: ReplacementRecord) -> BindRequest:
        """Return what a warm guest becomes: the name, files, ports and tags of the instance.

        :raises ServiceUnavailableError: a service that has a part of it does not answer
        """

    def show_server(self, record: ReplacementRecord) -> None:
        """Make the new server that of the instance, with its flavor; idempotent.

        The service status becomes BUILDING, which only a report of the new agent replaces.

        :raises ReplacementCanceledError: the instance is being deleted
        """

    def report_healthy(self, instance_id: str) -> None:
        """Show that MySQL serves on the new server, without waiting for its agent's next report."""

    def report_failed(self, instance_id: str, error: str) -> None:
        """Show that MySQL does not start on the new server, with the reason as a fault."""

    def record_fault(self, instance_id: str, error: str) -> None:
        """Show a fault of the instance, whatever its status."""


class Servers(Protocol):
    """The servers in Nova. Each verb raises ServiceUnavailableError when Nova refuses."""

    def find_needs(self, record: ReplacementRecord) -> ServerNeeds:
        """Return what the new server needs.

        :raises ReplacementRefusedError: the flavor or the guest image does not exist
        """

    def check_flavor(self, record: ReplacementRecord) -> None:
        """Return if Nova has the flavor.

        :raises ReplacementRefusedError: it does not exist
        """

    def find_image(self, record: ReplacementRecord) -> str:
        """Return the guest image of the datastore version, as Glance has it now.

        :raises ReplacementRefusedError: it does not exist, or its agent is of an earlier release
        """

    def is_in_group(self, record: ReplacementRecord) -> bool:
        """Return whether the instance is in a server group, which only a booted server can join."""

    def find(self, server_id: str) -> ServerFacts | None:
        """Return a server; None: Nova has none with this id any more."""

    def keep_volume(self, server_id: str, volume_id: str) -> None:
        """Keep a volume when its server is deleted; do nothing if it is not attached to it."""

    def request_deletion(self, server_id: str, since: datetime.datetime | None) -> None:
        """Request the deletion of a server; idempotent.

        :param since: the host of the server must have reported to Nova since this time, in UTC,
            because it may have failed then; None: its last report may be older
        :raises InProgressError: Nova does not know yet whether the host works
        """

    def find_booted(self, record: ReplacementRecord) -> Sequence[ServerFacts]:
        """Return the servers that :meth:`boot` has created for a replacement."""

    def find_other_hosts(self, record: ReplacementRecord) -> Sequence[str]:
        """Return the hosts that work, but that of the old server, in the zone of the record.

        The order is the same for each call, and another one for other replacements. The hosts that
        the server group of the instance avoids come last.
        """

    def is_host_down(self, host: str) -> bool:
        """Return whether Nova counts a host as down, and another one as up."""

    def boot(self, record: ReplacementRecord, host: str | None) -> str:
        """Boot a server with the volume, the ports and the image of the record; return its id.

        It is marked as of this replacement, and does not delete the volume when it is deleted.

        :param host: on which Nova must place it; None: Nova chooses
        """


class Network(Protocol):
    """The ports in Neutron. Each verb raises ServiceUnavailableError when Neutron refuses."""

    def find_ports(self, record: ReplacementRecord) -> Ports:
        """Return the ports of the old server, also if it has lost them, or is gone."""

    def cut_off(self, port_ids: Collection[str]) -> None:
        """Set ports administratively down; do nothing for those that do not exist."""

    def free(self, port_ids: Collection[str], server_ids: Collection[str]) -> None:
        """Unbind ports from servers that are deleted, so that another one can have them.

        Do nothing for those that do not exist, or that another server has by now.

        :param server_ids: the deleted servers
        """

    def find_gone(self, port_ids: Collection[str]) -> Sequence[str]:
        """Return those of some ports that do not exist any more."""

    def create_management_port(self, record: ReplacementRecord) -> str:
        """Return the management port of the server that is booted for a replacement; idempotent.

        The port of the old server, which is deleted, is deleted first if no other one is to be had.

        :raises NoPortError: the network or the quota has no other one
        """

    def find_created(self, record: ReplacementRecord) -> Sequence[str]:
        """Return the ports that :meth:`create_management_port` has created for a replacement."""

    def delete(self, port_ids: Collection[str]) -> None:
        """Delete ports; idempotent."""


class Volumes(Protocol):
    """The data volumes, in Cinder and Ceph."""

    def check(self, volume_id: str) -> None:
        """Check that a volume can be fenced.

        :raises ReplacementRefusedError: it does not exist, or is on no tier
        """

    def fence(self, volume_id: str, confirm: Callable[[], None]) -> None:
        """Return when Ceph has proved that no present client can write to a volume.

        :param confirm: raises ClaimLostError if another worker has resumed this. No client is cut
            off that has opened the image after it was called
        :raises NotFencedError: there is no proof yet; a repetition continues
        """

    def detach(self, volume_id: str, server_id: str) -> None:
        """Return when a volume is attached to no server.

        :param server_id: the only server, deleted by now, whose attachment may be removed
        :raises InProgressError: Nova has not detached it yet
        """


class Guests(Protocol):
    """The warm guests of this cloud."""

    def claim(self, record: ReplacementRecord, not_on: str | None) -> GuestRecord | None:
        """Claim a guest for a replacement, or return the one that it has claimed; None: none fits.

        :param not_on: the host whose guests are left out
        """

    def bind(self, guest: GuestRecord, request: BindRequest, check: Callable[[], None]) -> None:
        """Bind a claimed guest; on failure it is retired and cannot write to the volume.

        :param check: raises ClaimLostError if another worker has resumed this. To be called right
            before each request
        :raises NotFencedError: it failed, and the guest may still write to the volume
        :raises TroveCephError: it failed; the volume and the ports are free for another server
        """

    def find(self, guest_id: str) -> GuestRecord | None:
        """Return a guest; None: it was deleted."""

    def retire(self, guest_id: str, reason: str) -> None:
        """Have a guest deleted; idempotent."""

    def retire_old(self, record: ReplacementRecord) -> None:
        """Retire the guest that the deleted old server was, if it was one; idempotent."""


class Agents(Protocol):
    """The guest agents of the instances."""

    def renew_queues(self, instance_id: str) -> None:
        """Give the new agent of an instance empty queues, which keep the requests until it listens.

        Best effort: with the old ones it may miss requests until the bus drops the old agent, and
        without any the bus drops each request, whose sender waits in vain.
        """

    def stop_server(self, instance_id: str) -> None:
        """Stop MySQL on the old server.

        :raises GuestUnavailableError: the agent did not stop it
        """

    def restart_server(self, instance_id: str) -> None:
        """Start MySQL on the old server again.

        :raises GuestUnavailableError: the agent did not start it
        """

    def start_moved_server(self, record: ReplacementRecord) -> StartProgress:
        """Have the agent of the new server start MySQL, or tell how far it is.

        The agent starts it once for each replacement, so that this can be repeated.

        :raises GuestOutdatedError: an agent answers that cannot do this
        :raises GuestUnavailableError: the agent does not answer yet
        """


class TakeOverNotes(Protocol):
    """Where a take-over notes how far it is.

    Each verb raises ClaimLostError if another worker continues the failover.
    """

    def confirm_claim(self) -> None:
        """Return if the database says that this worker has the claim on the failover."""

    def note_fenced(self) -> None:
        """Note that the old server is proved not to write any more."""

    def note_promoted(self, replica_id: str) -> None:
        """Note which replica has become the source."""


class Successors(Protocol):
    """The replicas of instances, of which one can become the source."""

    def has_replicas(self, instance_id: str) -> bool:
        """Return whether an instance has replicas.

        :raises ServiceUnavailableError: the database does not answer
        """

    def take_over(
        self,
        record: ReplacementRecord,
        served_until: datetime.datetime | None,
        notes: TakeOverNotes,
    ) -> None:
        """Fence a source, and make a replica the source that has all that is known; idempotent.

        :param served_until: when the agent of the source last reported
        :raises SourceNotChangedError: none is fit; no replica accepts writes
        :raises NewSourceSilentError: one is the source in Trove, and may not accept writes
        :raises TroveCephError: one may have taken over; repeat the call
        """

    def is_taking_over(self, instance_id: str) -> bool:
        """Return whether an attempt to take over has been interrupted.

        :raises ServiceUnavailableError: the database does not answer
        """

    def follow_again(self, instance_id: str) -> None:
        """Have replicas receive again that an attempt to take over has stopped.

        :raises TroveCephError: one does not
        """


@dataclasses.dataclass(frozen=True)
class ReplacementDependencies:
    """The dependencies of replacements.

    :param heartbeat: renews the claims of this process
    :param clock: seconds on a monotonic clock
    :param sleep: waits for seconds
    """

    store: ReplacementStore
    heartbeat: heartbeat.Heartbeat
    instances: Instances
    servers: Servers
    network: Network
    volumes: Volumes
    guests: Guests
    agents: Agents
    successors: Successors
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    #: How long one attempt waits for what takes long, before the next one looks again.
    patience_sec: float = 30
