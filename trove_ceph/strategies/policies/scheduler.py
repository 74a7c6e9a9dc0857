# SPDX-License-Identifier: Apache-2.0
"""Run the backup policies, in any number of processes at once.

A worker begins a run by claiming its row, and records the name of the backup before it requests the
backup from Trove. So after any interruption the backup is found by its name, and there is only one.
"""

import dataclasses
import datetime
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from oslo_log import log as logging

from trove_ceph import enums, exceptions, operation_events
from trove_ceph.db import backup_record
from trove_ceph.db.claims import Claim
from trove_ceph.db.policy_record import BackupPolicy, PolicyBackup, PolicyRun, PolicyRunState, Scope
from trove_ceph.db.roles import Role
from trove_ceph.operation_events import Phase
from trove_ceph.strategies.backup import backup_types, options, tenant_errors
from trove_ceph.strategies.policies import policy_match, retention, schedule
from trove_ceph.strategies.policies.dependencies import PolicyDependencies

LOG = logging.getLogger(__name__)

#: The most runs to begin in one round; other due runs wait for the next round.
MOST_AT_ONCE = 20
#: After this time the records of backups that are gone are deleted.
_KEEP_GONE = datetime.timedelta(days=1)
#: After this time a deletion without effect is requested again.
_REQUEST_AGAIN = datetime.timedelta(hours=1)
#: The cause of a run whose backup failed; the report of the backup has the class of the error.
_BACKUP_FAILED = 'BackupFailed'
_ON_NO_TIER = 'its volume is on no tier'
#: How long before an instance's first copy is due its volume is trimmed.
TRIM_AHEAD = datetime.timedelta(minutes=10)


def run_due(deps: PolicyDependencies) -> None:
    """Begin the backups that are due, follow those under way, and delete expired ones.

    Several processes may call this at once; one of them acts on each instance. The row of a run
    records its failure, which is retried later and does not affect other instances.
    """
    policies = [_with_least_interval(deps, one) for one in deps.policies.all()]
    runs = deps.policies.runs()
    if not policies and not runs:
        return
    instances = {one.id: one for one in deps.trove.list_instances()}
    _delete_stale(deps, instances, policies, runs)
    chosen = _choose(deps, policies, instances.values())
    under_way = [one for one in runs.values() if one.state.is_under_way]
    for one in under_way:
        if one.instance_id in instances:
            _try(_follow, deps, chosen.get(one.instance_id), instances[one.instance_id], one)
    if under_way:
        runs = deps.policies.runs()
    now = deps.policies.clock()
    for instance_id, policy in chosen.items():
        _try(_trim_ahead, deps, policy, instances[instance_id], runs.get(instance_id), now)
    for instance_id, due_at in _waiting(deps, chosen, instances, runs)[:MOST_AT_ONCE]:
        before = runs.get(instance_id)
        _try(_begin, deps, chosen[instance_id], instances[instance_id], before, due_at)


def _with_least_interval(deps: PolicyDependencies, policy: BackupPolicy) -> BackupPolicy:
    """Return a policy with at least the least interval, which may have been raised since."""
    if policy.interval_min >= deps.least_interval_min:
        return policy
    return dataclasses.replace(policy, interval_min=deps.least_interval_min)


def _waiting(
    deps: PolicyDependencies,
    chosen: Mapping[str, BackupPolicy],
    instances: Mapping[str, backup_types.Instance],
    runs: Mapping[str, PolicyRun],
) -> list[tuple[str, datetime.datetime]]:
    """List the instances with a due backup and its due time, the longest wait first."""
    now = deps.policies.clock()
    since: dict[tuple[str, datetime.datetime], tuple[datetime.datetime, str]] = {}
    for instance_id, policy in chosen.items():
        before = runs.get(instance_id)
        _try(_add_due, deps, policy, instances[instance_id], before, now, since)
    return sorted(since, key=lambda one: since[one])


def _add_due(
    _deps: PolicyDependencies,
    policy: BackupPolicy,
    instance: backup_types.Instance,
    before: PolicyRun | None,
    now: datetime.datetime,
    since: dict[tuple[str, datetime.datetime], tuple[datetime.datetime, str]],
) -> None:
    """Add the due backup of an instance to those that wait, if there is one."""
    if (due_at := schedule.due(policy, instance.id, before, now, instance.created_at)) is not None:
        waited = schedule.waiting_since(policy, before, due_at, now)
        since[instance.id, due_at] = waited, instance.id


def _trim_ahead(
    deps: PolicyDependencies,
    policy: BackupPolicy,
    instance: backup_types.Instance,
    before: PolicyRun | None,
    now: datetime.datetime,
) -> None:
    """Request a trim of a volume if its first copy is due within TRIM_AHEAD.

    The first copy moves all allocated data of the image, later ones move what changed. A trim
    while the backup is taken would slow it down, and after the snapshot it would be too late.
    """
    if not _options(policy, before.count if before else 0).copy:
        return
    if schedule.due(policy, instance.id, before, now, instance.created_at) is not None:
        return
    if schedule.due(policy, instance.id, before, now + TRIM_AHEAD, instance.created_at) is None:
        return
    if all(one.copied_at is None for one in deps.records.of_instance(instance.id)):
        deps.trim(instance.id)


def _try(
    action: Callable[..., None],
    deps: PolicyDependencies,
    policy: BackupPolicy | None,
    instance: backup_types.Instance,
    *rest: Any,
) -> None:
    try:
        action(deps, policy, instance, *rest)
    except Exception as error:
        LOG.warning('Instance %s, %s: %s', instance.id, policy or 'without a policy', error)


def _choose(
    deps: PolicyDependencies,
    policies: Sequence[BackupPolicy],
    instances: Collection[backup_types.Instance],
) -> Mapping[str, BackupPolicy]:
    """Return the policy of each instance that has one, by the instance's id.

    An instance of another guest agent has none: Trove takes its backups by itself, so they have no
    record, and retention would never delete them.
    """
    by_target = policy_match.index(policies)
    tiers: dict[str, str] = {}
    if any(one.scope is Scope.TIER for one in policies):
        tiers = deps.tiers(one for one in instances if one.has_our_guest_agent)
    chosen = {}
    for one in instances:
        if not one.has_our_guest_agent:
            continue
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
        _request_backup(deps, policy, instance, begun)


def _request_backup(
    deps: PolicyDependencies,
    policy: BackupPolicy,
    instance: backup_types.Instance,
    begun: PolicyRun,
) -> None:
    name = begun.backup_name
    _report(deps, begun, Phase.START)
    LOG.info('Instance %s, %s: backup %s is due', instance.id, policy, name)
    try:
        if instance.id not in deps.tiers([instance]) or not deps.is_on_tier(instance.id):
            raise exceptions.NotAdoptableError(_ON_NO_TIER, _ON_NO_TIER)
        _renew_claim(deps, begun)
        backup_id = deps.trove.request_backup(
            instance, name, f'taken by policy {policy.name}', _options(policy, begun.count)
        )
    except exceptions.ClaimLostError:
        # The worker that has the run by now records how it goes on.
        raise
    except exceptions.TroveCephError as error:
        # A backup that Trove has recorded, and that stays unfinished, would block later ones.
        if (shown := deps.trove.find_named(instance.id, name)) is not None:
            deps.trove.fail_backup(shown.backup_id)
            begun = _record_requested(deps, begun, shown.backup_id) or begun
        shown_error = tenant_errors.tenant_message(error)
        if _record_failed(deps, begun, shown_error, type(error).__name__):
            # Expired backups may use up the quota.
            is_full = isinstance(error, exceptions.QuotaExceededError)
            _try(_retain, deps, policy, instance, is_full)
        raise
    _record_requested(deps, begun, backup_id)


def _renew_claim(deps: PolicyDependencies, run: PolicyRun) -> None:
    """Renew the claim on a run.

    :raises ClaimLostError: this worker was suspended, and another one has resumed the run
    """
    claim = _claim_of(run)
    if not deps.records.claims.heartbeat(claim):
        raise exceptions.ClaimLostError(f'the {claim} is lost, so no backup is requested')


def _record_requested(deps: PolicyDependencies, run: PolicyRun, backup_id: str) -> PolicyRun | None:
    """Record that Trove has the backup of a run; return None if the claim is lost.

    Retention knows the backup in both cases.
    """
    requested = deps.policies.record_requested(run, backup_id)
    if requested is None:
        # The worker was suspended inside of the request. If the run was resumed before Trove had
        # the backup, no other worker knows it.
        LOG.info('Backup %s was requested, but the %s is lost', backup_id, _claim_of(run))
        deps.policies.ensure_backup(run, backup_id)
    return requested


def _options(policy: BackupPolicy, count: int) -> options.BackupOptions:
    """Return the options of the next backup.

    :param count: the number of backups of the instance that the policy has taken
    :raises InvalidBackupError: the policy has an unknown quiesce level
    """
    try:
        level = enums.QuiesceLevel(policy.quiesce) if policy.quiesce else None
    except ValueError as error:
        raise exceptions.InvalidBackupError(
            f'policy {policy.name}: {policy.quiesce!r} is not a quiesce level; set one of '
            f'{", ".join(enums.QuiesceLevel)}'
        ) from error
    return options.BackupOptions(
        level,
        copy=bool(policy.copy_every) and count % policy.copy_every == 0,
        verify=bool(policy.verify_every) and count % policy.verify_every == 0,
    )


def _follow(
    deps: PolicyDependencies,
    policy: BackupPolicy | None,
    instance: backup_types.Instance,
    run: PolicyRun,
) -> None:
    """Continue a run that is under way, as far as possible now."""
    if run.state is PolicyRunState.BEGUN:
        _resume(deps, run)
        return
    assert run.backup_id is not None
    shown = deps.trove.find(run.backup_id)
    record = deps.records.find(run.backup_id)
    if shown is None or shown.is_completed:
        has_ended = deps.policies.record_done(run)
        if has_ended:
            _report(deps, run, Phase.END)
    elif not shown.is_running:
        error = record.error if record and record.error else 'the backup failed'
        has_ended = _record_failed(deps, run, error, _BACKUP_FAILED)
    else:
        has_ended = False
    if has_ended and policy is not None:
        _retain(deps, policy, instance)


def _resume(deps: PolicyDependencies, run: PolicyRun) -> None:
    """Continue a run whose worker died before it recorded that it requested the backup."""
    resumed = deps.policies.resume(run, deps.worker)
    if resumed is None:
        return
    with deps.heartbeat.hold(_claim_of(resumed)):
        shown = deps.trove.find_named(run.instance_id, run.backup_name)
        if shown is not None:
            deps.policies.record_requested(resumed, shown.backup_id)
        else:
            now = deps.policies.clock()
            deps.policies.record_failed(resumed, 'was interrupted before it was requested', now)


def _claim_of(run: PolicyRun) -> Claim:
    assert run.claimed_by is not None and run.claim_token is not None
    return Claim(Role.RUN_POLICY, run.instance_id, run.claimed_by, run.claim_token)


def _report(
    deps: PolicyDependencies,
    run: PolicyRun,
    phase: Phase,
    cause: str | None = None,
    message: str | None = None,
) -> None:
    """Report a run; its duration counts from the time for which it was due."""
    subject = {
        name: getattr(run, name)
        for name in ('policy_id', 'instance_id', 'backup_name', 'backup_id')
    }
    seconds = None
    if phase is not Phase.START:
        seconds = (deps.policies.clock() - run.due_at).total_seconds()
    operation_events.publish(
        operation_events.Event(
            *(operation_events.Operation.POLICY_RUN, phase, subject, seconds),
            cause=cause,
            message=message,
        )
    )


def _record_failed(deps: PolicyDependencies, run: PolicyRun, error: str, cause: str) -> bool:
    """Record that a run failed; return whether it was ours to record.

    :param error: the reason as tenants see it
    :param cause: the name of the class of the error
    """
    at = schedule.retry_at(run.attempts + 1, deps.policies.clock())
    is_ours = deps.policies.record_failed(run, error, at)
    if is_ours:
        _report(deps, run, Phase.ERROR, cause, error)
        LOG.warning(
            'Instance %s: policy %s has failed to take a backup %d times; retry after %s UTC',
            *(run.instance_id, run.policy_id, run.attempts + 1, at),
        )
    return is_ours


def _retain(
    deps: PolicyDependencies,
    policy: BackupPolicy,
    instance: backup_types.Instance,
    is_full: bool = False,
) -> None:
    """Request the deletion of the backups that have expired.

    :param is_full: the quota is used up
    """
    records = {one.backup_id: one for one in deps.records.of_instance(instance.id)}
    candidates, requested_before = [], set()
    for one in deps.policies.backups_of(instance.id):
        found = _candidate(deps, one, records.get(one.backup_id))
        if found is not None:
            candidates.append(found)
            if one.removal_wanted_at is not None:
                requested_before.add(one.backup_id)
    # The clocks of workers differ, and one of them dated the backups while another deletes them.
    now = deps.policies.database_time()
    for backup_id in retention.expired(
        candidates, policy.keep, now, policy.timezone, is_full=is_full
    ):
        _try(_remove, deps, policy, instance, backup_id, backup_id in requested_before)


def _remove(
    deps: PolicyDependencies,
    policy: BackupPolicy | None,
    instance: backup_types.Instance,
    backup_id: str,
    again: bool,
) -> None:
    LOG.info('Instance %s, %s: backup %s has expired', instance.id, policy, backup_id)
    deps.trove.request_deletion(backup_id, instance.project_id, again=again)
    deps.policies.request_removal(backup_id)


def _candidate(
    deps: PolicyDependencies, backup: PolicyBackup, record: backup_record.BackupRecord | None
) -> retention.Candidate | None:
    """Return a backup as retention sees it; None if it is deleted or its deletion is requested."""
    shown = deps.trove.find(backup.backup_id)
    if shown is None:
        deps.policies.delete_backup_row(backup.backup_id)
        return None
    requested_at = backup.removal_wanted_at
    if requested_at is not None and not _is_older(requested_at, _REQUEST_AGAIN, deps):
        return None
    state = record.state if record else None
    if state is backup_record.RecordState.DELETING:
        return None
    return retention.Candidate(
        backup.backup_id,
        backup.number,
        backup.taken_at,
        # A copy that takes longer than the interval would never finish otherwise.
        is_under_way=shown.is_running or _is_claimed(deps, record),
        is_good=shown.is_completed and (state is None or state.is_complete),
        is_suspected=state is backup_record.RecordState.SUSPECTED,
        is_damaged=state is backup_record.RecordState.DAMAGED,
        is_copied=record is not None and record.copied_at is not None,
        is_verified=state is backup_record.RecordState.VERIFIED,
    )


def _is_claimed(deps: PolicyDependencies, record: backup_record.BackupRecord | None) -> bool:
    """Return whether a live worker has claimed a backup."""
    if record is None or record.claimed_by is None:
        return False
    return deps.records.claims.is_claimed(record.backup_id, deps.worker)


def _delete_stale(
    deps: PolicyDependencies,
    instances: Mapping[str, backup_types.Instance],
    policies: Sequence[BackupPolicy],
    runs: Mapping[str, PolicyRun],
) -> None:
    """Delete the records that concern instances and backups that are gone."""
    for instance_id in runs.keys() - instances.keys():
        deps.policies.delete_run(instance_id)
    for policy in policies:
        if policy.scope is Scope.INSTANCE and policy.target not in instances:
            LOG.info('%s: delete the policy, since its instance is gone', policy)
            deps.policies.remove(policy.policy_id)
    deps.policies.prune_backups(deps.policies.database_time() - _KEEP_GONE)


def _is_older(moment: datetime.datetime, age: datetime.timedelta, deps: PolicyDependencies) -> bool:
    # A time far in the future comes from a wrong clock, and counts as old.
    return abs(deps.policies.clock() - moment) > age
