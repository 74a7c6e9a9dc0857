# SPDX-License-Identifier: Apache-2.0
"""Replace the server of an instance: fence the volume, prove it, then give it to another server.

The volume and the ports with the addresses of the instance stay. Before the fence, everything that
can be refused is checked, and nothing is changed that is not undone. From the fence on there is no
way back to the old server: each attempt continues where the former one stopped, by whichever
worker, until MySQL serves on the new server or the instance is deleted. A resize that does not
succeed gives the instance another server of its former flavor (:mod:`.former_flavor`).

One process at most can write to the volume at any time. The fence proves that the old server cannot
write. It is repeated after Nova has deleted a server and before another one gets the volume, since
a process that opened the image in between is another client.

If a policy prefers that, a replica takes over from a source instead (:mod:`.take_over`).
"""

from collections.abc import Callable

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.db.claims import Claim
from trove_ceph.db.replacement_record import (
    FailoverCause,
    ReplacementRecord,
    ReplacementState,
)
from trove_ceph.operation_events import Phase
from trove_ceph.steps import Step
from trove_ceph.strategies.backup import tenant_errors
from trove_ceph.strategies.replacement import rules
from trove_ceph.strategies.replacement.attempt import Attempt
from trove_ceph.strategies.replacement.dependencies import ReplacementDependencies
from trove_ceph.strategies.replacement.former_flavor import FormerFlavor, no_server
from trove_ceph.strategies.replacement.new_server import NewServer
from trove_ceph.strategies.replacement.old_server import OldServer
from trove_ceph.strategies.replacement.start import Failure, Start
from trove_ceph.strategies.replacement.take_over import TakeOver

LOG = logging.getLogger(__name__)

_UNREACHABLE = (
    'all ports with addresses of the instance were deleted meanwhile, so that clients cannot reach '
    'it; create a backup of it, and restore that as another instance'
)
_REQUESTED = (ReplacementState.REQUESTED,)
_TAKING_OVER = (ReplacementState.TAKING_OVER,)
_FENCING = (ReplacementState.FENCING,)
_MOVING = (ReplacementState.MOVING,)
_STARTING = (ReplacementState.STARTING,)
_RETURNING = (ReplacementState.RETURNING,)


class Replacement:
    """One attempt of a replacement that this worker has claimed.

    :param claim: held by the heartbeat of the dependencies
    :param record: the replacement as it is now
    """

    def __init__(self, deps: ReplacementDependencies, claim: Claim, record: ReplacementRecord):
        self._attempt = Attempt(deps, claim, record)
        self._old = OldServer(self._attempt)
        self._new = NewServer(self._attempt)
        self._take_over = TakeOver(self._attempt)
        self._former = FormerFlavor(self._attempt, self._new)

    def run(self) -> ReplacementRecord:
        """Continue the replacement until it ends, or until an attempt has waited long enough.

        An attempt that failed is counted in the record, with its reason as tenants see it. What an
        attempt has waited for in vain is noted there too, and is not counted. See
        :func:`.rules.retry_sec` for when to make the next one.

        :returns: the record of the replacement, which has ended
        :raises ClaimLostError: another worker continues it
        :raises InProgressError: look again in some seconds
        :raises Exception: the attempt failed; make another one later
        """
        if self._attempt.record.step is None:
            self._attempt.report(Phase.START)
        try:
            self._run()
        except exceptions.ClaimLostError:
            raise
        except exceptions.InProgressError as error:
            self._note_wait(error)
            raise
        except Exception as error:
            self._count(error)
            if self._attempt.record.state.is_open:
                raise
        return self._attempt.record

    def steps(self) -> list[Step]:
        """Return the steps of an attempt. Each does nothing in a state in which it is done."""
        old, new = self._old, self._new
        return [
            self._step('checking the instance', _REQUESTED, old.check),
            self._step('noting what the new server needs', _REQUESTED, old.note_facts),
            self._step('keeping the volume', _REQUESTED, old.keep_volume),
            self._step('stopping MySQL', _REQUESTED, self._stop, self._undo_stop),
            *self._steps_of_take_over(),
            self._step('fencing the volume', (*_REQUESTED, *_FENCING), old.fence, commits=True),
            self._step('cutting off the old server', _FENCING, old.cut_off),
            self._step('deleting the old server', _FENCING, old.delete),
            *self._steps_of_return(),
            self._step('providing the new server', _MOVING, self._provide),
            self._step('showing the new server', _MOVING, new.show),
            self._step('starting MySQL', _STARTING, self._start),
            self._step('tidying up', _STARTING, self._complete),
        ]

    def _steps_of_take_over(self) -> list[Step]:
        if not self._attempt.record.prefers_replica:
            return []
        states = (*_REQUESTED, *_TAKING_OVER)
        name = 'having a replica take over'
        return [self._step(name, states, self._take_over.run, commits=True)]

    def _steps_of_return(self) -> list[Step]:
        if self._attempt.record.former_flavor_id is None:
            return []
        name = 'returning to the former flavor'
        return [self._step(name, _RETURNING, self._former.give_server_up)]

    def _step(
        self,
        name: str,
        states: tuple[ReplacementState, ...],
        do: Callable[[], object],
        undo: Callable[[], object] | None = None,
        commits: bool = False,
    ) -> Step:
        def do_in_states() -> None:
            if self._attempt.record.state in states:
                self._attempt.enter(name)
                do()

        return Step(name, do_in_states, undo, commits)

    def _run(self) -> None:
        try:
            steps.run(
                str(self._attempt.record),
                self.steps(),
                unfinished=(
                    exceptions.ClaimLostError,
                    exceptions.InProgressError,
                    exceptions.ReplacementCanceledError,
                ),
            )
        except exceptions.ReplacementCanceledError as error:
            self._cancel(str(error))
        except exceptions.ReplacementRefusedError as error:
            if self._attempt.record.state is not ReplacementState.REQUESTED:
                raise
            self._undo_stop()
            self._attempt.fail(str(error), type(error).__name__)

    def _note_wait(self, error: exceptions.InProgressError) -> None:
        # The reason of an attempt that failed, such as an option that MySQL does not know, stays.
        text = tenant_errors.tenant_message(error)
        if self._attempt.record.attempts == 0 and text != self._attempt.record.error:
            self._attempt.note(error=text)

    def _count(self, error: Exception) -> None:
        record = self._attempt.record
        text = tenant_errors.tenant_message(error)
        self._attempt.count(error=text)
        is_requested = record.state is ReplacementState.REQUESTED
        if is_requested and self._attempt.record.attempts >= rules.MOST_ATTEMPTS:
            LOG.error('%s: is given up before the fence: %s', record, error)
            try:
                self._undo_stop()
            except exceptions.TroveCephError as failure:
                LOG.error('%s: MySQL may be stopped on the old server: %s', record, failure)
                text = f'{text}; restart the instance'
            self._attempt.fail(text, type(error).__name__)
        else:
            self._attempt.report(Phase.RETRY, type(error).__name__, text)

    # MySQL on an old server that works.

    def _stop(self) -> None:
        record = self._attempt.record
        if record.kind.is_planned:
            self._new.claim_guest()
            self._attempt.deps.agents.stop_server(record.instance_id)
        elif record.cause is FailoverCause.MAINTENANCE:
            self._stop_if_it_serves()

    def _stop_if_it_serves(self) -> None:
        """Stop MySQL, so that it has nothing to recover; the fence ends one that does not stop."""
        record, deps = self._attempt.record, self._attempt.deps
        if record.stop_requested_at is None:
            now = deps.store.now()
            if not rules.is_healthy(self._attempt.find_instance(), now):
                return
            # Before the request: a worker that undoes this step must start MySQL again.
            self._attempt.note(stop_requested_at=now)
        try:
            deps.agents.stop_server(record.instance_id)
            self._attempt.has_answered = True
        except exceptions.GuestUnavailableError as error:
            LOG.warning(
                '%s: MySQL may still run, and recovers on the new server as after a crash: %s',
                *(record, error),
            )

    def _undo_stop(self) -> None:
        record = self._attempt.record
        if record.state is not ReplacementState.REQUESTED:
            return
        if record.stop_requested_at is not None:
            self._attempt.deps.agents.restart_server(record.instance_id)
            self._attempt.note(stop_requested_at=None)
        # A guest is claimed before MySQL is stopped.
        elif record.kind.is_planned and record.guest_id is not None:
            self._attempt.deps.agents.restart_server(record.instance_id)
            self._new.release_guest(f'the {record.kind} that claimed it was undone')

    # MySQL on the new server.

    def _provide(self) -> None:
        try:
            self._new.provide()
        except exceptions.ServiceUnavailableError as error:
            if not self._former.is_due(error):
                raise
            LOG.error('%s: no server of the new flavor: %s', self._attempt.record, error)
            self._former.return_to(no_server(error))

    def _start(self) -> None:
        self._attempt.refresh()
        given_up = self._attempt.record.given_up_because
        failure = Start(self._attempt).run() if given_up is None else Failure(given_up)
        if failure is None:
            return
        if self._attempt.record.can_return and not failure.is_of_image:
            self._former.return_to(f'MySQL did not start on the new server: {failure.reason}')
        self._fail(str(failure))

    def _fail(self, reason: str) -> None:
        """Leave an instance whose MySQL does not start to its tenant."""
        reason = self._former.tell_all(reason)
        LOG.error('%s: MySQL does not start on the new server: %s', self._attempt.record, reason)
        self._new.tidy()
        self._attempt.deps.instances.report_failed(self._attempt.record.instance_id, reason)
        self._attempt.fail(reason, exceptions.ServerFailedError.__name__)

    def _complete(self) -> None:
        record, instances = self._attempt.record, self._attempt.deps.instances
        instances.report_healthy(record.instance_id)
        self._take_over.follow_again()
        self._new.tidy()
        if not record.port_ids:
            LOG.error('%s: MySQL serves on the new server, but %s', record, _UNREACHABLE)
            reason = self._former.tell_all(_UNREACHABLE)
            instances.record_fault(record.instance_id, reason)
            self._attempt.fail(reason, exceptions.PortGoneError.__name__)
        elif failure := self._former.tell():
            instances.record_fault(record.instance_id, failure)
            self._attempt.fail(failure, exceptions.FlavorGivenUpError.__name__)
        else:
            self._attempt.complete()

    # The deletion of the instance.

    def _cancel(self, reason: str) -> None:
        """End because the instance is being deleted; leave nothing that Trove does not delete."""
        record = self._attempt.record
        if record.state is ReplacementState.REQUESTED:
            self._new.release_guest(reason)
        elif record.state is ReplacementState.TAKING_OVER:
            self._take_over.cancel()
        elif record.state is ReplacementState.FENCING:
            self._old.detach_deleted()
        elif record.state in (*_MOVING, *_RETURNING):
            self._new.discard(reason, is_reused=False)
        if record.state in (*_MOVING, *_STARTING, *_RETURNING):
            self._new.tidy()
        self._attempt.cancel()
