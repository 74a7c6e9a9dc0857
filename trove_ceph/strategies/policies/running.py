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

from trove_ceph import exceptions
from trove_ceph.db import model as db_model
from trove_ceph.db.claims import Claim
from trove_ceph.db.policy_model import Policy, PolicyBackup, Run, RunState, Scope
from trove_ceph.db.roles import Role
from trove_ceph.strategies.backup import model, request
from trove_ceph.strategies.policies import choosing, retention, schedule
from trove_ceph.strategies.policies.tools import Tools

LOG = logging.getLogger(__name__)

#: What else is due waits for the next time, so that nobody waits long for the first ones.
MOST_AT_ONCE = 20
_SETTLED = datetime.timedelta(days=1)
_ASK_AGAIN = datetime.timedelta(hours=1)


def run(tools: Tools) -> None:
    """Do what policies have due; of several processes that try, each thing is done by one.

    What fails is in the rows of the runs, and is tried again later; it is in nobody else's way.
    """
    policies = [_with_least_interval(tools, one) for one in tools.policies.all()]
    runs = tools.policies.runs()
    if not policies and not runs:
        return
    instances = {one.id: one for one in tools.trove.list_instances()}
    _forget(tools, instances, policies, runs)
    chosen = _choose(tools, policies, instances.values())
    under_way = [one for one in runs.values() if one.state.is_under_way]
    for one in under_way:
        if one.instance_id in instances:
            _try(_look_at, tools, chosen.get(one.instance_id), instances[one.instance_id], one)
    if under_way:
        runs = tools.policies.runs()
    for instance_id, due_at in _waiting(chosen, runs, tools.policies.clock())[:MOST_AT_ONCE]:
        before = runs.get(instance_id)
        _try(_begin, tools, chosen[instance_id], instances[instance_id], before, due_at)


def _with_least_interval(tools: Tools, policy: Policy) -> Policy:
    """Return a policy that was made when a shorter interval was allowed as it is run now."""
    if policy.interval_min >= tools.least_interval_min:
        return policy
    return dataclasses.replace(policy, interval_min=tools.least_interval_min)


def _waiting(
    chosen: Mapping[str, Policy], runs: Mapping[str, Run], now: datetime.datetime
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
    policy: Policy, instance_id: str, before: Run | None, now: datetime.datetime
) -> datetime.datetime | None:
    try:
        return schedule.due(policy, instance_id, before, now)
    except ValueError as error:
        LOG.error('%s: %s', policy, error)
        return None


def _try(
    what: Callable[..., None],
    tools: Tools,
    policy: Policy | None,
    instance: model.Instance,
    *rest: Any,
) -> None:
    try:
        what(tools, policy, instance, *rest)
    except Exception as error:
        LOG.warning('Instance %s, %s: %s', instance.id, policy or 'without a policy', error)


def _choose(
    tools: Tools, policies: Sequence[Policy], instances: Collection[model.Instance]
) -> Mapping[str, Policy]:
    """Return the policy of each instance that has one, by the instance's id."""
    by_target = choosing.index(policies)
    tiers: dict[str, str] = {}
    if any(one.scope is Scope.TIER for one in policies):
        tiers = tools.tiers(instances)
    chosen = {}
    for one in instances:
        subject = choosing.Subject(one.id, one.datastore, one.version, tiers.get(one.id))
        if (policy := choosing.policy_of(by_target, subject)) is not None:
            chosen[one.id] = policy
    return chosen


def _begin(
    tools: Tools,
    policy: Policy,
    instance: model.Instance,
    before: Run | None,
    due_at: datetime.datetime,
) -> None:
    name = f'{policy.name}-{due_at:%Y%m%d-%H%M}-{secrets.token_hex(3)}'
    begun = tools.policies.begin(policy, instance.id, due_at, name, before, tools.worker)
    if begun is None:
        return
    with tools.heartbeat.hold(_claim_of(begun)):
        _ask(tools, policy, instance, begun)


def _ask(tools: Tools, policy: Policy, instance: model.Instance, begun: Run) -> None:
    name = begun.backup_name
    LOG.info('Instance %s, %s: backup %s is due', instance.id, policy, name)
    try:
        if instance.id not in tools.tiers([instance]):
            raise exceptions.NotAdoptableError('its volume is on none of the tiers')
        backup_id = tools.trove.ask_for_backup(
            instance, name, f'taken by policy {policy.name}', _request(policy, begun.count)
        )
    except exceptions.TroveCephError as error:
        # What Trove knows of already would be in the way of all that follow.
        if (seen := tools.trove.find_named(instance.id, name)) is not None:
            tools.trove.give_up(seen.backup_id)
            begun = tools.policies.note_asked(begun, seen.backup_id) or begun
        if _note_failed(tools, begun, str(error)):
            # What is kept no longer is in the way of those that are to come.
            is_full = isinstance(error, exceptions.QuotaExceededError)
            _try(_retain, tools, policy, instance, is_full)
        raise
    tools.policies.note_asked(begun, backup_id)


def _request(policy: Policy, count: int) -> request.Request:
    """Return what is asked for with a backup, of which there were so many before."""
    return request.Request(
        model.Level(policy.quiesce) if policy.quiesce else None,
        copy=bool(policy.copy_every) and count % policy.copy_every == 0,
        verify=bool(policy.verify_every) and count % policy.verify_every == 0,
    )


def _look_at(tools: Tools, policy: Policy | None, instance: model.Instance, run: Run) -> None:
    """Carry on with a run that is under way, as far as it goes."""
    if run.state is RunState.BEGUN:
        _look_for(tools, run)
        return
    assert run.backup_id is not None
    seen = tools.trove.find(run.backup_id)
    record = tools.records.find(run.backup_id)
    if seen is None or seen.is_completed:
        has_ended = tools.policies.note_done(run)
    elif not seen.is_running:
        error = record.error if record and record.error else 'it was not taken'
        has_ended = _note_failed(tools, run, error)
    else:
        has_ended = False
    if has_ended and policy is not None:
        _retain(tools, policy, instance)


def _look_for(tools: Tools, run: Run) -> None:
    """Carry on with a run whose worker died before it was known whether Trove was asked."""
    taken = tools.policies.take_over(run, tools.worker)
    if taken is None:
        return
    with tools.heartbeat.hold(_claim_of(taken)):
        seen = tools.trove.find_named(run.instance_id, run.backup_name)
        if seen is not None:
            tools.policies.note_asked(taken, seen.backup_id)
        else:
            now = tools.policies.clock()
            tools.policies.note_failed(taken, 'was interrupted before it was asked for', now)


def _claim_of(run: Run) -> Claim:
    assert run.claimed_by is not None and run.claim_token is not None
    return Claim(Role.RUN_POLICY, run.instance_id, run.claimed_by, run.claim_token)


def _note_failed(tools: Tools, run: Run, error: str) -> bool:
    at = schedule.retry_at(run.attempts + 1, tools.policies.clock())
    is_ours = tools.policies.note_failed(run, error, at)
    if is_ours:
        LOG.warning(
            'Instance %s: no backup by policy %s, in %d attempts; the next is not before %s UTC',
            *(run.instance_id, run.policy_id, run.attempts + 1, at),
        )
    return is_ours


def _retain(tools: Tools, policy: Policy, instance: model.Instance, is_full: bool = False) -> None:
    """Have those backups be deleted that the policy keeps no longer.

    :param is_full: the quota is used up
    """
    records = {one.backup_id: one for one in tools.records.of_instance(instance.id)}
    candidates, asked_before = [], set()
    for one in tools.policies.backups_of(instance.id):
        found = _candidate(tools, one, records.get(one.backup_id))
        if found is not None:
            candidates.append(found)
            if one.removal_wanted_at is not None:
                asked_before.add(one.backup_id)
    now = tools.policies.clock()
    for backup_id in retention.expired(
        candidates, policy.keep, now, policy.timezone, is_full=is_full
    ):
        _try(_remove, tools, policy, instance, backup_id, backup_id in asked_before)


def _remove(
    tools: Tools, policy: Policy | None, instance: model.Instance, backup_id: str, again: bool
) -> None:
    LOG.info('Instance %s, %s: backup %s is kept no longer', instance.id, policy, backup_id)
    tools.trove.ask_for_deletion(backup_id, instance.project_id, again=again)
    tools.policies.request_removal(backup_id)


def _candidate(
    tools: Tools, backup: PolicyBackup, record: db_model.Backup | None
) -> retention.Candidate | None:
    """Return what may be deleted; None of what somebody is deleting, or has deleted."""
    seen = tools.trove.find(backup.backup_id)
    if seen is None:
        tools.policies.forget_backup(backup.backup_id)
        return None
    wanted_at = backup.removal_wanted_at
    if wanted_at is not None and not _is_older(wanted_at, _ASK_AGAIN, tools):
        return None
    state = record.state if record else None
    if state is db_model.State.DELETING:
        return None
    return retention.Candidate(
        backup.backup_id,
        backup.number,
        backup.taken_at,
        # Whatever takes longer than the interval would never be done otherwise.
        is_under_way=seen.is_running or _is_worked_on(tools, record),
        is_good=seen.is_completed and (state is None or state.is_complete),
        is_copied=record is not None and record.copied_at is not None,
        is_verified=state is db_model.State.VERIFIED,
    )


def _is_worked_on(tools: Tools, record: db_model.Backup | None) -> bool:
    """Tell whether a worker that is alive works on a backup."""
    if record is None or record.claimed_by is None:
        return False
    return tools.records.claims.is_claimed(record.backup_id, tools.worker)


def _forget(
    tools: Tools,
    instances: Mapping[str, model.Instance],
    policies: Sequence[Policy],
    runs: Mapping[str, Run],
) -> None:
    """Forget what was about instances and backups that are gone."""
    for instance_id in runs.keys() - instances.keys():
        tools.policies.forget_run(instance_id)
    for policy in policies:
        if policy.scope is Scope.INSTANCE and policy.target not in instances:
            LOG.info('%s: its instance is gone, and so is the policy', policy)
            tools.policies.remove(policy.policy_id)
    tools.policies.forget_gone(tools.policies.clock() - _SETTLED)


def _is_older(moment: datetime.datetime, age: datetime.timedelta, tools: Tools) -> bool:
    # A moment that is far ahead was told by a clock that was wrong.
    return abs(tools.policies.clock() - moment) > age
