# SPDX-License-Identifier: Apache-2.0
"""The store of failover policies."""

import dataclasses
import datetime
import uuid
from typing import Any

import oslo_db.exception
import sqlalchemy as sa

from trove_ceph import exceptions
from trove_ceph.db import tables, trove_tasks
from trove_ceph.db.failover_record import FailoverPolicy
from trove_ceph.db.policy_record import Scope
from trove_ceph.db.transactions import Transactions, insert, retry_on_deadlock

_Row = tables.FailoverPolicyRow


class FailoverPolicyStore:
    """Failover policies; safe for use by several threads and processes.

    Each verb is one transaction. It raises ServiceUnavailableError when the database does not
    answer or lacks the tables.

    :param transactions: access to the database; by default the one of Trove's configuration
    """

    def __init__(self, transactions: Transactions | None = None):
        self._transactions = transactions or Transactions()

    def all(self) -> list[FailoverPolicy]:
        """Return all policies, the oldest first."""
        with self._transactions.reading() as session:
            rows = session.scalars(sa.select(_Row).order_by(_Row.created_at, _Row.policy_id))
            return [row.as_model() for row in rows]

    def find(self, policy_id: str) -> FailoverPolicy | None:
        with self._transactions.reading() as session:
            row = session.get(_Row, policy_id)
            return None if row is None else row.as_model()

    @retry_on_deadlock
    def add(self, scope: Scope, target: str, **values: Any) -> FailoverPolicy:
        """Add a policy.

        :param values: further fields of :class:`.failover_record.FailoverPolicy`
        :raises RecordExistsError: the target has a policy
        """
        now = self._transactions.clock()
        with self._transactions.writing() as session:
            row = _new_row(scope, target, now, values)
            session.add(row)
            try:
                session.flush()
            except oslo_db.exception.DBDuplicateEntry as error:
                raise exceptions.RecordExistsError(
                    f'{scope} {target} has a failover policy; change that one'
                ) from error
            return row.as_model()

    @retry_on_deadlock
    def change(self, policy_id: str, **values: Any) -> None:
        """Change a policy; do nothing if it does not exist.

        :param values: ``enabled`` or ``prefer``; others stay
        """
        with self._transactions.writing() as session:
            session.execute(
                sa.update(_Row)
                .where(_Row.policy_id == policy_id)
                .values(**_columns(values), updated_at=self._transactions.clock())
            )

    @retry_on_deadlock
    def disable(self, instance_id: str, project_id: str) -> None:
        """Have no policy fail an instance over, whatever its datastore has; idempotent."""
        now = self._transactions.clock()
        with self._transactions.writing() as session:
            done = session.connection().execute(
                sa.update(_Row)
                .where(_Row.scope == str(Scope.INSTANCE), _Row.target == instance_id)
                .values(enabled=False, updated_at=now)
            )
            if done.rowcount:
                return
            values = {'project_id': project_id, 'enabled': False}
            insert(session, _new_row(Scope.INSTANCE, instance_id, now, values))

    @retry_on_deadlock
    def remove(self, policy_id: str) -> None:
        """Delete a policy; idempotent."""
        with self._transactions.writing() as session:
            session.execute(sa.delete(_Row).where(_Row.policy_id == policy_id))

    @retry_on_deadlock
    def prune(self) -> None:
        """Delete the policies of instances that are deleted."""
        own = _Row.scope == str(Scope.INSTANCE)
        with self._transactions.writing() as session:
            targets = set(session.scalars(sa.select(_Row.target).where(own)))
            # After the policies: each target that is absent there is deleted.
            deleted = targets - trove_tasks.present(session)
            session.execute(sa.delete(_Row).where(own, _Row.target.in_(deleted)))


def _new_row(
    scope: Scope, target: str, now: datetime.datetime, values: dict[str, Any]
) -> tables.FailoverPolicyRow:
    policy = FailoverPolicy(str(uuid.uuid4()), scope, target, now, now, **values)
    return _Row(**_columns(dataclasses.asdict(policy)))


def _columns(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of columns as the table stores them."""
    return {
        name: str(value) if name in ('scope', 'prefer') else value for name, value in values.items()
    }
