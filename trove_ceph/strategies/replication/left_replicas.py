# SPDX-License-Identifier: Apache-2.0
"""Have the replicas follow their source again that a change of the source has left behind.

A refused ejection, take-over or detachment has stopped some of them: their rows are marked before
that. A promotion or an ejection marks those that could not follow the new source. A replica whose
server was being replaced while its source was ejected connects to the server that it knows. And one
that got its old volume back while its source was silent has the former password of its account. So
whatever way the operation ends, the watch over replicas finds them when the source serves.
"""

from trove_ceph import exceptions
from trove_ceph.strategies.replication import group, new_source, observation
from trove_ceph.strategies.replication.replication_types import ReplicationStatus, ThreadState
from trove_ceph.strategies.replication.source_dependencies import Member, SourceDependencies


def follow_again(deps: SourceDependencies, source: Member) -> None:
    """Have the replicas of a source that were left behind follow it; idempotent.

    The source accepts writes. A replica that the agent cannot attach gets a fresh clone.

    :raises GuestUnavailableError: the source does not answer
    :raises ReplicasLeftError: one that was stopped does not receive yet; repeat the call
    """
    marked = set(deps.replicas.stopped(source.instance_id))
    members = deps.rows.list_replicas(source.instance_id)
    tasks = {one.instance_id: deps.find_task(one.instance_id) for one in members}
    busy = {one: f'has the task {task}' for one, task in tasks.items() if task is not None}
    free = [one for one in members if one.instance_id not in busy]
    statuses, silent = group.ask(deps, free)
    waiting = busy | silent
    # After its replicas, which may receive from it by way of its former source.
    status = deps.agents.status(source.instance_id)
    left, refused = [], set()
    for member in free:
        replica_id = member.instance_id
        if replica_id in silent:
            continue
        try:
            if _is_left(statuses[replica_id], status, replica_id in marked):
                left.append(member)
            elif observation.is_refused(statuses[replica_id], status):
                refused.add(replica_id)
                left.append(member)
            elif replica_id in marked:
                deps.replicas.forget_stopped(replica_id)
        except exceptions.GuestUnavailableError as error:
            waiting[replica_id] = str(error)
    stopped = [one for one in left if one.instance_id not in refused]
    for member in stopped:
        # So that the watch finds it again if what follows is interrupted.
        deps.replicas.note_stopped(member.instance_id)
    again = new_source.NewSource(deps, source)
    again.attach(left)
    # The rules of the watch decide whether one that is refused nevertheless gets a fresh clone.
    again.renew(stopped)
    for member in left:
        if member.instance_id not in again.failures:
            deps.replicas.forget_stopped(member.instance_id)
    awaited = {one: error for one, error in waiting.items() if one in marked}
    if failures := again.failures | awaited:
        why = '; '.join(f'{one}: {error}' for one, error in sorted(failures.items()))
        raise exceptions.ReplicasLeftError(
            f'source {source.instance_id}: a replica does not receive again: {why}'
        )


def _is_left(found: ReplicationStatus, source: ReplicationStatus, is_marked: bool) -> bool:
    """Return whether a replica does not receive from its source, and is to do so.

    One that has what its source lacks is left to its tenant, since it would discard that.

    :raises GuestUnavailableError: it cannot receive now
    """
    if observation.lost_by_source(found, source):
        return False
    if is_marked:
        return _is_stopped(found) or observation.follows_another(found, source)
    return observation.is_stray(found, source)


def _is_stopped(found: ReplicationStatus) -> bool:
    """Return whether a replica still receives nothing.

    :raises GuestUnavailableError: it cannot receive now
    """
    if not found.is_replica:
        # An ejection that has chosen it may have told it to forget its source, too.
        return found.is_read_only
    if found.io_state is not ThreadState.OFF:
        return False
    if not found.is_applying:
        # What it has received may be the last copy, and would be discarded.
        raise exceptions.GuestUnavailableError(found.sql_error or 'its SQL thread is stopped')
    return True
