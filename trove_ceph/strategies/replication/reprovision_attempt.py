# SPDX-License-Identifier: Apache-2.0
"""What the steps of one attempt to re-provision a replica share: the record and the claim."""

from collections.abc import Mapping
from typing import Any

from trove_ceph import exceptions
from trove_ceph.db.claims import Claim
from trove_ceph.db.replica_record import ReplicaRecord
from trove_ceph.db.replica_states import Event
from trove_ceph.operation_events import Operation, Phase
from trove_ceph.strategies.guests.dependencies import ServerFacts
from trove_ceph.strategies.replacement import claimed_attempt
from trove_ceph.strategies.replication.reprovision_dependencies import (
    Clones,
    ReprovisionDependencies,
)


class Attempt(claimed_attempt.ClaimedAttempt[ReprovisionDependencies, ReplicaRecord, Event]):
    """One attempt of a re-provisioning by the worker that has claimed it."""

    def __init__(self, deps: ReprovisionDependencies, claim: Claim, record: ReplicaRecord):
        super().__init__(deps, claim, record, ('instances', 'servers', 'volumes', 'agents'))

    @property
    def clones(self) -> Clones:
        return self.deps.clones(self._claim)

    def refresh(self) -> None:
        """Read the record again: a promotion gives the replica another source."""
        found = self.deps.store.find(self.record.instance_id)
        assert found is not None
        self.record = found

    def give_up(self, reason: str, cause: str) -> None:
        """End on the new volume, although the replica does not follow on it.

        :param cause: the name of the class of the error
        """
        self.record = self.deps.store.give_up(self._claim, reason)
        self.report(Phase.ERROR, cause, reason)

    def finish_return(self) -> None:
        self.record = self.deps.store.finish_return(self._claim)
        self.report(Phase.ERROR, exceptions.ReprovisioningRefusedError.__name__, self.record.error)

    def cancel(self) -> None:
        self.deps.store.cancel(self._claim)
        self.report(Phase.INTERRUPTED)

    @property
    def _operation(self) -> Operation:
        return Operation.REPLICA_REPROVISION

    def _subject(self) -> Mapping[str, Any]:
        names = ('request_id', 'instance_id', 'source_id', 'project_id', 'reason')
        return {name: getattr(self.record, name) for name in names}

    def _seconds(self, phase: Phase) -> float | None:
        record = self.record
        if record.requested_at is None or phase in (Phase.START, Phase.RETRY):
            return None
        # The row of a canceled one is deleted.
        ended_at = record.updated_at if phase is Phase.INTERRUPTED else record.ended_at
        return (ended_at - record.requested_at).total_seconds() if ended_at else None

    def find_server(self) -> ServerFacts:
        """Return the server of the replica.

        :raises OperatorNeededError: it has none
        """
        server_id = self.find_instance().server_id
        server = None if server_id is None else self.deps.servers.find(server_id)
        if server is None:
            raise exceptions.OperatorNeededError(
                f'{self.record}: Nova has no server {server_id}; delete the replica and create '
                'another one',
                'its server does not exist any more; delete the replica and create another one',
            )
        return server
