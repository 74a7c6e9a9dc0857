# SPDX-License-Identifier: Apache-2.0
"""The store of replicas, of their re-provisionings, and of the claims on these."""

import dataclasses
import datetime
import uuid
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph import exceptions
from trove_ceph.db import claims, replica_states, tables, trove_tasks
from trove_ceph.db.claims import Claim, Claimant
from trove_ceph.db.replica_record import (
    Cause,
    Observation,
    ReplicaRecord,
    ReplicaState,
    Requester,
)
from trove_ceph.db.replica_states import Event
from trove_ceph.db.roles import Role
from trove_ceph.db.state_machine import ABSENT
from trove_ceph.db.transactions import Transactions, insert, retry_on_deadlock
from trove_ceph.db.trove_tasks import Task

_Row = tables.ReplicaRow
_IS_REPROVISIONING = _Row.state != str(ReplicaState.FOLLOWING)
#: The task of an instance while it is re-provisioned.
_TASK = Task.MIGRATING
_ENUMS = ('state', 'requested_by', 'cause', 'last_cause')


class ReplicaStore:
    """Replicas; safe for use by several threads and processes.

    Each verb writes in one transaction, together with the task of the instance in Trove's table
    where a re-provisioning begins or ends. It raises ServiceUnavailableError when the database does
    not answer or lacks the tables. All times are by the clock of the database.

    :param transactions: access to the database; by default the one of Trove's configuration
    """

    def __init__(self, transactions: Transactions | None = None):
        self._transactions = transactions or Transactions()
        self.claims = claims.Claims(self._transactions)

    def now(self) -> datetime.datetime:
        """Return the time by the clock of the database."""
        return self._transactions.read_database_time()

    # Replicas.

    @retry_on_deadlock
    def register(
        self,
        instance_id: str,
        project_id: str,
        source_id: str,
        volume_id: str | None,
        cloned_at: datetime.datetime | None,
    ) -> ReplicaRecord:
        """Add a replica that follows its source; return the one that exists if it is repeated.

        One that :meth:`adopt` has added meanwhile gets the time.

        :param volume_id: of the volume that the instance uses
        :param cloned_at: when the snapshot of its data was created; None: its volume is no clone
        :raises RecordExistsError: it is the replica of another source
        """
        with self._transactions.writing() as session:
            row = session.get(_Row, instance_id)
            if row is None:
                now = self._transactions.database_time(session)
                row = _new_row(instance_id, project_id, source_id, now)
                row.volume_id, row.cloned_at = volume_id, cloned_at
                insert(session, row)
            elif row.source_id != source_id:
                raise exceptions.RecordExistsError(
                    f'{row.as_model()}: cannot become a replica of instance {source_id}; detach it '
                    'first'
                )
            elif row.volume_id == volume_id and row.cloned_at is None:
                row.cloned_at = cloned_at
            return row.as_model()

    @retry_on_deadlock
    def adopt(
        self, instance_id: str, project_id: str, source_id: str, volume_id: str | None
    ) -> ReplicaRecord | None:
        """Add a replica of Trove's table that has no row, or correct its row.

        When it was cloned is not known.

        :returns: None: it is no replica of the source any more, or has a task; nothing is written
        """
        with self._transactions.writing() as session:
            # Before the row, which a promotion changes before Trove's table.
            if not trove_tasks.is_idle_replica(session, instance_id, source_id):
                return None
            now = self._transactions.database_time(session)
            row = session.get(_Row, instance_id, with_for_update=True)
            if row is None:
                row = _new_row(instance_id, project_id, source_id, now)
                row.volume_id = volume_id
                insert(session, row)
            elif row.source_id != source_id:
                row.source_id, row.updated_at = source_id, now
                row.source_seen_at = row.stopped_at = None
            if row.volume_id is None:
                row.volume_id = volume_id
            return row.as_model()

    @retry_on_deadlock
    def promote(
        self,
        source_id: str,
        candidate_id: str,
        keeps_source: bool,
        source_volume_id: str | None = None,
    ) -> None:
        """Make a replica the source of all others of its source; idempotent.

        Its own row is removed, if it has one, and the replication policy becomes its own. The fresh
        clones that others are being given stay as they are.

        :param keeps_source: the old source becomes a replica; False: it is given up
        :param source_volume_id: the volume of the old source, as Trove has it
        :raises RecordNotFoundError: the candidate is the replica of another source
        :raises InvalidTransitionError: the candidate is being re-provisioned; nothing is written
        """
        with self._transactions.writing() as session:
            candidate = session.get(_Row, candidate_id, with_for_update=True)
            if candidate is not None and candidate.source_id != source_id:
                raise exceptions.RecordNotFoundError(
                    f'instance {candidate_id}: is not a replica of instance {source_id}'
                )
            now = self._transactions.database_time(session)
            of_source = sa.select(_Row.project_id).where(_Row.source_id == source_id)
            # Without a row of the source's replicas, the watch adds that of the old source.
            project_id = session.scalar(of_source.limit(1))
            if keeps_source and project_id is not None:
                row = _new_row(source_id, project_id, candidate_id, now)
                row.volume_id = source_volume_id
                insert(session, row)
            if candidate is not None:
                replica_states.next_state(ReplicaState(candidate.state), Event.REMOVE)
                session.delete(candidate)
            session.flush()
            session.execute(
                sa.update(_Row)
                .where(_Row.source_id == source_id)
                .values(
                    source_id=candidate_id, source_seen_at=None, stopped_at=None, updated_at=now
                )
            )
            policy = tables.ReplicationPolicyRow
            if candidate is not None or session.get(policy, source_id) is not None:
                session.execute(sa.delete(policy).where(policy.instance_id == candidate_id))
            session.execute(
                sa.update(policy)
                .where(policy.instance_id == source_id)
                .values(instance_id=candidate_id, updated_at=now)
            )

    @retry_on_deadlock
    def observe(
        self,
        before: ReplicaRecord,
        observation: Observation,
        source_seen_at: datetime.datetime | None = None,
    ) -> None:
        """Write what a look at a replica has found; do nothing if it has no row.

        Nothing is written if it has another source by now. A surplus that was noted meanwhile
        stays.

        :param before: the record from which the look began
        :param source_seen_at: when the look began, if its source answered; None: it did not
        """
        with self._transactions.writing() as session:
            now = self._transactions.database_time(session)
            values = {
                field.name: getattr(observation, field.name)
                for field in dataclasses.fields(Observation)
            }
            if source_seen_at is not None:
                values['source_seen_at'] = source_seen_at
            is_unchanged = claims.is_value(_Row.has_surplus, before.has_surplus)
            values['has_surplus'] = sa.case(
                (is_unchanged, values['has_surplus']), else_=_Row.has_surplus
            )
            session.execute(
                sa.update(_Row)
                .where(_Row.instance_id == before.instance_id, _Row.source_id == before.source_id)
                .values(**values, observed_at=now)
            )

    @retry_on_deadlock
    def note_stopped(self, instance_id: str) -> None:
        """Note that a replica is told to receive no more; do nothing if it has no row."""
        with self._transactions.writing() as session:
            self._set_stopped_at(session, instance_id, self._transactions.database_time(session))

    @retry_on_deadlock
    def note_surplus(self, instance_id: str) -> None:
        """Note that a replica may have commits that its source lacks, until a look at both."""
        with self._transactions.writing() as session:
            session.execute(
                sa.update(_Row).where(_Row.instance_id == instance_id).values(has_surplus=True)
            )

    @retry_on_deadlock
    def forget_stopped(self, instance_id: str) -> None:
        """Forget that, since the replica receives again."""
        with self._transactions.writing() as session:
            self._set_stopped_at(session, instance_id, None)

    @staticmethod
    def _set_stopped_at(
        session: orm.Session, instance_id: str, stopped_at: datetime.datetime | None
    ) -> None:
        session.execute(
            sa.update(_Row).where(_Row.instance_id == instance_id).values(stopped_at=stopped_at)
        )

    @retry_on_deadlock
    def remove(self, instance_id: str) -> None:
        """Delete the row of a replica that was promoted, detached or deleted; idempotent.

        :raises InvalidTransitionError: it is being re-provisioned, see :meth:`cancel`
        """
        with self._transactions.writing() as session:
            row = session.get(_Row, instance_id, with_for_update=True)
            if row is not None:
                assert replica_states.next_state(ReplicaState(row.state), Event.REMOVE) == ABSENT
                session.delete(row)

    def find(self, instance_id: str) -> ReplicaRecord | None:
        with self._transactions.reading() as session:
            row = session.get(_Row, instance_id)
            return None if row is None else row.as_model()

    def list(
        self,
        project_id: str | None = None,
        source_id: str | None = None,
        is_reprovisioning: bool | None = None,
    ) -> Sequence[ReplicaRecord]:
        """Return replicas, the oldest first; None: whatever the value is."""
        query = sa.select(_Row).order_by(_Row.created_at, _Row.instance_id)
        if project_id is not None:
            query = query.where(_Row.project_id == project_id)
        if source_id is not None:
            query = query.where(_Row.source_id == source_id)
        if is_reprovisioning is not None:
            query = query.where(_IS_REPROVISIONING if is_reprovisioning else ~_IS_REPROVISIONING)
        with self._transactions.reading() as session:
            return [row.as_model() for row in session.scalars(query)]

    # Re-provisionings.

    @retry_on_deadlock
    def request(
        self,
        instance_id: str,
        requested_by: Requester,
        reason: str,
        cause: Cause = Cause.REQUEST,
    ) -> ReplicaRecord:
        """Request the re-provisioning of a replica, and set the task of the instance.

        :param reason: for tenants
        :raises RecordNotFoundError: it is no replica
        :raises ReprovisioningRefusedError: it is being re-provisioned already, the instance is
            deleted, or it has a task other than to be restarted; nothing is written
        """
        with self._transactions.writing() as session:
            row = session.get(_Row, instance_id, with_for_update=True)
            if row is None:
                raise exceptions.RecordNotFoundError(f'instance {instance_id}: is no replica')
            if ReplicaState(row.state).is_reprovisioning:
                raise _refused(row, 'it is being re-provisioned already')
            replacement = tables.ReplacementRow
            is_open = sa.select(replacement).where(replacement.open_instance_id == instance_id)
            if session.scalar(is_open) is not None:
                raise _refused(row, 'its server is being replaced')
            now = self._transactions.database_time(session)
            for before in trove_tasks.IDLE:
                if trove_tasks.replace(session, instance_id, before, _TASK, now):
                    break
            else:
                raise _refused(row, trove_tasks.why_refused(session, instance_id))
            values = {
                'state': replica_states.next_state(ReplicaState(row.state), Event.REQUEST),
                'request_id': str(uuid.uuid4()),
                'requested_by': requested_by,
                'reason': reason,
                'cause': cause,
                'task_before': before.name,
                'requested_at': now,
                'updated_at': now,
                'error': None,
                'step': None,
                'attempts': 0,
                'retry_at': None,
            }
            for name, value in _columns(values | claims.cleared_claim()).items():
                setattr(row, name, value)
            session.flush()
            return row.as_model()

    def list_claimable(self, claimant: Claimant) -> Sequence[ReplicaRecord]:
        """Return the replicas to re-provision that no live worker has claimed, the oldest first."""
        query = sa.select(_Row).where(_IS_REPROVISIONING)
        with self._transactions.reading() as session:
            now = self._transactions.database_time(session)
            query = query.where(claims.is_due(_Row, now))
            rows = session.scalars(query.order_by(_Row.requested_at, _Row.instance_id))
            return [row.as_model() for row in rows if claimant.may_claim(row, now)]

    @retry_on_deadlock
    def claim(self, instance_id: str, claimant: Claimant) -> Claim | None:
        """Claim a replica that is being re-provisioned.

        :returns: None: another live worker has claimed it, or the re-provisioning has ended
        """
        with self._transactions.writing() as session:
            return self.claims.claim_in(
                session, Role.REPROVISION_REPLICA, instance_id, claimant, _IS_REPROVISIONING
            )

    @retry_on_deadlock
    def note(self, claim: Claim, **values: Any) -> ReplicaRecord:
        """Set columns of the replica that a worker has claimed, but its state.

        :raises ClaimLostError: the claim is lost; nothing is written
        """
        with self._transactions.writing() as session:
            return self._write(session, claim, values)

    @retry_on_deadlock
    def advance(self, claim: Claim, event: Event, **values: Any) -> ReplicaRecord:
        """Apply an event that does not end the re-provisioning, and set columns.

        :raises InvalidTransitionError: the state does not allow the event; nothing is written
        :raises ClaimLostError: the claim is lost; nothing is written
        """
        with self._transactions.writing() as session:
            before = self._lock(session, claim)
            state = replica_states.next_state(ReplicaState(before.state), event)
            assert isinstance(state, ReplicaState) and state.is_reprovisioning
            return self._write(session, claim, values | {'state': state})

    def complete(self, claim: Claim) -> ReplicaRecord:
        """End a re-provisioning whose new volume has caught up; the instance has no task any more.

        Like the other ends, it forgets the new and the old volume: delete what is left before.

        :raises InvalidTransitionError: the state does not allow it
        :raises ClaimLostError: the claim is lost
        """
        return self._end(claim, Event.COMPLETE, None)

    def fail(self, claim: Claim, reason: str) -> ReplicaRecord:
        """End a re-provisioning that has changed nothing; the replica follows as before.

        :raises InvalidTransitionError: it has changed something already
        :raises ClaimLostError: the claim is lost
        """
        return self._end(claim, Event.FAIL, reason)

    def give_up(self, claim: Claim, reason: str) -> ReplicaRecord:
        """End a re-provisioning on the new volume, although the replica does not follow on it.

        :raises InvalidTransitionError: the state does not allow it
        :raises ClaimLostError: the claim is lost
        """
        return self._end(claim, Event.GIVE_UP, reason)

    def finish_return(self, claim: Claim) -> ReplicaRecord:
        """End a re-provisioning after which the replica follows on its old volume again.

        The error that :meth:`note` or :meth:`advance` has set last stays.

        :raises InvalidTransitionError: the state does not allow it
        :raises ClaimLostError: the claim is lost
        """
        return self._end(claim, Event.RETURNED, None)

    @retry_on_deadlock
    def cancel(self, claim: Claim) -> None:
        """Delete the row of a re-provisioned replica whose instance is deleted; its task stays.

        :raises ClaimLostError: the claim is lost
        """
        with self._transactions.writing() as session:
            row = self._lock(session, claim)
            assert replica_states.next_state(ReplicaState(row.state), Event.CANCEL) == ABSENT
            session.delete(row)

    # Internals.

    @staticmethod
    def _lock(session: orm.Session, claim: Claim) -> tables.ReplicaRow:
        """Return the row of a claim, and lock it where the database supports it."""
        query = sa.select(_Row).where(*claims.write_conditions(claim), _IS_REPROVISIONING)
        row = session.scalar(query.with_for_update())
        if row is None:
            raise _lost(claim)
        return row

    def _write(self, session: orm.Session, claim: Claim, values: dict[str, Any]) -> ReplicaRecord:
        changes = _columns({'updated_at': self._transactions.database_time(session)} | values)
        done = session.connection().execute(
            sa.update(_Row).where(*claims.write_conditions(claim)).values(**changes)
        )
        if not done.rowcount:
            raise _lost(claim)
        row = session.get(_Row, claim.resource_id, populate_existing=True)
        assert row is not None
        return row.as_model()

    @retry_on_deadlock
    def _end(self, claim: Claim, event: Event, error: str | None) -> ReplicaRecord:
        with self._transactions.writing() as session:
            before = self._lock(session, claim)
            state = replica_states.next_state(ReplicaState(before.state), event)
            now = self._transactions.database_time(session)
            # MySQL was restarted, unless nothing was changed.
            after = Task[before.task_before] if event is Event.FAIL else Task.NONE
            # An operator may have reset the task.
            trove_tasks.replace(session, before.instance_id, _TASK, after, now)
            values = {'state': state, 'ended_at': now, 'step': None, 'attempts': 0}
            values |= {'retry_at': None, 'new_volume_id': None, 'old_volume_id': None}
            if event is Event.COMPLETE:
                values |= {'error': None, 'failures': 0, 'reprovisioned_at': now}
                values |= {'last_reason': before.reason, 'last_cause': before.cause}
            else:
                values |= {'failures': before.failures + 1}
                if event in (Event.RETURNED, Event.GIVE_UP):
                    values |= {'former_own_bytes': None, 'fresh_own_bytes': None}
                values |= {} if error is None else {'error': error}
            return self._write(session, claim, values | claims.cleared_claim())


def _new_row(
    instance_id: str, project_id: str, source_id: str, now: datetime.datetime
) -> tables.ReplicaRow:
    return _Row(
        instance_id=instance_id,
        project_id=project_id,
        source_id=source_id,
        state=str(replica_states.next_state(ABSENT, Event.REGISTER)),
        created_at=now,
        updated_at=now,
        attempts=0,
        failed_starts=0,
        task_before=Task.NONE.name,
        failures=0,
    )


def _columns(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of columns as the table stores them."""
    return {
        name: str(value) if name in _ENUMS and value is not None else value
        for name, value in values.items()
    }


def _refused(row: tables.ReplicaRow, reason: str) -> exceptions.ReprovisioningRefusedError:
    return exceptions.ReprovisioningRefusedError(
        f'{row.as_model()}: cannot be re-provisioned now: {reason}'
    )


def _lost(claim: Claim) -> exceptions.ClaimLostError:
    return exceptions.ClaimLostError(
        f're-provisioning of {claim.resource_id}: the {claim} is lost; another worker continues '
        'it, or it has ended'
    )
