# SPDX-License-Identifier: Apache-2.0
"""Have a new source accept writes that did not answer when it became the source.

A promotion or an ejection waits for its agent for two minutes. Then it ends, and records which
instance is the source, so that a tenant can have that one failed over, or eject it. Nothing accepts
writes meanwhile. The new source has a mark until it does (:mod:`trove_ceph.db.source_marks`).
"""

from collections.abc import Collection, Iterable

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.strategies.replacement import rules
from trove_ceph.strategies.replication import group, left_replicas
from trove_ceph.strategies.replication.replication_types import ReplicationStatus
from trove_ceph.strategies.replication.source_dependencies import (
    EJECTION_ERROR,
    PROMOTION_ERROR,
    Member,
    SourceDependencies,
)

LOG = logging.getLogger(__name__)


def finish(deps: SourceDependencies, member: Member, mark: SourceMark) -> None:
    """Have a new source accept writes that did not answer when it became the source; idempotent.

    The source before it is ejected, or is a replica of it, in Trove. The others follow it then.

    :param mark: what has made it the source
    :raises GuestUnavailableError: it does not answer
    :raises OperationUnfinishedError: it must not accept writes yet
    :raises ReplicasLeftError: a replica does not follow it; the watch repeats that
    """
    instance_id = member.instance_id
    replicas, silent = group.ask(deps, deps.rows.list_replicas(instance_id))
    found = deps.agents.status(instance_id)
    for replica_id, replica in replicas.items():
        if replica.accepts_writes:
            raise exceptions.OperationUnfinishedError(
                f'source {instance_id}: must not accept writes as long as its replica {replica_id} '
                'does; detach that one'
            )
    if found.is_replica:
        if found.gtid_unexecuted and found.is_applying:
            raise exceptions.OperationUnfinishedError(
                f'source {instance_id}: still executes what it has received'
            )
        # An ejection has fenced the former source, and this one has executed what it had received.
        if mark is SourceMark.UNFINISHED_PROMOTION:
            _check_has_all(instance_id, found, replicas.values(), silent)
        deps.agents.detach(instance_id, for_failover=True)
    # Also if it accepts writes: an agent that was interrupted has not done all of it.
    deps.agents.enable_as_source(instance_id)
    # An ejection of it that was refused may have given it another one of the two.
    deps.rows.replace_task(instance_id, [EJECTION_ERROR, PROMOTION_ERROR], 'NONE')
    now = deps.rows.find(instance_id)
    if now is None or now.task not in rules.IDLE_TASKS:
        # An operation that has begun meanwhile gives the former task back.
        raise exceptions.OperationUnfinishedError(
            f'source {instance_id}: accepts writes, and has another task'
        )
    deps.marks.remove(instance_id)
    LOG.warning('Source %s: answers, and accepts writes now', instance_id)
    left_replicas.follow_again(deps, member)


def _check_has_all(
    instance_id: str,
    found: ReplicationStatus,
    replicas: Iterable[ReplicationStatus],
    silent: Collection[str],
) -> None:
    """Return if a replica that is promoted has executed all that its former source has.

    A resumed promotion may have taken it for the new source while it was silent.

    :param replicas: those that answer. The former source is one, unless it is deleted
    :param silent: the ids of the others
    :raises OperationUnfinishedError: it has not, or the former source does not tell
    """
    former = next((one for one in replicas if found.follows(one)), None)
    if former is None and silent:
        raise exceptions.OperationUnfinishedError(
            f'source {instance_id}: may lack what its former source has, which is one of '
            f'{", ".join(silent)}, and does not answer'
        )
    if former is None:
        return
    if missing := former.gtid_executed - found.gtid_executed:
        raise exceptions.OperationUnfinishedError(
            f'source {instance_id}: lacks {missing.count} transactions that its former source has'
        )
