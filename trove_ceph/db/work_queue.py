# SPDX-License-Identifier: Apache-2.0
"""The queues of copies and of verifications: requests, what is due, and the order of work.

A request sets a time on the backup; the worker that completes it clears that time. The two queues
are separate: each has its own order, its own back-off after failures and its own limits. A
verification of a backup whose copy is requested waits for the copy.

The queues are fair by project. The project that was served last waits until all other projects with
due work were served; within a project the oldest request is first. The order follows the recorded
starts of all workers, so it holds across processes and does not depend on clocks.
"""

import dataclasses
import datetime
import functools
import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph.db import backup_record, backup_rows, claims, tables
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.claims import Claim, Claimant
from trove_ceph.db.roles import Role
from trove_ceph.db.transactions import retry_on_deadlock

#: The pause after the first failure; it doubles with each further failure.
_FIRST_RETRY = datetime.timedelta(minutes=1)
_LONGEST_RETRY = datetime.timedelta(hours=6)
#: The period over which the starts of a project are counted for its rate.
RATE_PERIOD = datetime.timedelta(hours=1)
#: Starts that are older are deleted; a project without a start is served first.
_START_RETENTION = datetime.timedelta(days=1)

_Row = tables.BackupRow
_COMPLETE = [str(state) for state in RecordState if state.is_complete]


@dataclasses.dataclass(frozen=True)
class QueueLimits:
    """The limits of one project in a queue.

    :param per_hour: starts within an hour; 0: unlimited
    """

    per_hour: int = 0


class WorkQueue(backup_rows.BackupRows):
    """Requests for copies and verifications; each verb is one transaction."""

    def __init__(self, database: Any):
        super().__init__(database)
        self._claims = claims.Claims(database)

    # Requests. A repeated request does not bring the next attempt after a failure forward.

    def request_copy(self, backup_id: str) -> None:
        """Request a copy in the vault, unless there is one; idempotent."""
        self._request('copy_wanted_at', backup_id, _Row.copied_at.is_(None))

    def request_verification(self, backup_id: str) -> None:
        """Request a verification, even if the backup is verified; idempotent."""
        self._request('verify_wanted_at', backup_id)

    def request_in(self, session: orm.Session, backup_id: str, *, copy: bool, verify: bool) -> None:
        """Request a copy, a verification, both or neither, within a transaction."""
        row = session.get(_Row, backup_id, populate_existing=True)
        if row is not None:
            # Requests of several hosts are worked on in the order of their times.
            row.request(self._transactions.database_time(session), copy=copy, verify=verify)

    # Workers.

    def list_due(
        self, role: Role, claimant: Claimant, limits: QueueLimits | None = None
    ) -> list[backup_record.BackupRecord]:
        """Return the backups to copy, or to verify, now; fair by project.

        A project that has used up its rate is left out.
        """
        per_hour = limits.per_hour if limits else 0
        requested_at, due, retry_at = _DUE[role]
        with self._transactions.reading() as session:
            now = self._transactions.database_time(session)
            rows = session.scalars(
                sa.select(_Row)
                .where(due, _may_try(retry_at, now))
                .order_by(sa.func.coalesce(requested_at, _Row.created_at), _Row.created_at)
                .order_by(_Row.backup_id)
            ).all()
            free = [row.as_model() for row in rows if claimant.may_claim(row, now)]
            last_starts = self._last_starts(session, role)
            used = self._count_starts(session, role, now) if per_hour else {}
        allowed = [one for one in free if not per_hour or used.get(one.project_id, 0) < per_hour]
        return fair_order(allowed, last_starts)

    @retry_on_deadlock
    def begin(
        self, role: Role, record: backup_record.BackupRecord, claimant: Claimant
    ) -> Claim | None:
        """Claim a backup to copy or to verify it, and record the start.

        :returns: None: another worker has a claim, or the backup is in another state
        """
        with self._transactions.writing() as session:
            claim = self._claims.claim_in(session, role, record.backup_id, claimant)
            if claim is not None:
                at = self._transactions.database_time(session)
                session.add(
                    tables.JobStart(
                        project_id=record.project_id,
                        backup_id=record.backup_id,
                        role=role,
                        started_at=at,
                    )
                )
                self._drop_old_starts(session, at)
        return claim

    def is_copying(self, instance_id: str, claimant: Claimant) -> bool:
        """Return whether a live worker copies a backup of an instance now."""
        with self._transactions.reading() as session:
            rows = session.scalars(
                sa.select(_Row).where(_Row.instance_id == instance_id, _Row.claim_role == Role.COPY)
            ).all()
            now = self._transactions.database_time(session)
            return any(not claimant.may_claim(row, now) for row in rows)

    @retry_on_deadlock
    def record_failure(self, claim: Claim, error: str, verify_error: str | None = None) -> None:
        """Record why a copy or a verification failed, and schedule the next attempt.

        :param verify_error: the error for a verification that waits for the copy
        :raises ClaimLostError: the claim is lost
        """
        kind = 'copy' if claim.role is Role.COPY else 'verify'
        failures = getattr(_Row, f'{kind}_failures')
        with self._transactions.writing() as session:
            now = self._transactions.database_time(session)
            ours = claims.write_conditions(claim)
            before = session.scalar(sa.select(sa.func.coalesce(failures, 0)).where(*ours))
            if before is None:
                raise backup_rows.claim_lost(claim)
            values: dict[str, Any] = {f'{kind}_failures': before + 1, f'{kind}_error': error}
            values[f'{kind}_retry_at'] = now + _backoff(before + 1)
            if verify_error is not None:
                values['verify_error'] = verify_error
            done = session.connection().execute(
                sa.update(_Row).where(*ours).values(updated_at=self._transactions.clock(), **values)
            )
            if not done.rowcount:
                raise backup_rows.claim_lost(claim)

    def vault_bytes_of(self, project_id: str) -> int:
        """Return the upper bound of what a project's complete copies occupy in the vault.

        The unit is whole objects, before replication. See :func:`vault_bytes`.
        """
        with self._transactions.reading() as session:
            rows = session.scalars(
                sa.select(_Row).where(_Row.project_id == project_id, _Row.copied_at.isnot(None))
            )
            return vault_bytes(row.as_model() for row in rows)

    # Internals.

    @retry_on_deadlock
    def _request(self, column: str, backup_id: str, *conditions: Any) -> None:
        earlier = getattr(_Row, column)
        with self._transactions.writing() as session:
            now = self._transactions.database_time(session)
            wanted_at = sa.func.coalesce(earlier, now)
            self._update_in(session, backup_id, *conditions, **{column: wanted_at})

    @staticmethod
    def _last_starts(session: orm.Session, role: Role) -> dict[str, int]:
        start = tables.JobStart
        found = session.execute(
            sa.select(start.project_id, sa.func.max(start.number))
            .where(start.role == role)
            .group_by(start.project_id)
        )
        return {one.project_id: one[1] for one in found}

    @staticmethod
    def _count_starts(session: orm.Session, role: Role, now: datetime.datetime) -> dict[str, int]:
        start = tables.JobStart
        found = session.execute(
            sa.select(start.project_id, sa.func.count())
            .where(start.role == role)
            .where(start.started_at > now - RATE_PERIOD, start.started_at <= now + RATE_PERIOD)
            .group_by(start.project_id)
        )
        return {one.project_id: one[1] for one in found}

    @staticmethod
    def _drop_old_starts(session: orm.Session, now: datetime.datetime) -> None:
        start = tables.JobStart
        session.execute(sa.delete(start).where(start.started_at < now - _START_RETENTION))


def fair_order(
    records: Iterable[backup_record.BackupRecord], last_starts: Mapping[str, int]
) -> list[backup_record.BackupRecord]:
    """Return backups in the order in which projects take turns: a pure function.

    :param records: the oldest request first
    :param last_starts: number of each project's last start, growing with each start; a project
        without one had no turn yet
    """
    turns: dict[str, int] = {}
    keyed = []
    for position, one in enumerate(records):
        turn = turns.get(one.project_id, 0)
        turns[one.project_id] = turn + 1
        keyed.append(((turn, last_starts.get(one.project_id, 0), position), one))
    return [one for _key, one in sorted(keyed, key=lambda pair: pair[0])]


def vault_bytes(copied: Iterable[backup_record.BackupRecord]) -> int:
    """Return the upper bound of what copies occupy: a pure function.

    The copies in one image share unchanged objects. The image holds at most the content of the
    latest copy plus the moved bytes of every copy except the first. Those of a deleted copy count
    with the copy after it, since the copy before it keeps what they replaced.
    """
    images: dict[tuple[str | None, str | None], list[backup_record.BackupRecord]] = {}
    for one in copied:
        images.setdefault((one.vault_pool, one.vault_image), []).append(one)
    total = 0
    for copies in images.values():
        ordered = in_order(copies)
        total += content_bytes(ordered[-1])
        total += sum(replaced_bytes(one) for one in ordered[1:])
    return total


def replaced_bytes(record: backup_record.BackupRecord) -> int:
    """Return an upper bound of what the copy before another one keeps for itself."""
    return (record.moved_bytes or 0) + (record.inherited_bytes or 0)


def in_order(copies: list[backup_record.BackupRecord]) -> list[backup_record.BackupRecord]:
    """Return the copies in one image in the order of their snapshots.

    The times of the database have whole seconds, so within a second the bases decide.
    """
    ordered: list[backup_record.BackupRecord] = []
    for _second, group in itertools.groupby(sorted(copies, key=_taken_at), key=_taken_at):
        by_id = {one.backup_id: one for one in group}
        ordered += sorted(by_id.values(), key=functools.partial(_count_bases, by_id))
    return ordered


def _taken_at(record: backup_record.BackupRecord) -> datetime.datetime:
    return record.snapshot_at or record.created_at


def _count_bases(
    by_id: Mapping[str, backup_record.BackupRecord], record: backup_record.BackupRecord
) -> int:
    """Return how many bases a copy has, up to the first that is not among the given backups."""
    count = 0
    found: backup_record.BackupRecord | None = record
    while found is not None and found.copy_base_id is not None:
        count += 1
        found = by_id.get(found.copy_base_id)
    return count


def content_bytes(record: backup_record.BackupRecord) -> int:
    """Return the used bytes of a backup if they were counted, otherwise the size of its volume."""
    if record.used_bytes is not None:
        return record.used_bytes
    return record.size_bytes or 0


def _backoff(failures: int) -> datetime.timedelta:
    # A larger exponent would overflow a timedelta.
    return min(_FIRST_RETRY * 2 ** min(failures - 1, 16), _LONGEST_RETRY)


def next_attempt_at(
    record: backup_record.BackupRecord, role: Role, now: datetime.datetime
) -> datetime.datetime | None:
    """Return the time until which a failed copy or verification waits: a pure function.

    :param now: by the clock of the database
    :returns: None: it does not wait, and may be under way
    """
    at = record.copy_retry_at if role is Role.COPY else record.verify_retry_at
    return at if at is not None and now < at <= now + _LONGEST_RETRY else None


def _may_try(retry_at: Any, now: datetime.datetime) -> Any:
    """Return the condition that the next attempt may be made now."""
    # A time that no pause explains was recorded before the clock of the database was set back.
    return sa.or_(retry_at.is_(None), retry_at <= now, retry_at > now + _LONGEST_RETRY)


_COPY_DUE = sa.and_(_Row.copy_wanted_at.isnot(None), _Row.state.in_(_COMPLETE))
_VERIFY_DUE = sa.and_(
    _Row.verify_wanted_at.isnot(None),
    sa.or_(
        sa.and_(_Row.copy_wanted_at.is_(None), _Row.state.in_(_COMPLETE)),
        # These are not copied, so there is no copy to wait for.
        _Row.state.in_([str(RecordState.SUSPECTED), str(RecordState.DAMAGED)]),
    ),
)
#: By role: the time of the request, the condition for being due, and the time of the next attempt.
_DUE: Mapping[Role, tuple[Any, Any, Any]] = {
    Role.COPY: (_Row.copy_wanted_at, _COPY_DUE, _Row.copy_retry_at),
    Role.VERIFY: (_Row.verify_wanted_at, _VERIFY_DUE, _Row.verify_retry_at),
}
