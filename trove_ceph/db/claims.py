# SPDX-License-Identifier: Apache-2.0
"""Claims: which worker works on what, and whether that worker is alive.

All roles share one mechanism. A worker takes a claim by one conditional UPDATE and renews it by
heartbeats. The claim carries a random token, new for each attempt. It is free again when it is
released, when its worker is known to be dead, or when it had no heartbeat for the expiry time.
Every write of a worker names the token, so a worker that lost its claim, however long it was
paused, cannot write any more.

Heartbeats are written and compared by the clock of the database, which all workers share; their own
clocks may be hours apart. A heartbeat that lies further in the future than the expiry time was
written before that clock was set back, and is ignored.
"""

import dataclasses
import datetime
import secrets
from collections.abc import Callable, Collection, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph.db import tables, transactions
from trove_ceph.db.roles import STATES, Role

DEFAULT_EXPIRY = datetime.timedelta(seconds=45)
# No pause after a failed attempt is longer.
_LONGEST_RETRY = datetime.timedelta(minutes=10)
#: The tables of roles that do not claim backups.
_ROW_OF_ROLE: Mapping[Role, Any] = {
    Role.RUN_POLICY: tables.PolicyRunRow,
    Role.CREATE_INSTANCE: tables.InstanceOperationRow,
    Role.DELETE_INSTANCE: tables.InstanceOperationRow,
    Role.PROMOTE_REPLICA: tables.InstanceOperationRow,
    Role.EJECT_SOURCE: tables.InstanceOperationRow,
    Role.TAKE_OVER: tables.InstanceOperationRow,
    Role.DETACH_REPLICA: tables.InstanceOperationRow,
    Role.CHANGE_SOURCE: tables.InstanceOperationRow,
    Role.REBUILD_SERVER: tables.InstanceOperationRow,
    Role.KEEP_GUESTS: tables.GuestPoolRow,
    Role.REPLACE_SERVER: tables.ReplacementRow,
    Role.WATCH_FAILOVERS: tables.FailoverWatchRow,
    Role.REPROVISION_REPLICA: tables.ReplicaRow,
    Role.WATCH_REPLICAS: tables.ReplicationWatchRow,
}
_ROWS = dict.fromkeys((tables.BackupRow, *_ROW_OF_ROLE.values()))
_NO_CLAIM = {'claim_role': None, 'claimed_by': None, 'claim_token': None}


@dataclasses.dataclass(frozen=True)
class Claim:
    """The right of one worker to work on one resource, such as a backup or a pool, in one role.

    :param former_role: of the dead worker whose operation this claim resumes or ends; None: of none
    """

    role: Role
    resource_id: str
    worker: str
    token: str
    former_role: Role | None = dataclasses.field(default=None, compare=False)

    def __str__(self) -> str:
        return f'claim of {self.worker} to {self.role} {self.resource_id}'


@dataclasses.dataclass(frozen=True)
class Claimant:
    """A worker that takes claims.

    :param name: unique among all processes, past ones included
    :param expiry: time without a heartbeat after which the work of another worker may be resumed
    :param is_dead: returns whether the worker of a name is certainly dead
    """

    name: str
    expiry: datetime.timedelta = DEFAULT_EXPIRY
    is_dead: Callable[[str], bool] = lambda _name: False

    def __str__(self) -> str:
        return self.name

    def may_claim(self, row: Any, now: datetime.datetime) -> bool:
        """Return whether no other live worker has a claim on a row.

        :param row: a row with the columns of a claim, such as :class:`.backup_record.BackupRecord`
        :param now: the time by the clock of the database
        """
        if row.claimed_by is None or row.heartbeat_at is None:
            return True
        return abs(now - row.heartbeat_at) > self.expiry or self.is_dead(row.claimed_by)


class Claims:
    """The claims in the tables; each verb is one transaction.

    :param database: the database with the tables
    """

    def __init__(self, database: transactions.Transactions):
        self._transactions = database

    @transactions.retry_on_deadlock
    def claim(self, role: Role, resource_id: str, claimant: Claimant) -> Claim | None:
        """Claim a resource, such as a backup or a pool; one of concurrent workers succeeds.

        :returns: None: another live worker has a claim, or the state does not allow the role
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
        """Claim a resource within a transaction, as :meth:`claim`."""
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
                # Unchanged since it was read: neither claimed nor renewed meanwhile.
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
        """Renew a claim.

        :returns: whether the worker may continue: the claim is still its own, and the state allows
            its role
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
        """Renew several claims of one worker; return those that it still has."""
        renewed = set()
        with self._transactions.writing() as session:
            now = self._transactions.database_time(session)
            for row in _ROWS:
                of_row = {one.token: one for one in claims if _row_of(one.role)[0] is row}
                if not of_row:
                    continue
                valid = sa.or_(
                    *(
                        sa.and_(row.claim_token == token, *_states(one.role))
                        for token, one in of_row.items()
                    )
                )
                session.execute(sa.update(row).where(valid).values(heartbeat_at=now))
                tokens = session.scalars(sa.select(row.claim_token).where(valid))
                renewed |= {of_row[token] for token in tokens if token is not None}
        return renewed

    @transactions.retry_on_deadlock
    def release(self, claim: Claim) -> None:
        """Release a claim; do nothing if another worker has it by now."""
        row, key = _row_of(claim.role)
        with self._transactions.writing() as session:
            session.execute(
                sa.update(row)
                .where(key == claim.resource_id, row.claim_token == claim.token)
                .values(**_NO_CLAIM)
            )

    def is_claimed(self, backup_id: str, claimant: Claimant) -> bool:
        """Return whether a live worker has a claim on a backup."""
        row = tables.BackupRow
        with self._transactions.reading() as session:
            found = session.scalar(sa.select(row).where(row.backup_id == backup_id))
            now = self._transactions.database_time(session)
            return found is not None and not claimant.may_claim(found, now)

    def list_claimable(self, claimant: Claimant, *conditions: Any) -> list[Any]:
        """Return the backups that no live worker has claimed, the latest first.

        Backups that were released less than the expiry time ago are left out, so that a failed
        operation is not retried at once, and so are those whose deletion pauses.
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
                and not _pauses(row.delete_retry_at, now)
            ]


def write_conditions(claim: Claim) -> list[Any]:
    """Return the conditions under which a worker may write under its claim."""
    row, key = _row_of(claim.role)
    return [key == claim.resource_id, row.claim_token == claim.token, *_states(claim.role)]


def cleared_claim() -> dict[str, None]:
    """Return the columns of a row without a claim."""
    return dict(_NO_CLAIM)


def _row_of(role: Role) -> tuple[Any, Any]:
    row = _ROW_OF_ROLE.get(role, tables.BackupRow)
    return row, sa.inspect(row).primary_key[0]


def _states(role: Role) -> list[Any]:
    if role in _ROW_OF_ROLE:
        return []
    return [tables.BackupRow.state.in_([str(state) for state in STATES[role]])]


def is_due(row: Any, now: datetime.datetime) -> Any:
    """Return the condition that the next attempt at the work of a row may be made now."""
    # A time that is far in the future is that of a wrong clock.
    latest = now + _LONGEST_RETRY
    return sa.or_(row.retry_at.is_(None), row.retry_at <= now, row.retry_at > latest)


def is_value(column: Any, value: Any) -> Any:
    """Return the condition that a column has a value, which may be NULL."""
    return column.is_(None) if value is None else column == value


def _is_old(
    time: datetime.datetime | None, now: datetime.datetime, age: datetime.timedelta
) -> bool:
    return time is None or abs(now - time) > age


def _pauses(retry_at: datetime.datetime | None, now: datetime.datetime) -> bool:
    """Return whether the next attempt is later, as :func:`is_due`."""
    return retry_at is not None and now < retry_at <= now + _LONGEST_RETRY
