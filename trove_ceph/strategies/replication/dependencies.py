# SPDX-License-Identifier: Apache-2.0
"""What replicas need, and the values that they exchange with other services."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from trove_ceph.db.replicas import ReplicaStore
from trove_ceph.db.replication_policies import ReplicationPolicyStore
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.tiers import tier_types


class Trove(Protocol):
    """Trove's table of instances."""

    def list_replicas(self, source_id: str) -> Sequence[backup_types.Instance]:
        """List the replicas of an instance that are not deleted, even if they have failed."""

    def list_replicated_volumes(self) -> Sequence[str]:
        """List the ids of the volumes of replicas and of their sources."""

    def fail_replica(self, instance_id: str) -> None:
        """Show that a replica in BUILD failed; do nothing if it is in another state."""


class Agents(Protocol):
    """The guest agents of the instances; each verb raises GuestUnavailableError when it fails."""

    def replica_context(self, instance_id: str, replica_id: str | None = None) -> Mapping[str, Any]:
        """Return what a replica needs to follow a source: its address and an account.

        The account is the replica's own, and gets a new password each time.

        :param instance_id: of the source
        """

    def drop_replication_users(self, instance_id: str, keep_replica_ids: Collection[str]) -> None:
        """Drop the accounts of all replicas but these on a source; idempotent.

        :param instance_id: of the source
        """


@dataclasses.dataclass(frozen=True)
class Limits:
    """How far instances may be replicated.

    :param replicas: of one source
    :param clone_depth: of the volume of a replica: the number of images, one above the other, that
        it reads from
    """

    replicas: int = 15
    clone_depth: int = 8


@dataclasses.dataclass(frozen=True)
class ReplicationDependencies:
    """The dependencies of the operations on replicas.

    :param backup: those of backups, with the clients of Cinder and of the storage service
    :param store: of the replicas that follow their sources
    :param policies: of the sources
    :param tiers: reads the tiers file; raises InvalidTiersError if it cannot be used
    """

    backup: BackupDependencies
    trove: Trove
    agents: Agents
    store: ReplicaStore
    policies: ReplicationPolicyStore
    tiers: Callable[[], tier_types.TiersFile]
    limits: Limits = dataclasses.field(default_factory=Limits)
