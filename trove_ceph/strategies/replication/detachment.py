# SPDX-License-Identifier: Apache-2.0
"""Detach a replica: it follows no source any more, accepts writes, and stands for itself.

Detaching discards the relay log. So what the replica has received is executed before, since its
source may be lost. While it executes something, it is waited for; if it does not come to the end,
the detachment is refused. A replica that has stopped at an error cannot execute it: to detach it is
how a tenant gives that up, who is told what it is.
"""

from collections.abc import Mapping

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.steps import Step
from trove_ceph.strategies.replication import group
from trove_ceph.strategies.replication.replication_types import ReplicationStatus, ThreadState
from trove_ceph.strategies.replication.source_dependencies import (
    Member,
    RowChange,
    SourceDependencies,
)

LOG = logging.getLogger(__name__)

#: No other operation can be requested for its source meanwhile, such as an ejection.
_MOST_WAIT_SEC = 600


class Detachment:
    """The detachment of one replica.

    :param source: None: it is deleted
    """

    def __init__(
        self,
        deps: SourceDependencies,
        replica: Member,
        source: Member | None,
    ):
        self._deps = deps
        self._replica = replica
        self._source = source
        self._given_up: ReplicationStatus | None = None

    def __str__(self) -> str:
        return f'detachment of replica {self._replica.instance_id}'

    @property
    def has_stopped_source(self) -> bool:
        """Whether its source may be read-only if it fails."""
        return False

    @property
    def may_be_committed(self) -> bool:
        """Whether an earlier worker may have passed the point of no return."""
        # A detachment that fails may be requested again: its source keeps its own history.
        return False

    def tasks_if_failed(self) -> Mapping[str, str]:
        """Return the task of the replica if it fails before the point of no return."""
        return group.free_tasks(self._deps, [self._replica])

    def steps(self) -> list[Step]:
        """Return the steps."""
        return [
            Step('check that the replica is free', self._check),
            Step('execute what the replica has received', self._execute, undo=self._follow_again),
            # Only now: a detachment that is refused must not cost space.
            Step('have the volume of the replica flattened', self._flatten),
            Step('have the replica accept writes', self._detach, commits=True),
            Step('drop its replication user', self._drop_user),
            Step('record that it is no replica', self._record),
        ]

    def _check(self) -> None:
        group.check_free(self._deps, [self._replica])

    def _flatten(self) -> None:
        assert self._replica.volume_id is not None
        self._deps.volumes.flatten(self._replica.volume_id)

    def _execute(self) -> None:
        """Wait while the replica executes what it has received.

        :raises SourceNotChangedError: it does not come to the end
        """
        agents, replica_id = self._deps.agents, self._replica.instance_id
        before = agents.status(replica_id)
        if not before.is_replica:
            return
        if before.io_state is not ThreadState.OFF:
            # Before the request, so that the watch finds it if nothing else has it follow again.
            self._deps.replicas.note_stopped(replica_id)
            agents.stop_receiving(replica_id)
        most_wait_sec = max(_MOST_WAIT_SEC, self._deps.catch_up_sec)
        found = group.wait_while_executing(self._deps, replica_id, most_wait_sec)
        left = found.gtid_unexecuted
        if left and found.is_applying:
            raise exceptions.SourceNotChangedError(
                f'replica {replica_id}: cannot be detached: still executes {left.count} '
                'transactions that it has received: repeat the request later, or delete it to give '
                f'them up: {group.shown(left)}'
            )
        self._given_up = found if left else None

    def _follow_again(self) -> None:
        """Have the replica receive again; what fails is left to the watch over replicas."""
        agents, replica_id = self._deps.agents, self._replica.instance_id
        if self._source is None:
            return
        found = agents.status(replica_id)
        if found.io_state is ThreadState.OFF:
            if not found.is_applying:
                # What it has received may be the last copy, and would be discarded.
                return
            source_id = self._source.instance_id
            agents.attach(replica_id, agents.replica_context(source_id, replica_id))
        self._deps.replicas.forget_stopped(replica_id)

    def _detach(self) -> None:
        replica_id = self._replica.instance_id
        if self._deps.agents.status(replica_id).accepts_writes:
            # An agent that was interrupted has not done all of it.
            self._deps.agents.enable_as_source(replica_id)
            return
        # Told before, since a resumed detachment does not know any more what is given up.
        facts = []
        if warning := group.one_copy_warning(self._deps, self._replica):
            facts.append(warning)
        if self._given_up is not None:
            text = self._describe(self._given_up)
            LOG.warning('Replica %s: %s', replica_id, text)
            facts.append(text)
        if facts:
            group.add_fault(self._deps, replica_id, ' '.join(facts))
        # Before the request: if the answer is lost, and the replica silent, nothing else shows that
        # it may have commits of its own.
        self._deps.replicas.note_surplus(replica_id)
        self._deps.agents.detach(replica_id)

    def _describe(self, server: ReplicationStatus) -> str:
        """Return what a replica that has stopped has received, and has not when it is detached."""
        left = server.gtid_unexecuted
        lost = left - self._find_executed_by_source()
        whose = f'{lost.count} of them may be lost' if lost else 'its source has them'
        return (
            f'detached without {left.count} transactions that it had received and not executed; '
            f'{whose}: {group.shown(left)}: {server.sql_error or "its SQL thread is stopped"}'
        )

    def _find_executed_by_source(self) -> GtidSet:
        """Return what the source has executed; nothing if it is deleted or does not answer."""
        if self._source is None:
            return GtidSet()
        try:
            return self._deps.agents.status(self._source.instance_id).gtid_executed
        except exceptions.GuestUnavailableError:
            return GtidSet()

    def _drop_user(self) -> None:
        if self._source is not None:
            group.drop_user_of(self._deps, self._source.instance_id, self._replica.instance_id)

    def _record(self) -> None:
        self._deps.replicas.remove(self._replica.instance_id)
        self._deps.rows.record([RowChange(self._replica.instance_id, None)])
        LOG.info('Instance %s: is detached from its source', self._replica.instance_id)


def forget(deps: SourceDependencies, replica: Member) -> None:
    """Forget a replica that is being deleted: its row, and its user on the source.

    :raises ServiceUnavailableError: the database does not answer
    """
    if replica.source_id is not None and deps.rows.find(replica.source_id) is not None:
        group.drop_user_of(deps, replica.source_id, replica.instance_id)
    deps.replicas.remove(replica.instance_id)
