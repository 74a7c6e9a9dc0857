# SPDX-License-Identifier: Apache-2.0
"""Claims: which worker works on what, and whether it is still alive.

One mechanism for all roles. A claim is taken by one conditional UPDATE, carries a token that is
drawn for each attempt, and is kept by heartbeats; it is free again when it is released, when its
worker is known to be dead, or when it showed no life for the expiry time. Every write of a worker
names the token, so a worker that lost its claim, however it was paused, writes nothing any more.

Heartbeats are written and judged by the clock of the database, which all workers share: their own
clocks may be hours apart. A heartbeat that lies further ahead than the expiry time was written
before that clock was set back, and counts as none.
"""

import dataclasses
import datetime
import secrets
from collections.abc import Callable, Collection
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph.db import tables, transactions
from trove_ceph.db.roles import STATES, Role

DEFAULT_EXPIRY = datetime.timedelta(seconds=45)
_NO_CLAIM = {'claim_role': None, 'claimed_by': None, 'claim_token': None}


@dataclasses.dataclass(frozen=True)
class Claim:
    """The right of one worker to work on one backup, or one policy's run, in one role."""

    role: Role
    resource_id: str
    worker: str
    token: str

    def __str__(self) -> str:
        return f'claim of {self.worker} to {self.role} {self.resource_id}'


@dataclasses.dataclass(frozen=True)
class Claimant:
    """A worker that takes claims.

    :param name: unique among all processes that ever run
    :param expiry: how long a worker must have shown no life before its claims are taken over
    :param is_dead: tells of another worker by its name whether it has certainly ended
    """

    name: str
    expiry: datetime.timedelta = DEFAULT_EXPIRY
    is_dead: Callable[[str], bool] = lambda _name: False

    def __str__(self) -> str:
        return self.name

    def may_claim(self, row: Any, now: datetime.datetime) -> bool:
        """Tell whether nobody else who is alive has claimed something.

        :param row: with the four columns, such as :class:`.model.Backup`
        :param now: by the clock of the database
        """
        if row.claimed_by is None or row.heartbeat_at is None:
            return True
        return abs(now - row.heartbeat_at) > self.expiry or self.is_dead(row.claimed_by)


class Claims:
    """The claims in the tables; each verb is one transaction.

    :param database: where they are
    """

    def __init__(self, database: transactions.Transactions):
        self._transactions = database

    @transactions.retry_on_deadlock
    def claim(self, role: Role, resource_id: str, claimant: Claimant) -> Claim | None:
        """Claim something that nobody else who is alive has claimed; None where that is not so.

        Of several workers that try at once, one alone gets it.
        """
        with self._transactions.writing() as session:
            return self.claim_in(session, role, resource_id, claimant)

    def claim_in(
        self,
        session: orm.Session,
        role: Role,
        resource_id: str,
        claimant: Claimant,
        *conditions: Any,
    ) -> Claim | None:
        """Claim something within a transaction."""
        row, key = _row_of(role)
        columns = (row.claimed_by, row.claim_token, row.heartbeat_at)
        found = session.execute(sa.select(*columns).where(key == resource_id)).one_or_none()
        now = self._transactions.database_time(session)
        if found is None or not claimant.may_claim(found, now):
            return None
        claim = Claim(role, resource_id, claimant.name, secrets.token_hex(16))
        done = session.connection().execute(
            sa.update(row)
            .where(
                key == resource_id,
                # As it was found: neither taken by another worker meanwhile, nor shown alive.
                is_value(row.claim_token, found.claim_token),
                is_value(row.heartbeat_at, found.heartbeat_at),
                *_states(role),
                *conditions,
            )
            .values(
                claim_role=role, claimed_by=claim.worker, claim_token=claim.token, heartbeat_at=now
            )
        )
        return claim if done.rowcount else None

    @transactions.retry_on_deadlock
    def heartbeat(self, claim: Claim) -> bool:
        """Show that the worker of a claim is alive.

        :returns: whether it may carry on: the claim is still its own, and what it works on is in a
            state in which it may
        """
        row, _key = _row_of(claim.role)
        with self._transactions.writing() as session:
            now = self._transactions.database_time(session)
            done = session.connection().execute(
                sa.update(row).where(*write_conditions(claim)).values(heartbeat_at=now)
            )
            return bool(done.rowcount)

    @transactions.retry_on_deadlock
    def heartbeat_all(self, claims: Collection[Claim]) -> set[Claim]:
        """Show that the worker of several claims is alive; return those that it still has."""
        kept = set()
        with self._transactions.writing() as session:
            now = self._transactions.database_time(session)
            for row in (tables.BackupRow, tables.PolicyRunRow):
                of_row = {one.token: one for one in claims if _row_of(one.role)[0] is row}
                if not of_row:
                    continue
                ours = sa.or_(
                    *(
                        sa.and_(row.claim_token == token, *_states(one.role))
                        for token, one in of_row.items()
                    )
                )
                session.execute(sa.update(row).where(ours).values(heartbeat_at=now))
                tokens = session.scalars(sa.select(row.claim_token).where(ours))
                kept |= {of_row[token] for token in tokens if token is not None}
        return kept

    @transactions.retry_on_deadlock
    def release(self, claim: Claim) -> None:
        """Let the next worker that asks carry on; nothing if the claim is another worker's."""
        row, key = _row_of(claim.role)
        with self._transactions.writing() as session:
            session.execute(
                sa.update(row)
                .where(key == claim.resource_id, row.claim_token == claim.token)
                .values(**_NO_CLAIM)
            )

    def is_claimed(self, backup_id: str, claimant: Claimant) -> bool:
        """Tell whether a worker that is alive works on a backup."""
        row = tables.BackupRow
        with self._transactions.reading() as session:
            found = session.scalar(sa.select(row).where(row.backup_id == backup_id))
            now = self._transactions.database_time(session)
            return found is not None and not claimant.may_claim(found, now)

    def list_claimable(self, claimant: Claimant, *conditions: Any) -> list[Any]:
        """List the backups that nobody else who is alive has claimed, the latest first.

        Those that were released less than the expiry time ago are left out: what failed is not
        tried again at once.
        """
        with self._transactions.reading() as session:
            now = self._transactions.database_time(session)
            rows = session.scalars(
                sa.select(tables.BackupRow)
                .where(*conditions)
                .order_by(tables.BackupRow.created_at.desc(), tables.BackupRow.backup_id)
            )
            return [
                row.as_model()
                for row in rows
                if claimant.may_claim(row, now)
                and (row.claimed_by is not None or _is_old(row.heartbeat_at, now, claimant.expiry))
            ]


def write_conditions(claim: Claim) -> list[Any]:
    """Return the conditions under which a worker may write under its claim."""
    row, key = _row_of(claim.role)
    return [key == claim.resource_id, row.claim_token == claim.token, *_states(claim.role)]


def cleared_claim() -> dict[str, None]:
    """Return the columns of what nobody works on any more."""
    return dict(_NO_CLAIM)


def _row_of(role: Role) -> tuple[Any, Any]:
    if role is Role.RUN_POLICY:
        return tables.PolicyRunRow, tables.PolicyRunRow.instance_id
    return tables.BackupRow, tables.BackupRow.backup_id


def _states(role: Role) -> list[Any]:
    if role is Role.RUN_POLICY:
        return []
    return [tables.BackupRow.state.in_([str(state) for state in STATES[role]])]


def is_value(column: Any, value: Any) -> Any:
    """Return the condition that a column has a value, or none."""
    return column.is_(None) if value is None else column == value


def _is_old(
    moment: datetime.datetime | None, now: datetime.datetime, age: datetime.timedelta
) -> bool:
    return moment is None or abs(now - moment) > age
