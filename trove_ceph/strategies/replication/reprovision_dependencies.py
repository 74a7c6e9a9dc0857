# SPDX-License-Identifier: Apache-2.0
"""What the re-provisioning of a replica needs, and the values that it exchanges with services."""

import dataclasses
import datetime
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from trove_ceph.db import heartbeat
from trove_ceph.db.claims import Claim, Claimant, Claims
from trove_ceph.db.replica_record import ReplicaRecord
from trove_ceph.db.replica_states import Event
from trove_ceph.strategies.guests.dependencies import ServerFacts
from trove_ceph.strategies.replacement.dependencies import InstanceFacts, StartProgress
from trove_ceph.strategies.replication.replication_types import ReplicationStatus


class Store(Protocol):
    """The records of replicas, as their workers write them; see :class:`.ReplicaStore`.

    Each write raises ClaimLostError, and writes nothing, once another worker has the claim.
    """

    claims: Claims

    def now(self) -> datetime.datetime:
        """Return the time by the clock of the database."""

    def find(self, instance_id: str) -> ReplicaRecord | None: ...
    def list_claimable(self, claimant: Claimant) -> Sequence[ReplicaRecord]: ...
    def claim(self, instance_id: str, claimant: Claimant) -> Claim | None: ...
    def note(self, claim: Claim, **values: Any) -> ReplicaRecord: ...
    def advance(self, claim: Claim, event: Event, **values: Any) -> ReplicaRecord: ...
    def complete(self, claim: Claim) -> ReplicaRecord: ...
    def fail(self, claim: Claim, reason: str) -> ReplicaRecord: ...
    def give_up(self, claim: Claim, reason: str) -> ReplicaRecord: ...

    def finish_return(self, claim: Claim) -> ReplicaRecord: ...
    def cancel(self, claim: Claim) -> None: ...


class Instances(Protocol):
    """Trove's tables."""

    def find(self, instance_id: str) -> InstanceFacts | None:
        """Return an instance, even a deleted one."""

    def set_volume(self, instance_id: str, volume_id: str, size_gib: int | None) -> None:
        """Make a volume that of an instance, and count its size; idempotent.

        In one transaction, the used quota of the project changes with the size, even beyond the
        limit.

        :param size_gib: None: it stays as it is
        :raises ReplacementCanceledError: the instance is being deleted
        """

    def report_healthy(self, instance_id: str) -> None:
        """Show that MySQL serves, without waiting for the next report of the guest agent."""

    def report_failed(self, instance_id: str, error: str) -> None:
        """Show that MySQL does not start, with the reason as a fault."""


class Servers(Protocol):
    """The servers in Nova. Each verb raises ServiceUnavailableError when Nova refuses."""

    def find(self, server_id: str) -> ServerFacts | None:
        """Return a server; None: Nova has none with this id any more."""

    def find_volumes(self, server_id: str) -> Collection[str]:
        """Return the ids of the volumes that a server has, or is about to get or to lose."""

    def attach_volume(self, server_id: str, volume_id: str) -> None:
        """Request to attach a volume, which then outlives the server."""

    def detach_volume(self, server_id: str, volume_id: str) -> None:
        """Request to detach a volume; do nothing if the server does not have it."""

    def stop(self, server_id: str) -> None:
        """Request to switch a server off, if it does not end by itself by force; idempotent."""

    def start(self, server_id: str) -> None:
        """Request to start a server that is switched off; idempotent."""


class Volumes(Protocol):
    """The data volumes, in Cinder and Ceph."""

    def find_servers(self, volume_id: str) -> Collection[str]:
        """Return the ids of the servers for which Cinder attaches or reserves a volume."""

    def is_attached(self, volume_id: str) -> bool:
        """Return whether the attachment of a volume is complete."""

    def detach(self, volume_id: str, server_id: str) -> None:
        """Return when a volume is attached to no server.

        :param server_id: the only server whose attachment may be removed; in Nova it does not have
            the volume any more
        :raises InProgressError: the volume is not detached yet, or another server has it
        """

    def roll_back_detachment(self, volume_id: str) -> None:
        """Have a volume attached again whose detachment nothing continues; idempotent."""

    def is_gone(self, volume_id: str) -> bool:
        """Return whether a volume does not exist, in Cinder or in Ceph."""

    def can_be_read(self, volume_id: str) -> bool:
        """Return whether the pool of a volume answers, and has its image."""

    def find_size_gib(self, volume_id: str) -> int | None:
        """Return the size of a volume; None: Cinder has no such volume.

        :raises ServiceUnavailableError: Cinder does not answer
        """

    def find_own_bytes(self, volume_id: str) -> int | None:
        """Return the space that a volume does not share; None: it cannot be measured now."""

    def discard(self, volume_id: str, record: ReplicaRecord) -> None:
        """Have a volume deleted that no instance uses, whenever its pool answers; idempotent."""

    def is_discarded(self, volume_id: str) -> bool:
        """Return whether :meth:`discard` was called, so that the volume may be deleted by now."""


class Clones(Protocol):
    """The fresh clones of sources, found again by the id of the request."""

    def create(self, record: ReplicaRecord) -> str:
        """Return the volume that is a clone of the source, made after the request.

        Made once for a request: a repetition continues. The source is not quiesced.

        :raises ReprovisioningRefusedError: the source, or the volume type of the replica, does not
            allow it, or there is no room for the clone
        """

    def remove(self, record: ReplicaRecord) -> None:
        """Remove all that :meth:`create` has made for a request; idempotent."""


class Agents(Protocol):
    """The guest agents of the source and the replica; see :class:`.ReplicationAgents`.

    Each verb raises GuestUnavailableError if the agent refuses, fails or does not answer.
    """

    def status(self, instance_id: str) -> ReplicationStatus: ...
    def replica_context(self, instance_id: str, replica_id: str | None = None) -> Any: ...
    def attach(self, instance_id: str, replica_context: Mapping[str, Any]) -> None: ...
    def release_volume(self, instance_id: str) -> None: ...

    def set_semi_sync(
        self, instance_id: str, as_source: bool, as_replica: bool, timeout_ms: int
    ) -> None: ...

    def start_replica(
        self, instance_id: str, request_id: str, replica_context: Mapping[str, Any]
    ) -> StartProgress: ...

    def start_on_old_volume(self, instance_id: str, request_id: str) -> StartProgress: ...


@dataclasses.dataclass(frozen=True)
class ReprovisionDependencies:
    """The dependencies of re-provisioning.

    :param clones: returns the clones for a worker, whose requests check its claim
    :param heartbeat: renews the claims of this process
    :param clock: seconds on a monotonic clock
    :param sleep: waits for seconds
    :param patience_sec: how long one attempt waits for what takes long, before the next one looks
        again
    :param exchange_timeout_sec: how long the guest may take to release its volume, before its
        server is switched off
    :param semi_sync_timeout_ms: after which a commit does not wait for a replica any longer
    """

    store: Store
    heartbeat: heartbeat.Heartbeat
    instances: Instances
    servers: Servers
    volumes: Volumes
    clones: Callable[[Claim], Clones]
    agents: Agents
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    patience_sec: float = 30
    exchange_timeout_sec: float = 300
    semi_sync_timeout_ms: int = 10000
