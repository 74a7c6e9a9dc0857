# SPDX-License-Identifier: Apache-2.0
"""Which backups are to be copied or verified, who does it, and when it is tried again.

Whoever wants something writes the time of it; whoever has done it takes that away. A backup is
worked on by whoever claimed it, and by somebody else once nothing was seen of that one for long.
"""

import datetime
from typing import Any

import sqlalchemy as sa

from trove_ceph.db import backup_record, backup_rows, tables
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.transactions import retried

#: Before what failed is tried again, doubled with each failure that follows.
_FIRST_RETRY = datetime.timedelta(minutes=1)
_LONGEST_RETRY = datetime.timedelta(hours=6)

#: Of those who work on what is wanted, which those who take and delete backups are not.
WORKER_SUFFIX = ':wishes'

_Row = tables.BackupRow
_COMPLETE = [str(state) for state in RecordState if state.is_complete]
_INSPECTABLE = [str(state) for state in RecordState if state.can_be_verified]


def worker(process: str) -> str:
    """Return who works on what is wanted of backups in a process."""
    return f'{process}{WORKER_SUFFIX}'


class WorkQueue(backup_rows.BackupRows):
    """What is wanted of backups; each verb is one transaction, as those of Records."""

    # Wanting.

    def want_copy(self, backup_id: str) -> None:
        """Want a copy in the vault, soon; nothing if there is one. Harmless when repeated."""
        self._want('copy_wanted_at', backup_id, _Row.copied_at.is_(None))

    def want_verification(self, backup_id: str) -> None:
        """Want a verification, soon, also of what was verified before; harmless when repeated."""
        self._want('verify_wanted_at', backup_id)

    def want_no_copy(self, backup_id: str) -> None:
        """Want no copy any more; one that is there stays, one that is begun is given up in time."""
        self._update(backup_id, copy_wanted_at=None, copy_error=None)

    # Fulfilling.

    def due(self, since: datetime.timedelta) -> list[backup_record.BackupRecord]:
        """List what is to be worked on now, what was wanted first at the front.

        Copies that were begun and are not wanted any more are among it.

        :param since: whoever was not seen for so long works on it no more
        """
        now = self._transactions.clock()
        to_copy = sa.and_(_Row.copy_wanted_at.isnot(None), _Row.state.in_(_COMPLETE))
        to_verify = _Row.verify_wanted_at.isnot(None)
        to_give_up = sa.and_(
            _Row.copy_wanted_at.is_(None), _Row.copied_at.is_(None), _Row.vault_image.isnot(None)
        )
        wanted_at = sa.func.coalesce(_Row.copy_wanted_at, _Row.verify_wanted_at, _Row.created_at)
        with self._transactions.reading() as session:
            rows = session.scalars(
                sa.select(_Row)
                .where(
                    sa.or_(to_copy, to_verify, to_give_up),
                    _Row.state.in_(_INSPECTABLE),
                    sa.or_(_Row.retry_at.is_(None), _Row.retry_at <= now),
                    sa.or_(_Row.worker.is_(None), _Row.seen_at < now - since),
                )
                .order_by(wanted_at, _Row.created_at, _Row.backup_id)
            )
            return [row.as_model() for row in rows]

    def is_copying(self, instance_id: str, since: datetime.timedelta) -> bool:
        """Tell whether somebody makes a copy of any backup of an instance just now."""
        with self._transactions.reading() as session:
            found = session.scalar(
                sa.select(sa.func.count()).where(
                    _Row.instance_id == instance_id,
                    _Row.copy_wanted_at.isnot(None),
                    _Row.worker.isnot(None),
                    _Row.seen_at >= self._transactions.clock() - since,
                    _Row.state.in_(_COMPLETE),
                )
            )
            return bool(found)

    def beat(self, backup_id: str, worker: str) -> bool:
        """Show that it is being carried on with.

        :returns: whether it may be: it is still this worker's, and nobody wants to delete it
        """
        is_not_deleted = _Row.state != str(RecordState.DELETING)
        now = self._transactions.clock()
        return self._update_own(backup_id, worker, is_not_deleted, seen_at=now)

    def release(self, backup_id: str, worker: str) -> None:
        """Let whoever asks next carry on; nothing if it is somebody else's."""
        self._update_own(backup_id, worker, worker=None)

    @retried
    def note_failure(self, backup_id: str, worker: str, **error: str) -> None:
        """Write down why something could not be done, and when it is tried again.

        :param error: ``copy_error`` or ``verify_error``; nothing if it is somebody else's meanwhile
        """
        now = self._transactions.clock()
        with self._transactions.writing() as session:
            row = session.get(_Row, backup_id)
            if row is None or row.worker != worker:
                return
            row.failures = (row.failures or 0) + 1
            row.retry_at = now + _delay(row.failures)
            row.updated_at = now
            for name, text in error.items():
                setattr(row, name, text)

    # Inside.

    @retried
    def _want(self, column: str, backup_id: str, *conditions: Any) -> None:
        now = self._transactions.clock()
        earlier = getattr(_Row, column)
        values = {column: sa.func.coalesce(earlier, now), 'failures': None, 'retry_at': None}
        with self._transactions.writing() as session:
            session.execute(
                sa.update(_Row)
                .where(_Row.backup_id == backup_id, *conditions)
                .values(**values, updated_at=now)
            )

    @retried
    def _update_own(self, backup_id: str, owner: str, *conditions: Any, **values: Any) -> bool:
        with self._transactions.writing() as session:
            done = session.connection().execute(
                sa.update(_Row)
                .where(_Row.backup_id == backup_id, _Row.worker == owner, *conditions)
                .values(**values)
            )
            return bool(done.rowcount)


def _delay(failures: int) -> datetime.timedelta:
    # No power of two beyond what a timedelta holds.
    return min(_FIRST_RETRY * 2 ** min(failures - 1, 16), _LONGEST_RETRY)
