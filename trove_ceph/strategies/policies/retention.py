# SPDX-License-Identifier: Apache-2.0
"""Decide which backups expire: pure functions.

A policy keeps the last few backups, and the last one of each of the last hours, days, weeks and
months that have a backup. The order in which the backups were taken decides which one is later, not
the clock. A clock that was ahead while backups were taken makes no other one expire too early, and
neither does a clock that is behind now.
"""

import dataclasses
import datetime
from collections.abc import Hashable, Iterable, Sequence

from trove_ceph.db.policy_record import Retention
from trove_ceph.strategies.policies import schedule


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A backup that a policy took and whose deletion is not requested.

    :param number: grows from backup to backup
    :param taken_at: in UTC, without time zone
    :param is_under_way: it is being taken, copied or verified
    :param is_good: it is complete, and no inspection found damage
    :param is_suspected: one inspection found damage that a second one has not confirmed
    :param is_damaged: two inspections found that it does not restore
    :param is_copied: it has a complete copy in the vault
    :param is_verified: a server was started from it
    """

    backup_id: str
    number: int
    taken_at: datetime.datetime
    is_under_way: bool = False
    is_good: bool = True
    is_suspected: bool = False
    is_damaged: bool = False
    is_copied: bool = False
    is_verified: bool = False


def expired(
    candidates: Iterable[Candidate],
    keep: Retention,
    now: datetime.datetime,
    timezone: str = 'UTC',
    *,
    is_full: bool = False,
) -> list[str]:
    """Return the backups that have expired, the oldest first.

    Never returned, for any value of ``keep``: the last good backup, the last good ones that are
    copied and verified, each that is under way or suspected, and the last one that has ended, even
    if it failed. A damaged backup does not count in place of a good one, and expires no sooner than
    a good one would: people decide whether it is of any use.

    :param now: by the clock that dated the candidates; a wrong one expires nothing that the right
        one keeps
    :param timezone: in which days, weeks and months begin
    :param is_full: there is no room for another backup, so the last one expires too if it failed
    """
    ordered = sorted(candidates, key=lambda one: one.number, reverse=True)
    ended = [one for one in ordered if not one.is_under_way and not one.is_suspected]
    good = [one for one in ended if one.is_good]
    kept = [one for one in ordered if one.is_under_way or one.is_suspected]
    kept += [] if is_full else ended[:1]
    kept += [one for one in good if one.is_copied][:1]
    kept += [one for one in good if one.is_verified][:1]
    kept += _kept_of(good, keep, now, timezone)
    kept += _kept_of([one for one in ended if one.is_good or one.is_damaged], keep, now, timezone)
    stays = {one.backup_id for one in kept}
    return [one.backup_id for one in reversed(ordered) if one.backup_id not in stays]


def _kept_of(
    ordered: Sequence[Candidate], keep: Retention, now: datetime.datetime, timezone: str
) -> list[Candidate]:
    """Return the backups that ``keep`` keeps.

    :param ordered: the latest first
    """
    kept = list(ordered[: max(1, keep.last)])
    local_zone = schedule.zone(timezone)
    for count, period in (
        (keep.hourly, _hour),
        (keep.daily, _day),
        (keep.weekly, _week),
        (keep.monthly, _month),
    ):
        # A date in the future, from a clock that was ahead, counts as now and takes no period from
        # an older backup. If now is behind instead, that would join the periods of good backups,
        # so what stays by the dates as they are stays, too.
        for latest in (now, datetime.datetime.max):
            last_of: dict[Hashable, Candidate] = {}
            for one in ordered:
                last_of.setdefault(period(min(one.taken_at, latest), local_zone), one)
            kept += list(last_of.values())[:count]
    return kept


def _hour(taken_at: datetime.datetime, _local_zone: datetime.tzinfo) -> Hashable:
    # In UTC, so that the two equal local hours at the end of daylight saving time differ.
    return taken_at.date(), taken_at.hour


def _day(taken_at: datetime.datetime, local_zone: datetime.tzinfo) -> Hashable:
    return _local(taken_at, local_zone).date()


def _week(taken_at: datetime.datetime, local_zone: datetime.tzinfo) -> Hashable:
    return _local(taken_at, local_zone).isocalendar()[:2]


def _month(taken_at: datetime.datetime, local_zone: datetime.tzinfo) -> Hashable:
    local = _local(taken_at, local_zone)
    return local.year, local.month


def _local(taken_at: datetime.datetime, local_zone: datetime.tzinfo) -> datetime.datetime:
    return taken_at.replace(tzinfo=datetime.UTC).astimezone(local_zone)
