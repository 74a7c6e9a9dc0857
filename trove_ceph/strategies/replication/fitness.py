# SPDX-License-Identifier: Apache-2.0
"""Whether a replica may take over from a source by itself, without a tenant who accepts a loss.

The volume of a dead source has every acknowledged commit, and can be moved. So a replica is fit
only if nothing is known that it lacks: it has what the source had when it last answered a look, and
what any replica has received. All replicas must therefore answer. With semi-synchronous replication
each acknowledged commit was received by one of them, as long as commits waited. Without it, commits
after that look may be on none of them; they are not known, and are lost.
"""

import dataclasses
import datetime
import functools
import operator
from collections.abc import Callable, Collection, Mapping

from trove_ceph import times
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.replication.replication_types import ReplicationStatus

#: The watch looks at a source every 30 s by default, and later if other agents do not answer. The
#: help of the option ``watch_interval_sec`` names this limit.
MOST_UNKNOWN = datetime.timedelta(minutes=2)


@dataclasses.dataclass(frozen=True)
class Demands:
    """What an ejection that a failover requests must respect, and what it tells.

    :param served_until: when the agent of the source last reported; None: not known
    :param confirm_claim: raises ClaimLostError if another worker continues the failover, by the
        database; that one may have given the volume to another server, which no fence may cut off
    :param note_fenced: called when the source is proved not to write any more
    :param note_promoted: called with the id of the replica that has become the source, before the
        rows of the replicas show that
    """

    served_until: datetime.datetime | None
    confirm_claim: Callable[[], None]
    note_fenced: Callable[[], object]
    note_promoted: Callable[[str], object]


def why_not_known(
    known: GtidSet, seen_at: datetime.datetime | None, served_until: datetime.datetime | None
) -> str | None:
    """Return why it is not known well enough what a source had; None: it is.

    :param known: what it had when it last answered a look
    :param seen_at: when that was
    :param served_until: when its agent last reported
    """
    if not known or seen_at is None or served_until is None:
        return 'no look has found out what the source had'
    if served_until - seen_at > MOST_UNKNOWN:
        return (
            f'the source served until {times.utc_text(served_until)} or longer, and last answered '
            f'a look at {times.utc_text(seen_at)}; {MOST_UNKNOWN.total_seconds():.0f} s are '
            'allowed between the two'
        )
    return None


def why_restarted(found: Mapping[str, ReplicationStatus], seen_sec: float) -> str | None:
    """Return which replica may have discarded what it alone had; None: none is known to have.

    A server that starts discards what it had received and not executed. Such a commit may have been
    acknowledged after the last look at the source, so that nothing shows that it is missing.

    :param found: what the replicas report, by their ids
    :param seen_sec: how long ago the source last answered a look
    """
    for replica_id, server in sorted(found.items()):
        if server.uptime_sec is not None and server.uptime_sec < seen_sec:
            return (
                f'replica {replica_id} started {server.uptime_sec:.0f} s ago, after its source '
                f'had last answered ({seen_sec:.0f} s ago), and may have discarded what it had '
                'received'
            )
    return None


def why_unfit(
    chosen: str,
    found: Mapping[str, ReplicationStatus],
    silent: Mapping[str, str],
    known: GtidSet,
    one_copy: Collection[str],
) -> str | None:
    """Return why the best replica of a source may not take over; None: it may.

    :param chosen: its id
    :param found: what the replicas report that answer, by their ids
    :param silent: why others do not take part, by their ids
    :param known: what the source had, as far as that is known
    :param one_copy: the replicas whose storage may keep one copy of their data
    """
    for replica_id, why in sorted(silent.items()):
        return f'replica {replica_id} may have what others lack, and does not answer: {why}'
    for replica_id, server in sorted(found.items()):
        if server.is_replica and not server.is_applying:
            return f'replica {replica_id} has stopped: {server.sql_error or "by hand"}'
    executed = found[chosen].gtid_executed
    others = functools.reduce(operator.or_, (one.gtid_known for one in found.values()))
    if missing := (others | known) - executed:
        return f'replica {chosen} has not executed {missing.count} transactions that are known'
    beyond = executed - known
    own = beyond - beyond.written_by(found[chosen].source_uuid)
    # One that an interrupted attempt has told to forget its source was fit then.
    if own and found[chosen].is_replica:
        return f'replica {chosen} has {own.count} transactions that its source never had'
    if chosen in one_copy:
        return f'the storage of replica {chosen} keeps one copy of its data, or may do so'
    return None
