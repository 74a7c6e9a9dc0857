# SPDX-License-Identifier: Apache-2.0
"""The store of replacements of servers, and of the claims on them."""

import dataclasses
import datetime
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph import exceptions
from trove_ceph.db import claims, quota_usage, replacement_states, tables, trove_tasks
from trove_ceph.db.claims import Claim, Claimant
from trove_ceph.db.replacement_record import (
    OPEN,
    ReplacementKind,
    ReplacementRecord,
    ReplacementState,
    RequestedBy,
)
from trove_ceph.db.replacement_states import Event
from trove_ceph.db.replica_record import ReplicaState
from trove_ceph.db.roles import Role
from trove_ceph.db.state_machine import ABSENT
from trove_ceph.db.transactions import Transactions, insert, retry_on_deadlock
from trove_ceph.db.trove_tasks import Task

_Row = tables.ReplacementRow
_IS_OPEN = _Row.state.in_([str(state) for state in OPEN])


class ReplacementStore:
    """Replacements of servers; safe for use by several threads and processes.

    Each verb writes in one transaction, together with the task of the instance in Trove's table. It
    raises ServiceUnavailableError when the database does not answer or lacks the tables. All times
    are by the clock of the database.

    :param transactions: access to the database; by default the one of Trove's configuration
    """

    def __init__(self, transactions: Transactions | None = None):
        self._transactions = transactions or Transactions()
        self.claims = claims.Claims(self._transactions)

    def now(self) -> datetime.datetime:
        """Return the time by the clock of the database."""
        return self._transactions.read_database_time()

    @retry_on_deadlock
    def request(self, record: ReplacementRecord, expected_task: str = 'NONE') -> ReplacementRecord:
        """Request a replacement, and set the task of the instance.

        :param expected_task: the name of the present task of the instance
        :raises ReplacementRefusedError: the instance is deleted, has another task or is being
            replaced already; nothing is written
        :raises InvalidTransitionError: the record has another state than REQUESTED
        """
        if record.state is not replacement_states.next_state(ABSENT, Event.REQUEST):
            raise exceptions.InvalidTransitionError(
                f'{record}: must begin in state "{ReplacementState.REQUESTED}", '
                f'not "{record.state}"'
            )
        before, own = Task[expected_task], Task[record.kind.task]
        with self._transactions.writing() as session:
            now = self._transactions.database_time(session)
            # The task that requests a resize or a rebuild ends with it.
            returns_to = Task.NONE if record.kind.is_planned else before
            if self._find_open(session, record.instance_id) is not None:
                raise _refused(record, 'its server is being replaced already')
            # Before the task, which a change of a configuration group may have overwritten.
            replica = session.get(tables.ReplicaRow, record.instance_id, with_for_update=True)
            if replica is not None and ReplicaState(replica.state).is_reprovisioning:
                raise _refused(record, 'it is being re-provisioned')
            if not trove_tasks.replace(session, record.instance_id, before, own, now):
                raise _refused(record, trove_tasks.why_refused(session, record.instance_id))
            values = dataclasses.asdict(record) | {'created_at': now, 'updated_at': now}
            row = _Row(
                **_columns(values),
                open_instance_id=record.instance_id,
                task_before=returns_to.name,
            )
            # A concurrent request waits for our lock on the instance, and then finds its task.
            insert(session, row)
            return row.as_model()

    def find(self, replacement_id: str) -> ReplacementRecord | None:
        with self._transactions.reading() as session:
            row = session.get(_Row, replacement_id)
            return None if row is None else row.as_model()

    def find_open(self, instance_id: str) -> ReplacementRecord | None:
        """Return the replacement of an instance that has not ended."""
        with self._transactions.reading() as session:
            row = self._find_open(session, instance_id)
            return None if row is None else row.as_model()

    def list(
        self,
        instance_id: str | None = None,
        project_id: str | None = None,
        is_open: bool | None = None,
        limit: int | None = None,
    ) -> Sequence[ReplacementRecord]:
        """Return replacements, the newest first; None: whatever the value is."""
        query = sa.select(_Row).order_by(_Row.created_at.desc(), _Row.replacement_id)
        if instance_id is not None:
            query = query.where(_Row.instance_id == instance_id)
        if project_id is not None:
            query = query.where(_Row.project_id == project_id)
        if is_open is not None:
            query = query.where(_IS_OPEN if is_open else ~_IS_OPEN)
        with self._transactions.reading() as session:
            return [row.as_model() for row in session.scalars(query.limit(limit))]

    def list_claimable(self, claimant: Claimant) -> Sequence[ReplacementRecord]:
        """Return the open replacements that no live worker has claimed, the oldest first."""
        query = sa.select(_Row).where(_IS_OPEN).order_by(_Row.created_at, _Row.replacement_id)
        with self._transactions.reading() as session:
            now = self._transactions.database_time(session)
            rows = session.scalars(query.where(claims.is_due(_Row, now)))
            return [row.as_model() for row in rows if claimant.may_claim(row, now)]

    def ended_since(
        self, time: datetime.datetime, requested_by: RequestedBy | None = None
    ) -> Sequence[ReplacementRecord]:
        """Return the replacements that have ended since a time, the latest first."""
        query = sa.select(_Row).where(_Row.ended_at >= time).order_by(_Row.ended_at.desc())
        if requested_by is not None:
            query = query.where(_Row.requested_by == str(requested_by))
        with self._transactions.reading() as session:
            return [row.as_model() for row in session.scalars(query)]

    # Workers.

    @retry_on_deadlock
    def claim(self, replacement_id: str, claimant: Claimant) -> Claim | None:
        """Claim an open replacement.

        :returns: None: another live worker has claimed it, or it has ended
        """
        with self._transactions.writing() as session:
            return self.claims.claim_in(
                session, Role.REPLACE_SERVER, replacement_id, claimant, _IS_OPEN
            )

    @retry_on_deadlock
    def note(self, claim: Claim, **values: Any) -> ReplacementRecord:
        """Set columns of the replacement that a worker has claimed, but its state.

        :raises ClaimLostError: the claim is lost; nothing is written
        """
        with self._transactions.writing() as session:
            return self._write(session, claim, values)

    @retry_on_deadlock
    def advance(self, claim: Claim, event: Event, **values: Any) -> ReplacementRecord:
        """Apply an event that does not end the replacement, and set columns.

        :raises InvalidTransitionError: the state does not allow the event; nothing is written
        :raises ClaimLostError: the claim is lost; nothing is written
        """
        with self._transactions.writing() as session:
            state = self._next_state(session, claim, event)
            assert state.is_open
            return self._write(session, claim, values | {'state': state})

    def complete(self, claim: Claim) -> ReplacementRecord:
        """End a replacement whose new server is in service; the instance has no task any more.

        If a replica took over, the instance keeps a task that says so, until it is deleted.

        :raises InvalidTransitionError: the state does not allow it
        :raises ClaimLostError: the claim is lost
        """
        return self._end(claim, Event.COMPLETE, error=None)

    def fail(self, claim: Claim, reason: str) -> ReplacementRecord:
        """End a replacement that failed; a tenant can then repair the instance.

        A resize that did not change the flavor gives back what it has added to the memory that the
        project uses by its quota.

        :raises InvalidTransitionError: it must be continued
        :raises ClaimLostError: the claim is lost
        """
        return self._end(claim, Event.FAIL, error=reason)

    def cancel(self, claim: Claim) -> ReplacementRecord:
        """End a replacement because its instance is being deleted; its task stays.

        :raises ClaimLostError: the claim is lost
        """
        return self._end(claim, Event.CANCEL)

    # Operators.

    @retry_on_deadlock
    def give_up(self, replacement_id: str, reason: str) -> None:
        """Have the next attempt fail a replacement instead of waiting for MySQL any longer.

        :raises RecordNotFoundError: it has no record
        :raises InvalidTransitionError: the new server is not that of the instance yet, or it ended
        """
        with self._transactions.writing() as session:
            done = session.connection().execute(
                sa.update(_Row)
                .where(
                    _Row.replacement_id == replacement_id,
                    _Row.state == str(ReplacementState.STARTING),
                )
                .values(given_up_because=reason, retry_at=None)
            )
            if done.rowcount:
                return
            row = session.get(_Row, replacement_id)
            if row is None:
                raise exceptions.RecordNotFoundError(f'replacement {replacement_id}: has no record')
            raise exceptions.InvalidTransitionError(
                f'{row.as_model()}: can be given up in state "{ReplacementState.STARTING}" only, '
                f'not in "{row.state}"'
            )

    @retry_on_deadlock
    def prune(self, before: datetime.datetime) -> None:
        """Delete the replacements that ended before a time."""
        ended = [
            str(state)
            for state in ReplacementState
            if not state.is_open and replacement_states.next_state(state, Event.PRUNE) == ABSENT
        ]
        with self._transactions.writing() as session:
            session.execute(sa.delete(_Row).where(_Row.state.in_(ended), _Row.ended_at < before))

    # Internals.

    @staticmethod
    def _find_open(session: orm.Session, instance_id: str) -> tables.ReplacementRow | None:
        return session.scalar(sa.select(_Row).where(_Row.open_instance_id == instance_id))

    @staticmethod
    def _next_state(session: orm.Session, claim: Claim, event: Event) -> ReplacementState:
        """Return the state after an event, and lock the row where the database supports it."""
        query = sa.select(_Row.state).where(*claims.write_conditions(claim))
        state = session.scalar(query.with_for_update())
        if state is None:
            raise _lost(claim)
        return ReplacementState(replacement_states.next_state(ReplacementState(state), event))

    def _write(
        self, session: orm.Session, claim: Claim, values: dict[str, Any]
    ) -> ReplacementRecord:
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
    def _end(self, claim: Claim, event: Event, **values: Any) -> ReplacementRecord:
        with self._transactions.writing() as session:
            state = self._next_state(session, claim, event)
            before = session.get(_Row, claim.resource_id)
            assert before is not None
            now = self._transactions.database_time(session)
            if event is not Event.CANCEL:
                was_changed = before.state != str(ReplacementState.REQUESTED)
                after = Task.NONE if was_changed else Task[before.task_before]
                if before.state == str(ReplacementState.TAKING_OVER):
                    after = Task.EJECTION_ERROR
                kind = ReplacementKind(before.kind)
                # An operator may have reset the task, or an earlier release have left it.
                for own in {kind.task, kind.requested_task or kind.task}:
                    trove_tasks.replace(session, before.instance_id, Task[own], after, now)
            if event is not Event.COMPLETE:
                _give_ram_back(session, before)
            ended = {'open_instance_id': None, 'ended_at': now, 'step': None, 'retry_at': None}
            return self._write(
                session, claim, values | ended | claims.cleared_claim() | {'state': state}
            )


def _give_ram_back(session: orm.Session, row: tables.ReplacementRow) -> None:
    """Subtract the growth of a resize from what its project uses, unless the flavor was changed.

    Trove's API has added it with the request, and subtracts what the flavor of the instance has
    when that is deleted.
    """
    if row.ram_growth_mib and trove_tasks.flavor(session, row.instance_id) == row.former_flavor_id:
        quota_usage.add(session, row.project_id, {'ram': -row.ram_growth_mib})


def _columns(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of columns as the tables store them."""
    stored = {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }
    for name in ('kind', 'state', 'requested_by'):
        if name in stored:
            stored[name] = str(stored[name])
    return stored


def _refused(record: ReplacementRecord, reason: str) -> exceptions.ReplacementRefusedError:
    return exceptions.ReplacementRefusedError(
        f'instance {record.instance_id}: its server cannot be replaced now: {reason}'
    )


def _lost(claim: Claim) -> exceptions.ClaimLostError:
    return exceptions.ClaimLostError(
        f'replacement {claim.resource_id}: the {claim} is lost; another worker continues it, or '
        'it has ended'
    )
