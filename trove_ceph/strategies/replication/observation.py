# SPDX-License-Identifier: Apache-2.0
"""Look at a source and its replicas, and say what that shows.

The replicas are asked before their source. So whatever a replica has executed and its source has
not, the source will never have: it is errant. Asked the other way round, it may just be new.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.replica_record import Observation, ReplicaRecord
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.replication.replication_types import ReplicationStatus, ThreadState
from trove_ceph.strategies.replication.watch_dependencies import (
    Agents,
    Volumes,
    VolumeUsage,
    WatchDependencies,
)

LOG = logging.getLogger(__name__)

_MAX_ERROR_CHARACTERS = 500
_SILENT = 'its guest agent does not answer'
_SURPLUS = 'it may have transactions that its source lacks'
_DETACHED = (
    'it follows no source, as after a detachment that was interrupted: detach it to keep what it '
    'has, or re-provision it, which discards that'
)
#: A dishonest server can report more than a column of the table holds.
_MOST_TRANSACTIONS = 2**63 - 1
#: Errors of the receiver: the source refuses the replication user.
REFUSED_ACCOUNT = (1044, 1045, 1130, 1227)
#: Measuring the own space of an image reads the map of all its objects.
_MEASURED_EVERY_SEC = 600


@dataclasses.dataclass(frozen=True)
class ReplicaLook:
    """What was seen of a replica.

    :param status: None: its agent did not answer, or could not tell
    :param usage: of its volume; None: it was not asked for, or is unknown
    :param volume_error: why its data is lost; None: it is not, or that is unknown
    :param agent_error: why its agent answered without a status, such as that MySQL does not run
    :param fresh_depth: the images above a fresh clone of its source; None: it is not known, or its
        present clone is not too deep
    """

    record: ReplicaRecord
    status: ReplicationStatus | None
    usage: VolumeUsage | None = None
    volume_error: str | None = None
    agent_error: str | None = None
    fresh_depth: int | None = None


@dataclasses.dataclass(frozen=True)
class Group:
    """A source and its replicas. A volume is None where it is unknown.

    :param volumes: the volumes of all of them, by instance
    """

    source_id: str
    replicas: Sequence[ReplicaRecord]
    volumes: Mapping[str, str | None]


@dataclasses.dataclass(frozen=True)
class GroupLook:
    """What one look at a source and its replicas has shown.

    :param source: None: its agent did not answer, or could not tell
    """

    source_id: str
    source: ReplicationStatus | None
    replicas: Sequence[ReplicaLook]


class LookMemory:
    """What looks remember of earlier ones; threads may share it. It may be lost at any time.

    :param clock: seconds
    """

    def __init__(self, volumes: Volumes, clock: Callable[[], float]):
        self._volumes = volumes
        self._clock = clock
        self._measured: dict[str, tuple[float, VolumeUsage | None]] = {}
        self._executed: dict[str, GtidSet] = {}

    def find_usage(self, volume_id: str) -> VolumeUsage | None:
        """Return the usage of a volume, at most 10 minutes old; None: it is on no tier.

        :raises TroveCephError: it cannot be measured; the next call tries it again
        """
        at, usage = self._measured.get(volume_id, (None, None))
        now = self._clock()
        if at is None or now - at >= _MEASURED_EVERY_SEC:
            usage = self._volumes.find_usage(volume_id, True)
            self._measured[volume_id] = now, usage
        return usage

    def has_progressed(self, instance_id: str, executed: GtidSet) -> bool:
        """Return whether a replica has executed more since the last look; the first one counts."""
        before, self._executed[instance_id] = self._executed.get(instance_id), executed
        return before != executed

    def forget_others(self, volumes: Mapping[str, str | None]) -> None:
        """Forget all but these replicas and their volumes."""
        for volume_id in self._measured.keys() - set(volumes.values()):
            self._measured.pop(volume_id, None)
        for instance_id in self._executed.keys() - volumes.keys():
            self._executed.pop(instance_id, None)


def look(deps: WatchDependencies, memory: LookMemory, group: Group) -> GroupLook:
    """Look at the replicas of a source, and then at the source.

    It takes some seconds for each agent that is silent, and longer where Ceph does not answer.
    """
    answers = {one.instance_id: _ask(deps.agents, one.instance_id) for one in group.replicas}
    source, _error = _ask(deps.agents, group.source_id)
    looks = []
    for record in group.replicas:
        status, agent_error = answers[record.instance_id]
        usage, volume_error = _examine(deps.volumes, memory, group, record.instance_id, status)
        fresh_depth = _fresh_depth(deps, group, usage)
        looks.append(ReplicaLook(record, status, usage, volume_error, agent_error, fresh_depth))
    return GroupLook(group.source_id, source, looks)


def _ask(agents: Agents, instance_id: str) -> tuple[ReplicationStatus | None, str | None]:
    """Return the status of a server, and the error with which its agent answered instead."""
    try:
        return agents.status(instance_id), None
    except exceptions.GuestSilentError:
        return None, None
    except exceptions.GuestUnavailableError as error:
        return None, ' '.join(str(error).split())[:_MAX_ERROR_CHARACTERS]


def lost_by_source(status: ReplicationStatus, source: ReplicationStatus) -> GtidSet:
    """Return what a replica has from other servers, and its source has not.

    Its source has lost it in a crash of its host, if it does not flush its logs at each commit; or
    has never had it, if it is the source since the one that committed it was ejected. The replica
    may have the only copy. What was written on the replica itself is not meant, unless it follows
    no source: then it may have been detached, and nothing have recorded that. Nor if its source has
    transactions of it: then it was the source, and its clients may have committed them.

    :param status: of the replica
    """
    surplus = status.gtid_known - source.gtid_executed
    was_source = bool(source.gtid_executed.written_by(status.server_uuid))
    if was_source or not status.is_replica:
        return surplus
    return surplus - surplus.written_by(status.server_uuid)


def has_surplus(
    record: ReplicaRecord, status: ReplicationStatus | None, source: ReplicationStatus | None
) -> bool | None:
    """Return whether a replica has, or may write, what its source lacks; None: it is not known.

    If one of them does not answer, that is what is known from before.
    """
    if status is None or source is None:
        return record.has_surplus
    return status.accepts_writes or bool(lost_by_source(status, source))


def why_kept(
    record: ReplicaRecord, status: ReplicationStatus | None, source: ReplicationStatus
) -> str | None:
    """Return why what a replica has must not be discarded without a request; None: it may be.

    :param status: of the replica; None: it does not answer
    """
    if not has_surplus(record, status, source):
        return None
    if status is None:
        return (
            'does not answer, and may have transactions that its source lacks; repair it to keep '
            'them, or re-provision it, which discards them'
        )
    if status.accepts_writes:
        return (
            'it accepts writes, as after a detachment that was interrupted; detach it again to '
            'keep what it has, or re-provision it, which discards that'
        )
    return (
        f'it has {lost_by_source(status, source).count} transactions that its source lacks; detach '
        'it to keep them, or re-provision it, which discards them'
    )


def is_stray(status: ReplicationStatus, source: ReplicationStatus) -> bool:
    """Return whether a replica connects in vain to another server than its source.

    Such as to the former source, which was ejected while the server of the replica was replaced.
    One that somebody has stopped, and one that has transactions which its source lacks, is none.
    During a promotion, a replica may look like that.
    """
    is_trying = status.io_state is ThreadState.CONNECTING or bool(status.io_error)
    return (
        status.is_replica
        and is_trying
        and follows_another(status, source)
        and not lost_by_source(status, source)
    )


def is_refused(status: ReplicationStatus, source: ReplicationStatus) -> bool:
    """Return whether a replica that has nothing which its source lacks is refused by its source.

    Such as one that got its old volume back, since the password of its account was renewed for the
    fresh clone.
    """
    return (
        status.is_replica
        and status.io_error_number in REFUSED_ACCOUNT
        and not follows_another(status, source)
        and not lost_by_source(status, source)
    )


def observe(found: ReplicaLook, source: ReplicationStatus | None) -> Observation:
    """Return what a look shows of a replica, with what is known from before where it shows less."""
    record, status = found.record, found.status
    lag_transactions = errant = None
    if status is not None and source is not None and not follows_another(status, source):
        lag = (source.gtid_executed - status.gtid_executed).count
        lag_transactions = min(lag, _MOST_TRANSACTIONS)
        errant = str(status.gtid_executed - source.gtid_executed)
    known, surplus = found.usage, has_surplus(record, status, source)
    error = found.volume_error or found.agent_error or _why_not_replicating(status, source)
    if status is None and surplus:
        error = f'{error}; {_SURPLUS}'
    return Observation(
        is_replicating=_is_replicating(found),
        lag_sec=_lag_sec(found, source),
        lag_transactions=lag_transactions,
        errant=errant,
        source_executed=record.source_executed if source is None else str(source.gtid_executed),
        replication_error=error,
        own_bytes=(
            record.own_bytes if known is None or known.own_bytes is None else known.own_bytes
        ),
        clone_depth=record.clone_depth if known is None else known.clone_depth,
        semi_sync_active=None if source is None else source.semi_sync_active,
        has_surplus=surplus,
    )


def follows_another(status: ReplicationStatus, source: ReplicationStatus) -> bool:
    """Return whether a replica follows another server than its source, as during a promotion."""
    return status.source_uuid not in ('', source.server_uuid)


def _lag_sec(found: ReplicaLook, source: ReplicationStatus | None) -> float | None:
    """Return the lag of a replica; None: it does not follow its source, so it is not known.

    What it reports then says nothing of what it has not received.
    """
    status = found.status
    if status is None or not _is_replicating(found):
        return None
    if source is not None and follows_another(status, source):
        return None
    return status.lag_sec


def _is_replicating(found: ReplicaLook) -> bool | None:
    if found.volume_error is not None or found.agent_error is not None:
        return False
    return None if found.status is None else found.status.is_replicating


def _why_not_replicating(
    status: ReplicationStatus | None, source: ReplicationStatus | None
) -> str | None:
    if status is None:
        return _SILENT
    if not status.is_replica:
        has_own = source is not None and lost_by_source(status, source)
        return _DETACHED if status.accepts_writes or has_own else 'it follows no source'
    if source is not None and follows_another(status, source):
        return 'it follows another server than its source'
    if source is not None and (lost := lost_by_source(status, source)):
        return (
            f'its source lacks {lost.count} transactions, as after a crash of its host or an '
            'ejection, and the replica has them: detach it to keep them, or re-provision it, which '
            'discards them'
        )
    if status.sql_error:
        return _numbered(status.sql_error_number, status.sql_error)
    if status.io_error:
        return _numbered(status.io_error_number, status.io_error)
    if status.io_state == ThreadState.CONNECTING:
        return 'it is connecting to its source'
    return None if status.is_replicating else 'its replication was stopped'


def _numbered(number: int, error: str) -> str:
    # MySQL leaves the number out of the text when the replica cannot connect.
    return f'error {number}: {error}' if number else error


def _examine(
    volumes: Volumes,
    memory: LookMemory,
    group: Group,
    instance_id: str,
    status: ReplicationStatus | None,
) -> tuple[VolumeUsage | None, str | None]:
    """Return the usage of a replica's volume, and why its data is lost; None: not known.

    A replica whose volume hangs may answer from memory and say that it replicates. Only one that
    progresses proves that its volume works; that of any other must exist and answer.
    """
    volume_id = group.volumes.get(instance_id)
    if volume_id is None:
        return None, None
    works = (
        status is not None
        and status.is_replicating
        and memory.has_progressed(instance_id, status.gtid_executed)
    )
    usage = volume_error = None
    try:
        if not works:
            # Without a measurement, which is of the last minutes.
            volumes.find_usage(volume_id, False)
        usage = memory.find_usage(volume_id)
    except exceptions.NotFoundError:
        volume_error = 'its volume does not exist any more'
    except exceptions.CephUnreachableError:
        if not works and _answers(volumes, group.volumes.get(group.source_id)):
            volume_error = 'its volume does not answer, although that of its source does'
    except exceptions.TroveCephError as error:
        LOG.debug('Instance %s: its volume cannot be examined: %s', instance_id, error)
    return usage, None if works else volume_error


def _fresh_depth(deps: WatchDependencies, group: Group, usage: VolumeUsage | None) -> int | None:
    """Return the images above a fresh clone for a replica whose own clone is too deep."""
    volume_id = group.volumes.get(group.source_id)
    if usage is None or usage.clone_depth <= deps.settings.most_clone_depth or volume_id is None:
        return None
    try:
        source = deps.volumes.find_usage(volume_id, False)
    except exceptions.TroveCephError as error:
        LOG.debug('Instance %s: its volume cannot be examined: %s', group.source_id, error)
        return None
    return None if source is None else source.clone_depth + 1


def _answers(volumes: Volumes, volume_id: str | None) -> bool:
    """Return whether Ceph answers about a volume, which shows that it works at all."""
    if volume_id is None:
        return False
    try:
        return volumes.find_usage(volume_id, False) is not None
    except exceptions.TroveCephError:
        return False
