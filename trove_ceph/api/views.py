# SPDX-License-Identifier: Apache-2.0
"""What answers have."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

from trove_ceph.db import backup_record
from trove_ceph.db.policy_record import BackupPolicy, PolicyRun

#: Of our own record; what Trove shows already is left out.
_PLAIN = (
    'error',
    'quiesce',
    'quiesce_wanted',
    'raised_from',
    'raised_because',
    'gtid_executed',
    'size_bytes',
    'used_bytes',
    'filesystem_used_bytes',
    'moved_bytes',
    'copy_base_id',
    'copy_base_because',
    'copy_error',
    'verify_error',
    'take_sec',
    'snapshot_sec',
    'quiesced_sec',
    'copy_sec',
    'verify_sec',
)
#: Of a verification.
_OF_THE_HOST = ('inspected_by', 'clone_id')
_MOMENTS = (
    'snapshot_at',
    'copied_at',
    'verified_at',
    'copy_wanted_at',
    'verify_wanted_at',
    'retry_at',
)


def detail(
    row: Any, record: backup_record.BackupRecord | None, policy_id: str | None, with_places: bool
) -> dict[str, Any]:
    """Return a backup.

    :param row: Trove's
    :param record: ours; None of a backup that is none of ours, or that is not begun yet
    :param policy_id: of the policy that had it taken
    :param with_places: where in Ceph it is, too
    """
    shown: dict[str, Any] = {
        'id': row.id,
        'name': row.name,
        'description': row.description,
        'instance_id': row.instance_id,
        'project_id': row.tenant_id,
        'created': _moment(row.created),
        'status': row.state,
        'policy_id': policy_id,
        'state': str(record.state) if record else None,
        'parent_id': record.parent_id if record else row.parent_id,
        'verification': _verification(record.verification, with_places) if record else None,
    }
    shown |= {name: getattr(record, name, None) for name in _PLAIN}
    shown |= {name: _moment(getattr(record, name, None)) for name in _MOMENTS}
    source = record.location if record and record.snapshot_at else None
    vault = record.copy if record and record.copied_at else None
    places = {'source': source, 'vault': vault}
    shown['places'] = [name for name, place in places.items() if place is not None]
    if with_places:
        shown |= {f'{name}_place': place and str(place) for name, place in places.items()}
    return shown


def _verification(found: Mapping[str, Any] | None, with_places: bool) -> dict[str, Any] | None:
    """Return what verifications found: which host did so is for those who know the places."""
    if not found:
        return None
    return {
        name: _verification(value, with_places) if isinstance(value, Mapping) else value
        for name, value in found.items()
        if with_places or name not in _OF_THE_HOST
    }


def policy(policy: BackupPolicy) -> dict[str, Any]:
    """Return a policy."""
    shown = dataclasses.asdict(policy) | {'id': policy.policy_id, 'scope': str(policy.scope)}
    del shown['policy_id']
    moments = {name: _moment(shown[name]) for name in ('run_wanted_at', 'created_at', 'updated_at')}
    return shown | moments


def run(run: PolicyRun) -> Mapping[str, Any]:
    """Return what a policy last did about an instance."""
    return {
        'instance_id': run.instance_id,
        'state': str(run.state),
        'due_at': _moment(run.due_at),
        'backup_id': run.backup_id,
        'backup_name': run.backup_name,
        'attempts': run.attempts,
        'retry_at': _moment(run.retry_at),
        'error': run.error,
        'count': run.count,
    }


def _moment(moment: datetime.datetime | None) -> str | None:
    return None if moment is None else f'{moment.replace(tzinfo=None).isoformat()}Z'
