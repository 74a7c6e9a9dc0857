# SPDX-License-Identifier: Apache-2.0
"""What is known of instances as replicas and sources."""

import datetime
from collections.abc import Iterable, Sequence
from typing import Any

from oslo_config import cfg

from trove_ceph.api.replica_views import Shown
from trove_ceph.db import replicas, replication_policies
from trove_ceph.db.replica_record import ReplicaRecord

CONF = cfg.CONF
#: Of the watch: so many intervals without a look mean that no taskmanager looks.
_MISSED_LOOKS = 10


class ReplicaFacts:
    """Joins Trove's instances with the records of replicas and the policies of their sources.

    :param store: the replicas that follow, or have followed, their source
    :param policy_store: the policies of sources
    """

    def __init__(
        self,
        store: replicas.ReplicaStore,
        policy_store: replication_policies.ReplicationPolicyStore,
    ):
        self._store = store
        self._policies = policy_store

    def of(self, rows: Sequence[Any]) -> list[Shown]:
        """Return instances with what is known of them, in the same order.

        :param rows: of Trove
        :raises ServiceUnavailableError: the database does not answer
        """
        now = self._store.now()
        stale_after_sec = _MISSED_LOOKS * CONF.trove_ceph_replication.watch_interval_sec
        records = {one.instance_id: one for one in self._records_of(rows)}
        hours_by_source = {
            one.instance_id: one.reprovision_every_hours for one in self._policies.all()
        }
        return [
            Shown(row, record, _due_at(record, hours_by_source), now, stale_after_sec)
            for row in rows
            for record in [records.get(row.id)]
        ]

    def _records_of(self, rows: Sequence[Any]) -> Iterable[ReplicaRecord]:
        projects = {row.tenant_id for row in rows}
        if len(projects) == 1:
            return self._store.list(project_id=projects.pop())
        return self._store.list() if rows else ()


def _due_at(
    record: ReplicaRecord | None, hours_by_source: dict[str, int | None]
) -> datetime.datetime | None:
    """Return when the policy of a replica's source, or the option, replaces its volume."""
    if record is None:
        return None
    hours = hours_by_source.get(record.source_id)
    if hours is None:
        hours = CONF.trove_ceph_replication.reprovision_every_hours
    return record.data_since + datetime.timedelta(hours=hours) if hours else None
