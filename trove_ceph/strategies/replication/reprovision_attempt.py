# SPDX-License-Identifier: Apache-2.0
"""What the steps of one attempt to re-provision a replica share: the record and the claim."""

import dataclasses
from collections.abc import Callable
from typing import Any

from trove_ceph import exceptions, operation_events, waiting
from trove_ceph.db.claims import Claim
from trove_ceph.db.replica_record import ReplicaRecord
from trove_ceph.db.replica_states import Event
from trove_ceph.operation_events import Operation, Phase
from trove_ceph.strategies.backup.claimed import Guarded
from trove_ceph.strategies.guests.dependencies import ServerFacts
from trove_ceph.strategies.replacement.dependencies import InstanceFacts
from trove_ceph.strategies.replication.reprovision_dependencies import (
    Clones,
    ReprovisionDependencies,
)

_POLL_SEC = 1


class Attempt:
    """One attempt of a re-provisioning by the worker that has claimed it.

    Each write names the claim. Each request to another service first checks whether the claim is
    still valid, because a worker that was suspended for long may have a successor.

    :ivar deps: the dependencies, guarded by the claim
    :ivar record: the replica, as this attempt has written it last
    """

    def __init__(self, deps: ReprovisionDependencies, claim: Claim, record: ReplicaRecord):
        guarded: dict[str, Any] = {
            name: Guarded(getattr(deps, name), deps.heartbeat, claim)
            for name in ('instances', 'servers', 'volumes', 'agents')
        }
        self.deps = dataclasses.replace(deps, **guarded)
        self.record = record
        self._claim = claim

    @property
    def clones(self) -> Clones:
        return self.deps.clones(self._claim)

    def refresh(self) -> None:
        """Read the record again: a promotion gives the replica another source."""
        found = self.deps.store.find(self.record.instance_id)
        assert found is not None
        self.record = found

    def note(self, **values: Any) -> None:
        """Set columns of the record."""
        self.record = self.deps.store.note(self._claim, **values)

    def advance(self, event: Event, **values: Any) -> None:
        """Apply an event that does not end the re-provisioning; attempts are counted anew."""
        anew = {'attempts': 0, 'error': None}
        self.record = self.deps.store.advance(self._claim, event, **anew | values)

    def complete(self) -> None:
        self.record = self.deps.store.complete(self._claim)
        self.report(Phase.END)

    def fail(self, reason: str, cause: str) -> None:
        """End while the replica serves on its old volume.

        :param cause: the name of the class of the error
        """
        self.record = self.deps.store.fail(self._claim, reason)
        self.report(Phase.ERROR, cause, reason)

    def finish_return(self) -> None:
        self.record = self.deps.store.finish_return(self._claim)
        self.report(Phase.ERROR, exceptions.ReprovisioningRefusedError.__name__, self.record.error)

    def cancel(self) -> None:
        self.deps.store.cancel(self._claim)
        self.report(Phase.INTERRUPTED)

    def report(self, phase: Phase, cause: str | None = None, message: str | None = None) -> None:
        """Report what happened to the re-provisioning.

        :param cause: the name of the class of an error
        """
        record = self.record
        subject = {
            name: getattr(record, name)
            for name in ('request_id', 'instance_id', 'source_id', 'project_id', 'reason')
        }
        seconds = None
        if record.requested_at is not None and phase not in (Phase.START, Phase.RETRY):
            # The row of a canceled one is deleted.
            ended_at = record.updated_at if phase is Phase.INTERRUPTED else record.ended_at
            seconds = (ended_at - record.requested_at).total_seconds() if ended_at else None
        operation_events.publish(
            operation_events.Event(
                Operation.REPLICA_REPROVISION,
                phase,
                subject,
                seconds,
                cause=cause,
                message=message,
            )
        )

    def enter(self, step: str) -> None:
        """Begin a step, which tenants see.

        :raises ReplacementCanceledError: the instance is being deleted
        """
        self.find_instance()
        if self.record.step != step:
            self.note(step=step)

    def find_instance(self) -> InstanceFacts:
        """Return the instance of the replica.

        :raises ReplacementCanceledError: it is being deleted
        """
        facts = self.deps.instances.find(self.record.instance_id)
        if facts is None or facts.is_deleted or facts.task == 'DELETING':
            raise exceptions.ReplacementCanceledError(f'{self.record}: the instance is deleted')
        return facts

    def find_server(self) -> ServerFacts:
        """Return the server of the replica.

        :raises OperatorNeededError: it has none
        """
        server_id = self.find_instance().server_id
        server = None if server_id is None else self.deps.servers.find(server_id)
        if server is None:
            raise exceptions.OperatorNeededError(
                f'{self.record}: Nova has no server {server_id}; delete the replica and create '
                'another one'
            )
        return server

    def wait(self, is_done: Callable[[], bool], what: str) -> None:
        """Wait until a condition is met, for as long as one attempt waits.

        :param what: is waited for
        :raises InProgressError: the condition is not met yet
        """
        deadline = waiting.Deadline(self.deps.patience_sec, self.deps.clock, self.deps.sleep)
        while not is_done():
            if not deadline.pause(_POLL_SEC):
                raise exceptions.InProgressError(f'{self.record}: {what}')
