# SPDX-License-Identifier: Apache-2.0
"""Reading and writing the tables, in verbs of what they are about."""

import datetime
from collections.abc import Callable
from typing import Any

import oslo_db.exception
import sqlalchemy as sa

from trove_ceph import exceptions
from trove_ceph.db import (
    backup_record,
    backup_results,
    backup_rows,
    tables,
    transactions,
    work_queue,
)
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.transactions import retried

#: Of those who take backups, which those who delete them are not.
TAKER_SUFFIX = ':taking'


def taker(process: str) -> str:
    """Return who takes backups in a process."""
    return f'{process}{TAKER_SUFFIX}'


class BackupStore(backup_rows.BackupRows):
    """What is known of backups; for several threads and processes.

    Each verb is one transaction, and raises ServiceUnavailableError when the database does not
    answer or lacks the tables.

    :param facade: of oslo.db's enginefacade; by default the database of Trove's configuration
    """

    def __init__(
        self, facade: Any = None, clock: Callable[[], datetime.datetime] = transactions.utcnow
    ):
        super().__init__(transactions.Transactions(facade, clock))
        self._clock = clock
        #: Copies in the vault, and what verifications found.
        self.copies = backup_results.BackupResults(self._transactions)
        #: Copies and verifications that are wanted.
        self.wishes = work_queue.WorkQueue(self._transactions)

    # Looking.

    def find(self, backup_id: str) -> backup_record.BackupRecord | None:
        with self._transactions.reading() as session:
            row = session.get(tables.BackupRow, backup_id)
            return None if row is None else row.as_model()

    def get(self, backup_id: str) -> backup_record.BackupRecord:
        """Return a backup.

        :raises NotFoundError: it is none of ours
        """
        found = self.find(backup_id)
        if found is None:
            raise exceptions.NotFoundError(f'backup {backup_id}: is not recorded')
        return found

    def all(self) -> list[backup_record.BackupRecord]:
        """List all backups, the latest first."""
        return self._list()

    def of_instance(self, instance_id: str) -> list[backup_record.BackupRecord]:
        """List the backups of an instance, the latest first."""
        return self._list(tables.BackupRow.instance_id == instance_id)

    def of_project(self, project_id: str) -> list[backup_record.BackupRecord]:
        """List the backups of a project, the latest first."""
        return self._list(tables.BackupRow.project_id == project_id)

    def of_volume(self, volume_id: str) -> list[backup_record.BackupRecord]:
        """List the backups of a volume, the latest first."""
        return self._list(tables.BackupRow.volume_id == volume_id)

    def with_snapshot(self, cinder_snapshot_id: str) -> list[backup_record.BackupRecord]:
        """List the backups that a snapshot of Cinder's is, or was: one at most."""
        return self._list(tables.BackupRow.cinder_snapshot_id == cinder_snapshot_id)

    def in_vault(self, pool: str, image: str) -> list[backup_record.BackupRecord]:
        """List the backups with a copy in one image of a vault, the latest first."""
        return self._list(
            tables.BackupRow.vault_pool == pool, tables.BackupRow.vault_image == image
        )

    def interrupted(self, since: datetime.timedelta) -> list[backup_record.BackupRecord]:
        """List what nobody has carried on with for so long."""
        return self._list(
            tables.BackupRow.state.in_([str(state) for state in backup_record.UNDER_WAY]),
            tables.BackupRow.seen_at < self._clock() - since,
        )

    def with_remains(self) -> list[backup_record.BackupRecord]:
        """List what could not be taken, and could not be undone at once."""
        return self._list(
            tables.BackupRow.state == str(RecordState.FAILED), tables.BackupRow.snapshot.isnot(None)
        )

    # Working.

    @retried
    def claim(
        self,
        backup_id: str,
        worker: str,
        since: datetime.timedelta,
        state: RecordState | None = None,
    ) -> bool:
        """Take over a backup that nobody has carried on with for so long.

        :param state: in which it was found, and has to be still
        :returns: whether it is ours; of several that try, of one alone
        """
        now = self._clock()
        is_as_found = sa.true() if state is None else tables.BackupRow.state == str(state)
        with self._transactions.writing() as session:
            done = session.connection().execute(
                sa.update(tables.BackupRow)
                .where(
                    tables.BackupRow.backup_id == backup_id,
                    is_as_found,
                    sa.or_(
                        tables.BackupRow.worker.is_(None), tables.BackupRow.seen_at < now - since
                    ),
                )
                .values(worker=worker, seen_at=now)
            )
            return bool(done.rowcount)

    def beat(self, backup_id: str, worker: str, state: RecordState) -> bool:
        """Show that it is being carried on with.

        :returns: whether it may be: it is still this worker's, and in this state
        """
        row = tables.BackupRow
        is_ours = row.worker == worker, row.state == str(state)
        return self._update(backup_id, *is_ours, seen_at=self._clock())

    def release(self, backup_id: str, worker: str) -> None:
        """Let whoever asks next carry on; nothing if it is somebody else's."""
        self._update(backup_id, tables.BackupRow.worker == worker, worker=None)

    # Taking.

    @retried
    def begin_taking(
        self,
        backup_id: str,
        instance_id: str,
        project_id: str,
        worker: str,
        parent_id: str | None = None,
        quiesce: str | None = None,
        copy: bool = False,
        verify: bool = False,
    ) -> None:
        """Begin to take a backup, or carry on with it: then what is known of it stays.

        :param parent_id: None where Trove does not say, or not any more
        :param quiesce: how the server is to be held, unlike what is configured
        :param copy: a copy of it in the vault is wanted
        :param verify: its verification is wanted
        """
        now = self._clock()
        with self._transactions.writing() as session:
            row = session.get(tables.BackupRow, backup_id)
            if row is None:
                row = tables.BackupRow(backup_id=backup_id, created_at=now)
                session.add(row)
            values = {'instance_id': instance_id, 'project_id': project_id, 'worker': worker}
            times = {'seen_at': now, 'updated_at': now}
            known = {'parent_id': parent_id} if parent_id else {}
            if quiesce is not None:
                known['quiesce_wanted'] = str(quiesce)
            row.set(values | times | known | {'state': str(RecordState.TAKING), 'error': None})
            row.want(now, copy=copy, verify=verify)

    @retried
    def note_never_begun(
        self, backup_id: str, instance_id: str, project_id: str, error: str
    ) -> bool:
        """Write down why there is no backup of which nothing was recorded so far.

        :returns: whether that is so; nothing is written about one that was begun
        """
        now = self._clock()
        with self._transactions.writing() as session:
            session.add(
                tables.BackupRow(
                    backup_id=backup_id,
                    instance_id=instance_id,
                    project_id=project_id,
                    state=str(RecordState.FAILED),
                    error=error,
                    created_at=now,
                    updated_at=now,
                )
            )
            try:
                session.flush()
            except oslo_db.exception.DBDuplicateEntry:
                session.rollback()
                return False
        return True

    def note_place(self, backup_id: str, place: Any, volume_id: str, size_bytes: int) -> None:
        """Write down where its snapshot will be, before it is made.

        :param place: the snapshot
        """
        self._update(
            backup_id,
            pool=place.pool,
            image=place.image,
            snapshot=place.name,
            volume_id=volume_id,
            size_bytes=size_bytes,
            cinder_snapshot_id=None,
        )

    def note_level(
        self,
        backup_id: str,
        level: str,
        raised_from: str | None,
        because: str | None,
        gtid_before: str | None = None,
        filesystem_used_bytes: int | None = None,
    ) -> None:
        """Write down how the server is held while the snapshot is made.

        :param gtid_before: what it has executed now, all of which the backup must have
        :param filesystem_used_bytes: what its file system holds now
        """
        self._update(
            backup_id,
            quiesce=str(level),
            raised_from=None if raised_from is None else str(raised_from),
            raised_because=because,
            gtid_before=gtid_before,
            filesystem_used_bytes=filesystem_used_bytes,
        )

    def note_snapshot(self, backup_id: str, size_bytes: int, quiesced_sec: float | None) -> None:
        """Write down that a snapshot was made, and held what it promises."""
        self._update(
            backup_id,
            size_bytes=size_bytes,
            quiesced_sec=quiesced_sec,
            snapshot_at=self._clock(),
        )

    def note_checked_snapshot(
        self,
        backup_id: str,
        worker: str,
        *,
        level: str,
        raised_from: str | None,
        because: str | None,
        gtid_before: str | None,
        size_bytes: int,
        quiesced_sec: float | None,
        age_sec: float,
        filesystem_used_bytes: int | None = None,
    ) -> bool:
        """Write down that a snapshot was made, how the server was held, and that it is good.

        :param gtid_before: what it had executed before, all of which the backup must have
        :param age_sec: how long ago the snapshot was made
        :param filesystem_used_bytes: what its file system held when the settings were checked
        :returns: whether it is this worker who takes the backup; otherwise nothing is written down
        """
        row, now = tables.BackupRow, self._clock()
        is_ours = row.worker == worker, row.state == str(RecordState.TAKING)
        return self._update(
            backup_id,
            *is_ours,
            quiesce=str(level),
            raised_from=None if raised_from is None else str(raised_from),
            raised_because=because,
            gtid_before=gtid_before,
            size_bytes=size_bytes,
            quiesced_sec=quiesced_sec,
            snapshot_at=(now - datetime.timedelta(seconds=age_sec)).replace(microsecond=0),
            seen_at=now,
            filesystem_used_bytes=filesystem_used_bytes,
        )

    def forget_snapshot(self, backup_id: str) -> None:
        """Write down that whatever snapshot there is proves nothing."""
        self._update(backup_id, snapshot_at=None, quiesced_sec=None)

    @retried
    def note_taken(
        self,
        backup_id: str,
        snapshot: str,
        cinder_id: str,
        take_sec: float,
        *,
        copy: bool = False,
        verify: bool = False,
    ) -> None:
        """Write down that a backup is there, which nobody works on, and what is wanted of it now.

        Nothing of one that is not being taken, such as since its deletion has begun.

        :param snapshot: its name in Ceph, which is Cinder's now
        :param copy: a copy of it in the vault
        :param verify: its verification
        """
        now = self._clock()
        values = {'snapshot': snapshot, 'cinder_snapshot_id': cinder_id, 'take_sec': take_sec}
        with self._transactions.writing() as session:
            row = session.get(tables.BackupRow, backup_id)
            if row is None or row.state != RecordState.TAKING:
                return
            row.set(values | {'state': str(RecordState.TAKEN), 'worker': None, 'updated_at': now})
            row.want(now, copy=copy, verify=verify)

    def note_failed(self, backup_id: str, worker: str, error: str) -> bool:
        """Write down why there is no backup.

        :returns: whether it was this worker who took it; otherwise nothing is written down
        """
        row = tables.BackupRow
        is_ours = row.worker == worker, row.state == str(RecordState.TAKING)
        return self._update(
            backup_id, *is_ours, state=str(RecordState.FAILED), error=error, worker=None
        )

    def forget_place(self, backup_id: str) -> None:
        """Write down that nothing is left of one that could not be taken."""
        self._update(backup_id, snapshot=None, cinder_snapshot_id=None)

    # Deleting.

    @retried
    def begin_deleting(
        self,
        backup_id: str,
        worker: str,
        since: datetime.timedelta,
        since_taking: datetime.timedelta,
    ) -> bool:
        """Begin to delete a backup, or carry on with it: nobody begins anything with it any more.

        :param since: whoever copies or verifies it, and was not seen for so long, does so no more
        :param since_taking: whoever takes it, likewise
        :returns: whether nobody does; otherwise it is to be asked for again, until they let go
        """
        row, now = tables.BackupRow, self._clock()
        this = sa.update(row).where(row.backup_id == backup_id)
        is_taken = row.worker.endswith(TAKER_SUFFIX)
        is_free = sa.or_(
            row.worker.is_(None),
            sa.not_(sa.or_(is_taken, row.worker.endswith(work_queue.WORKER_SUFFIX))),
            row.seen_at <= sa.case((is_taken, now - since_taking), else_=now - since),
        )
        with self._transactions.writing() as session:
            session.execute(
                this.values(state=str(RecordState.DELETING), error=None, updated_at=now)
            )
            done = session.connection().execute(
                this.where(is_free).values(worker=worker, seen_at=now)
            )
            return bool(done.rowcount)

    def note_not_deleted(self, backup_id: str, error: str) -> None:
        """Write down why it could not be deleted; it is tried again.

        Whoever takes, copies or verifies it still has to let go by himself.
        """
        worker = tables.BackupRow.worker
        others = sa.or_(worker.endswith(TAKER_SUFFIX), worker.endswith(work_queue.WORKER_SUFFIX))
        left = sa.case((others, worker), else_=None)
        self._update(backup_id, error=error, worker=left)

    @retried
    def forget(self, backup_id: str) -> None:
        """Forget a backup; those that build upon it are complete without it."""
        with self._transactions.writing() as session:
            session.execute(
                sa.update(tables.BackupRow)
                .where(tables.BackupRow.parent_id == backup_id)
                .values(parent_id=None)
            )
            session.execute(
                sa.delete(tables.BackupRow).where(tables.BackupRow.backup_id == backup_id)
            )

    # What is left of instances.

    @retried
    def keep_volume(self, volume_id: str, instance_id: str, project_id: str) -> None:
        """Remember a volume until it is gone; harmless when repeated."""
        with self._transactions.writing() as session:
            session.merge(
                tables.KeptVolumeRow(
                    volume_id=volume_id,
                    instance_id=instance_id,
                    project_id=project_id,
                    created_at=self._clock(),
                )
            )

    def kept_volumes(self) -> list[backup_record.KeptVolume]:
        with self._transactions.reading() as session:
            return [
                backup_record.KeptVolume(
                    row.volume_id, row.instance_id, row.project_id, row.created_at
                )
                for row in session.scalars(sa.select(tables.KeptVolumeRow))
            ]

    def find_kept_volume(self, volume_id: str) -> backup_record.KeptVolume | None:
        return next((one for one in self.kept_volumes() if one.volume_id == volume_id), None)

    @retried
    def forget_volume(self, volume_id: str) -> None:
        with self._transactions.writing() as session:
            row = tables.KeptVolumeRow
            session.execute(sa.delete(row).where(row.volume_id == volume_id))

    @retried
    def note_trashed(self, pool: str, image_id: str, name: str) -> None:
        """Remember an image that is about to be moved to the trash; harmless when repeated."""
        with self._transactions.writing() as session:
            session.merge(
                tables.TrashedImageRow(
                    pool=pool, image_id=image_id, name=name, created_at=self._clock()
                )
            )

    def trashed_images(self) -> list[backup_record.TrashedImage]:
        with self._transactions.reading() as session:
            return [
                backup_record.TrashedImage(row.pool, row.image_id, row.name, row.created_at)
                for row in session.scalars(sa.select(tables.TrashedImageRow))
            ]

    @retried
    def forget_trashed(self, pool: str, image_id: str) -> None:
        with self._transactions.writing() as session:
            row = tables.TrashedImageRow
            session.execute(sa.delete(row).where(row.pool == pool, row.image_id == image_id))

    # Inside.

    def _list(self, *conditions: Any) -> list[backup_record.BackupRecord]:
        with self._transactions.reading() as session:
            rows = session.scalars(
                sa.select(tables.BackupRow)
                .where(*conditions)
                .order_by(tables.BackupRow.created_at.desc(), tables.BackupRow.backup_id)
            )
            return [row.as_model() for row in rows]
