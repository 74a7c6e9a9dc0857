# SPDX-License-Identifier: Apache-2.0
"""Figures of all tables for a monitoring system."""

import collections
import dataclasses
import datetime
import itertools
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph.db import backup_figures, orphan_sweeps, tables
from trove_ceph.db.guest_record import GuestState
from trove_ceph.db.replacement_record import (
    OPEN,
    FailoverCause,
    ReplacementKind,
    ReplacementState,
    RequestedBy,
)
from trove_ceph.db.replica_record import Cause, ReplicaState
from trove_ceph.db.transactions import Transactions

#: Replacements that ended within it have their durations among the figures.
RECENT = datetime.timedelta(days=1)
#: A pool is configured if a taskmanager had it in its configuration within this time.
CONFIGURED = datetime.timedelta(minutes=10)
#: The parts of a replacement, and the columns in which they begin and end.
PARTS = {
    'fence': ('created_at', 'fenced_at'),
    'choose': ('fenced_at', 'chosen_at'),
    'bind': ('chosen_at', 'moved_at'),
    'start': ('moved_at', 'ended_at'),
}
CLAIMED = 'claimed'
MISSED = 'missed'


@dataclasses.dataclass(frozen=True)
class Figures:
    """Counts and durations at one time.

    :param guests: number of guests by pool and state; 0 only for pools that are configured
    :param requests: number of recorded requests by pool and outcome; 0 only for pools that are
        configured; the taskmanagers delete old ones
    :param bind_sec: seconds from the claim to the end of each binding whose request is recorded, by
        pool
    :param replacements: number of replacements by kind, requester and state, also if it is 0
    :param failovers: number of failovers by cause and state, also if it is 0; without those that an
        earlier release has requested
    :param replacement_sec: seconds of each replacement that was completed recently, by kind
    :param part_sec: seconds of each part of these, by kind and part
    :param oldest_open_sec: age in seconds of the oldest replacement that is not ended, by kind; 0:
        there is none
    """

    guests: Mapping[tuple[str, GuestState], int]
    requests: Mapping[tuple[str, str], int]
    bind_sec: Mapping[str, Sequence[float]]
    replacements: Mapping[tuple[ReplacementKind, RequestedBy, ReplacementState], int]
    failovers: Mapping[tuple[FailoverCause, ReplacementState], int]
    replacement_sec: Mapping[ReplacementKind, Sequence[float]]
    part_sec: Mapping[tuple[ReplacementKind, str], Sequence[float]]
    oldest_open_sec: Mapping[ReplacementKind, float]
    replicas: 'ReplicaFigures'
    backups: backup_figures.BackupFigures
    watch: 'WatchFigures'
    orphans: 'OrphanFigures'


@dataclasses.dataclass(frozen=True)
class ReplicaFigures:
    """Figures of the replicas at one time; those that are not known are left out.

    :param counts: number of replicas by state, also if it is 0
    :param not_replicating: number of replicas that follow a source in vain, or whose agents do not
        answer, by their last look
    :param not_waiting: number of sources that have semi-synchronous replication by their policy,
        and whose commits wait for no replica, by the last look that they answered
    :param lag_sec: seconds by which each is behind its source
    :param lag_transactions: transactions of its source that each has not applied
    :param clone_age_sec: age in seconds of the clone of each
    :param own_bytes: space of all that they do not share with their sources
    :param reprovisioned: number of replicas whose last re-provisioning was completed recently, by
        its cause, also if it is 0
    :param failed: number of replicas whose last re-provisioning has failed
    :param oldest_open_sec: age in seconds of the oldest re-provisioning that has not ended; 0 if
        there is none
    """

    counts: Mapping[ReplicaState, int]
    not_replicating: int
    not_waiting: int
    lag_sec: Sequence[float]
    lag_transactions: Sequence[int]
    clone_age_sec: Sequence[float]
    own_bytes: int
    reprovisioned: Mapping[Cause, int]
    failed: int
    oldest_open_sec: float


@dataclasses.dataclass(frozen=True)
class WatchFigures:
    """The watch over all databases, which automatic failover and its alerts depend on.

    :param report_age_sec: age in seconds of its last report; None: it has never reported
    :param is_in_maintenance: whether an operator has suspended automatic failover
    :param is_held: whether the last report says that something holds all automatic failovers
    """

    report_age_sec: float | None
    is_in_maintenance: bool
    is_held: bool


@dataclasses.dataclass(frozen=True)
class OrphanFigures:
    """The last sweep for orphans.

    :param sweep_age_sec: seconds since it ended; None: there was none
    :param left: number of orphans that it has left by kind, also if it is 0
    """

    sweep_age_sec: float | None
    left: Mapping[str, int]


def read(transactions: Transactions) -> Figures:
    """Return the figures of this moment.

    :raises ServiceUnavailableError: the database does not answer, or lacks the tables
    """
    with transactions.reading() as session:
        now = transactions.database_time(session)
        counts = _guest_counts(session)
        outcomes, bind_sec = _requests(session)
        pools = _configured_pools(session, now)
        replacement_sec, part_sec = _replacement_sec(session, now)
        return Figures(
            guests=dict.fromkeys(itertools.product(pools, GuestState), 0) | counts,
            requests=dict.fromkeys(itertools.product(pools, (CLAIMED, MISSED)), 0) | outcomes,
            bind_sec=bind_sec,
            replacements=_replacement_counts(session),
            failovers=_failover_counts(session),
            replacement_sec=replacement_sec,
            part_sec=part_sec,
            oldest_open_sec=_oldest_open_sec(session, now),
            replicas=_replica_figures(session, now),
            backups=backup_figures.read(session, now),
            watch=_watch_figures(session, now),
            orphans=_orphan_figures(session, now),
        )


def _guest_counts(session: orm.Session) -> dict[tuple[str, GuestState], int]:
    row = tables.GuestRow
    query = sa.select(row.pool, row.state, sa.func.count()).group_by(row.pool, row.state)
    return {(pool, GuestState(state)): count for pool, state, count in session.execute(query)}


def _configured_pools(session: orm.Session, now: datetime.datetime) -> Sequence[str]:
    row = tables.GuestPoolRow
    query = sa.select(row.pool).where(row.configured_at >= now - CONFIGURED).order_by(row.pool)
    return session.scalars(query).all()


def _requests(
    session: orm.Session,
) -> tuple[dict[tuple[str, str], int], Mapping[str, Sequence[float]]]:
    """Return the number of requests by pool and outcome, and the seconds of their bindings."""
    request, guest = tables.GuestRequestRow, tables.GuestRow
    is_bound = sa.and_(guest.guest_id == request.guest_id, guest.state == str(GuestState.BOUND))
    # A guest is claimed in the transaction that records the request, and is changed last when it is
    # bound.
    query = sa.select(
        request.pool, request.guest_id, request.requested_at, guest.updated_at
    ).outerjoin(guest, is_bound)
    outcomes: collections.Counter[tuple[str, str]] = collections.Counter()
    bind_sec: dict[str, list[float]] = collections.defaultdict(list)
    for pool, guest_id, requested_at, bound_at in session.execute(query):
        outcomes[pool, MISSED if guest_id is None else CLAIMED] += 1
        if bound_at is not None:
            bind_sec[pool].append((bound_at - requested_at).total_seconds())
    return dict(outcomes), bind_sec


def _replacement_counts(
    session: orm.Session,
) -> Mapping[tuple[ReplacementKind, RequestedBy, ReplacementState], int]:
    row = tables.ReplacementRow
    columns = (row.kind, row.requested_by, row.state)
    query = sa.select(*columns, sa.func.count()).group_by(*columns)
    counts = dict.fromkeys(itertools.product(ReplacementKind, RequestedBy, ReplacementState), 0)
    for kind, requested_by, state, count in session.execute(query):
        key = (ReplacementKind(kind), RequestedBy(requested_by), ReplacementState(state))
        counts[key] = count
    return counts


def _failover_counts(
    session: orm.Session,
) -> Mapping[tuple[FailoverCause, ReplacementState], int]:
    row = tables.ReplacementRow
    query = (
        sa.select(row.cause, row.state, sa.func.count())
        .where(row.kind == str(ReplacementKind.FAILOVER), row.cause.is_not(None))
        .group_by(row.cause, row.state)
    )
    counts = dict.fromkeys(itertools.product(FailoverCause, ReplacementState), 0)
    for cause, state, count in session.execute(query):
        counts[FailoverCause(cause), ReplacementState(state)] = count
    return counts


def _replacement_sec(
    session: orm.Session, now: datetime.datetime
) -> tuple[
    Mapping[ReplacementKind, Sequence[float]], Mapping[tuple[ReplacementKind, str], Sequence[float]]
]:
    """Return the seconds of replacements that were completed recently, and of their parts."""
    row = tables.ReplacementRow
    query = sa.select(row).where(
        row.state == str(ReplacementState.COMPLETED), row.ended_at >= now - RECENT
    )
    whole: dict[ReplacementKind, list[float]] = collections.defaultdict(list)
    parts: dict[tuple[ReplacementKind, str], list[float]] = collections.defaultdict(list)
    for found in session.scalars(query):
        kind = ReplacementKind(found.kind)
        whole[kind].append((found.ended_at - found.created_at).total_seconds())
        for part, columns in PARTS.items():
            began, ended = (getattr(found, one) for one in columns)
            if began is not None and ended is not None:
                parts[kind, part].append((ended - began).total_seconds())
    return whole, parts


def _oldest_open_sec(
    session: orm.Session, now: datetime.datetime
) -> Mapping[ReplacementKind, float]:
    row = tables.ReplacementRow
    query = (
        sa.select(row.kind, sa.func.min(row.created_at))
        .where(row.state.in_([str(state) for state in OPEN]))
        .group_by(row.kind)
    )
    found = dict.fromkeys(ReplacementKind, 0.0)
    for kind, created_at in session.execute(query):
        found[ReplacementKind(kind)] = (now - created_at).total_seconds()
    return found


def _replica_figures(session: orm.Session, now: datetime.datetime) -> ReplicaFigures:
    row = tables.ReplicaRow
    observed = (row.is_replicating, row.lag_sec, row.lag_transactions, row.own_bytes)
    columns = (row.state, *observed, row.observed_at, row.cloned_at)
    ends = (row.last_cause, row.reprovisioned_at, row.failures, row.ended_at)
    query = sa.select(*columns, *ends, row.requested_at)
    found = session.execute(query).all()
    states = collections.Counter(ReplicaState(one.state) for one in found)
    causes = collections.Counter(
        Cause(one.last_cause)
        for one in found
        if one.last_cause is not None and one.reprovisioned_at >= now - RECENT
    )
    following = [one for one in found if one.state == str(ReplicaState.FOLLOWING)]
    return ReplicaFigures(
        counts={state: states[state] for state in ReplicaState},
        not_replicating=sum(
            one.observed_at is not None and not one.is_replicating for one in following
        ),
        not_waiting=_count_not_waiting(session),
        lag_sec=[one.lag_sec for one in found if one.lag_sec is not None],
        lag_transactions=[
            one.lag_transactions for one in found if one.lag_transactions is not None
        ],
        clone_age_sec=[
            (now - one.cloned_at).total_seconds() for one in found if one.cloned_at is not None
        ],
        own_bytes=sum(one.own_bytes or 0 for one in found),
        reprovisioned={cause: causes[cause] for cause in Cause},
        failed=sum(
            one.failures > 0 and one.ended_at is not None and one.ended_at >= now - RECENT
            for one in found
        ),
        oldest_open_sec=max(
            (
                (now - one.requested_at).total_seconds()
                for one in found
                if ReplicaState(one.state).is_reprovisioning
            ),
            default=0.0,
        ),
    )


def _count_not_waiting(session: orm.Session) -> int:
    """Count the sources whose policies want commits to wait, and which do not, or have no replica.

    It is not known of a source with a replica at which the watch has not looked yet.
    """
    row, policy = tables.ReplicaRow, tables.ReplicationPolicyRow
    may_wait = sa.exists().where(
        row.source_id == policy.instance_id, row.semi_sync_active.is_not(False)
    )
    is_replica = sa.exists().where(row.instance_id == policy.instance_id)
    query = (
        sa.select(sa.func.count())
        .select_from(policy)
        .where(policy.semi_sync, ~may_wait, ~is_replica)
    )
    return session.scalar(query) or 0


def _watch_figures(session: orm.Session, now: datetime.datetime) -> WatchFigures:
    row = tables.FailoverWatchRow
    # There is one row at most.
    columns = (row.reported_at, row.maintenance_since, row.report)
    found = session.execute(sa.select(*columns)).first()
    if found is None:
        return WatchFigures(None, False, False)
    age_sec = None if found.reported_at is None else (now - found.reported_at).total_seconds()
    is_held = (found.report or {}).get('hold') is not None
    return WatchFigures(age_sec, found.maintenance_since is not None, is_held)


def _orphan_figures(session: orm.Session, now: datetime.datetime) -> OrphanFigures:
    sweep = orphan_sweeps.find_in(session)
    if sweep is None:
        return OrphanFigures(None, {})
    return OrphanFigures((now - sweep.ended_at).total_seconds(), sweep.left)
