# SPDX-License-Identifier: Apache-2.0
"""Doing what policies have due, in any number of processes at once.

A run is begun by the worker that claims its row, and the name of its backup is written down before
Trove is asked for it: whatever is interrupted, the backup is found by its name, and there is one.
"""

import dataclasses
import datetime
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from oslo_log import log as logging

from trove_ceph import enums, exceptions
from trove_ceph.db import backup_record
from trove_ceph.db.claims import Claim
from trove_ceph.db.policy_record import BackupPolicy, PolicyBackup, PolicyRun, PolicyRunState, Scope
from trove_ceph.db.roles import Role
from trove_ceph.strategies.backup import backup_types, options
from trove_ceph.strategies.policies import policy_match, retention, schedule
from trove_ceph.strategies.policies.dependencies import PolicyDependencies

LOG = logging.getLogger(__name__)

#: What else is due waits for the next time, so that nobody waits long for the first ones.
MOST_AT_ONCE = 20
_SETTLED = datetime.timedelta(days=1)
_ASK_AGAIN = datetime.timedelta(hours=1)
#: How long before the first copy of an instance is due its volume is trimmed.
TRIM_AHEAD = datetime.timedelta(minutes=10)


def run_due(deps: PolicyDependencies) -> None:
    """Do what policies have due; of several processes that try, each thing is done by one.

    What fails is in the rows of the runs, and is tried again later; it is in nobody else's way.
    """
    policies = [_with_least_interval(deps, one) for one in deps.policies.all()]
    runs = deps.policies.runs()
    if not policies and not runs:
        return
    instances = {one.id: one for one in deps.trove.list_instances()}
    _forget(deps, instances, policies, runs)
    chosen = _choose(deps, policies, instances.values())
    under_way = [one for one in runs.values() if one.state.is_under_way]
    for one in under_way:
        if one.instance_id in instances:
            _try(_look_at, deps, chosen.get(one.instance_id), instances[one.instance_id], one)
    if under_way:
        runs = deps.policies.runs()
    _trim_ahead(deps, chosen, instances, runs)
    for instance_id, due_at in _waiting(chosen, runs, deps.policies.clock())[:MOST_AT_ONCE]:
        before = runs.get(instance_id)
        _try(_begin, deps, chosen[instance_id], instances[instance_id], before, due_at)


def _with_least_interval(deps: PolicyDependencies, policy: BackupPolicy) -> BackupPolicy:
    """Return a policy that was made when a shorter interval was allowed as it is run now."""
    if policy.interval_min >= deps.least_interval_min:
        return policy
    return dataclasses.replace(policy, interval_min=deps.least_interval_min)


def _waiting(
    chosen: Mapping[str, BackupPolicy], runs: Mapping[str, PolicyRun], now: datetime.datetime
) -> list[tuple[str, datetime.datetime]]:
    """List what backups are due of, and for what, those that wait longest at the front."""
    since = {}
    for instance_id, policy in chosen.items():
        before = runs.get(instance_id)
        if (due_at := _due(policy, instance_id, before, now)) is not None:
            waited = schedule.waiting_since(policy, before, due_at, now)
            since[instance_id, due_at] = waited, instance_id
    return sorted(since, key=lambda one: since[one])


def _due(
    policy: BackupPolicy, instance_id: str, before: PolicyRun | None, now: datetime.datetime
) -> datetime.datetime | None:
    try:
        return schedule.due(policy, instance_id, before, now)
    except ValueError as error:
        LOG.error('%s: %s', policy, error)
        return None


def _trim_ahead(
    deps: PolicyDependencies,
    chosen: Mapping[str, BackupPolicy],
    instances: Mapping[str, backup_types.Instance],
    runs: Mapping[str, PolicyRun],
) -> None:
    """Have the volumes trimmed of which the first copy is due within TRIM_AHEAD.

    The first copy moves all that the image holds; each later one moves what changed. A trim while
    the backup is taken would be in its way, and one after the snapshot would be too late.
    """
    now = deps.policies.clock()
    for instance_id, policy in chosen.items():
        before = runs.get(instance_id)
        if not _request(policy, before.count if before else 0).copy:
            continue
        if _due(policy, instance_id, before, now) is not None:
            continue
        if _due(policy, instance_id, before, now + TRIM_AHEAD) is None:
            continue
        if all(one.copied_at is None for one in deps.records.of_instance(instance_id)):
            _try(_trim, deps, policy, instances[instance_id])


def _trim(
    deps: PolicyDependencies, _policy: BackupPolicy | None, instance: backup_types.Instance
) -> None:
    deps.trim(instance.id)


def _try(
    what: Callable[..., None],
    deps: PolicyDependencies,
    policy: BackupPolicy | None,
    instance: backup_types.Instance,
    *rest: Any,
) -> None:
    try:
        what(deps, policy, instance, *rest)
    except Exception as error:
        LOG.warning('Instance %s, %s: %s', instance.id, policy or 'without a policy', error)


def _choose(
    deps: PolicyDependencies,
    policies: Sequence[BackupPolicy],
    instances: Collection[backup_types.Instance],
) -> Mapping[str, BackupPolicy]:
    """Return the policy of each instance that has one, by the instance's id."""
    by_target = policy_match.index(policies)
    tiers: dict[str, str] = {}
    if any(one.scope is Scope.TIER for one in policies):
        tiers = deps.tiers(instances)
    chosen = {}
    for one in instances:
        subject = policy_match.Subject(one.id, one.datastore, one.version, tiers.get(one.id))
        if (policy := policy_match.policy_of(by_target, subject)) is not None:
            chosen[one.id] = policy
    return chosen


def _begin(
    deps: PolicyDependencies,
    policy: BackupPolicy,
    instance: backup_types.Instance,
    before: PolicyRun | None,
    due_at: datetime.datetime,
) -> None:
    name = f'{policy.name}-{due_at:%Y%m%d-%H%M}-{secrets.token_hex(3)}'
    begun = deps.policies.begin(policy, instance.id, due_at, name, before, deps.worker)
    if begun is None:
        return
    with deps.heartbeat.hold(_claim_of(begun)):
        _ask(deps, policy, instance, begun)


def _ask(
    deps: PolicyDependencies,
    policy: BackupPolicy,
    instance: backup_types.Instance,
    begun: PolicyRun,
) -> None:
    name = begun.backup_name
    LOG.info('Instance %s, %s: backup %s is due', instance.id, policy, name)
    try:
        if instance.id not in deps.tiers([instance]):
            raise exceptions.NotAdoptableError('its volume is on none of the tiers')
        backup_id = deps.trove.ask_for_backup(
            instance, name, f'taken by policy {policy.name}', _request(policy, begun.count)
        )
    except exceptions.TroveCephError as error:
        # What Trove knows of already would be in the way of all that follow.
        if (seen := deps.trove.find_named(instance.id, name)) is not None:
            deps.trove.give_up(seen.backup_id)
            begun = deps.policies.note_requested(begun, seen.backup_id) or begun
        if _note_failed(deps, begun, str(error)):
            # What is kept no longer is in the way of those that are to come.
            is_full = isinstance(error, exceptions.QuotaExceededError)
            _try(_retain, deps, policy, instance, is_full)
        raise
    deps.policies.note_requested(begun, backup_id)


def _request(policy: BackupPolicy, count: int) -> options.BackupOptions:
    """Return what is asked for with a backup, of which there were so many before."""
    return options.BackupOptions(
        enums.QuiesceLevel(policy.quiesce) if policy.quiesce else None,
        copy=bool(policy.copy_every) and count % policy.copy_every == 0,
        verify=bool(policy.verify_every) and count % policy.verify_every == 0,
    )


def _look_at(
    deps: PolicyDependencies,
    policy: BackupPolicy | None,
    instance: backup_types.Instance,
    run: PolicyRun,
) -> None:
    """Carry on with a run that is under way, as far as it goes."""
    if run.state is PolicyRunState.BEGUN:
        _look_for(deps, run)
        return
    assert run.backup_id is not None
    seen = deps.trove.find(run.backup_id)
    record = deps.records.find(run.backup_id)
    if seen is None or seen.is_completed:
        has_ended = deps.policies.note_done(run)
    elif not seen.is_running:
        error = record.error if record and record.error else 'it was not taken'
        has_ended = _note_failed(deps, run, error)
    else:
        has_ended = False
    if has_ended and policy is not None:
        _retain(deps, policy, instance)


def _look_for(deps: PolicyDependencies, run: PolicyRun) -> None:
    """Carry on with a run whose worker died before it was known whether Trove was asked."""
    taken = deps.policies.take_over(run, deps.worker)
    if taken is None:
        return
    with deps.heartbeat.hold(_claim_of(taken)):
        seen = deps.trove.find_named(run.instance_id, run.backup_name)
        if seen is not None:
            deps.policies.note_requested(taken, seen.backup_id)
        else:
            now = deps.policies.clock()
            deps.policies.note_failed(taken, 'was interrupted before it was asked for', now)


def _claim_of(run: PolicyRun) -> Claim:
    assert run.claimed_by is not None and run.claim_token is not None
    return Claim(Role.RUN_POLICY, run.instance_id, run.claimed_by, run.claim_token)


def _note_failed(deps: PolicyDependencies, run: PolicyRun, error: str) -> bool:
    at = schedule.retry_at(run.attempts + 1, deps.policies.clock())
    is_ours = deps.policies.note_failed(run, error, at)
    if is_ours:
        LOG.warning(
            'Instance %s: no backup by policy %s, in %d attempts; the next is not before %s UTC',
            *(run.instance_id, run.policy_id, run.attempts + 1, at),
        )
    return is_ours


def _retain(
    deps: PolicyDependencies,
    policy: BackupPolicy,
    instance: backup_types.Instance,
    is_full: bool = False,
) -> None:
    """Have those backups be deleted that the policy keeps no longer.

    :param is_full: the quota is used up
    """
    records = {one.backup_id: one for one in deps.records.of_instance(instance.id)}
    candidates, asked_before = [], set()
    for one in deps.policies.backups_of(instance.id):
        found = _candidate(deps, one, records.get(one.backup_id))
        if found is not None:
            candidates.append(found)
            if one.removal_wanted_at is not None:
                asked_before.add(one.backup_id)
    now = deps.policies.clock()
    for backup_id in retention.expired(
        candidates, policy.keep, now, policy.timezone, is_full=is_full
    ):
        _try(_remove, deps, policy, instance, backup_id, backup_id in asked_before)


def _remove(
    deps: PolicyDependencies,
    policy: BackupPolicy | None,
    instance: backup_types.Instance,
    backup_id: str,
    again: bool,
) -> None:
    LOG.info('Instance %s, %s: backup %s is kept no longer', instance.id, policy, backup_id)
    deps.trove.ask_for_deletion(backup_id, instance.project_id, again=again)
    deps.policies.request_removal(backup_id)


def _candidate(
    deps: PolicyDependencies, backup: PolicyBackup, record: backup_record.BackupRecord | None
) -> retention.Candidate | None:
    """Return what may be deleted; None of what somebody is deleting, or has deleted."""
    seen = deps.trove.find(backup.backup_id)
    if seen is None:
        deps.policies.delete_backup_row(backup.backup_id)
        return None
    wanted_at = backup.removal_wanted_at
    if wanted_at is not None and not _is_older(wanted_at, _ASK_AGAIN, deps):
        return None
    state = record.state if record else None
    if state is backup_record.RecordState.DELETING:
        return None
    return retention.Candidate(
        backup.backup_id,
        backup.number,
        backup.taken_at,
        # Whatever takes longer than the interval would never be done otherwise.
        is_under_way=seen.is_running or _is_worked_on(deps, record),
        is_good=seen.is_completed and (state is None or state.is_complete),
        is_suspected=state is backup_record.RecordState.SUSPECTED,
        is_damaged=state is backup_record.RecordState.DAMAGED,
        is_copied=record is not None and record.copied_at is not None,
        is_verified=state is backup_record.RecordState.VERIFIED,
    )


def _is_worked_on(deps: PolicyDependencies, record: backup_record.BackupRecord | None) -> bool:
    """Tell whether a worker that is alive works on a backup."""
    if record is None or record.claimed_by is None:
        return False
    return deps.records.claims.is_claimed(record.backup_id, deps.worker)


def _forget(
    deps: PolicyDependencies,
    instances: Mapping[str, backup_types.Instance],
    policies: Sequence[BackupPolicy],
    runs: Mapping[str, PolicyRun],
) -> None:
    """Forget what was about instances and backups that are gone."""
    for instance_id in runs.keys() - instances.keys():
        deps.policies.delete_run(instance_id)
    for policy in policies:
        if policy.scope is Scope.INSTANCE and policy.target not in instances:
            LOG.info('%s: its instance is gone, and so is the policy', policy)
            deps.policies.remove(policy.policy_id)
    deps.policies.prune_backups(deps.policies.clock() - _SETTLED)


def _is_older(moment: datetime.datetime, age: datetime.timedelta, deps: PolicyDependencies) -> bool:
    # A moment that is far ahead was told by a clock that was wrong.
    return abs(deps.policies.clock() - moment) > age
