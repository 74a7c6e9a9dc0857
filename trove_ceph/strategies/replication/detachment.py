# SPDX-License-Identifier: Apache-2.0
"""Detach a replica: it follows no source any more, accepts writes, and stands for itself."""

from collections.abc import Mapping

from oslo_log import log as logging

from trove_ceph.steps import Step
from trove_ceph.strategies.replication import group
from trove_ceph.strategies.replication.replication_types import ThreadState
from trove_ceph.strategies.replication.source_dependencies import (
    Member,
    RowChange,
    SourceDependencies,
)

LOG = logging.getLogger(__name__)


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
            Step('have the volume of the replica flattened', self._flatten),
            Step('execute what the replica has received', self._execute, undo=self._follow_again),
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
        """Wait for a while, since the source may be lost, and detaching discards the relay log."""
        agents, replica_id = self._deps.agents, self._replica.instance_id
        found = agents.status(replica_id)
        if not found.is_replica or found.sql_error:
            return
        agents.stop_receiving(replica_id)
        received = agents.status(replica_id).gtid_known
        if not group.wait_until_executed(self._deps, replica_id, received):
            LOG.warning(
                'Replica %s: is detached before it has executed all that it has received',
                replica_id,
            )

    def _follow_again(self) -> None:
        agents, replica_id = self._deps.agents, self._replica.instance_id
        if self._source is not None and agents.status(replica_id).io_state is ThreadState.OFF:
            source_id = self._source.instance_id
            agents.attach(replica_id, agents.replica_context(source_id, replica_id))

    def _detach(self) -> None:
        if not self._deps.agents.status(self._replica.instance_id).accepts_writes:
            self._deps.agents.detach(self._replica.instance_id)

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
