# SPDX-License-Identifier: Apache-2.0
"""What earlier automatic failovers allow now; pure functions.

Those of a time that is still to come do not count: the clock of the database was ahead then, and
nothing would be moved until it gets there.
"""

import datetime
from collections.abc import Sequence

from trove_ceph import times
from trove_ceph.db.replacement_record import ReplacementRecord

#: The time for which :class:`.facts.RoundFacts` has the replacements that have ended.
KEPT = datetime.timedelta(days=1)
_HOUR = datetime.timedelta(hours=1)
_PAUSE_AFTER_UNMOVED = datetime.timedelta(minutes=5)


def used_of_limit(replacements: Sequence[ReplacementRecord], time: datetime.datetime) -> int:
    """Return how many automatic failovers of the last hour count towards its limit.

    One that has ended and moved nothing does not count.
    """
    return sum(
        time - one.created_at < _HOUR
        and (one.state.is_open or (one.fenced_at is not None and one.created_at <= time))
        for one in replacements
    )


def why_paused(
    instance_id: str,
    replacements: Sequence[ReplacementRecord],
    time: datetime.datetime,
    pause: datetime.timedelta,
) -> str | None:
    """Return that an instance was failed over automatically too lately; None: it was not.

    The pause doubles with each automatic failover within a day that has fenced the instance. After
    one that has moved nothing, as while Nova does not answer, the database is still down: the pause
    is short then.

    :param pause: after the first one
    """
    ended = [
        (one.ended_at, one.fenced_at is not None)
        for one in replacements
        if one.instance_id == instance_id and one.ended_at is not None and one.ended_at <= time
    ]
    fenced = [ended_at for ended_at, is_fenced in ended if is_fenced]
    unmoved = [ended_at for ended_at, is_fenced in ended if not is_fenced]
    pauses = []
    if fenced:
        pauses.append((max(fenced) + pause * 2 ** (len(fenced) - 1), max(fenced)))
    if unmoved:
        pauses.append((max(unmoved) + min(pause, _PAUSE_AFTER_UNMOVED), max(unmoved)))
    until, ended_at = max(pauses, default=(time, time))
    if time >= until:
        return None
    return (
        f'its automatic failover ended at {times.utc_text(ended_at)}; the next one is '
        f'allowed from {times.utc_text(until)}'
    )
