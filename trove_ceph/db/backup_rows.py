# SPDX-License-Identifier: Apache-2.0
"""What all verbs on the table of backups stand on."""

from typing import Any

import sqlalchemy as sa

from trove_ceph.db import tables, transactions


class BackupRows:
    """Verbs on that table, each of them one transaction.

    :param database: where it is
    """

    def __init__(self, database: transactions.Transactions):
        self._transactions = database

    @transactions.retried
    def _update(self, backup_id: str, *conditions: Any, **values: Any) -> bool:
        """Set columns of a backup, and when that was, unless it is given.

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
