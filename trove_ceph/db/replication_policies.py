# SPDX-License-Identifier: Apache-2.0
"""The store of replication policies."""

from collections.abc import Sequence

import sqlalchemy as sa

from trove_ceph.db import tables
from trove_ceph.db.replica_record import ReplicationPolicy
from trove_ceph.db.transactions import Transactions, insert, retry_on_deadlock

_Row = tables.ReplicationPolicyRow


class ReplicationPolicyStore:
    """The policies of sources; safe for use by several threads and processes.

    Each verb is one transaction. It raises ServiceUnavailableError when the database does not
    answer or lacks the tables.

    :param transactions: access to the database; by default the one of Trove's configuration
    """

    def __init__(self, transactions: Transactions | None = None):
        self._transactions = transactions or Transactions()

    def all(self) -> Sequence[ReplicationPolicy]:
        """Return all policies, the oldest first."""
        with self._transactions.reading() as session:
            rows = session.scalars(sa.select(_Row).order_by(_Row.created_at, _Row.instance_id))
            return [row.as_model() for row in rows]

    def find(self, instance_id: str) -> ReplicationPolicy | None:
        """Return the policy of a source."""
        with self._transactions.reading() as session:
            row = session.get(_Row, instance_id)
            return None if row is None else row.as_model()

    @retry_on_deadlock
    def set(self, instance_id: str, **values: bool | int | str | None) -> ReplicationPolicy:
        """Change the policy of a source, which is added if it has none.

        :param values: fields of :class:`.replica_record.ReplicationPolicy`; others stay
        """
        now = self._transactions.clock()
        with self._transactions.writing() as session:
            row = session.get(_Row, instance_id)
            if row is None:
                row = _Row(instance_id=instance_id, created_at=now, updated_at=now, semi_sync=False)
                insert(session, row)
            for name, value in values.items():
                setattr(row, name, value)
            row.updated_at = now
            session.flush()
            return row.as_model()

    @retry_on_deadlock
    def remove(self, instance_id: str) -> None:
        """Delete the policy of a source; idempotent."""
        with self._transactions.writing() as session:
            session.execute(sa.delete(_Row).where(_Row.instance_id == instance_id))
