# SPDX-License-Identifier: Apache-2.0
"""Have a replica take over from a source that fails over, if the policy prefers that.

What the new server needs is checked and noted before, and the volume of the source has every
commit. So until a replica accepts writes, the failover can still move the volume. From there on it
only goes on until the replica is the source for Trove as well, and the old source is given up.
"""

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import ReplacementState
from trove_ceph.db.replacement_states import Event
from trove_ceph.strategies.backup import tenant_errors
from trove_ceph.strategies.replacement.attempt import Attempt

LOG = logging.getLogger(__name__)


class TakeOver:
    """The part of one attempt in which a replica may take over.

    :ivar confirm_claim: see :meth:`.Attempt.confirm_claim`
    """

    def __init__(self, attempt: Attempt):
        self._attempt = attempt
        self.confirm_claim = attempt.confirm_claim

    def run(self) -> None:
        """End the failover if a replica takes over; otherwise leave it to the next step.

        :raises TroveCephError: a replica may have taken over; the next attempt goes on
        """
        record, deps = self._attempt.record, self._attempt.deps
        if record.state is ReplacementState.REQUESTED:
            if not deps.successors.has_replicas(record.instance_id):
                return
            self._attempt.advance(Event.TAKE_OVER, take_over_at=deps.store.now())
        try:
            self._take_over()
        except exceptions.SourceNotChangedError as error:
            self._move_volume(error)
        except exceptions.NewSourceSilentError as error:
            LOG.error('%s: nothing may accept writes: %s', self._attempt.record, error)
            self._attempt.fail(tenant_errors.tenant_message(error), type(error).__name__)
        else:
            record = self._attempt.record
            LOG.warning('%s: replica %s is the source now', record, record.promoted_id)
            self._attempt.complete()

    def _take_over(self) -> None:
        served_until = self._attempt.find_instance().agent_seen_at
        self._attempt.deps.successors.take_over(self._attempt.record, served_until, self)

    def note_fenced(self) -> None:
        """See :meth:`.TakeOverNotes.note_fenced`."""
        if self._attempt.record.fenced_at is None:
            self._attempt.note(fenced_at=self._attempt.deps.store.now())

    def note_promoted(self, replica_id: str) -> None:
        """See :meth:`.TakeOverNotes.note_promoted`."""
        self._attempt.note(promoted_id=replica_id)

    def _move_volume(self, error: Exception) -> None:
        """Leave the instance to the move of its volume, and tell why."""
        why = f'no replica took over: {tenant_errors.tenant_message(error)}'
        LOG.warning('%s: its volume moves: %s', self._attempt.record, why)
        reason = '; '.join(filter(None, [self._attempt.record.reason, why]))
        self._attempt.advance(Event.FENCE, reason=reason, promoted_id=None)

    def cancel(self) -> None:
        """End what an attempt has begun on the replicas of an instance that is being deleted."""
        # Otherwise the deletion has the claim, and would wait for itself.
        if not self._attempt.deps.successors.is_taking_over(self._attempt.record.instance_id):
            return
        try:
            self._attempt.deps.successors.take_over(self._attempt.record, None, self)
        except exceptions.SourceNotChangedError as error:
            LOG.info('%s: no replica took over: %s', self._attempt.record, error)
        except exceptions.NewSourceSilentError as error:
            LOG.warning('%s: %s', self._attempt.record, error)

    def follow_again(self) -> None:
        """Have replicas follow the source on its new server that an attempt has stopped."""
        record = self._attempt.record
        if record.take_over_at is None:
            return
        try:
            self._attempt.deps.successors.follow_again(record.instance_id)
        except exceptions.ClaimLostError:
            raise
        except exceptions.TroveCephError as error:
            # The watch over replicas repeats it.
            LOG.warning('%s: a replica does not follow again: %s', record, error)
