# SPDX-License-Identifier: Apache-2.0
"""Which backups stay: pure functions.

Of each of the last hours, days, weeks and months that have a backup, the last one stays, and of all
the last few. It is not the clock that says which is later, but the order in which they were taken:
a clock that was wrong for a while makes none go too early.
"""

import dataclasses
import datetime
from collections.abc import Hashable, Iterable, Sequence

from trove_ceph.db.policy_record import Retention
from trove_ceph.strategies.policies import schedule


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A backup that a policy took, and that nobody has asked to delete.

    :param number: grows from backup to backup
    :param taken_at: in UTC, and of no zone
    :param is_under_way: it is being taken, copied or verified
    :param is_good: it is there, and nothing is known against it
    :param is_suspected: one inspection found something against it, which is not confirmed
    :param is_damaged: two inspections found that it does not restore
    :param is_copied: it is in the vault as well
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
    """Return which backups stay no longer, the oldest first.

    What is never returned, whatever ``keep`` says: the last good backup, the last ones that are
    copied and verified, any that is worked on or suspected, and the last one that has ended,
    however it did. A damaged one takes no place of a good one, and goes no sooner than if it were
    good: whether it is of any use is for people to say.

    :param timezone: where days, weeks and months begin
    :param is_full: there is no room for another one, so that a last one that failed goes, too
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
    """Return what ``keep`` keeps of backups, the latest of which is the first."""
    kept = list(ordered[: max(1, keep.last)])
    here = schedule.zone(timezone)
    for count, period in (
        (keep.hourly, _hour),
        (keep.daily, _day),
        (keep.weekly, _week),
        (keep.monthly, _month),
    ):
        # What a clock dated ahead belongs to the present, and takes no place of its own.
        latest: dict[Hashable, Candidate] = {}
        for one in ordered:
            latest.setdefault(period(min(one.taken_at, now), here), one)
        kept += list(latest.values())[:count]
    return kept


def _hour(taken_at: datetime.datetime, _here: datetime.tzinfo) -> Hashable:
    # Of those that a local day has twice, one is not the other.
    return taken_at.date(), taken_at.hour


def _day(taken_at: datetime.datetime, here: datetime.tzinfo) -> Hashable:
    return _local(taken_at, here).date()


def _week(taken_at: datetime.datetime, here: datetime.tzinfo) -> Hashable:
    return _local(taken_at, here).isocalendar()[:2]


def _month(taken_at: datetime.datetime, here: datetime.tzinfo) -> Hashable:
    local = _local(taken_at, here)
    return local.year, local.month


def _local(taken_at: datetime.datetime, here: datetime.tzinfo) -> datetime.datetime:
    return taken_at.replace(tzinfo=datetime.UTC).astimezone(here)
