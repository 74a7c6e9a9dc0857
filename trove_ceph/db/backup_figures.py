# SPDX-License-Identifier: Apache-2.0
"""Figures of backups, their policies and the work on them, for a monitoring system."""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph.db import tables
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.policy_record import PolicyRunState
from trove_ceph.db.roles import Role

#: A policy is overdue when one whole interval has passed after its backup was due, and at least
#: this time: taking a backup of a busy cluster may take a while.
_LEAST_DELAY = datetime.timedelta(hours=1)


#: Trove's table, which is in the same database.
_INSTANCES = sa.table('instances', sa.column('id', sa.String), sa.column('deleted', sa.Boolean))


@dataclasses.dataclass(frozen=True)
class InstanceAges:
    """The ages of the backups of an instance.

    :param has_policy: an enabled policy has run for it
    :param good_age_sec: age in seconds of the data of its last complete backup; None: there is none
    :param verified_age_sec: of its last verified one
    """

    instance_id: str
    has_policy: bool
    good_age_sec: float | None
    verified_age_sec: float | None


@dataclasses.dataclass(frozen=True)
class Queue:
    """The requested copies or verifications.

    :param waiting: their number, those under way included
    :param failing: how many of them have failed and are retried
    :param oldest_sec: age in seconds of the oldest request; 0: there is none
    """

    waiting: int
    failing: int
    oldest_sec: float


@dataclasses.dataclass(frozen=True)
class BackupFigures:
    """Figures of backups at one time.

    :param counts: number of backups by state, also if it is 0
    :param queues: by COPY and VERIFY
    :param instances: those with an enabled policy that has run, and those that have a backup and
        are not deleted
    :param policy_runs: number of last runs of enabled policies by state, also if it is 0
    :param failing_runs: number of those that failed last time, once or repeatedly
    :param overdue_runs: number of those whose next run is late by an interval
    :param kept_volumes: volumes of deleted instances that backups or clones need
    :param trashed_images: images in the trash that clones need
    :param oldest_trashed_sec: age in seconds of the oldest of their records; 0: there is none
    """

    counts: Mapping[RecordState, int]
    queues: Mapping[Role, Queue]
    instances: Sequence[InstanceAges]
    policy_runs: Mapping[PolicyRunState, int]
    failing_runs: int
    overdue_runs: int
    kept_volumes: int
    trashed_images: int
    oldest_trashed_sec: float


def read(session: orm.Session, now: datetime.datetime) -> BackupFigures:
    """Return the figures, by a number of queries that does not depend on the number of rows."""
    runs = _runs(session)
    oldest_trashed_at = session.scalar(sa.select(sa.func.min(tables.TrashedImageRow.created_at)))
    states = [PolicyRunState(run.state) for run in runs]
    row = tables.BackupRow
    return BackupFigures(
        counts=_counts(session),
        queues={
            Role.COPY: _queue(session, now, row.copy_wanted_at, row.copy_failures),
            Role.VERIFY: _queue(session, now, row.verify_wanted_at, row.verify_failures),
        },
        instances=[
            *(_ages(run, True, now) for run in runs),
            *(_ages(one, False, now) for one in _without_runs(session, runs)),
        ],
        policy_runs={state: states.count(state) for state in PolicyRunState},
        failing_runs=sum(run.attempts > 0 for run in runs),
        overdue_runs=sum(_is_overdue(run, now) for run in runs),
        kept_volumes=_count(session, tables.KeptVolumeRow),
        trashed_images=_count(session, tables.TrashedImageRow),
        oldest_trashed_sec=_age(oldest_trashed_at, now) or 0.0,
    )


def _counts(session: orm.Session) -> Mapping[RecordState, int]:
    row = tables.BackupRow
    counts = dict.fromkeys(RecordState, 0)
    for state, count in session.execute(sa.select(row.state, sa.func.count()).group_by(row.state)):
        counts[RecordState(state)] = count
    return counts


def _queue(session: orm.Session, now: datetime.datetime, requested_at: Any, failures: Any) -> Queue:
    has_failed = sa.func.sum(sa.case((failures > 0, 1), else_=0))
    query = sa.select(sa.func.count(), has_failed, sa.func.min(requested_at)).where(
        requested_at.is_not(None)
    )
    waiting, failing, oldest_at = session.execute(query).one()
    return Queue(waiting, int(failing or 0), _age(oldest_at, now) or 0.0)


def _runs(session: orm.Session) -> Sequence[Any]:
    """Return the last run of each enabled policy for each instance, with the last good backups."""
    run, policy, backup = tables.PolicyRunRow, tables.BackupPolicyRow, tables.BackupRow
    columns = (run.instance_id, run.state, run.due_at, run.attempts, policy.interval_min)
    query = (
        sa.select(*columns, *_last_backups())
        .join(policy, policy.policy_id == run.policy_id)
        .outerjoin(backup, backup.instance_id == run.instance_id)
        .where(policy.enabled.is_(True))
        .group_by(*columns)
    )
    return session.execute(query).all()


def _without_runs(session: orm.Session, runs: Sequence[Any]) -> Sequence[Any]:
    """Return the last good backups of the other instances that have a backup."""
    backup, row = tables.BackupRow, _INSTANCES.c
    query = sa.select(backup.instance_id, *_last_backups()).group_by(backup.instance_id)
    # Not joined: the columns of the two tables may have different collations.
    present = set(session.scalars(sa.select(row.id).where(row.deleted == sa.false())))
    present -= {run.instance_id for run in runs}
    return [one for one in session.execute(query) if one.instance_id in present]


def _last_backups() -> Sequence[Any]:
    """Return the times of the data of the last good and of the last verified backup."""
    backup = tables.BackupRow
    is_complete = backup.state.in_([str(state) for state in RecordState if state.is_complete])
    is_verified = backup.state == str(RecordState.VERIFIED)
    return (
        sa.func.max(sa.case((is_complete, backup.snapshot_at))).label('good_at'),
        sa.func.max(sa.case((is_verified, backup.snapshot_at))).label('verified_at'),
    )


def _ages(found: Any, has_policy: bool, now: datetime.datetime) -> InstanceAges:
    return InstanceAges(
        found.instance_id, has_policy, _age(found.good_at, now), _age(found.verified_at, now)
    )


def _is_overdue(run: Any, now: datetime.datetime) -> bool:
    interval = datetime.timedelta(minutes=run.interval_min)
    return now > run.due_at + interval + max(interval, _LEAST_DELAY)


def _age(moment: datetime.datetime | None, now: datetime.datetime) -> float | None:
    return None if moment is None else (now - moment).total_seconds()


def _count(session: orm.Session, row: Any) -> int:
    return session.scalar(sa.select(sa.func.count()).select_from(row)) or 0
