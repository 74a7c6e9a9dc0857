# SPDX-License-Identifier: Apache-2.0
"""Replicas and replication policies as answers show them."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

from trove.instance.tasks import InstanceTasks

from trove_ceph.api import replica_problems, views
from trove_ceph.db.replica_record import ReplicaRecord, ReplicationPolicy

#: Shown of a replica that follows its source, but does not replicate.
_BROKEN = 'broken'
#: Shown of one that is being created, and has no record yet.
_CREATING = 'creating'
#: Shown of one without a record: another strategy made it, or it has never followed its source.
_UNKNOWN = 'unknown'
_UNCHANGED = (
    'replication_error',
    'lag_sec',
    'lag_transactions',
    'own_bytes',
    'former_own_bytes',
    'fresh_own_bytes',
    'clone_depth',
    'semi_sync_active',
    'requested_by',
    'reason',
    'step',
    'attempts',
    'error',
    'last_reason',
)
_TIMES = ('observed_at', 'cloned_at', 'requested_at', 'ended_at', 'reprovisioned_at')
#: Fields of a replica that only those see who may see volumes.
_VOLUMES = ('volume_id', 'new_volume_id', 'old_volume_id')


@dataclasses.dataclass(frozen=True)
class Shown:
    """An instance that follows a source, or that has replicas.

    :param row: of Trove
    :param record: ours; None: it is no replica, or we have not recorded it
    :param due_at: when its policy replaces its clone; None: never
    :param now: the time by the clock of the database
    :param stale_after_sec: a look that is older proves nothing
    """

    row: Any
    record: ReplicaRecord | None
    due_at: datetime.datetime | None
    now: datetime.datetime
    stale_after_sec: float


def replica(shown: Shown, with_volumes: bool) -> dict[str, Any]:
    """Return a replica, or a source without its replicas.

    :param with_volumes: show its volumes too
    """
    row, record = shown.row, shown.record
    age_sec = _age_sec(record.observed_at if record else None, shown.now)
    content: dict[str, Any] = {
        'id': row.id,
        'name': row.name,
        'project_id': row.tenant_id,
        'source_id': row.slave_of_id,
        'state': _state(row, record),
        'replicating': record.is_replicating if record and record.is_observed else None,
        'problem': _problem(shown, age_sec),
    }
    content |= {name: getattr(record, name, None) for name in _UNCHANGED}
    content |= {name: views.timestamp(getattr(record, name, None)) for name in _TIMES}
    content['clone_age_sec'] = _age_sec(record.cloned_at if record else None, shown.now)
    content['observed_age_sec'] = age_sec
    content['reprovision_due_at'] = views.timestamp(shown.due_at)
    content['created'] = views.timestamp(row.created)
    if with_volumes:
        content |= {name: getattr(record, name, None) for name in _VOLUMES}
    return content


def _age_sec(time: datetime.datetime | None, now: datetime.datetime) -> int | None:
    return None if time is None else int((now - time).total_seconds())


def _state(row: Any, record: ReplicaRecord | None) -> str | None:
    if row.slave_of_id is None:
        return None
    if record is None:
        return _CREATING if row.task_status == InstanceTasks.BUILDING else _UNKNOWN
    return _BROKEN if record.is_broken else str(record.state)


def _problem(shown: Shown, age_sec: int | None) -> str | None:
    row, record = shown.row, shown.record
    if row.slave_of_id is None:
        return None
    if record is not None:
        is_stale = age_sec is not None and age_sec > shown.stale_after_sec
        return replica_problems.describe(record, is_stale)
    if row.task_status == InstanceTasks.BUILDING:
        return 'the replica is being created'
    return (
        'not known: the cloud does not watch this replica; it was not created as a clone, or its '
        'creation has not succeeded'
    )


def policy(
    instance_id: str, found: ReplicationPolicy | None, defaults: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the replication policy of a source.

    :param found: None: none was set
    :param defaults: what a value of None stands for; that of the volume type depends on the tier
    """
    return {
        'instance_id': instance_id,
        'semi_sync': found is not None and found.semi_sync,
        **{name: getattr(found, name, None) for name in defaults},
        'replica_volume_type': found.replica_volume_type if found else None,
        'defaults': defaults,
        'created_at': views.timestamp(found.created_at if found else None),
        'updated_at': views.timestamp(found.updated_at if found else None),
    }
