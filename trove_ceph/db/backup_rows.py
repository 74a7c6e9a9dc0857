# SPDX-License-Identifier: Apache-2.0
"""What all verbs on the table of backups stand on."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph import exceptions
from trove_ceph.db import backup_states, claims, tables, transactions
from trove_ceph.db.backup_states import Event
from trove_ceph.db.claims import Claim


class BackupRows:
    """Verbs on that table, each of them one transaction.

    :param database: where it is
    """

    def __init__(self, database: transactions.Transactions):
        self._transactions = database

    @transactions.retry_on_deadlock
    def _update(self, backup_id: str, *conditions: Any, **values: Any) -> bool:
        """Set columns of a backup, and when that was, unless it is given. Never the state.

        :returns: whether there is a row that meets the conditions
        """
        now = self._transactions.clock()
        with self._transactions.writing() as session:
            done = session.connection().execute(
                sa.update(tables.BackupRow)
                .where(tables.BackupRow.backup_id == backup_id, *conditions)
                .values(**{'updated_at': now} | values)
            )
            return bool(done.rowcount)

    def _write(self, claim: Claim, *conditions: Any, **values: Any) -> None:
        """Set columns of the backup that a worker has claimed.

        :raises ClaimLostError: the claim is lost, or the backup is in another state; nothing was
            written
        """
        if not self._update(
            claim.resource_id, *claims.write_conditions(claim), *conditions, **values
        ):
            raise claim_lost(claim)

    @transactions.retry_on_deadlock
    def _move(self, claim: Claim, event: Event, *conditions: Any, **values: Any) -> None:
        """Have something happen to the backup that a worker has claimed, and set columns.

        :raises InvalidTransitionError: it cannot happen in this state; nothing was written
        :raises ClaimLostError: as :meth:`_write`
        """
        ours = (*claims.write_conditions(claim), *conditions)
        with self._transactions.writing() as session:
            if not self._move_in(session, claim.resource_id, event, *ours, **values):
                raise claim_lost(claim)

    def _move_in(
        self, session: orm.Session, backup_id: str, event: Event, *conditions: Any, **values: Any
    ) -> bool:
        """Have something happen to a backup within a transaction, and set columns.

        :returns: whether there is a row that meets the conditions
        :raises InvalidTransitionError: it cannot happen in this state; nothing was written
        """
        row = tables.BackupRow
        this = (row.backup_id == backup_id, *conditions)
        # Locked where the database can: the state that is read is the one that is replaced.
        state = session.scalar(sa.select(row.state).where(*this).with_for_update())
        if state is None:
            return False
        after = backup_states.next_state(state, event)
        done = session.connection().execute(
            sa.update(row)
            .where(*this, row.state == state)
            .values(**{'updated_at': self._transactions.clock()} | values | {'state': str(after)})
        )
        return bool(done.rowcount)


def claim_lost(claim: Claim) -> exceptions.ClaimLostError:
    """Return the error of a worker that may not carry on."""
    return exceptions.ClaimLostError(
        f'backup {claim.resource_id}: is being deleted, or another worker has it; the {claim} is '
        'lost'
    )
