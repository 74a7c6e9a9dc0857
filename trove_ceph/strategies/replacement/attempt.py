# SPDX-License-Identifier: Apache-2.0
"""What the steps of one attempt share: the record, the claim and the deletion of a server."""

import dataclasses
from collections.abc import Callable, Collection
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions, operation_events, waiting
from trove_ceph.db.claims import Claim
from trove_ceph.db.replacement_record import ReplacementKind, ReplacementRecord
from trove_ceph.db.replacement_states import Event
from trove_ceph.operation_events import Phase
from trove_ceph.strategies.backup.claimed import Guarded
from trove_ceph.strategies.guests.dependencies import ServerFacts
from trove_ceph.strategies.replacement.dependencies import InstanceFacts, ReplacementDependencies

LOG = logging.getLogger(__name__)

_OPERATIONS = {
    ReplacementKind.FAILOVER: operation_events.Operation.FAILOVER,
    ReplacementKind.RESIZE: operation_events.Operation.RESIZE,
    ReplacementKind.REBUILD: operation_events.Operation.REBUILD,
}
_POLL_SEC = 1
#: Nova keeps a deleted server for a while if the operator configured that; it does not run.
_GONE = ('DELETED', 'SOFT_DELETED')


class Attempt:
    """One attempt of a replacement by the worker that has claimed it.

    Each write names the claim. Each request to another service first checks whether the claim is
    still valid, because a worker that was suspended for long may have a successor. That check reads
    a clock. Before a fence, an attachment and a boot the database confirms the claim.

    What this excludes: a worker that wakes before the confirmation requests nothing more. What it
    does not exclude: a worker that is suspended between the confirmation and its request, for
    longer than a claim lasts. Its late request does no harm, because of what its successor did
    before it took a server of its own:

    * a fence cuts off only clients that had the image open before the confirmation, and the fence
      of the successor has cut off these too;
    * an attachment names the server of the record, which the successor has deleted;
    * a boot asks for the volume. Before the successor's server has it, the successor finds the
      server by its mark and deletes it, with another fence. Afterwards Cinder refuses it.

    :ivar deps: the dependencies, guarded by the claim
    :ivar record: the replacement, as this attempt has written it last
    """

    def __init__(self, deps: ReplacementDependencies, claim: Claim, record: ReplacementRecord):
        guarded: dict[str, Any] = {
            name: Guarded(getattr(deps, name), deps.heartbeat, claim)
            for name in ('instances', 'servers', 'network', 'volumes', 'guests', 'agents')
        }
        self.deps = dataclasses.replace(deps, **guarded)
        self.record = record
        self._claim = claim

    def check_claim(self) -> None:
        """Return if this worker may continue.

        :raises ClaimLostError: another worker may have taken over
        """
        self.deps.heartbeat.check(self._claim)

    def confirm_claim(self) -> None:
        """Return if the database says that this worker has the claim, which is renewed with that.

        :raises ClaimLostError: another worker has taken over, or may have
        """
        self.check_claim()
        if not self.deps.store.claims.heartbeat(self._claim):
            raise exceptions.ClaimLostError(f'the {self._claim} is lost; the worker stops')

    def refresh(self) -> None:
        """Read the record again, in which operators may have written."""
        found = self.deps.store.find(self.record.replacement_id)
        assert found is not None
        self.record = found

    def note(self, **values: Any) -> None:
        """Set columns of the record."""
        self.record = self.deps.store.note(self._claim, **values)

    def advance(self, event: Event, **values: Any) -> None:
        """Apply an event that does not end the replacement; attempts are counted anew."""
        anew = {'attempts': 0, 'error': None}
        self.record = self.deps.store.advance(self._claim, event, **anew | values)

    def complete(self) -> None:
        self.record = self.deps.store.complete(self._claim)
        self.report(Phase.END)

    def fail(self, reason: str, cause: str) -> None:
        """End the replacement without success.

        :param cause: the name of the class of the error
        """
        self.record = self.deps.store.fail(self._claim, reason)
        self.report(Phase.ERROR, cause, reason)

    def cancel(self) -> None:
        self.record = self.deps.store.cancel(self._claim)
        self.report(Phase.INTERRUPTED)

    def report(self, phase: Phase, cause: str | None = None, message: str | None = None) -> None:
        """Report what happened to the replacement.

        :param cause: the name of the class of an error
        """
        record = self.record
        subject = {
            name: getattr(record, name)
            for name in ('replacement_id', 'instance_id', 'project_id', 'old_host', 'new_host')
        }
        seconds = None
        if record.ended_at is not None:
            seconds = (record.ended_at - record.created_at).total_seconds()
        operation_events.publish(
            operation_events.Event(
                _OPERATIONS[record.kind],
                phase,
                subject | {'requested_by': str(record.requested_by), 'reason': record.reason},
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
        """Return the instance.

        :raises ReplacementCanceledError: it is being deleted
        """
        facts = self.deps.instances.find(self.record.instance_id)
        if facts is None or facts.is_deleted or facts.task == 'DELETING':
            raise exceptions.ReplacementCanceledError(f'{self.record}: the instance is deleted')
        return facts

    def wait(self, is_done: Callable[[], bool], what: str, shown: str) -> None:
        """Wait until a condition is met, for as long as one attempt waits.

        :param what: is waited for
        :param shown: the same for tenants, without servers, hosts and volumes
        :raises InProgressError: the condition is not met yet
        """
        deadline = waiting.Deadline(self.deps.patience_sec, self.deps.clock, self.deps.sleep)
        while not is_done():
            if not deadline.pause(_POLL_SEC):
                raise exceptions.InProgressError(f'{self.record}: {what}', shown)

    def find_server(self, server_id: str) -> ServerFacts | None:
        """Return a server; None: it is deleted."""
        facts = self.deps.servers.find(server_id)
        return None if facts is None or facts.status in _GONE else facts

    def delete_server(self, server_id: str) -> None:
        """Delete a server, but not the volume, and wait until Nova has none with its id.

        Nova also reports a server as deleted whose host is down, and whose process may still run.

        :raises InProgressError: Nova has not deleted it yet
        """
        if self.find_server(server_id) is None:
            return
        assert self.record.volume_id is not None
        # Each time: Nova deletes the volume with the server if it has been told to.
        self.deps.servers.keep_volume(server_id, self.record.volume_id)
        is_failover = self.record.kind is ReplacementKind.FAILOVER
        since = self.record.created_at if is_failover else None
        self.deps.servers.request_deletion(server_id, since)
        self.wait(
            lambda: self.find_server(server_id) is None,
            f'Nova still deletes server {server_id}',
            'waits until a server is deleted',
        )

    def prove_free(self, server_ids: Collection[str]) -> None:
        """Return when no process can write to the volume, after the deletion of its servers.

        The volume and the ports are then free for another server. The fence comes after the
        deletion, because until then the host could start the server, and with it another client.

        :raises NotFencedError: there is no proof yet
        :raises InProgressError: the volume is not detached yet
        """
        assert self.record.volume_id is not None
        self.deps.volumes.fence(self.record.volume_id, self.confirm_claim)
        self.detach(server_ids)
        self._free_ports()

    def detach(self, server_ids: Collection[str]) -> None:
        """Return when the volume is attached to no server.

        :param server_ids: the deleted servers, of which one had the volume
        :raises InProgressError: it is not detached yet
        """
        assert self.record.volume_id is not None
        error: Exception | None = None
        for server_id in server_ids:
            try:
                self.deps.volumes.detach(self.record.volume_id, server_id)
            except exceptions.InProgressError as failure:
                error = failure
            else:
                return
        if error is not None:
            raise error

    def _free_ports(self) -> None:
        for port_id in self.record.port_ids:
            try:
                self.deps.network.free([port_id])
            except exceptions.PortGoneError as error:
                LOG.warning('%s: continues without a port: %s', self.record, error)
                lost = f'port {port_id} was deleted meanwhile, so its addresses are lost'
                self.note(
                    port_ids=tuple(one for one in self.record.port_ids if one != port_id),
                    reason='; '.join(filter(None, [self.record.reason, lost])),
                )
