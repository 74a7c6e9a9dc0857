# SPDX-License-Identifier: Apache-2.0
"""Conditional updates of the table of backups, the base of all its verbs."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph import exceptions
from trove_ceph.db import backup_states, claims, tables, transactions
from trove_ceph.db.backup_states import Event
from trove_ceph.db.claims import Claim


class BackupRows:
    """Verbs on the table of backups; each is one transaction.

    :param database: the database with the table
    """

    def __init__(self, database: transactions.Transactions):
        self._transactions = database

    @transactions.retry_on_deadlock
    def _update(self, backup_id: str, *conditions: Any, **values: Any) -> bool:
        """Set columns of a backup other than its state; ``updated_at`` defaults to now.

        :returns: whether a row meets the conditions
        """
        with self._transactions.writing() as session:
            return self._update_in(session, backup_id, *conditions, **values)

    def _update_in(
        self, session: orm.Session, backup_id: str, *conditions: Any, **values: Any
    ) -> bool:
        """Do as :meth:`_update` within a transaction."""
        done = session.connection().execute(
            sa.update(tables.BackupRow)
            .where(tables.BackupRow.backup_id == backup_id, *conditions)
            .values(**{'updated_at': self._transactions.clock()} | values)
        )
        return bool(done.rowcount)

    def _write(self, claim: Claim, *conditions: Any, **values: Any) -> None:
        """Set columns of the backup that a worker has claimed.

        :raises ClaimLostError: the claim is lost, or the backup is in another state; nothing is
            written
        """
        if not self._update(
            claim.resource_id, *claims.write_conditions(claim), *conditions, **values
        ):
            raise claim_lost(claim)

    @transactions.retry_on_deadlock
    def _move(self, claim: Claim, event: Event, *conditions: Any, **values: Any) -> None:
        """Apply an event to the backup that a worker has claimed, and set columns.

        :raises InvalidTransitionError: the state does not allow the event; nothing is written
        :raises ClaimLostError: as :meth:`_write`
        """
        ours = (*claims.write_conditions(claim), *conditions)
        with self._transactions.writing() as session:
            if not self._move_in(session, claim.resource_id, event, *ours, **values):
                raise claim_lost(claim)

    def _move_in(
        self, session: orm.Session, backup_id: str, event: Event, *conditions: Any, **values: Any
    ) -> bool:
        """Apply an event to a backup within a transaction, and set columns.

        :returns: whether a row meets the conditions
        :raises InvalidTransitionError: the state does not allow the event; nothing is written
        """
        row = tables.BackupRow
        match = (row.backup_id == backup_id, *conditions)
        # Lock the row where the database supports it, so that the state cannot change meanwhile.
        state = session.scalar(sa.select(row.state).where(*match).with_for_update())
        if state is None:
            return False
        after = backup_states.next_state(state, event)
        done = session.connection().execute(
            sa.update(row)
            .where(*match, row.state == state)
            .values(**{'updated_at': self._transactions.clock()} | values | {'state': str(after)})
        )
        return bool(done.rowcount)


def claim_lost(claim: Claim) -> exceptions.ClaimLostError:
    """Return the error that stops a worker whose claim is lost."""
    return exceptions.ClaimLostError(
        f'backup {claim.resource_id}: the {claim} is lost; the backup is being deleted, or another '
        'worker has claimed it'
    )
