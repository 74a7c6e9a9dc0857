# SPDX-License-Identifier: Apache-2.0
"""What the steps of one attempt share: the record, the claim and the deletion of a server."""

import datetime
from collections.abc import Collection, Mapping
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions, operation_events
from trove_ceph.db.claims import Claim
from trove_ceph.db.replacement_record import (
    ReplacementKind,
    ReplacementRecord,
    ReplacementState,
)
from trove_ceph.db.replacement_states import Event
from trove_ceph.operation_events import Phase
from trove_ceph.strategies.guests.dependencies import ServerFacts
from trove_ceph.strategies.replacement import claimed_attempt
from trove_ceph.strategies.replacement.dependencies import ReplacementDependencies

LOG = logging.getLogger(__name__)

_OPERATIONS = {
    ReplacementKind.FAILOVER: operation_events.Operation.FAILOVER,
    ReplacementKind.RESIZE: operation_events.Operation.RESIZE,
    ReplacementKind.REBUILD: operation_events.Operation.REBUILD,
}
#: Nova keeps a deleted server for a while if the operator configured that; it does not run.
_GONE = ('DELETED', 'SOFT_DELETED')


class Attempt(claimed_attempt.ClaimedAttempt[ReplacementDependencies, ReplacementRecord, Event]):
    """One attempt of a replacement by the worker that has claimed it.

    Before a fence, an attachment and a boot the database confirms the claim, because the check of
    each request reads a clock.

    What this excludes: a worker that wakes before the confirmation requests nothing more. What it
    does not exclude: a worker that is suspended between the confirmation and its request, for
    longer than a claim lasts. Its late request does no harm, because of what its successor did
    before it took a server of its own:

    * a fence cuts off only clients that had the image open before the confirmation, and the fence
      of the successor has cut off these too;
    * an attachment names the server of the record, which the successor has deleted;
    * a boot asks for the volume. Before the successor's server has it, the successor finds the
      server by its mark and deletes it, with another fence. Afterwards Cinder refuses it.

    :ivar has_answered: the agent of the old server has, which shows that its host works
    """

    def __init__(self, deps: ReplacementDependencies, claim: Claim, record: ReplacementRecord):
        super().__init__(
            deps,
            claim,
            record,
            ('instances', 'servers', 'network', 'volumes', 'guests', 'agents', 'successors'),
        )
        self.has_answered = False

    def check_claim(self) -> None:
        """Return if this worker may continue.

        :raises ClaimLostError: another worker may have resumed this
        """
        self.deps.heartbeat.check(self._claim)

    def confirm_claim(self) -> None:
        """Return if the database says that this worker has the claim, which is renewed with that.

        :raises ClaimLostError: another worker has resumed this, or may have
        """
        self.check_claim()
        if not self.deps.store.claims.heartbeat(self._claim):
            raise exceptions.ClaimLostError(f'the {self._claim} is lost; the worker stops')

    def refresh(self) -> None:
        """Read the record again, in which operators may have written."""
        found = self.deps.store.find(self.record.replacement_id)
        assert found is not None
        self.record = found

    def cancel(self) -> None:
        self.record = self.deps.store.cancel(self._claim)
        self.report(Phase.INTERRUPTED)

    @property
    def _operation(self) -> operation_events.Operation:
        return _OPERATIONS[self.record.kind]

    def _subject(self) -> Mapping[str, Any]:
        names = (
            *('replacement_id', 'instance_id', 'project_id', 'old_host', 'new_host', 'reason'),
            'promoted_id',
        )
        subject = {name: getattr(self.record, name) for name in names}
        return subject | {'requested_by': str(self.record.requested_by)}

    def _seconds(self, phase: Phase) -> float | None:
        ended_at = self.record.ended_at
        return None if ended_at is None else (ended_at - self.record.created_at).total_seconds()

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
        since = self._find_time_of_failure(server_id)
        # Another attempt would fence the volume again before it looks at the host again.
        self.insist(lambda: self.deps.servers.request_deletion(server_id, since))
        self.wait(
            lambda: self.find_server(server_id) is None,
            f'Nova still deletes server {server_id}',
            'waits until a server is deleted',
        )

    def _find_time_of_failure(self, server_id: str) -> datetime.datetime | None:
        """Return when the host of a server may have failed; None: it works."""
        if self.record.state is ReplacementState.RETURNING:
            return self.record.returned_at
        works = self.has_answered and server_id == self.record.old_server_id
        if works or self.record.kind is not ReplacementKind.FAILOVER:
            return None
        return self.record.created_at

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
        self.deps.network.free(self.record.port_ids, server_ids)

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

    def drop_gone_ports(self) -> None:
        """Continue without the ports that do not exist any more, which no server could have."""
        for port_id in self.deps.network.find_gone(self.record.port_ids):
            lost = f'port {port_id} was deleted meanwhile, so its addresses are lost'
            LOG.warning('%s: %s', self.record, lost)
            self.note(
                port_ids=tuple(one for one in self.record.port_ids if one != port_id),
                reason='; '.join(filter(None, [self.record.reason, lost])),
            )
