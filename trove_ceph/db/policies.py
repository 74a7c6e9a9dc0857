# SPDX-License-Identifier: Apache-2.0
"""Reading and writing the tables of backup policies, in verbs of what they are about."""

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
from trove_ceph.db.transactions import Transactions, retried

_KEEP = [field.name for field in dataclasses.fields(Retention)]
_PLAIN = [
    field.name for field in dataclasses.fields(BackupPolicy) if field.name not in ('scope', 'keep')
]
_RUN = [field.name for field in dataclasses.fields(PolicyRun)]
_BACKUP = [field.name for field in dataclasses.fields(PolicyBackup)]


class PolicyStore:
    """Policies, their runs and their backups; for several threads and processes.

    Each verb is one transaction, and raises ServiceUnavailableError when the database does not
    answer or lacks the tables.

    :param transactions: of the database; by default that of Trove's configuration
    """

    def __init__(self, transactions: Transactions | None = None):
        self._transactions = transactions or Transactions()
        self.clock = self._transactions.clock
        self._claims = claims.Claims(self._transactions)

    # Policies.

    def all(self) -> list[BackupPolicy]:
        """List all policies, the oldest first."""
        return self._list()

    def of_project(self, project_id: str) -> list[BackupPolicy]:
        """List the policies of a project's instances, the oldest first."""
        return self._list(tables.BackupPolicyRow.project_id == project_id)

    def find(self, policy_id: str) -> BackupPolicy | None:
        with self._transactions.reading() as session:
            row = session.get(tables.BackupPolicyRow, policy_id)
            return None if row is None else _policy(row)

    @retried
    def add(self, name: str, scope: Scope, target: str, **values: Any) -> BackupPolicy:
        """Add a policy.

        :param values: of :class:`.policy_model.Policy`
        :raises RecordExistsError: there is one for this target
        """
        now = self.clock()
        made = BackupPolicy(
            str(uuid.uuid4()), name, scope, target, created_at=now, updated_at=now, **values
        )
        with self._transactions.writing() as session:
            session.add(tables.BackupPolicyRow(**_columns(dataclasses.asdict(made))))
            try:
                session.flush()
            except oslo_db.exception.DBDuplicateEntry as error:
                raise exceptions.RecordExistsError(
                    f'{scope} {target}: has a backup policy'
                ) from error
        return made

    @retried
    def change(self, policy_id: str, **values: Any) -> None:
        """Give a policy other values; nothing if it is gone."""
        row = tables.BackupPolicyRow
        with self._transactions.writing() as session:
            session.execute(
                sa.update(row)
                .where(row.policy_id == policy_id)
                .values(**_columns(values) | {'updated_at': self.clock()})
            )

    def request_run(self, policy_id: str) -> None:
        """Request backups besides the schedule; once, however often it is asked for."""
        self.change(policy_id, run_wanted_at=self.clock())

    @retried
    def remove(self, policy_id: str) -> None:
        """Forget a policy; the backups that it had taken stay."""
        with self._transactions.writing() as session:
            row = tables.BackupPolicyRow
            session.execute(sa.delete(row).where(row.policy_id == policy_id))

    # Runs.

    def runs(self) -> Mapping[str, PolicyRun]:
        """Return the last run of each instance, by its id."""
        with self._transactions.reading() as session:
            rows = session.scalars(sa.select(tables.PolicyRunRow))
            return {row.instance_id: _run(row) for row in rows}

    def find_run(self, instance_id: str) -> PolicyRun | None:
        """Return the last run of an instance."""
        with self._transactions.reading() as session:
            row = session.get(tables.PolicyRunRow, instance_id)
            return None if row is None else _run(row)

    @retried
    def begin(
        self,
        policy: BackupPolicy,
        instance_id: str,
        due_at: datetime.datetime,
        backup_name: str,
        before: PolicyRun | None,
        claimant: Claimant,
    ) -> PolicyRun | None:
        """Begin a run and claim it; return it, or None when another worker has begun one.

        :param backup_name: unlike that of any other
        :param before: the run before it, as it was when this one was found to be due
        """
        begun = PolicyRun(
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
            begun = _with_claim(begun, claim, self._transactions.database_time(session))
            values = dataclasses.asdict(begun) | {'state': str(begun.state)}
            if before is not None:
                return begun if self._change(session, before, **values) else None
            session.add(tables.PolicyRunRow(**values))
            try:
                session.flush()
            except oslo_db.exception.DBDuplicateEntry:
                session.rollback()
                return None
        return begun

    @retried
    def take_over(self, run: PolicyRun, claimant: Claimant) -> PolicyRun | None:
        """Claim a run that was begun, and whose worker has died; return it as it is then.

        :returns: None where the worker is alive, or another one was faster
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

    @retried
    def note_asked(self, run: PolicyRun, backup_id: str) -> PolicyRun | None:
        """Write down that Trove knows of a run's backup, and that it is a policy's; release it.

        :returns: the run as it is then; None when the claim is lost, and nothing was written
        """
        asked = {'state': str(PolicyRunState.ASKED), 'backup_id': backup_id}
        with self._transactions.writing() as session:
            is_ours = self._change(session, run, **asked, **claims.released())
            if is_ours:
                session.add(
                    tables.PolicyBackupRow(
                        backup_id=backup_id,
                        instance_id=run.instance_id,
                        policy_id=run.policy_id,
                        taken_at=self.clock(),
                    )
                )
        if not is_ours:
            return None
        released: dict[str, Any] = claims.released()
        return dataclasses.replace(run, state=PolicyRunState.ASKED, backup_id=backup_id, **released)

    def note_done(self, run: PolicyRun) -> bool:
        """Write down that a run's backup is there.

        :returns: whether no other worker has done so before, or has taken the run over
        """
        return self._change_run(
            run,
            state=str(PolicyRunState.DONE),
            **claims.released(),
            attempts=0,
            retry_at=None,
            error=None,
            count=run.count + 1,
        )

    def note_failed(self, run: PolicyRun, error: str, retry_at: datetime.datetime) -> bool:
        """Write down why there is no backup, and when it is tried again; as :meth:`note_done`."""
        return self._change_run(
            run,
            state=str(PolicyRunState.FAILED),
            **claims.released(),
            attempts=run.attempts + 1,
            retry_at=retry_at,
            error=error,
        )

    @retried
    def forget_run(self, instance_id: str) -> None:
        """Forget what was done about an instance; harmless when repeated."""
        with self._transactions.writing() as session:
            row = tables.PolicyRunRow
            session.execute(sa.delete(row).where(row.instance_id == instance_id))

    def runs_of(self, policy_id: str) -> list[PolicyRun]:
        """List the last runs of a policy, by their instances."""
        row = tables.PolicyRunRow
        with self._transactions.reading() as session:
            found = session.scalars(
                sa.select(row).where(row.policy_id == policy_id).order_by(row.instance_id)
            )
            return [_run(one) for one in found]

    # What policies had taken.

    def backups_of(self, instance_id: str) -> list[PolicyBackup]:
        """List what policies had taken of an instance, the oldest first."""
        return self._backups(tables.PolicyBackupRow.instance_id == instance_id)

    def policies_of(self, backup_ids: Iterable[str]) -> Mapping[str, str]:
        """Return the ids of the policies that had these backups taken; of others there is none."""
        found = self._backups(tables.PolicyBackupRow.backup_id.in_(list(backup_ids)))
        return {one.backup_id: one.policy_id for one in found}

    @retried
    def request_removal(self, backup_id: str) -> None:
        """Write down that a backup's deletion is asked for."""
        row = tables.PolicyBackupRow
        with self._transactions.writing() as session:
            session.execute(
                sa.update(row)
                .where(row.backup_id == backup_id)
                .values(removal_wanted_at=self.clock())
            )

    @retried
    def forget_backup(self, backup_id: str) -> None:
        """Forget a backup that is gone; harmless when repeated."""
        with self._transactions.writing() as session:
            row = tables.PolicyBackupRow
            session.execute(sa.delete(row).where(row.backup_id == backup_id))

    @retried
    def forget_gone(self, before: datetime.datetime) -> None:
        """Forget what was taken before a time and is recorded as a backup no more."""
        row = tables.PolicyBackupRow
        with self._transactions.writing() as session:
            session.execute(
                sa.delete(row).where(
                    row.taken_at < before,
                    row.backup_id.not_in(sa.select(tables.BackupRow.backup_id)),
                )
            )

    # Inside.

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
            return [PolicyBackup(**{name: getattr(one, name) for name in _BACKUP}) for one in found]

    @retried
    def _change_run(self, run: PolicyRun, **values: Any) -> bool:
        with self._transactions.writing() as session:
            return self._change(session, run, **values)

    def _change(self, session: Any, run: PolicyRun, *conditions: Any, **values: Any) -> bool:
        """Change a run, unless it is another, further or another worker's by now."""
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
    """Return the columns of some fields of a policy."""
    found = {name: value for name, value in values.items() if name != 'keep'}
    if 'scope' in found:
        found['scope'] = str(found['scope'])
    if 'keep' in values:
        keep = values['keep']
        counts = keep if isinstance(keep, Mapping) else dataclasses.asdict(keep)
        found |= {f'keep_{name}': count for name, count in counts.items()}
    return found


def _policy(row: tables.BackupPolicyRow) -> BackupPolicy:
    keep = Retention(*(getattr(row, f'keep_{name}') for name in _KEEP))
    values = {name: getattr(row, name) for name in _PLAIN}
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
    values = {name: getattr(row, name) for name in _RUN}
    return PolicyRun(**values | {'state': PolicyRunState(row.state)})
