# SPDX-License-Identifier: Apache-2.0
"""The store of the watch over all databases: who keeps it, what it found, and maintenance."""

import datetime
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph.db import claims, tables
from trove_ceph.db.claims import Claim, Claimant
from trove_ceph.db.failover_record import FailoverWatch
from trove_ceph.db.roles import Role
from trove_ceph.db.transactions import Transactions, insert, retry_on_deadlock

_Row = tables.FailoverWatchRow
#: The key of the only row.
_CLOUD = 'cloud'


class FailoverWatchStore:
    """The watch; safe for use by several threads and processes.

    Each verb is one transaction. It raises ServiceUnavailableError when the database does not
    answer or lacks the tables. All times are by the clock of the database.

    :param transactions: access to the database; by default the one of Trove's configuration
    """

    def __init__(self, transactions: Transactions | None = None):
        self._transactions = transactions or Transactions()
        self.claims = claims.Claims(self._transactions)

    def now(self) -> datetime.datetime:
        """Return the time by the clock of the database."""
        return self._transactions.read_database_time()

    def read(self) -> FailoverWatch:
        """Return the watch."""
        with self._transactions.reading() as session:
            row = session.get(_Row, _CLOUD)
            return FailoverWatch() if row is None else row.as_model()

    @retry_on_deadlock
    def begin_watching(self, claimant: Claimant) -> Claim | None:
        """Claim the watch; None: another live taskmanager keeps it."""
        with self._transactions.writing() as session:
            _ensure_row(session)
            return self.claims.claim_in(session, Role.WATCH_FAILOVERS, _CLOUD, claimant)

    @retry_on_deadlock
    def record_report(self, claim: Claim, report: Mapping[str, Any]) -> None:
        """Record what a round has found; do nothing if the claim is lost."""
        with self._transactions.writing() as session:
            now = self._transactions.database_time(session)
            self._write(session, claim, report=dict(report), reported_at=now)

    @retry_on_deadlock
    def record_failure(self, claim: Claim, report: Mapping[str, Any]) -> None:
        """Record that a round has failed; the time stays that of the last one that has not.

        So the age of the report shows that nothing is watched. Do nothing if the claim is lost.
        """
        with self._transactions.writing() as session:
            now = self._transactions.database_time(session)
            began_at = sa.func.coalesce(_Row.reported_at, now)
            self._write(session, claim, report=dict(report), reported_at=began_at)

    @staticmethod
    def _write(session: orm.Session, claim: Claim, **values: Any) -> None:
        session.execute(sa.update(_Row).where(*claims.write_conditions(claim)).values(**values))

    @retry_on_deadlock
    def set_maintenance(self, reason: str | None) -> None:
        """Hold all automatic failovers, or allow them again.

        :param reason: None: allow them
        """
        with self._transactions.writing() as session:
            _ensure_row(session)
            since = None if reason is None else self._transactions.database_time(session)
            session.execute(
                sa.update(_Row)
                .where(_Row.name == _CLOUD)
                .values(maintenance=reason, maintenance_since=since)
            )


def _ensure_row(session: orm.Session) -> None:
    if session.get(_Row, _CLOUD) is None:
        insert(session, _Row(name=_CLOUD))
