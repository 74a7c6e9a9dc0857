# SPDX-License-Identifier: Apache-2.0
"""Have replicas receive again that a refused ejection, take-over or detachment has stopped.

Their rows are marked before they are stopped. So whatever way the operation ends, the watch over
replicas finds them when the source serves again.
"""

from trove_ceph import exceptions
from trove_ceph.strategies.replication import new_source
from trove_ceph.strategies.replication.replication_types import ThreadState
from trove_ceph.strategies.replication.source_dependencies import Member, SourceDependencies


def follow_again(deps: SourceDependencies, source: Member) -> None:
    """Have the stopped replicas of a source receive again; idempotent.

    The source accepts writes. A replica that the agent cannot attach gets a fresh clone.

    :raises ReplicasLeftError: one does not receive yet; repeat the call
    """
    marked = set(deps.replicas.stopped(source.instance_id))
    stopped, waiting = [], {}
    for member in deps.rows.list_replicas(source.instance_id):
        if member.instance_id not in marked:
            continue
        try:
            is_stopped = _is_stopped(deps, member.instance_id)
        except exceptions.GuestUnavailableError as error:
            waiting[member.instance_id] = str(error)
            continue
        if is_stopped:
            stopped.append(member)
        else:
            deps.replicas.forget_stopped(member.instance_id)
    again = new_source.NewSource(deps, source)
    again.attach(stopped)
    again.renew(stopped)
    for member in stopped:
        if member.instance_id not in again.failures:
            deps.replicas.forget_stopped(member.instance_id)
    if left := again.failures | waiting:
        why = '; '.join(f'{one}: {error}' for one, error in sorted(left.items()))
        raise exceptions.ReplicasLeftError(
            f'source {source.instance_id}: a replica does not receive again: {why}'
        )


def _is_stopped(deps: SourceDependencies, replica_id: str) -> bool:
    """Return whether a replica still receives nothing.

    :raises GuestUnavailableError: it cannot receive now
    """
    if (task := deps.find_task(replica_id)) is not None:
        raise exceptions.GuestUnavailableError(f'has the task {task}')
    found = deps.agents.status(replica_id)
    if not found.is_replica:
        # An ejection that has chosen it may have told it to forget its source, too.
        return found.is_read_only
    if found.io_state is not ThreadState.OFF:
        return False
    if not found.is_applying:
        # What it has received may be the last copy, and would be discarded.
        raise exceptions.GuestUnavailableError(found.sql_error or 'its SQL thread is stopped')
    return True
