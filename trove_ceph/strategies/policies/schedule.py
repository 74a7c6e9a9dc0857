# SPDX-License-Identifier: Apache-2.0
"""Decide when a backup is due: pure functions of the time.

Times are in UTC, without time zone. A backup stays due until it is taken. However many times were
missed, one backup is due.
"""

import datetime
import zlib
import zoneinfo

from trove_ceph.db.policy_record import BackupPolicy, PolicyRun, PolicyRunState

DAY = datetime.timedelta(days=1)
MINUTES_OF_DAY = 24 * 60
#: The delay before the first retry of a failed backup; it doubles with each further retry.
FIRST_RETRY = datetime.timedelta(minutes=2)
#: The longest delay before a retry.
LAST_RETRY = datetime.timedelta(hours=1)
_EPOCH = datetime.datetime(1970, 1, 1)


def due(
    policy: BackupPolicy,
    instance_id: str,
    run: PolicyRun | None,
    now: datetime.datetime,
    created_at: datetime.datetime | None = None,
) -> datetime.datetime | None:
    """Return the time for which a backup is due; None if none is due.

    :param run: the last run
    :param created_at: when the instance was created; None: long ago
    """
    if run is not None and run.state.is_under_way:
        return None
    slot = _latest(policy, instance_id, now)
    requested_at = policy.run_wanted_at
    is_requested = False
    if requested_at is not None and requested_at <= now:
        slot = max(slot, requested_at)
        is_requested = run is None or run.due_at < requested_at
    if run is not None and run.state is PolicyRunState.FAILED:
        return slot if is_requested or _may_retry(run, now) else None
    if policy.at is not None and not is_requested:
        # A policy with a time of day does not take its first backup, nor the first one of an
        # instance, at another time. One that seems to be created later had a wrong clock.
        is_new = created_at is not None and slot <= created_at <= now
        if slot <= policy.created_at or is_new:
            return None
    # A last run that was due far in the future was begun by a wrong clock.
    if run is None or run.due_at > now + max(policy.interval, DAY):
        return slot
    return slot if slot > run.due_at else None


def waiting_since(
    policy: BackupPolicy, run: PolicyRun | None, due_at: datetime.datetime, now: datetime.datetime
) -> datetime.datetime:
    """Return the time since which a due backup waits; the longest wait is served first.

    The wait of a failed backup starts at its retry time, so that it does not delay others.

    :param run: the last run
    :param due_at: the result of :func:`due`
    """
    if run is None:
        return min(due_at, policy.created_at)
    if run.state is PolicyRunState.FAILED and run.retry_at is not None and run.retry_at <= now:
        return run.retry_at
    return min(due_at, run.due_at + policy.interval)


def retry_at(attempts: int, now: datetime.datetime) -> datetime.datetime:
    """Return when a backup is retried after a number of failed attempts."""
    # The exponent has a limit to avoid an overflow; LAST_RETRY is reached before.
    return now + min(LAST_RETRY, FIRST_RETRY * 2 ** min(attempts - 1, 10))


def zone(name: str) -> datetime.tzinfo:
    """Return a time zone.

    :raises ValueError: the time zone is unknown on this host
    """
    # Works on a host without time zone data.
    if name == 'UTC':
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f'{name!r} is not a time zone that this host knows') from error


def _may_retry(run: PolicyRun, now: datetime.datetime) -> bool:
    at = run.retry_at
    return at is None or at <= now or at > now + LAST_RETRY


def _latest(policy: BackupPolicy, instance_id: str, now: datetime.datetime) -> datetime.datetime:
    """Return the last scheduled time of a policy that is not after now."""
    if policy.at is None:
        seconds = policy.interval_min * 60
        first = _EPOCH + datetime.timedelta(seconds=zlib.crc32(instance_id.encode()) % seconds)
        return first + (now - first) // policy.interval * policy.interval
    local_zone = zone(policy.timezone)
    today = now.replace(tzinfo=datetime.UTC).astimezone(local_zone).date()
    time = datetime.time.fromisoformat(policy.at)
    every = max(1, policy.interval_min // MINUTES_OF_DAY)
    # Counted from the ordinal of the date, so an interval of seven days falls on Sundays.
    day = today - DAY * (today.toordinal() % every)
    first = _instant(day, time, local_zone)
    if first > now:
        first = _instant(day - DAY * every, time, local_zone)
    # A day of 25 hours has one more hourly backup, but no more daily one.
    within = 0 if policy.interval >= DAY else (now - first) // policy.interval
    return first + within * policy.interval


def _instant(
    day: datetime.date, time: datetime.time, local_zone: datetime.tzinfo
) -> datetime.datetime:
    """Return a local time in UTC.

    A local time that occurs twice means the first occurrence. One that is skipped is moved forward
    by the length of the gap.
    """
    local = datetime.datetime.combine(day, time, local_zone)
    return local.astimezone(datetime.UTC).replace(tzinfo=None)
