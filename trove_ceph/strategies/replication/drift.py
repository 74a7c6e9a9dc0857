# SPDX-License-Identifier: Apache-2.0
"""Decide which replicas get a fresh clone of their source: pure functions of what was seen."""

import dataclasses
import datetime
from collections.abc import Collection, Sequence

from oslo_utils import units

from trove_ceph.db.replica_record import (
    Cause,
    Observation,
    ReplicaRecord,
    ReplicationPolicy,
    Requester,
)
from trove_ceph.strategies.replication import observation
from trove_ceph.strategies.replication.observation import ReplicaLook
from trove_ceph.strategies.replication.replication_types import ReplicationStatus, ThreadState
from trove_ceph.strategies.replication.watch_dependencies import WatchSettings

#: Errors of the receiver: the source has deleted binary logs that the replica needs. The second
#: one is what the source itself calls it.
_PURGED = (1236, 13114)
#: Errors of the receiver that a fresh clone does not repair: it does not reach its source, whose
#: connections are used up, which is shut down, or whose network is down. Those of the client
#: library, and what ``is_network_error`` of MySQL's ``rpl_replica.cc`` has, with errors like it.
_UNREACHED = frozenset(
    (*range(2000, 3000), 1040, 1053, 1129, *range(1152, 1162), 1184, 1189, 1190, 1203, 1226, 3032)
)
_LONGEST_PAUSE = datetime.timedelta(days=1)
#: How long growth is no cause after a clone. What Ceph counts as its own can grow at once, such as
#: by discarded blocks, so that a fresh clone would not help.
_GROWTH_PAUSE = datetime.timedelta(days=1)
#: So many looks in a row tell whether a lag grows: the later half of them against the earlier one,
#: since the lag of a replica that falls behind goes up and down.
_LAGS = 6


#: The causes, the most urgent first.
_URGENCY = (
    Cause.VOLUME,
    Cause.PURGED,
    Cause.BROKEN,
    Cause.ERRANT,
    Cause.LAG,
    Cause.DEPTH,
    Cause.AGE,
    Cause.GROWTH,
)


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of one source; 0: no limit."""

    reprovision_broken: bool
    every_hours: int
    max_own_percent: int
    max_lag_sec: int
    most_clone_depth: int


@dataclasses.dataclass(frozen=True)
class Before:
    """What earlier looks at a replica have shown.

    :param lags: in seconds, at the last ones in a row at which it was known, the last one last
    :param failing_since: when its agent answered with an error for the first time in a row; None:
        it did not do so at the last look
    """

    lags: Sequence[float] = ()
    failing_since: datetime.datetime | None = None


@dataclasses.dataclass(frozen=True)
class Drift:
    """Why a replica is to be re-provisioned.

    :param reason: for tenants
    """

    cause: Cause
    reason: str


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A replica that has drifted in enough looks in a row."""

    record: ReplicaRecord
    drift: Drift


def limits_of(policy: ReplicationPolicy | None, settings: WatchSettings) -> Limits:
    """Return the limits of a source: those of its policy, or else of the options."""

    if policy is None:
        hours, percent, lag_sec = None, None, None
    else:
        hours, percent = policy.reprovision_every_hours, policy.max_own_percent
        lag_sec = policy.max_lag_sec
    return Limits(
        settings.reprovision_broken,
        settings.reprovision_every_hours if hours is None else hours,
        settings.max_own_percent if percent is None else percent,
        settings.max_lag_sec if lag_sec is None else lag_sec,
        settings.most_clone_depth,
    )


def find_drift(
    found: ReplicaLook,
    source: ReplicationStatus,
    limits: Limits,
    before: Before,
    now: datetime.datetime,
) -> Drift | None:
    """Return why a replica is to be re-provisioned, the most urgent cause first; None: it is not.

    Transactions that its source lacks are never discarded without a request, unless they were
    written on it while it was a replica; nor those of one that had some when it answered last. One
    that accepts writes, as after an interrupted detachment, has some of its own. For its age, size
    or depth, no replica is re-provisioned that is silent, since its server would be switched off
    while it may serve, or that has any of them.

    :param now: by the clock of the database
    """
    if observation.has_surplus(found.record, found.status, source):
        return None
    observed = observation.observe(found, source)
    drift = None
    if limits.reprovision_broken:
        drift = (
            _of_volume(found)
            or _of_status(found.status)
            or _of_errant(observed)
            or _of_lag(observed, limits, before)
            or _of_failure(found, limits, before, now)
        )
    # Not known of one that is silent or follows another server.
    if observed.errant != '':
        return drift
    return (
        drift
        or _of_depth(found, limits)
        or _of_age(found.record, limits, now)
        or _of_growth(found, limits, now)
    )


def choose(
    candidates: Sequence[Candidate],
    records: Collection[ReplicaRecord],
    settings: WatchSettings,
    now: datetime.datetime,
) -> Sequence[Candidate]:
    """Return the candidates to re-provision now, those with the most urgent cause first.

    A source has one re-provisioning at a time, since a replica is out of service meanwhile. One
    that waits for an operator delays no other.

    :param records: of all replicas
    :param now: by the clock of the database
    """
    under_way = [
        one for one in records if one.state.is_reprovisioning and not one.state.needs_operator
    ]
    busy = {one.source_id for one in under_way}
    used = sum(one.requested_by is Requester.POLICY for one in under_way)
    chosen = []
    for one in sorted(candidates, key=_urgency):
        if used >= settings.reprovisionings_at_once:
            break
        if one.record.source_id in busy or is_paused(one.record, settings, now):
            continue
        busy.add(one.record.source_id)
        used += 1
        chosen.append(one)
    return chosen


def is_paused(record: ReplicaRecord, settings: WatchSettings, now: datetime.datetime) -> bool:
    """Return whether a re-provisioning ended so lately that the watch requests none."""
    if record.ended_at is None:
        return False
    doubled = settings.pause * 2 ** min(record.failures, 16)
    return now < record.ended_at + min(doubled, max(_LONGEST_PAUSE, settings.pause))


def _urgency(candidate: Candidate) -> tuple[int, str]:
    return _URGENCY.index(candidate.drift.cause), candidate.record.instance_id


def _of_volume(found: ReplicaLook) -> Drift | None:
    return None if found.volume_error is None else Drift(Cause.VOLUME, found.volume_error)


def _of_status(status: ReplicationStatus | None) -> Drift | None:
    """Return why a replica does not replicate and never will by itself.

    A replica that was stopped without an error, or that does not reach its source, is left alone.
    A fresh clone repairs most other errors, such as those of a relay log or of equal UUIDs. One
    that it does not repair costs little: the pause doubles with each re-provisioning that fails.
    """
    if status is None:
        return None
    if not status.is_replica:
        return Drift(Cause.BROKEN, 'it follows no source')
    if status.io_error_number in _PURGED:
        return Drift(
            Cause.PURGED, f'its source does not have what it must receive: {status.io_error}'
        )
    if status.io_error_number in observation.REFUSED_ACCOUNT:
        return Drift(Cause.BROKEN, f'its source refuses it: {status.io_error}')
    is_off = status.io_state == ThreadState.OFF
    if is_off and status.io_error_number and status.io_error_number not in _UNREACHED:
        return Drift(Cause.BROKEN, f'its receiver stopped: {status.io_error}')
    if status.sql_state == ThreadState.OFF and status.sql_error_number:
        return Drift(Cause.BROKEN, f'its replication stopped: {status.sql_error}')
    return None


def _of_errant(observed: Observation) -> Drift | None:
    if not observed.errant:
        return None
    shown = observed.errant if len(observed.errant) <= 200 else f'{observed.errant[:200]}...'
    return Drift(Cause.ERRANT, f'it has transactions that its source does not have: {shown}')


def _of_failure(
    found: ReplicaLook, limits: Limits, before: Before, now: datetime.datetime
) -> Drift | None:
    """Return why a replica is given up whose agent works, and whose MySQL does not.

    MySQL may need long to recover from a crash. Meanwhile, the replica falls behind.
    """
    if not limits.max_lag_sec or found.agent_error is None or before.failing_since is None:
        return None
    failing_sec = (now - before.failing_since).total_seconds()
    if failing_sec <= limits.max_lag_sec:
        return None
    return Drift(Cause.BROKEN, f'it has not worked for {failing_sec:.0f} s: {found.agent_error}')


def lags_after(lags: Sequence[float], lag_sec: float | None) -> Sequence[float]:
    """Return the lags of the last looks in a row, with that of another one; None: unknown."""
    return () if lag_sec is None else (*lags, lag_sec)[-_LAGS:]


def _of_lag(observed: Observation, limits: Limits, before: Before) -> Drift | None:
    lags = lags_after(before.lags, observed.lag_sec)
    if not limits.max_lag_sec or len(lags) < _LAGS or lags[-1] <= limits.max_lag_sec:
        return None
    if sum(lags[_LAGS // 2 :]) <= sum(lags[: _LAGS // 2]):
        return None
    return Drift(
        Cause.LAG,
        f'it is {lags[-1]:.0f} s behind its source and falls further behind; '
        f'{limits.max_lag_sec} s are allowed',
    )


def _of_depth(found: ReplicaLook, limits: Limits) -> Drift | None:
    """Return whether a clone is too deep, and a fresh one would not be."""
    usage, fresh_depth, most = found.usage, found.fresh_depth, limits.most_clone_depth
    if usage is None or usage.clone_depth <= most:
        return None
    if fresh_depth is None or fresh_depth > most:
        return None
    return Drift(
        Cause.DEPTH,
        f'its clone reads through {usage.clone_depth} images, and a fresh clone {fresh_depth}; '
        f'{most} are allowed',
    )


def _of_age(record: ReplicaRecord, limits: Limits, now: datetime.datetime) -> Drift | None:
    if not limits.every_hours:
        return None
    age = now - record.data_since
    if age < datetime.timedelta(hours=limits.every_hours):
        return None
    hours = age / datetime.timedelta(hours=1)
    what = 'volume is no clone, and' if record.cloned_at is None else 'clone'
    return Drift(Cause.AGE, f'its {what} is {hours:.0f} h old; {limits.every_hours} h are allowed')


def _of_growth(found: ReplicaLook, limits: Limits, now: datetime.datetime) -> Drift | None:
    usage, record = found.usage, found.record
    if any(at and now - at < _GROWTH_PAUSE for at in (record.cloned_at, record.ended_at)):
        return None
    # A volume that is no clone of another one would not shrink for long.
    if usage is None or usage.own_bytes is None or not usage.clone_depth:
        return None
    allowed = usage.size_bytes * limits.max_own_percent // 100
    if not limits.max_own_percent or usage.own_bytes <= allowed:
        return None
    return Drift(
        Cause.GROWTH,
        f'it does not share {usage.own_bytes / units.Gi:.1f} GiB with its source; '
        f'{limits.max_own_percent} % of its size are allowed',
    )
