# SPDX-License-Identifier: Apache-2.0
"""Re-provision a replica: exchange its volume for a fresh clone of its source.

The instance keeps its id, its server, its addresses and its accounts. The clone is made while the
replica serves. It is out of service from the stop of MySQL until MySQL follows on the clone.

The old volume is kept until the new one has all that the source had executed before the exchange.
Until then each state has a way back: before the exchange the clone is removed, and from the
exchange on the old volume is attached again. Nothing is given back to an old volume whose pool does
not answer. The new volume is then tried again; if it never follows, the replica stays on it and may
be re-provisioned again, unless the old one may be the last copy.
An exchange that cannot end, as on a server that is paused, blocks after a limit in either
direction: an operator is told what to repair, and it is tried again until then.

What the watch requests discards nothing that may be the last copy: it ends if the replica has
transactions that its source lacks, and the replica returns to its old volume if its source is
another one by then, which lacks what the former one had. Tenants and operators who request it are
told before what it discards.

A volume is deleted by one record, which the periodic task reads whenever the pool answers. The
record of the old volume is the point of no return: from then on the re-provisioning can only be
completed. A volume that a server has, or that the row of its instance names, is never deleted.

Each attempt continues where the former one stopped, by whichever worker. It finds out by the state
of the record, and by what Nova and Cinder show, since a worker can die between any two requests. A
worker that was suspended sends no request and writes nothing once its claim is lost.
"""

import contextlib
from collections.abc import Callable, Iterator

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.db.claims import Claim
from trove_ceph.db.replica_record import ReplicaRecord, ReplicaState, Requester
from trove_ceph.db.replica_states import Event
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.operation_events import Phase
from trove_ceph.steps import Step
from trove_ceph.strategies.backup import tenant_errors
from trove_ceph.strategies.replication import observation
from trove_ceph.strategies.replication import reprovision_rules as rules
from trove_ceph.strategies.replication.replication_types import ReplicationStatus, ThreadState
from trove_ceph.strategies.replication.reprovision_attempt import Attempt
from trove_ceph.strategies.replication.reprovision_dependencies import ReprovisionDependencies
from trove_ceph.strategies.replication.reprovision_exchange import Exchange
from trove_ceph.strategies.replication.reprovision_start import Start

LOG = logging.getLogger(__name__)

_UNCHANGED = (ReplicaState.REQUESTED, ReplicaState.CLONING)
_CLONING = (ReplicaState.CLONING,)
_EXCHANGING = (ReplicaState.EXCHANGING,)
_CATCHING_UP = (ReplicaState.CATCHING_UP,)
_RETURNING = (ReplicaState.RETURNING,)
_BLOCKED = (ReplicaState.BLOCKED,)
_TOO_LATE = 'the volumes could not be exchanged in time'


class Reprovisioning:
    """One attempt of a re-provisioning that this worker has claimed.

    :param claim: held by the heartbeat of the dependencies
    :param record: the replica as it is now
    """

    def __init__(self, deps: ReprovisionDependencies, claim: Claim, record: ReplicaRecord):
        self._attempt = Attempt(deps, claim, record)
        self._exchange = Exchange(self._attempt)

    def run(self) -> None:
        """Continue until the re-provisioning ends, or until an attempt has waited long enough.

        An attempt that failed is counted in the record, with its reason as tenants see it.

        :raises ClaimLostError: another worker continues it
        :raises InProgressError: look again in some seconds
        :raises Exception: the attempt failed; make another one later
        """
        if self._attempt.record.step is None:
            self._attempt.report(Phase.START)
        try:
            self._run()
        except (exceptions.ClaimLostError, exceptions.InProgressError):
            raise
        except Exception as error:
            self._count(error)
            if self._attempt.record.state.is_reprovisioning:
                raise

    def steps(self) -> list[Step]:
        """Return the steps of an attempt. Each does nothing in a state in which it is done."""
        return [
            self._step('checking the replica', _UNCHANGED, self._check),
            self._step('cloning the source', _UNCHANGED, self._clone),
            self._step('reading the position of the source', _CLONING, self._note_target),
            self._step('having no commit wait for the replica', _CLONING, self._end_waits),
            self._step(
                'exchanging the volumes', (*_CLONING, *_EXCHANGING), self._put_in_clone, True
            ),
            self._step('showing the new volume', _EXCHANGING, self._show),
            self._step('catching up with the source', _CATCHING_UP, self._catch_up),
            self._step('giving up the old volume', _CATCHING_UP, self._complete),
            self._step('waiting for an operator', _BLOCKED, self._unblock),
            self._step('attaching the old volume again', _RETURNING, self._put_back),
            self._step('starting MySQL on the old volume', _RETURNING, self._restart),
        ]

    def _step(
        self,
        name: str,
        states: tuple[ReplicaState, ...],
        do: Callable[[], object],
        commits: bool = False,
    ) -> Step:
        def do_in_states() -> None:
            if self._attempt.record.state in states:
                self._attempt.enter(name)
                do()

        return Step(name, do_in_states, commits=commits)

    def _run(self) -> None:
        try:
            steps.run(
                f're-provisioning of {self._attempt.record}',
                self.steps(),
                unfinished=(
                    exceptions.ClaimLostError,
                    exceptions.InProgressError,
                    exceptions.ReplacementCanceledError,
                ),
            )
        except exceptions.ReplacementCanceledError:
            self._cancel()
        except exceptions.ReprovisioningRefusedError as error:
            if self._attempt.record.state not in _UNCHANGED:
                raise
            self._fail(error.shown or str(error), error)

    def _count(self, error: Exception) -> None:
        record = self._attempt.record
        text = tenant_errors.tenant_message(error)
        # While the old volume is attached again, the error says why.
        shown = {} if record.state in _RETURNING else {'error': text}
        self._attempt.count(**shown)
        if record.attempts + 1 >= rules.MOST_ATTEMPTS and record.state in _UNCHANGED:
            self._fail(text, error)
            return
        self._attempt.report(Phase.RETRY, type(error).__name__, text)
        if record.attempts + 1 < rules.MOST_ATTEMPTS:
            return
        if record.state in _RETURNING:
            self._block(error)
        elif record.state not in _BLOCKED and not self._give_back(text):
            if record.state in _EXCHANGING:
                self._block(error)

    # Before the exchange.

    def _check(self) -> None:
        record, deps = self._attempt.record, self._attempt.deps
        replica = self._attempt.find_instance()
        source = deps.instances.find(record.source_id)
        reason = rules.why_not(replica, source, record.source_id)
        if reason is not None:
            raise exceptions.ReprovisioningRefusedError(reason)
        server = self._attempt.find_server()
        rules.check_server(replica, server, deps.servers.find_volumes(server.server_id))
        if record.volume_id != replica.volume_id:
            self._attempt.note(volume_id=replica.volume_id)

    def _clone(self) -> None:
        if self._attempt.record.state is ReplicaState.REQUESTED:
            self._attempt.advance(Event.CLONE, new_cloned_at=self._attempt.deps.store.now())
        if self._attempt.record.new_volume_id is None:
            volume_id = self._attempt.clones.create(self._attempt.record)
            self._attempt.note(new_volume_id=volume_id)

    def _note_target(self) -> None:
        record, agents = self._attempt.record, self._attempt.deps.agents
        # Before the source, so that it has nothing that is just new there.
        replica = self._find_status()
        source = agents.status(record.source_id)
        why = observation.why_kept(record, replica, source) if self._must_keep_all else None
        if why is not None:
            raise exceptions.ReprovisioningRefusedError(f'instance {record.instance_id}: {why}')
        self._attempt.note(target_gtid=str(source.gtid_executed))

    def _find_status(self) -> ReplicationStatus | None:
        """Return the status of the replica; None: it does not answer, such as on a lost pool."""
        try:
            return self._attempt.deps.agents.status(self._attempt.record.instance_id)
        except exceptions.GuestUnavailableError:
            return None

    @property
    def _must_keep_all(self) -> bool:
        """Whether to keep what the source lacks: no tenant or operator has agreed to discard it."""
        return self._attempt.record.requested_by is Requester.POLICY

    def _end_waits(self) -> None:
        """Have commits of the source wait for no replica if this one alone acknowledges them.

        They would wait for it in vain, until their timeout. The watch over replicas has them wait
        again when a replica acknowledges.
        """
        record, deps = self._attempt.record, self._attempt.deps
        try:
            source, replica = map(deps.agents.status, (record.source_id, record.instance_id))
            is_needed = replica.semi_sync_replica and replica.io_state is ThreadState.ON
            if source.semi_sync_source and source.semi_sync_clients == 1 and is_needed:
                timeout_ms = deps.semi_sync_timeout_ms
                deps.agents.set_semi_sync(record.source_id, False, False, timeout_ms)
        except exceptions.GuestUnavailableError as error:
            LOG.warning('%s: commits may wait for it in vain: %s', record, error)

    def _fail(self, reason: str, cause: Exception) -> None:
        """End while the replica serves on its old volume.

        :param reason: as tenants see it
        """
        LOG.error('%s: keeps its volume: %s', self._attempt.record, cause)
        self._remove_clone()
        self._attempt.fail(reason, type(cause).__name__)

    def _remove_clone(self) -> None:
        record = self._attempt.record
        try:
            if record.new_volume_id is not None:
                # Its pool may not answer now.
                self._attempt.deps.volumes.discard(record.new_volume_id, record)
            else:
                self._attempt.clones.remove(record)
        except exceptions.ClaimLostError:
            raise
        except exceptions.TroveCephError as error:
            # A pool that does not answer must not keep the replica from its tenant.
            LOG.error(
                '%s: its clone was not removed, and trove-ceph-manage gc lists what is left: %s',
                *(record, error),
            )

    # The exchange.

    def _put_in_clone(self) -> None:
        now = self._attempt.deps.store.now()
        if self._attempt.record.state is ReplicaState.CLONING:
            # From now on, the watch measures the new volume.
            before = self._attempt.record.own_bytes
            self._attempt.advance(
                Event.EXCHANGE,
                exchange_began_at=now,
                former_own_bytes=before,
                fresh_own_bytes=None,
            )
        record = self._attempt.record
        reason = self._why_no_source()
        if reason is None and self._is_too_late():
            reason = _TOO_LATE
        if reason is not None and self._give_back(reason):
            return
        assert record.volume_id is not None and record.new_volume_id is not None
        with self._limited():
            self._exchange.run(record.volume_id, record.new_volume_id)
            # A server that was switched off has started MySQL on the clone, as what the source is.
            self._exchange.release()

    def _show(self) -> None:
        record, deps = self._attempt.record, self._attempt.deps
        assert record.new_volume_id is not None
        self._set_volume(record.new_volume_id)
        self._attempt.advance(
            Event.EXCHANGED,
            volume_id=record.new_volume_id,
            old_volume_id=record.volume_id,
            new_volume_id=None,
            answered_at=deps.store.now(),
            failed_starts=0,
            has_surplus=None,
        )
        LOG.info('%s: has the new volume %s', record, record.new_volume_id)

    def _set_volume(self, volume_id: str) -> None:
        # The clone of a source that has grown is larger than the old volume.
        deps = self._attempt.deps
        size_gib = deps.volumes.find_size_gib(volume_id)
        deps.instances.set_volume(self._attempt.record.instance_id, volume_id, size_gib)

    # The new volume.

    def _catch_up(self) -> None:
        if self._attempt.record.target_gtid is None:
            self._give_up()
            return
        if self._is_old_given_up():
            return
        try:
            reason = self._why_no_source() or Start(self._attempt).catch_up()
            if reason is not None and not self._give_back(reason):
                raise exceptions.GuestUnavailableError(f'{self._attempt.record}: {reason}')
        except exceptions.GuestUnavailableError as error:
            if not self._has_no_way_back():
                raise
            if not (self._must_keep_all and self._is_given_back_for(GtidSet.parse(''))):
                # Without a position to reach, the next attempt gives it up, too.
                self._attempt.note(error=tenant_errors.tenant_message(error), target_gtid=None)
                self._give_up()

    def _has_no_way_back(self) -> bool:
        record, volumes = self._attempt.record, self._attempt.deps.volumes
        assert record.old_volume_id is not None
        is_last = record.attempts + 1 >= rules.MOST_ATTEMPTS
        return is_last and not volumes.can_be_read(record.old_volume_id)

    def _give_up(self) -> None:
        """End on the new volume, which never follows, because the old one cannot be read."""
        record, deps = self._attempt.record, self._attempt.deps
        assert record.old_volume_id is not None
        reason = record.error or 'it does not follow its source'
        LOG.error('%s: stays on its new volume: %s', record, reason)
        self._attempt.note(cloned_at=record.new_cloned_at)
        deps.instances.report_failed(record.instance_id, reason)
        deps.volumes.discard(record.old_volume_id, record)
        self._attempt.give_up(reason, exceptions.GuestUnavailableError.__name__)

    def _complete(self) -> None:
        record, deps = self._attempt.record, self._attempt.deps
        assert record.volume_id is not None and record.old_volume_id is not None
        if self._must_keep_all and not self._is_old_given_up():
            if self._is_given_back_for(deps.agents.status(record.instance_id).gtid_executed):
                return
        own_bytes = deps.volumes.find_own_bytes(record.volume_id)
        self._attempt.note(cloned_at=record.new_cloned_at, fresh_own_bytes=own_bytes)
        deps.instances.report_healthy(record.instance_id)
        deps.volumes.discard(record.old_volume_id, record)
        self._attempt.complete()

    def _is_given_back_for(self, executed: GtidSet) -> bool:
        """Give the old volume back if it may have the last copy of transactions.

        :param executed: what the replica has on the new volume
        :raises OperatorNeededError: it may, but cannot be read now
        """
        record, deps = self._attempt.record, self._attempt.deps
        assert record.target_gtid is not None and record.old_volume_id is not None
        source = deps.agents.status(record.source_id)
        lost = GtidSet.parse(record.target_gtid) - executed - source.gtid_executed
        if not lost:
            return False
        reason = f'its source lacks {lost.count} transactions that the former one had'
        if self._give_back(f'{reason}, and its old volume may have them'):
            return True
        if deps.volumes.is_gone(record.old_volume_id):
            return False
        raise exceptions.OperatorNeededError(
            f'{record}: {reason}, and its old volume, which cannot be read now, may have them; '
            f'repair its pool, or delete the volume {record.old_volume_id}',
            f'{reason}, and its old volume, which cannot be read now, may have them; your operator '
            'has to repair it',
        )

    def _is_old_given_up(self) -> bool:
        old_id = self._attempt.record.old_volume_id
        return old_id is not None and self._attempt.deps.volumes.is_discarded(old_id)

    def _why_no_source(self) -> str | None:
        self._attempt.refresh()
        record = self._attempt.record
        return rules.why_no_source(
            self._attempt.find_instance(),
            self._attempt.deps.instances.find(record.source_id),
            record.source_id,
        )

    # The way back.

    def _give_back(self, reason: str) -> bool:
        """Begin the return to the old volume; return False if there is no way back to it."""
        record, deps = self._attempt.record, self._attempt.deps
        is_shown = record.state is ReplicaState.CATCHING_UP
        old_id = record.old_volume_id if is_shown else record.volume_id
        new_id = record.volume_id if is_shown else record.new_volume_id
        assert old_id is not None
        if self._is_old_given_up():
            return False
        if not deps.volumes.can_be_read(old_id):
            LOG.error(
                '%s: the new volume %s fails, and the old one %s cannot be read: %s',
                *(record, new_id, old_id, reason),
            )
            return False
        LOG.error('%s: gets its old volume %s back: %s', record, old_id, reason)
        now = deps.store.now()
        self._attempt.advance(
            Event.GIVE_BACK,
            error=reason,
            volume_id=old_id,
            new_volume_id=new_id,
            old_volume_id=None,
            exchange_began_at=now,
            answered_at=now,
            failed_starts=0,
        )
        return True

    def _put_back(self) -> None:
        record = self._attempt.record
        assert record.volume_id is not None and record.new_volume_id is not None
        with self._limited():
            self._exchange.run(record.new_volume_id, record.volume_id)
        self._set_volume(record.volume_id)

    def _restart(self) -> None:
        reason = Start(self._attempt).start_on_old_volume()
        record, deps = self._attempt.record, self._attempt.deps
        if reason is None:
            deps.instances.report_healthy(record.instance_id)
        else:
            LOG.error('%s: MySQL does not start on its old volume: %s', record, reason)
            deps.instances.report_failed(record.instance_id, reason)
        assert record.new_volume_id is not None
        deps.volumes.discard(record.new_volume_id, record)
        self._attempt.finish_return()

    # An exchange that does not end.

    def _is_too_late(self) -> bool:
        began_at = self._attempt.record.exchange_began_at
        assert began_at is not None
        return self._attempt.deps.store.now() - began_at > rules.EXCHANGE_TIMEOUT

    @contextlib.contextmanager
    def _limited(self) -> Iterator[None]:
        """Return to the old volume, or else block, if an exchange waits for longer than it may."""
        try:
            yield
        except exceptions.InProgressError as error:
            is_exchanging = self._attempt.record.state in _EXCHANGING
            if self._is_too_late() and not (is_exchanging and self._give_back(_TOO_LATE)):
                self._block(error)
            raise

    def _block(self, error: Exception) -> None:
        """Tell operators by the log, and tenants, why the volumes cannot be exchanged."""
        record, deps = self._attempt.record, self._attempt.deps
        LOG.error('%s: needs an operator: %s', record, tenant_errors.operator_message(error))
        reason = tenant_errors.tenant_message(error)
        deps.instances.report_failed(record.instance_id, reason)
        self._attempt.advance(Event.BLOCK, error=reason)

    def _unblock(self) -> None:
        """Attach the old volume if it can be read, and otherwise the new one.

        :raises OperatorNeededError: it is not repaired yet
        """
        record, deps = self._attempt.record, self._attempt.deps
        old_id, new_id = record.volume_id, record.new_volume_id
        assert old_id is not None and new_id is not None
        is_readable = deps.volumes.can_be_read(old_id)
        try:
            self._exchange.run(*((new_id, old_id) if is_readable else (old_id, new_id)))
            if not is_readable:
                # As in the exchange.
                self._exchange.release()
        except exceptions.InProgressError as error:
            # It is counted, so that a replica that waits for long is not tried all the time.
            raise exceptions.OperatorNeededError(str(error), error.shown) from error
        LOG.info('%s: is not blocked any more', record)
        now = deps.store.now()
        self._attempt.advance(
            Event.GIVE_BACK if is_readable else Event.EXCHANGE,
            error=f'waited for an operator: {record.error}',
            exchange_began_at=now,
            answered_at=now,
            failed_starts=0,
        )

    # The deletion of the instance.

    def _cancel(self) -> None:
        """End because the instance is being deleted; have all volumes deleted with it.

        Its deletion deletes the volume that its row names, and its server; the others follow when
        they are detached.
        """
        record = self._attempt.record
        if record.state in _UNCHANGED:
            self._remove_clone()
        else:
            for volume_id in (record.volume_id, record.new_volume_id, record.old_volume_id):
                if volume_id is not None:
                    self._attempt.deps.volumes.discard(volume_id, record)
        self._attempt.cancel()
