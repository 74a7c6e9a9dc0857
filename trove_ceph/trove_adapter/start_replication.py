# SPDX-License-Identifier: Apache-2.0
"""What the new server of a source or a replica is started with, which was on the old root disk."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from trove.instance import models as instance_models

from trove_ceph.db.replicas import ReplicaStore
from trove_ceph.db.replication_policies import ReplicationPolicyStore
from trove_ceph.trove_adapter import trove_db
from trove_ceph.trove_adapter.replacement_servers import translated


@dataclasses.dataclass(frozen=True)
class StartReplication:
    """The replication of a server at its start.

    :param is_replica: it must not accept writes
    :param semi_sync: the arguments of :meth:`.GuestAPI.set_semi_sync`; None: it is off
    """

    is_replica: bool = False
    semi_sync: Mapping[str, Any] | None = None


class ReplicationOfStarts:
    """Finds the replication of servers in Trove's tables and in ours.

    :param replicas: those that follow their sources
    :param policies: of the sources
    :param semi_sync_timeout_ms: after which a commit of a source does not wait any longer
    """

    def __init__(
        self, replicas: ReplicaStore, policies: ReplicationPolicyStore, semi_sync_timeout_ms: int
    ):
        self._replicas = replicas
        self._policies = policies
        self._semi_sync_timeout_ms = semi_sync_timeout_ms

    def find(self, instance_id: str) -> StartReplication:
        """Return the replication of an instance, by the same rules as the watch over replicas.

        :raises ServiceUnavailableError: the database does not answer
        """
        with translated(f'instance {instance_id}: reading its replication'):
            row = trove_db.find_row(instance_models.DBInstance, instance_id)
        source_id = None if row is None else row.slave_of_id
        return StartReplication(source_id is not None, self._find_semi_sync(instance_id, source_id))

    def _find_semi_sync(self, instance_id: str, source_id: str | None) -> Mapping[str, Any] | None:
        policy = self._policies.find(source_id or instance_id)
        if policy is None or not policy.semi_sync:
            return None
        # Without a replica, the commits of a source would wait in vain.
        as_source = source_id is None and bool(self._replicas.list(source_id=instance_id))
        return {
            'as_source': as_source,
            'as_replica': source_id is not None,
            'timeout_ms': self._semi_sync_timeout_ms,
        }
