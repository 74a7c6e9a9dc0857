# SPDX-License-Identifier: Apache-2.0
"""The contents of answers."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

from trove_ceph import times
from trove_ceph.db import backup_record, work_queue
from trove_ceph.db.failover_record import FailoverPolicy
from trove_ceph.db.policy_record import BackupPolicy, PolicyRun
from trove_ceph.db.replacement_record import ReplacementRecord
from trove_ceph.db.roles import Role

#: Fields of our record that are shown unchanged, without those that Trove shows.
_UNCHANGED = (
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
#: Fields of a verification that only those see who may see locations.
_INTERNAL = ('inspected_by', 'clone_id')
_TIMES = (
    'snapshot_at',
    'copied_at',
    'verified_at',
    'copy_wanted_at',
    'verify_wanted_at',
)
_FAILOVER_TIMES = ('created_at', 'updated_at', 'fenced_at', 'moved_at', 'ended_at')
#: Fields of a replacement that only those see who may see servers.
_SERVERS = ('volume_id', 'old_server_id', 'old_host', 'guest_id', 'new_server_id', 'new_host')


def detail(
    row: Any,
    record: backup_record.BackupRecord | None,
    policy_id: str | None,
    with_locations: bool,
    now: datetime.datetime,
) -> dict[str, Any]:
    """Return a backup.

    :param row: Trove's row
    :param record: our record; None if the backup is not ours or has not begun
    :param policy_id: the policy that took it
    :param with_locations: show its Ceph images too
    :param now: by the clock of the database
    """
    shown: dict[str, Any] = {
        'id': row.id,
        'name': row.name,
        'description': row.description,
        'instance_id': row.instance_id,
        'project_id': row.tenant_id,
        'created': timestamp(row.created),
        'status': row.state,
        'policy_id': policy_id,
        'state': str(record.state) if record else None,
        'parent_id': record.parent_id if record else row.parent_id,
        'verification': _verification(record.verification, with_locations) if record else None,
    }
    shown |= {name: getattr(record, name, None) for name in _UNCHANGED}
    shown |= {name: timestamp(getattr(record, name, None)) for name in _TIMES}
    shown |= _retries(record, now)
    source = record.location if record and record.snapshot_at else None
    vault = record.copy if record and record.copied_at else None
    locations = {'source': source, 'vault': vault}
    shown['places'] = [name for name, location in locations.items() if location is not None]
    if with_locations:
        shown |= {f'{name}_place': found and str(found) for name, found in locations.items()}
    return shown


def _retries(
    record: backup_record.BackupRecord | None, now: datetime.datetime
) -> dict[str, str | None]:
    """Return the times of the next attempts that wait; the first of them is ``retry_at``.

    That of a backup to be deleted is the time of the next attempt to delete it.
    """
    copy_at = verify_at = delete_at = None
    if record is not None:
        delete_at = record.delete_retry_at
        copy_at = work_queue.next_attempt_at(record, Role.COPY, now)
        verify_at = work_queue.next_attempt_at(record, Role.VERIFY, now)
    first = min((one for one in (copy_at, verify_at) if one is not None), default=None)
    return {
        'copy_retry_at': timestamp(copy_at),
        'verify_retry_at': timestamp(verify_at),
        'retry_at': timestamp(delete_at or first),
    }


def _verification(found: Mapping[str, Any] | None, with_locations: bool) -> dict[str, Any] | None:
    """Return the result of verifications, without internal fields unless locations are shown."""
    if not found:
        return None
    return {
        name: _verification(value, with_locations) if isinstance(value, Mapping) else value
        for name, value in found.items()
        if with_locations or name not in _INTERNAL
    }


def policy(policy: BackupPolicy) -> dict[str, Any]:
    """Return a policy."""
    shown = dataclasses.asdict(policy) | {'id': policy.policy_id, 'scope': str(policy.scope)}
    del shown['policy_id']
    keys = ('run_wanted_at', 'created_at', 'updated_at')
    return shown | {name: timestamp(shown[name]) for name in keys}


def failover_policy(policy: FailoverPolicy) -> Mapping[str, Any]:
    """Return a failover policy."""
    return {
        'id': policy.policy_id,
        'scope': str(policy.scope),
        'target': policy.target,
        'enabled': policy.enabled,
        'prefer': str(policy.prefer),
        'project_id': policy.project_id,
        'created_at': timestamp(policy.created_at),
        'updated_at': timestamp(policy.updated_at),
    }


def run(run: PolicyRun) -> Mapping[str, Any]:
    """Return the last run of a policy for an instance."""
    return {
        'instance_id': run.instance_id,
        'state': str(run.state),
        'due_at': timestamp(run.due_at),
        'backup_id': run.backup_id,
        'backup_name': run.backup_name,
        'attempts': run.attempts,
        'retry_at': timestamp(run.retry_at),
        'error': run.error,
        'count': run.count,
    }


def failover(record: ReplacementRecord, with_servers: bool) -> Mapping[str, Any]:
    """Return a failover.

    :param with_servers: show the servers, their hosts and the volume too
    """
    shown: dict[str, Any] = {
        'id': record.replacement_id,
        'instance_id': record.instance_id,
        'project_id': record.project_id,
        'state': str(record.state),
        'requested_by': str(record.requested_by),
        'force': record.is_forced,
    }
    names = ('cause', 'reason', 'step', 'error', 'attempts', 'promoted_id')
    shown |= {name: getattr(record, name) for name in names}
    shown |= {name: timestamp(getattr(record, name)) for name in _FAILOVER_TIMES}
    if with_servers:
        shown |= {name: getattr(record, name) for name in _SERVERS}
    return shown


def timestamp(time: datetime.datetime | None) -> str | None:
    """Return a time as answers show it."""
    return None if time is None else times.utc_text(time)
