# SPDX-License-Identifier: Apache-2.0
"""The store of marks: what is left to do on a source when the change of a source has ended."""

import enum
from collections.abc import Mapping

import sqlalchemy as sa

from trove_ceph.db import tables
from trove_ceph.db.transactions import Transactions, insert, retry_on_deadlock

_Row = tables.SourceMarkRow


class SourceMark(enum.StrEnum):
    """What is left to do on an instance; it has one mark at most, and the last one counts."""

    #: It is the source since an ejection, and is to accept writes as soon as its agent answers.
    UNFINISHED_EJECTION = 'unfinished-ejection'
    #: It is the source since a promotion, and is to do so as soon as it has all commits, too.
    UNFINISHED_PROMOTION = 'unfinished-promotion'
    #: It was ejected, and its server is to be off, until the instance is deleted.
    EJECTED = 'ejected'

    @property
    def is_unfinished(self) -> bool:
        """Whether it is the mark of a new source that may not accept writes."""
        return self is not SourceMark.EJECTED


class SourceMarkStore:
    """Marks of instances; safe for use by several threads and processes.

    Each verb is one transaction. It raises ServiceUnavailableError when the database does not
    answer or lacks the tables.

    :param transactions: access to the database; by default the one of Trove's configuration
    """

    def __init__(self, transactions: Transactions | None = None):
        self._transactions = transactions or Transactions()

    @retry_on_deadlock
    def set(self, instance_id: str, mark: SourceMark) -> None:
        """Mark an instance, in place of the mark that it has; idempotent."""
        with self._transactions.writing() as session:
            row = session.get(_Row, instance_id, with_for_update=True)
            if row is None:
                now = self._transactions.clock()
                insert(session, _Row(instance_id=instance_id, mark=str(mark), marked_at=now))
            elif row.mark != str(mark):
                row.mark, row.marked_at = str(mark), self._transactions.clock()

    def find(self, instance_id: str) -> SourceMark | None:
        """Return the mark of an instance; None: it has none."""
        with self._transactions.reading() as session:
            row = session.get(_Row, instance_id)
            return None if row is None else SourceMark(row.mark)

    def age_sec(self, instance_id: str) -> float | None:
        """Return for how long an instance has had its mark; None: it has none."""
        with self._transactions.reading() as session:
            row = session.get(_Row, instance_id)
            age = None if row is None else self._transactions.clock() - row.marked_at
            return None if age is None else age.total_seconds()

    def list(self) -> Mapping[str, SourceMark]:
        """Return all marks by the ids of the instances, the oldest first."""
        with self._transactions.reading() as session:
            rows = session.scalars(sa.select(_Row).order_by(_Row.marked_at, _Row.instance_id))
            return {row.instance_id: SourceMark(row.mark) for row in rows}

    @retry_on_deadlock
    def remove(self, instance_id: str) -> None:
        """Forget the mark of an instance; idempotent."""
        with self._transactions.writing() as session:
            session.execute(sa.delete(_Row).where(_Row.instance_id == instance_id))
