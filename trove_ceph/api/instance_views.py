# SPDX-License-Identifier: Apache-2.0
"""Instances as answers show them, with what Trove's own answers lack."""

import dataclasses
import datetime
from collections.abc import Iterable, Sequence
from typing import Any

from trove.instance.tasks import InstanceTasks

from trove_ceph.api import instance_problems, replica_views, views
from trove_ceph.db.backup_record import BackupRecord, RecordState
from trove_ceph.tiers import tier_types
from trove_ceph.tiers.qos import limits

#: Fields of a replica that an instance has with this prefix: a restored instance is a clone too.
_REPLICA = ('own_bytes', 'cloned_at', 'reprovisioned_at', 'last_reason')


@dataclasses.dataclass(frozen=True)
class Shown:
    """An instance and what is known of it.

    :param row: of Trove
    :param service: of Trove, the status that the agent last reported; None: it never did
    :param tier: that holds its volume; None: unknown
    :param backups: the records of its backups
    :param replica: what is known of it as a replica or a source
    """

    row: Any
    service: Any
    tier: tier_types.Tier | None
    backups: Sequence[BackupRecord]
    replica: replica_views.Shown


def instance(shown: Shown) -> dict[str, Any]:
    """Return the details of an instance."""
    row = shown.row
    status = instance_problems.status_of(row, shown.service)
    replica = replica_views.replica(shown.replica, with_volumes=False)
    found = {
        'id': row.id,
        'name': row.name,
        'project_id': row.tenant_id,
        'created': views.timestamp(row.created),
        'operating_status': repr(status) if status else None,
        'task': None if row.task_status == InstanceTasks.NONE else row.task_status.action,
        'volume_size_gib': row.volume_size,
        **_tier(shown.tier, row.volume_size),
        **_backups(shown.backups),
        'replica_of': row.slave_of_id,
        'replica_state': replica['state'],
        'replicating': replica['replicating'],
        'lag_sec': replica['lag_sec'],
        'lag_transactions': replica['lag_transactions'],
        **{f'replica_{name}': replica[name] for name in _REPLICA},
    }
    problems = (
        instance_problems.describe(row, shown.service),
        _damage(found['damaged_backups']),
        replica['problem'],
    )
    return found | {'problem': '; '.join(filter(None, problems)) or None}


def _tier(tier: tier_types.Tier | None, size_gib: int | None) -> dict[str, Any]:
    if tier is None or size_gib is None:
        names = ('tier', 'volume_type', 'copies', 'promised_iops', 'throughput_mib_per_sec')
        return dict.fromkeys(names)
    return {
        'tier': tier.name,
        'volume_type': tier.volume_type.name if tier.volume_type else None,
        'copies': tier.copies,
        'promised_iops': limits.of_volume(tier, size_gib).iops or None,
        'throughput_mib_per_sec': tier.throughput_mib_per_sec,
    }


def _backups(records: Sequence[BackupRecord]) -> dict[str, Any]:
    good = [one for one in records if one.state.is_complete]
    verified = [one for one in good if one.state is RecordState.VERIFIED]
    last, last_verified = _latest(good), _latest(verified)
    return {
        'good_backups': len(good),
        'last_good_backup_id': last.backup_id if last else None,
        'last_good_backup_at': views.timestamp(_time(last)),
        'last_good_backup_state': str(last.state) if last else None,
        'last_verified_backup_id': last_verified.backup_id if last_verified else None,
        'last_verified_backup_at': views.timestamp(_time(last_verified)),
        'damaged_backups': [one.backup_id for one in records if one.state is RecordState.DAMAGED],
    }


def _latest(records: Iterable[BackupRecord]) -> BackupRecord | None:
    return max(records, key=lambda one: (_time(one), one.backup_id), default=None)


def _time(record: BackupRecord | None) -> datetime.datetime | None:
    """Return the time of the data in a backup, for which its creation stands in."""
    return (record.snapshot_at or record.created_at) if record else None


def _damage(backup_ids: Sequence[str]) -> str | None:
    if not backup_ids:
        return None
    number = len(backup_ids)
    subject = 'backup is' if number == 1 else 'backups are'
    return (
        f'{number} {subject} damaged and cannot be restored: {", ".join(backup_ids)}; "openstack '
        'database backup detail show" says why'
    )
