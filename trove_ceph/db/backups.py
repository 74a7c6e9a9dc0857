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
    backup_states,
    claims,
    tables,
    work_queue,
)
from trove_ceph.db import transactions as db_transactions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.backup_states import ABSENT, Event
from trove_ceph.db.claims import Claim, Claimant
from trove_ceph.db.roles import Role
from trove_ceph.db.transactions import retried


class BackupStore(backup_rows.BackupRows):
    """What is known of backups; for several threads and processes.

    Each verb is one transaction, and raises ServiceUnavailableError when the database does not
    answer or lacks the tables.

    A worker writes under a claim. Each such verb raises ClaimLostError, and writes nothing, when
    the claim is lost or the backup is not in a state in which the worker's role may write.

    :param facade: of oslo.db's enginefacade; by default the database of Trove's configuration
    :param clock: as :class:`.transactions.Transactions` has it, with ``database_clock``
    """

    def __init__(
        self,
        facade: Any = None,
        clock: Callable[[], datetime.datetime] | None = None,
        database_clock: Callable[[], datetime.datetime] | None = None,
    ):
        super().__init__(db_transactions.Transactions(facade, clock, database_clock))
        self._clock = self._transactions.clock
        #: Which worker works on what.
        self.claims = claims.Claims(self._transactions)
        #: Copies in the vault, and what verifications found.
        self.results = backup_results.BackupResults(self._transactions)
        #: Copies and verifications that are requested.
        self.queue = work_queue.WorkQueue(self._transactions)

    # Looking.

    def find(self, backup_id: str) -> backup_record.BackupRecord | None:
        with self._transactions.reading() as session:
            row = session.get(tables.BackupRow, backup_id)
            return None if row is None else row.as_model()

    def get(self, backup_id: str) -> backup_record.BackupRecord:
        """Return a backup.

        :raises RecordNotFoundError: it is none of ours
        """
        found = self.find(backup_id)
        if found is None:
            raise exceptions.RecordNotFoundError(f'backup {backup_id}: is not recorded')
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

    def list_interrupted(self, claimant: Claimant) -> list[backup_record.BackupRecord]:
        """List the backups that are to be taken or deleted, and on which no worker works.

        One whose worker gave it back, because something failed, is among them after the expiry
        time of claims.
        """
        under_way = [str(state) for state in backup_record.UNDER_WAY]
        return self.claims.list_claimable(claimant, tables.BackupRow.state.in_(under_way))

    def list_with_remains(self, claimant: Claimant) -> list[backup_record.BackupRecord]:
        """List the backups that failed and left a snapshot behind; otherwise as the interrupted."""
        return self.claims.list_claimable(
            claimant,
            tables.BackupRow.state == str(RecordState.FAILED),
            tables.BackupRow.snapshot.isnot(None),
        )

    # Taking.

    @retried
    def begin_taking(
        self,
        backup_id: str,
        instance_id: str,
        project_id: str,
        claimant: Claimant,
        parent_id: str | None = None,
        quiesce: str | None = None,
        copy: bool = False,
        verify: bool = False,
        claim: Claim | None = None,
    ) -> Claim:
        """Begin to take a backup, or carry on with it: then what is known of it stays.

        :param parent_id: None where Trove does not say, or not any more
        :param quiesce: how the server is to be held, unlike what is configured
        :param copy: a copy of it in the vault is requested
        :param verify: its verification is requested
        :param claim: of who carries on with it; None: it is claimed now
        :returns: the claim
        :raises ClaimLostError: another worker takes it
        :raises InvalidTransitionError: it was taken, has failed or is being deleted
        """
        values: dict[str, Any] = {'instance_id': instance_id, 'project_id': project_id}
        values |= {'error': None} | ({'parent_id': parent_id} if parent_id else {})
        if quiesce is not None:
            values['quiesce_wanted'] = str(quiesce)
        with self._transactions.writing() as session:
            row = session.get(tables.BackupRow, backup_id)
            if row is None:
                self._insert(session, backup_id, Event.BEGIN, **values)
            else:
                # Of a backup that cannot be begun it is told even while another worker has it.
                backup_states.next_state(row.state, Event.BEGIN)
            claim = claim or self.claims.claim_in(session, Role.TAKE, backup_id, claimant)
            if claim is None:
                raise exceptions.ClaimLostError(f'backup {backup_id}: another worker takes it')
            if not self._move_in(session, backup_id, Event.BEGIN, *claims.held(claim), **values):
                raise backup_rows.lost(claim)
            self.queue.request_in(session, backup_id, copy=copy, verify=verify)
        return claim

    @retried
    def note_never_begun(
        self, backup_id: str, instance_id: str, project_id: str, error: str
    ) -> bool:
        """Write down why there is no backup of which nothing was recorded so far.

        :returns: whether that is so; nothing is written about one that was begun
        """
        values = {'instance_id': instance_id, 'project_id': project_id, 'error': error}
        with self._transactions.writing() as session:
            try:
                self._insert(session, backup_id, Event.FAIL, **values)
            except oslo_db.exception.DBDuplicateEntry:
                session.rollback()
                return False
        return True

    def note_place(self, claim: Claim, place: Any, volume_id: str, size_bytes: int) -> None:
        """Write down where the snapshot of a backup will be, before it is made.

        :param place: the snapshot
        """
        self._write(
            claim,
            pool=place.pool,
            image=place.image,
            snapshot=place.name,
            volume_id=volume_id,
            size_bytes=size_bytes,
            cinder_snapshot_id=None,
        )

    def note_level(
        self,
        claim: Claim,
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
        self._write(
            claim,
            quiesce=str(level),
            raised_from=None if raised_from is None else str(raised_from),
            raised_because=because,
            gtid_before=gtid_before,
            filesystem_used_bytes=filesystem_used_bytes,
        )

    def note_snapshot(self, claim: Claim, size_bytes: int, quiesced_sec: float | None) -> None:
        """Write down that a snapshot was made, and holds what it promises."""
        self._write(
            claim, size_bytes=size_bytes, quiesced_sec=quiesced_sec, snapshot_at=self._clock()
        )

    def note_checked_snapshot(
        self,
        claim: Claim,
        *,
        level: str,
        raised_from: str | None,
        because: str | None,
        gtid_before: str | None,
        size_bytes: int,
        quiesced_sec: float | None,
        age_sec: float,
        filesystem_used_bytes: int | None = None,
    ) -> None:
        """Write down that a snapshot was made, how the server was held, and that it is good.

        :param gtid_before: what it had executed before, all of which the backup must have
        :param age_sec: how long ago the snapshot was made
        :param filesystem_used_bytes: what its file system held when the settings were checked
        """
        taken_at = self._clock() - datetime.timedelta(seconds=age_sec)
        self._write(
            claim,
            quiesce=str(level),
            raised_from=None if raised_from is None else str(raised_from),
            raised_because=because,
            gtid_before=gtid_before,
            size_bytes=size_bytes,
            quiesced_sec=quiesced_sec,
            snapshot_at=taken_at.replace(microsecond=0),
            filesystem_used_bytes=filesystem_used_bytes,
        )

    def forget_snapshot(self, claim: Claim) -> None:
        """Write down that whatever snapshot there is proves nothing."""
        self._write(claim, snapshot_at=None, quiesced_sec=None)

    @retried
    def note_taken(
        self,
        claim: Claim,
        snapshot: str,
        cinder_id: str,
        take_sec: float,
        *,
        copy: bool = False,
        verify: bool = False,
    ) -> None:
        """Write down that a backup is there, release it, and request what is configured.

        :param snapshot: its name in Ceph, which is Cinder's now
        :param copy: a copy of it in the vault
        :param verify: its verification
        """
        values = {'snapshot': snapshot, 'cinder_snapshot_id': cinder_id, 'take_sec': take_sec}
        values |= claims.released()
        with self._transactions.writing() as session:
            ours = claims.held(claim)
            if not self._move_in(session, claim.resource_id, Event.COMPLETE, *ours, **values):
                raise backup_rows.lost(claim)
            self.queue.request_in(session, claim.resource_id, copy=copy, verify=verify)

    def note_failed(self, claim: Claim, error: str) -> None:
        """Write down why there is no backup, and release it."""
        self._move(claim, Event.FAIL, error=error, **claims.released())

    def forget_place(self, claim: Claim) -> None:
        """Write down that nothing is left of a backup that could not be taken."""
        self._write(claim, snapshot=None, cinder_snapshot_id=None)

    # Deleting.

    @retried
    def begin_deleting(self, backup_id: str, claimant: Claimant) -> Claim | None:
        """Begin to delete a backup: from now on nobody else begins anything with it.

        :returns: the claim; None as long as a worker takes, copies or verifies it, which must let
            go first, and where there is no such backup
        :raises ClaimLostError: another worker deletes it
        """
        with self._transactions.writing() as session:
            if not self._move_in(session, backup_id, Event.DELETE):
                return None
            claim = self.claims.claim_in(session, Role.DELETE, backup_id, claimant)
            if claim is not None:
                self._clear_error(session, claim)
                return claim
            row = session.get(tables.BackupRow, backup_id)
            if row is not None and row.claim_role is Role.DELETE:
                raise exceptions.ClaimLostError(
                    f'backup {backup_id}: is being deleted by {row.claimed_by}'
                )
        return None

    def note_not_deleted(self, backup_id: str, claim: Claim | None, error: str) -> None:
        """Write down why a backup could not be deleted, and release it; it is tried again.

        :param claim: None where a worker had not let go; its own claim stays
        """
        if claim is not None:
            self._write(claim, error=error, **claims.released())
        else:
            self._update(
                backup_id, tables.BackupRow.state == str(RecordState.DELETING), error=error
            )

    @retried
    def forget(self, claim: Claim) -> None:
        """Forget a backup that is deleted; those that build upon it are complete without it."""
        row = tables.BackupRow
        with self._transactions.writing() as session:
            state = session.scalar(sa.select(row.state).where(*claims.held(claim)))
            if state is None:
                raise backup_rows.lost(claim)
            assert backup_states.next_state(state, Event.FORGET) == ABSENT
            done = session.connection().execute(
                sa.delete(row).where(*claims.held(claim), row.state == state)
            )
            if not done.rowcount:
                raise backup_rows.lost(claim)
            session.execute(
                sa.update(row).where(row.parent_id == claim.resource_id).values(parent_id=None)
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

    def _insert(self, session: Any, backup_id: str, event: Event, **values: Any) -> None:
        """Add the row of a backup to which something happens for the first time."""
        state = str(backup_states.next_state(ABSENT, event))
        now = self._clock()
        times = {'created_at': now, 'updated_at': now}
        session.add(tables.BackupRow(backup_id=backup_id, state=state, **times, **values))
        session.flush()

    @staticmethod
    def _clear_error(session: Any, claim: Claim) -> None:
        session.execute(sa.update(tables.BackupRow).where(*claims.held(claim)).values(error=None))

    def _list(self, *conditions: Any) -> list[backup_record.BackupRecord]:
        with self._transactions.reading() as session:
            rows = session.scalars(
                sa.select(tables.BackupRow)
                .where(*conditions)
                .order_by(tables.BackupRow.created_at.desc(), tables.BackupRow.backup_id)
            )
            return [row.as_model() for row in rows]
