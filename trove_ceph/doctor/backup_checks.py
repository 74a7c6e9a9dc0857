# SPDX-License-Identifier: Apache-2.0
"""Checks of databases and their backups, by the rows of Trove's database."""

import collections
import datetime
import json
from collections.abc import Iterator, Sequence

from trove_ceph import enums
from trove_ceph.db.backup_record import UNDER_WAY, BackupRecord, RecordState
from trove_ceph.db.policy_record import BackupPolicy, PolicyRunState
from trove_ceph.db.trove_rows import InstanceRow
from trove_ceph.doctor import remedies, version_checks
from trove_ceph.doctor.check import Check, System
from trove_ceph.doctor.finding import Finding, Level, error, warning
from trove_ceph.doctor.record_facts import Records, SchemaFacts
from trove_ceph.strategies.policies import policy_match

#: A new instance has no heartbeat and no backup yet.
GRACE = datetime.timedelta(hours=1)
#: Backups are late after this many intervals, and lost from sight after twice as many.
LATE_INTERVALS = 2
#: From here on a failure is no accident.
MANY_FAILURES = 3
#: Until then a database may be one that was created to try something.
UNPROTECTED_AGE = datetime.timedelta(days=1)
#: A finding about many objects names so many of them; the others are in its details.
MOST_NAMED = 3
TRASH_AGE = datetime.timedelta(days=7)
ORPHAN_SWEEP_AGE = datetime.timedelta(days=7)
#: The values with which a snapshot alone is a backup (guestagent/backup_settings.py).
SAFE_VALUES = {
    'innodb_flush_log_at_trx_commit': ('1',),
    'sync_binlog': ('1',),
    'innodb_doublewrite': ('ON', '1', 'TRUE'),
}


def check_schema(facts: SchemaFacts) -> Iterator[Finding]:
    """Yield tables of another version than this release needs."""
    if facts.found != facts.required:
        yield error('tables of trove_ceph', facts.found or 'none', facts.required, remedies.DB_SYNC)


def check_agents(records: Records) -> Iterator[Finding]:
    """Yield the instances whose guest agents are silent."""
    limit = datetime.timedelta(seconds=records.limits.heartbeat_sec)
    for one in records.instances:
        is_new = one.heartbeat_at is None and records.now - one.created_at < GRACE
        if is_new or not one.is_settled:
            continue
        command = remedies.SHOW_INSTANCE.format(id=one.instance_id)
        expected = f'at most {limit.total_seconds():.0f} s old'
        if one.heartbeat_at is None:
            yield error(f'agent of {one.instance_id}', 'no heartbeat', expected, command)
        elif records.now - one.heartbeat_at > limit:
            observed = f'last heartbeat {_age(records.now - one.heartbeat_at)} ago'
            yield error(f'agent of {one.instance_id}', observed, expected, command)


def check_keys(records: Records) -> Iterator[Finding]:
    """Yield the instances without a key, whose reports the conductor refuses."""
    if not records.limits.needs_keys:
        return
    for one in records.instances:
        if not one.has_key:
            yield error(
                f'agent of {one.instance_id}',
                'has no key, so that trove-conductor refuses its reports',
                'a key, which Trove gives to new instances: replace it by a restore of a backup',
                remedies.TAKE_BACKUP.format(id=one.instance_id),
            )


def check_backups(records: Records) -> Iterator[Finding]:
    """Yield the instances whose last good backup is older than their policy promises."""
    for instance, policy in _with_policy(records):
        good = [_time(one) for one in _good_backups_of(records, instance)]
        since = max(good, default=max(policy.created_at, instance.created_at))
        what = 'last good backup' if good else 'no good backup since'
        yield from _late(records, instance, since, policy, policy.interval, what)


def check_verified(records: Records) -> Iterator[Finding]:
    """Yield the instances whose last verified backup is older than their policy promises.

    Its age is that of its data: a new verification of an old backup protects no newer data.
    """
    for instance, policy in _with_policy(records):
        if not policy.verify_every:
            continue
        # A damaged backup keeps the time of its last successful verification.
        verified = [
            _time(one)
            for one in _good_backups_of(records, instance)
            if one.state is RecordState.VERIFIED
        ]
        since = max(verified, default=max(policy.created_at, instance.created_at))
        what = 'last verified backup' if verified else 'no verified backup since'
        interval = policy.interval * policy.verify_every
        yield from _late(records, instance, since, policy, interval, what)


def _late(
    records: Records,
    instance: InstanceRow,
    since: datetime.datetime,
    policy: BackupPolicy,
    interval: datetime.timedelta,
    what: str,
) -> Iterator[Finding]:
    age = records.now - since
    limit = interval * LATE_INTERVALS + GRACE
    if age > limit:
        level = Level.ERROR if age > limit * 2 else Level.WARNING
        yield Finding(
            level,
            f'instance {instance.instance_id}',
            f'{what}: {_age(age)} ago',
            f'every {_age(interval)}, by {policy}',
            remedies.RUN_POLICY.format(id=policy.policy_id),
        )


def check_unprotected(records: Records) -> Iterator[Finding]:
    """Yield that instances have no good backup and no policy that takes one: once for all of them.

    A disabled policy is a decision of its owner. A replica is protected by its source. An instance
    whose agent has never reported has no data, such as one whose creation has failed.
    """
    found = sorted(_unprotected(records), key=lambda one: (one.project_id, one.instance_id))
    if not found:
        return
    named = ', '.join(one.instance_id for one in found[:MOST_NAMED])
    more = f' and {len(found) - MOST_NAMED} more' if len(found) > MOST_NAMED else ''
    projects = len({one.project_id for one in found})
    yield Finding(
        Level.WARNING,
        'instances',
        f'{len(found)}, of {projects} projects, have no policy and no good backup: {named}{more}',
        'a policy, or a backup, for each',
        remedies.CREATE_POLICY.format(id=found[0].instance_id),
        details=tuple(
            {'instance_id': one.instance_id, 'project_id': one.project_id} for one in found
        ),
    )


def _unprotected(records: Records) -> Iterator[InstanceRow]:
    policies = policy_match.index(records.policies)
    protected = {one.instance_id for one in records.backups if one.state.is_complete}
    for one in _our_instances(records):
        is_new = one.heartbeat_at is None or records.now - one.created_at < UNPROTECTED_AGE
        if one.is_replica or is_new:
            continue
        if policy_match.matching(policies, _subject(records, one)):
            continue
        if one.instance_id not in protected:
            yield one


def check_last(records: Records) -> Iterator[Finding]:
    """Yield the instances whose last backup failed, or froze the file system unasked.

    Each backup checks MySQL's settings, so the reasons include what was set by SQL.
    """
    last: dict[str, BackupRecord] = {}
    for one in sorted(records.backups, key=lambda one: one.created_at):
        if one.state not in UNDER_WAY:
            last[one.instance_id] = one
    for instance in records.instances:
        found = last.get(instance.instance_id)
        if found is None:
            continue
        thing = f'instance {instance.instance_id}'
        command = remedies.SHOW_BACKUP.format(id=found.backup_id)
        if found.state is RecordState.FAILED:
            observed = f'its last backup failed: {found.error}'
            yield warning(thing, observed, 'a backup', command)
        elif found.raised_because:
            observed = f'its last backup froze the file system: {found.raised_because}'
            yield warning(thing, observed, f'a backup with quiesce {found.raised_from}', command)


def check_policies(records: Records) -> Iterator[Finding]:
    """Yield the runs of policies that fail again and again."""
    for run in records.runs.values():
        if run.state is PolicyRunState.FAILED and run.attempts >= MANY_FAILURES:
            yield error(
                f'policy {run.policy_id} for instance {run.instance_id}',
                f'failed {run.attempts} times: {run.error}',
                'a backup',
                remedies.SHOW_POLICY.format(id=run.policy_id),
            )


def check_damage(records: Records) -> Iterator[Finding]:
    """Yield the backups that inspections found damaged, or suspect."""
    for one in records.backups:
        thing = f'backup {one.backup_id}'
        if one.state is RecordState.DAMAGED:
            command = remedies.TAKE_BACKUP.format(id=one.instance_id)
            yield error(thing, f'damaged: {one.verify_error}', 'restorable', command)
        elif one.state is RecordState.SUSPECTED:
            command = remedies.VERIFY_BACKUP.format(id=one.backup_id)
            observed = f'one inspection failed: {one.verify_error}'
            yield warning(thing, observed, 'a second inspection', command)


def check_jobs(records: Records) -> Iterator[Finding]:
    """Yield the copies and verifications that fail again and again."""
    for one in records.backups:
        thing = f'backup {one.backup_id}'
        if (one.copy_failures or 0) >= MANY_FAILURES:
            command = remedies.SHOW_BACKUP.format(id=one.backup_id)
            observed = f'{one.copy_failures} copies failed: {one.copy_error}'
            yield warning(thing, observed, 'a copy in the vault', command)
        if (one.verify_failures or 0) >= MANY_FAILURES:
            command = remedies.SHOW_BACKUP.format(id=one.backup_id)
            observed = f'{one.verify_failures} verifications failed: {one.verify_error}'
            yield warning(thing, observed, 'a verification', command)


def check_trash(records: Records) -> Iterator[Finding]:
    """Yield the pools with images that wait long for their clones."""
    old = collections.Counter(
        one.pool for one in records.trashed if records.now - one.created_at > TRASH_AGE
    )
    for pool, count in sorted(old.items()):
        yield warning(
            f'pool {pool}',
            f'{count} images wait in the trash for more than {TRASH_AGE.days} days',
            'flattened clones, so that the space is given back',
            remedies.TRASH.format(pool=pool),
        )


def check_settings(records: Records) -> Iterator[Finding]:
    """Yield settings of configuration groups with which a snapshot alone is no backup."""
    if records.limits.quiesce == enums.QuiesceLevel.FREEZE:
        return
    is_refused = records.limits.unsafe_action == enums.UnsafeAction.REFUSE
    for one in records.settings:
        safe = SAFE_VALUES.get(one.name)
        if safe is None or one.value.upper() in safe:
            continue
        outcome = 'are refused' if is_refused else 'freeze the file system'
        yield Finding(
            Level.ERROR if is_refused else Level.WARNING,
            f'configuration group {one.group_id}',
            f'{one.name} = {one.value}; backups of {len(one.instance_ids)} instances {outcome}',
            f'{one.name} = {safe[0]}',
            remedies.SET_PARAMETER.format(
                id=one.group_id, parameters=json.dumps({one.name: _number(safe[0])})
            ),
        )


def check_orphans(kinds: Sequence[str]) -> Iterator[Finding]:
    """Yield the number of orphans of each kind."""
    for kind, count in sorted(collections.Counter(kinds).items()):
        yield warning(f'orphans: {kind}', f'{count}', 'none', remedies.ORPHANS)


def check_orphan_sweep(records: Records) -> Iterator[Finding]:
    """Yield that orphans were not looked for in a long time."""
    sweep, expected = records.orphan_sweep, f'one in {ORPHAN_SWEEP_AGE.days} days'
    if sweep is None:
        yield warning('sweep for orphans', 'none is recorded', expected, remedies.ORPHANS)
    elif records.now - sweep.ended_at > ORPHAN_SWEEP_AGE:
        observed = f'the last one ended on {sweep.ended_at:%Y-%m-%d %H:%M} UTC'
        yield warning('sweep for orphans', observed, expected, remedies.ORPHANS)


def _with_policy(records: Records) -> Iterator[tuple[InstanceRow, BackupPolicy]]:
    index = policy_match.index(records.policies)
    for one in _our_instances(records):
        if policy := policy_match.policy_of(index, _subject(records, one)):
            yield one, policy


def _our_instances(records: Records) -> Iterator[InstanceRow]:
    lost = version_checks.lost_instances(records)
    for one in records.instances:
        if one.has_our_guest_agent or one.instance_id in lost:
            yield one


def _subject(records: Records, instance: InstanceRow) -> policy_match.Subject:
    tier = records.tiers.get(instance.instance_id)
    return policy_match.Subject(instance.instance_id, instance.datastore, instance.version, tier)


def _good_backups_of(records: Records, instance: InstanceRow) -> Iterator[BackupRecord]:
    return (
        one
        for one in records.backups
        if one.instance_id == instance.instance_id and one.state.is_complete
    )


def _time(backup: BackupRecord) -> datetime.datetime:
    """Return the time of the data in a backup, for which its creation stands in."""
    return backup.snapshot_at or backup.created_at


def _number(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _age(duration: datetime.timedelta) -> str:
    """Return a duration without fractions of seconds."""
    return str(datetime.timedelta(seconds=round(duration.total_seconds())))


CHECKS = (
    Check(
        'database-schema',
        System.TROVE,
        'the tables of trove_ceph have the version of this release',
        lambda sources: sources.schema(),
        check_schema,
    ),
    Check(
        'agents',
        System.TROVE,
        'the guest agents of all instances send heartbeats',
        lambda sources: sources.records(),
        check_agents,
    ),
    Check(
        'agent-keys',
        System.TROVE,
        'the guest agents of all instances have keys for their messages',
        lambda sources: sources.records(),
        check_keys,
    ),
    Check(
        'mysql-settings',
        System.BACKUPS,
        'no configuration group makes backups without locks unsafe',
        lambda sources: sources.records(),
        check_settings,
    ),
    Check(
        'backups',
        System.BACKUPS,
        f'the last good backup is at most {LATE_INTERVALS} intervals of its policy old',
        lambda sources: sources.records(),
        check_backups,
    ),
    Check(
        'verified-backups',
        System.BACKUPS,
        'so is the last verified backup, where a policy verifies backups',
        lambda sources: sources.records(),
        check_verified,
    ),
    Check(
        'unprotected-instances',
        System.BACKUPS,
        'each database has a policy or a good backup, a day after its creation',
        lambda sources: sources.records(),
        check_unprotected,
    ),
    Check(
        'last-backups',
        System.BACKUPS,
        'the last backup of each instance has not failed, and no setting of MySQL made it freeze '
        'the file system',
        lambda sources: sources.records(),
        check_last,
    ),
    Check(
        'policies',
        System.BACKUPS,
        f'no run of a policy has failed {MANY_FAILURES} times in a row',
        lambda sources: sources.records(),
        check_policies,
    ),
    Check(
        'backup-jobs',
        System.BACKUPS,
        f'no copy or verification has failed {MANY_FAILURES} times in a row',
        lambda sources: sources.records(),
        check_jobs,
    ),
    Check(
        'damaged-backups',
        System.BACKUPS,
        'no backup is damaged or suspect',
        lambda sources: sources.records(),
        check_damage,
    ),
    Check(
        'trash',
        System.BACKUPS,
        f'no image waits in the trash for more than {TRASH_AGE.days} days',
        lambda sources: sources.records(),
        check_trash,
    ),
    Check(
        'orphans',
        System.BACKUPS,
        'there are no orphans',
        lambda sources: sources.orphans(),
        check_orphans,
    ),
    Check(
        'orphan-sweep',
        System.BACKUPS,
        f'"trove-ceph-manage gc" has looked for orphans within {ORPHAN_SWEEP_AGE.days} days',
        lambda sources: sources.records(),
        check_orphan_sweep,
    ),
)
