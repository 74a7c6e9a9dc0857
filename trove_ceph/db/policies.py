# SPDX-License-Identifier: Apache-2.0
"""The store of backup policies, their runs and the backups that they requested."""

import dataclasses
import datetime
import secrets
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

import oslo_db.exception
import sqlalchemy as sa

from trove_ceph import exceptions
from trove_ceph.db import claims, tables
from trove_ceph.db.claims import Claim, Claimant
from trove_ceph.db.policy_record import (
    BackupPolicy,
    PolicyBackup,
    PolicyRun,
    PolicyRunState,
    Retention,
    Scope,
)
from trove_ceph.db.roles import Role
from trove_ceph.db.transactions import Transactions, insert, retry_on_deadlock

_RETENTION_FIELDS = [field.name for field in dataclasses.fields(Retention)]
_POLICY_FIELDS = [
    field.name for field in dataclasses.fields(BackupPolicy) if field.name not in ('scope', 'keep')
]
_RUN_FIELDS = [field.name for field in dataclasses.fields(PolicyRun)]
_BACKUP_FIELDS = [field.name for field in dataclasses.fields(PolicyBackup)]


class PolicyStore:
    """Policies, their runs and their backups; safe for use by several threads and processes.

    Each verb is one transaction. It raises ServiceUnavailableError when the database does not
    answer or lacks the tables.

    :param transactions: access to the database; by default the one of Trove's configuration
    """

    def __init__(self, transactions: Transactions | None = None):
        self._transactions = transactions or Transactions()
        self.clock = self._transactions.clock
        self._claims = claims.Claims(self._transactions)

    def database_time(self) -> datetime.datetime:
        """Return the time of the clock that all workers share, in UTC, without a time zone."""
        return self._transactions.read_database_time()

    # Policies.

    def all(self) -> list[BackupPolicy]:
        """Return all policies, the oldest first."""
        return self._list()

    def of_project(self, project_id: str) -> list[BackupPolicy]:
        """Return the policies of a project's instances, the oldest first."""
        return self._list(tables.BackupPolicyRow.project_id == project_id)

    def find(self, policy_id: str) -> BackupPolicy | None:
        with self._transactions.reading() as session:
            row = session.get(tables.BackupPolicyRow, policy_id)
            return None if row is None else _policy(row)

    @retry_on_deadlock
    def add(self, name: str, scope: Scope, target: str, **values: Any) -> BackupPolicy:
        """Add a policy.

        :param values: further fields of :class:`.policy_record.BackupPolicy`
        :raises RecordExistsError: the target has a policy
        """
        now = self.database_time()
        policy = BackupPolicy(
            str(uuid.uuid4()), name, scope, target, created_at=now, updated_at=now, **values
        )
        with self._transactions.writing() as session:
            session.add(tables.BackupPolicyRow(**_columns(dataclasses.asdict(policy))))
            try:
                session.flush()
            except oslo_db.exception.DBDuplicateEntry as error:
                raise exceptions.RecordExistsError(
                    f'{scope} {target} has a backup policy'
                ) from error
        return policy

    @retry_on_deadlock
    def change(self, policy_id: str, **values: Any) -> None:
        """Change fields of a policy; do nothing if it does not exist."""
        row = tables.BackupPolicyRow
        now = self.database_time()
        with self._transactions.writing() as session:
            session.execute(
                sa.update(row)
                .where(row.policy_id == policy_id)
                .values(**_columns(values) | {'updated_at': now})
            )

    def request_run(self, policy_id: str) -> None:
        """Request one run of a policy outside of its schedule; idempotent until it runs."""
        self.change(policy_id, run_wanted_at=self.database_time())

    @retry_on_deadlock
    def remove(self, policy_id: str) -> None:
        """Delete a policy; its backups stay."""
        with self._transactions.writing() as session:
            row = tables.BackupPolicyRow
            session.execute(sa.delete(row).where(row.policy_id == policy_id))

    # Runs.

    def runs(self) -> Mapping[str, PolicyRun]:
        """Return the last run of each instance, by instance id."""
        with self._transactions.reading() as session:
            rows = session.scalars(sa.select(tables.PolicyRunRow))
            return {row.instance_id: _run(row) for row in rows}

    def find_run(self, instance_id: str) -> PolicyRun | None:
        """Return the last run of an instance."""
        with self._transactions.reading() as session:
            row = session.get(tables.PolicyRunRow, instance_id)
            return None if row is None else _run(row)

    @retry_on_deadlock
    def begin(
        self,
        policy: BackupPolicy,
        instance_id: str,
        due_at: datetime.datetime,
        backup_name: str,
        before: PolicyRun | None,
        claimant: Claimant,
    ) -> PolicyRun | None:
        """Begin and claim a run.

        :param backup_name: a unique name
        :param before: the previous run, as read when the new one was found due; None: there is none
        :returns: the run; None: another worker has begun one
        """
        run = PolicyRun(
            instance_id,
            policy.policy_id,
            PolicyRunState.BEGUN,
            due_at,
            backup_name,
            attempts=before.attempts if before else 0,
            error=before.error if before else None,
            count=before.count if before else 0,
        )
        claim = Claim(Role.RUN_POLICY, instance_id, claimant.name, secrets.token_hex(16))
        with self._transactions.writing() as session:
            run = _with_claim(run, claim, self._transactions.database_time(session))
            values = dataclasses.asdict(run) | {'state': str(run.state)}
            if before is not None:
                return run if self._change(session, before, **values) else None
            session.add(tables.PolicyRunRow(**values))
            try:
                session.flush()
            except oslo_db.exception.DBDuplicateEntry:
                session.rollback()
                return None
        return run

    @retry_on_deadlock
    def resume(self, run: PolicyRun, claimant: Claimant) -> PolicyRun | None:
        """Claim a run whose worker has died.

        :returns: the run with its new claim; None: its worker is alive, or another one has claimed
            it
        """
        row = tables.PolicyRunRow
        with self._transactions.writing() as session:
            claim = self._claims.claim_in(
                session,
                Role.RUN_POLICY,
                run.instance_id,
                claimant,
                row.backup_name == run.backup_name,
                row.state == str(run.state),
            )
            if claim is None:
                return None
            return _with_claim(run, claim, self._transactions.database_time(session))

    @retry_on_deadlock
    def record_requested(self, run: PolicyRun, backup_id: str) -> PolicyRun | None:
        """Record that Trove has accepted the backup of a run, and release the run.

        :returns: the changed run; None: the claim is lost, and nothing is written
        """
        requested = {'state': str(PolicyRunState.REQUESTED), 'backup_id': backup_id}
        with self._transactions.writing() as session:
            changed = self._change(session, run, **requested, **claims.cleared_claim())
            if changed:
                self._ensure_backup(session, run, backup_id)
        if not changed:
            return None
        released: dict[str, Any] = claims.cleared_claim()
        return dataclasses.replace(
            run, state=PolicyRunState.REQUESTED, backup_id=backup_id, **released
        )

    def record_done(self, run: PolicyRun) -> bool:
        """Record that the backup of a run is complete.

        :returns: False: the run has ended or another worker has it; nothing is written
        """
        return self._change_run(
            run,
            state=str(PolicyRunState.DONE),
            **claims.cleared_claim(),
            attempts=0,
            retry_at=None,
            error=None,
            count=run.count + 1,
        )

    def record_failed(self, run: PolicyRun, error: str, retry_at: datetime.datetime) -> bool:
        """Record that the backup of a run failed.

        :param error: the reason
        :param retry_at: earliest time of the next attempt
        :returns: as :meth:`record_done`
        """
        return self._change_run(
            run,
            state=str(PolicyRunState.FAILED),
            **claims.cleared_claim(),
            attempts=run.attempts + 1,
            retry_at=retry_at,
            error=error,
        )

    @retry_on_deadlock
    def delete_run(self, instance_id: str) -> None:
        """Delete the run of an instance; idempotent."""
        with self._transactions.writing() as session:
            row = tables.PolicyRunRow
            session.execute(sa.delete(row).where(row.instance_id == instance_id))

    def runs_of(self, policy_id: str) -> list[PolicyRun]:
        """Return the last runs of a policy, ordered by instance."""
        row = tables.PolicyRunRow
        with self._transactions.reading() as session:
            found = session.scalars(
                sa.select(row).where(row.policy_id == policy_id).order_by(row.instance_id)
            )
            return [_run(one) for one in found]

    # Backups that policies requested.

    def backups_of(self, instance_id: str) -> list[PolicyBackup]:
        """Return the backups of an instance that policies requested, the oldest first."""
        return self._backups(tables.PolicyBackupRow.instance_id == instance_id)

    def policies_of(self, backup_ids: Iterable[str]) -> Mapping[str, str]:
        """Return the ids of the policies that requested these backups; others are left out."""
        found = self._backups(tables.PolicyBackupRow.backup_id.in_(list(backup_ids)))
        return {one.backup_id: one.policy_id for one in found}

    @retry_on_deadlock
    def ensure_backup(self, run: PolicyRun, backup_id: str) -> None:
        """Record the backup that was requested for a run, even if the claim is lost; idempotent."""
        with self._transactions.writing() as session:
            self._ensure_backup(session, run, backup_id)

    @retry_on_deadlock
    def request_removal(self, backup_id: str) -> None:
        """Record that the deletion of a backup is requested."""
        row = tables.PolicyBackupRow
        with self._transactions.writing() as session:
            session.execute(
                sa.update(row)
                .where(row.backup_id == backup_id)
                .values(removal_wanted_at=self.clock())
            )

    @retry_on_deadlock
    def delete_backup_row(self, backup_id: str) -> None:
        """Delete the row of a backup that is deleted; idempotent."""
        with self._transactions.writing() as session:
            row = tables.PolicyBackupRow
            session.execute(sa.delete(row).where(row.backup_id == backup_id))

    @retry_on_deadlock
    def prune_backups(self, before: datetime.datetime) -> None:
        """Delete the rows of backups taken before a time that have no record any more."""
        row = tables.PolicyBackupRow
        with self._transactions.writing() as session:
            session.execute(
                sa.delete(row).where(
                    row.taken_at < before,
                    row.backup_id.not_in(sa.select(tables.BackupRow.backup_id)),
                )
            )

    # Internals.

    def _ensure_backup(self, session: Any, run: PolicyRun, backup_id: str) -> None:
        row = tables.PolicyBackupRow
        if session.scalar(sa.select(row.number).where(row.backup_id == backup_id)) is not None:
            return
        facts = {'instance_id': run.instance_id, 'policy_id': run.policy_id}
        now = self._transactions.database_time(session)
        insert(session, row(backup_id=backup_id, taken_at=now, **facts))

    def _list(self, *conditions: Any) -> list[BackupPolicy]:
        row = tables.BackupPolicyRow
        with self._transactions.reading() as session:
            found = session.scalars(
                sa.select(row).where(*conditions).order_by(row.created_at, row.policy_id)
            )
            return [_policy(one) for one in found]

    def _backups(self, *conditions: Any) -> list[PolicyBackup]:
        row = tables.PolicyBackupRow
        with self._transactions.reading() as session:
            found = session.scalars(sa.select(row).where(*conditions).order_by(row.number))
            return [
                PolicyBackup(**{name: getattr(one, name) for name in _BACKUP_FIELDS})
                for one in found
            ]

    @retry_on_deadlock
    def _change_run(self, run: PolicyRun, **values: Any) -> bool:
        with self._transactions.writing() as session:
            return self._change(session, run, **values)

    def _change(self, session: Any, run: PolicyRun, *conditions: Any, **values: Any) -> bool:
        """Change a run, unless it has been replaced, continued or claimed meanwhile."""
        row = tables.PolicyRunRow
        done = session.connection().execute(
            sa.update(row)
            .where(
                row.instance_id == run.instance_id,
                row.backup_name == run.backup_name,
                row.state == str(run.state),
                claims.is_value(row.claim_token, run.claim_token),
                *conditions,
            )
            .values(**values)
        )
        return bool(done.rowcount)


def _columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns for some fields of a policy."""
    columns = {name: value for name, value in values.items() if name != 'keep'}
    if 'scope' in columns:
        columns['scope'] = str(columns['scope'])
    if 'keep' in values:
        keep = values['keep']
        counts = keep if isinstance(keep, Mapping) else dataclasses.asdict(keep)
        columns |= {f'keep_{name}': count for name, count in counts.items()}
    return columns


def _policy(row: tables.BackupPolicyRow) -> BackupPolicy:
    keep = Retention(*(getattr(row, f'keep_{name}') for name in _RETENTION_FIELDS))
    values = {name: getattr(row, name) for name in _POLICY_FIELDS}
    return BackupPolicy(scope=Scope(row.scope), keep=keep, **values)


def _with_claim(run: PolicyRun, claim: Claim, now: datetime.datetime) -> PolicyRun:
    return dataclasses.replace(
        run,
        claim_role=claim.role,
        claimed_by=claim.worker,
        claim_token=claim.token,
        heartbeat_at=now,
    )


def _run(row: tables.PolicyRunRow) -> PolicyRun:
    values = {name: getattr(row, name) for name in _RUN_FIELDS}
    return PolicyRun(**values | {'state': PolicyRunState(row.state)})
