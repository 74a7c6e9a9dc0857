# SPDX-License-Identifier: Apache-2.0
"""When a backup is due: pure functions of the time.

Times are in UTC, and of no zone. What is due at a time is due until it was done, and however much
was missed, it is due once.
"""

import datetime
import zlib
import zoneinfo

from trove_ceph.db.policy_record import BackupPolicy, PolicyRun, PolicyRunState

DAY = datetime.timedelta(days=1)
MINUTES_OF_DAY = 24 * 60
#: A failed backup is tried again after so long, then after twice as long, and so on.
FIRST_RETRY = datetime.timedelta(minutes=2)
LAST_RETRY = datetime.timedelta(hours=1)
_EPOCH = datetime.datetime(1970, 1, 1)


def due(
    policy: BackupPolicy, instance_id: str, run: PolicyRun | None, now: datetime.datetime
) -> datetime.datetime | None:
    """Return what a backup is due for; None when none is.

    :param run: the last one
    """
    if run is not None and run.state.is_under_way:
        return None
    slot = _latest(policy, instance_id, now)
    wanted = policy.run_wanted_at
    if wanted is not None and wanted <= now:
        slot = max(slot, wanted)
    if run is not None and run.state is PolicyRunState.FAILED:
        was_asked_for = wanted is not None and run.due_at < wanted <= now
        return slot if was_asked_for or _may_retry(run, now) else None
    if policy.at is not None and slot <= policy.created_at:
        # Whoever chose a time of day does not want the first backup at another.
        return None
    # What is due for a time that is far ahead was begun by a clock that was wrong.
    if run is None or run.due_at > now + max(policy.interval, DAY):
        return slot
    return slot if slot > run.due_at else None


def waiting_since(
    policy: BackupPolicy, run: PolicyRun | None, due_at: datetime.datetime, now: datetime.datetime
) -> datetime.datetime:
    """Return since when a backup waits that is due: who waits longest comes first.

    One that failed waits since it may be tried again, so that it is in nobody's way.

    :param run: the last one
    :param due_at: what :func:`due` says
    """
    if run is None:
        return min(due_at, policy.created_at)
    if run.state is PolicyRunState.FAILED and run.retry_at is not None and run.retry_at <= now:
        return run.retry_at
    return min(due_at, run.due_at + policy.interval)


def retry_at(attempts: int, now: datetime.datetime) -> datetime.datetime:
    """Return when it is tried again after so many attempts have failed."""
    # Beyond the tenth the limit holds anyway.
    return now + min(LAST_RETRY, FIRST_RETRY * 2 ** min(attempts - 1, 10))


def zone(name: str) -> datetime.tzinfo:
    """Return a time zone.

    :raises ValueError: there is none of this name
    """
    # No data of zones is needed for this one.
    if name == 'UTC':
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f'{name!r} is no time zone that is known here') from error


def _may_retry(run: PolicyRun, now: datetime.datetime) -> bool:
    at = run.retry_at
    return at is None or at <= now or at > now + LAST_RETRY


def _latest(policy: BackupPolicy, instance_id: str, now: datetime.datetime) -> datetime.datetime:
    """Return the last time not after now that a policy's schedule names."""
    if policy.at is None:
        seconds = policy.interval_min * 60
        first = _EPOCH + datetime.timedelta(seconds=zlib.crc32(instance_id.encode()) % seconds)
        return first + (now - first) // policy.interval * policy.interval
    here = zone(policy.timezone)
    today = now.replace(tzinfo=datetime.UTC).astimezone(here).date()
    time = datetime.time.fromisoformat(policy.at)
    every = max(1, policy.interval_min // MINUTES_OF_DAY)
    # Of days, such that what is done every seven days is done on Sundays.
    day = today - DAY * (today.toordinal() % every)
    first = _instant(day, time, here)
    if first > now:
        first = _instant(day - DAY * every, time, here)
    # A day of 25 hours has one more of what is done every hour, and not of what is done every day.
    within = 0 if policy.interval >= DAY else (now - first) // policy.interval
    return first + within * policy.interval


def _instant(day: datetime.date, time: datetime.time, here: datetime.tzinfo) -> datetime.datetime:
    """Return a local time in UTC.

    Of a time that a day has twice it is the first. One that a day does not have is later by what
    was left out.
    """
    local = datetime.datetime.combine(day, time, here)
    return local.astimezone(datetime.UTC).replace(tzinfo=None)
