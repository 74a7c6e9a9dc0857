# SPDX-License-Identifier: Apache-2.0
"""The store of the last sweep for orphans, so that monitoring sees when none is made any more."""

import dataclasses
import datetime
from collections.abc import Mapping

from sqlalchemy import orm

from trove_ceph.db import tables
from trove_ceph.db.transactions import Transactions, insert, retry_on_deadlock

_Row = tables.OrphanSweepRow
#: The key of the only row.
_CLOUD = 'cloud'


@dataclasses.dataclass(frozen=True)
class OrphanSweep:
    """A sweep for orphans that has ended.

    :param ended_at: by the clock of the database
    :param found: number of orphans by kind, also if it is 0
    :param removed: how many of them it has removed
    """

    ended_at: datetime.datetime
    found: Mapping[str, int]
    removed: Mapping[str, int]

    @property
    def left(self) -> Mapping[str, int]:
        """The number of orphans that it has left, by kind."""
        return {kind: count - self.removed.get(kind, 0) for kind, count in self.found.items()}


class OrphanSweepStore:
    """The last sweep; safe for use by several threads and processes.

    Each verb is one transaction. It raises ServiceUnavailableError when the database does not
    answer or lacks the tables.

    :param transactions: access to the database; by default the one of Trove's configuration
    """

    def __init__(self, transactions: Transactions | None = None):
        self._transactions = transactions or Transactions()

    def find(self) -> OrphanSweep | None:
        """Return the last sweep; None: there was none."""
        with self._transactions.reading() as session:
            return find_in(session)

    @retry_on_deadlock
    def record(self, found: Mapping[str, int], removed: Mapping[str, int]) -> None:
        """Record that a sweep has ended now, in place of the one before.

        :param found: number of orphans by kind, also if it is 0
        :param removed: how many of them it has removed
        """
        with self._transactions.writing() as session:
            values = {
                'ended_at': self._transactions.database_time(session),
                'found': dict(found),
                'removed': dict(removed),
            }
            row = session.get(_Row, _CLOUD)
            if row is None:
                insert(session, _Row(name=_CLOUD, **values))
                return
            for name, value in values.items():
                setattr(row, name, value)


def find_in(session: orm.Session) -> OrphanSweep | None:
    """Return the last sweep within a transaction of the caller; None: there was none."""
    row = session.get(_Row, _CLOUD)
    return None if row is None else OrphanSweep(row.ended_at, row.found, row.removed)
