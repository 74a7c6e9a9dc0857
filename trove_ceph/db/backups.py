# SPDX-License-Identifier: Apache-2.0
"""The store of backup records: the verbs that take, delete and list backups."""

import datetime
from collections.abc import Callable
from typing import Any

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
from trove_ceph.db.backup_states import Event
from trove_ceph.db.claims import Claim, Claimant
from trove_ceph.db.roles import Role
from trove_ceph.db.state_machine import ABSENT
from trove_ceph.db.transactions import insert, retry_on_deadlock


class BackupStore(backup_rows.BackupRows):
    """The records of backups; safe for use by several threads and processes.

    Each verb is one transaction. It raises ServiceUnavailableError when the database does not
    answer or lacks the tables.

    A worker writes under a claim. Such a verb raises ClaimLostError, and writes nothing, when the
    claim is lost or the worker's role may not write in the present state of the backup.

    :param facade: an enginefacade of oslo.db; by default the database of Trove's configuration
    :param clock: see :class:`.transactions.Transactions`
    :param database_clock: see :class:`.transactions.Transactions`
    """

    def __init__(
        self,
        facade: Any = None,
        clock: Callable[[], datetime.datetime] | None = None,
        database_clock: Callable[[], datetime.datetime] | None = None,
    ):
        super().__init__(db_transactions.Transactions(facade, clock, database_clock))
        self._clock = self._transactions.clock
        #: The claims of workers on backups and policy runs.
        self.claims = claims.Claims(self._transactions)
        #: The results of copies and verifications.
        self.results = backup_results.BackupResults(self._transactions)
        #: Requested copies and verifications.
        self.queue = work_queue.WorkQueue(self._transactions)

    # Queries.

    def find(self, backup_id: str) -> backup_record.BackupRecord | None:
        with self._transactions.reading() as session:
            row = session.get(tables.BackupRow, backup_id)
            return None if row is None else row.as_model()

    def get(self, backup_id: str) -> backup_record.BackupRecord:
        """Return a backup.

        :raises RecordNotFoundError: the backup has no record
        """
        found = self.find(backup_id)
        if found is None:
            raise exceptions.RecordNotFoundError(f'backup {backup_id} has no record')
        return found

    def all(self) -> list[backup_record.BackupRecord]:
        """Return all backups, the latest first."""
        return self._list()

    def of_instance(self, instance_id: str) -> list[backup_record.BackupRecord]:
        """Return the backups of an instance, the latest first."""
        return self._list(tables.BackupRow.instance_id == instance_id)

    def of_project(self, project_id: str) -> list[backup_record.BackupRecord]:
        """Return the backups of a project, the latest first."""
        return self._list(tables.BackupRow.project_id == project_id)

    def of_volume(self, volume_id: str) -> list[backup_record.BackupRecord]:
        """Return the backups of a volume, the latest first."""
        return self._list(tables.BackupRow.volume_id == volume_id)

    def with_snapshot(self, cinder_snapshot_id: str) -> list[backup_record.BackupRecord]:
        """Return the backup that has, or had, a snapshot of Cinder: one at most."""
        return self._list(tables.BackupRow.cinder_snapshot_id == cinder_snapshot_id)

    def in_vault(self, pool: str, image: str) -> list[backup_record.BackupRecord]:
        """Return the backups with a copy in one image of a vault, the latest first."""
        return self._list(
            tables.BackupRow.vault_pool == pool, tables.BackupRow.vault_image == image
        )

    def list_interrupted(self, claimant: Claimant) -> list[backup_record.BackupRecord]:
        """Return the backups whose creation or deletion has no worker.

        A backup that its worker released after a failure is included once claims have expired, and
        the pause that the worker has recorded is over.
        """
        under_way = [str(state) for state in backup_record.UNDER_WAY]
        return self.claims.list_claimable(claimant, tables.BackupRow.state.in_(under_way))

    def list_failed_with_snapshot(self, claimant: Claimant) -> list[backup_record.BackupRecord]:
        """Return the failed backups without a worker that have left a snapshot behind."""
        return self.claims.list_claimable(
            claimant,
            tables.BackupRow.state == str(RecordState.FAILED),
            tables.BackupRow.snapshot.isnot(None),
        )

    # Creation.

    @retry_on_deadlock
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
        """Begin to take a backup, or continue; then recorded values stay.

        :param parent_id: None: Trove gives none, or the parent is deleted
        :param quiesce: the level to use in place of the configured one
        :param copy: whether a copy in the vault is requested
        :param verify: whether a verification is requested
        :param claim: the claim of the worker that continues; None: claim the backup now
        :returns: the claim
        :raises ClaimLostError: another worker takes the backup
        :raises InvalidTransitionError: the backup is taken, failed or being deleted
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
                # Report an invalid state even while another worker has the claim.
                backup_states.next_state(row.state, Event.BEGIN)
            claim = claim or self.claims.claim_in(session, Role.TAKE, backup_id, claimant)
            if claim is None:
                raise exceptions.ClaimLostError(f'backup {backup_id}: another worker is taking it')
            if not self._move_in(
                session, backup_id, Event.BEGIN, *claims.write_conditions(claim), **values
            ):
                raise backup_rows.claim_lost(claim)
            self.queue.request_in(session, backup_id, copy=copy, verify=verify)
        return claim

    @retry_on_deadlock
    def record_never_begun(
        self, backup_id: str, instance_id: str, project_id: str, error: str
    ) -> bool:
        """Record a backup as failed that was requested and never begun.

        :param error: the reason
        :returns: False: the backup has a record; nothing is written
        """
        values = {'instance_id': instance_id, 'project_id': project_id, 'error': error}
        with self._transactions.writing() as session:
            if session.get(tables.BackupRow, backup_id) is not None:
                return False
            self._insert(session, backup_id, Event.FAIL, **values)
        return True

    def record_location(self, claim: Claim, location: Any, volume_id: str, size_bytes: int) -> None:
        """Record where the snapshot of a backup will be, before it is created.

        :param location: the snapshot
        """
        self._write(
            claim,
            pool=location.pool,
            image=location.image,
            snapshot=location.name,
            volume_id=volume_id,
            size_bytes=size_bytes,
            cinder_snapshot_id=None,
        )

    @retry_on_deadlock
    def record_checked_snapshot(
        self,
        claim: Claim,
        *,
        level: str,
        raised_from: str | None,
        because: str | None,
        gtid_before: str | None,
        size_bytes: int,
        quiesced_sec: float | None,
        snapshot_sec: float,
        age_sec: float,
        filesystem_used_bytes: int | None = None,
    ) -> None:
        """Record that the snapshot was created and is proved to be consistent.

        :param level: the quiesce level that was used
        :param raised_from: the lower level that the settings made unsafe; None: it was not raised
        :param because: the unsafe settings
        :param gtid_before: gtid_executed of the server before the snapshot
        :param size_bytes: size of the volume
        :param quiesced_sec: how long the server was quiesced; None: it was not
        :param snapshot_sec: from the start of taking the backup to the end of the snapshot's
            creation
        :param age_sec: seconds since the snapshot was created
        :param filesystem_used_bytes: used bytes of the file system when the settings were checked
        """
        values = {
            'quiesce': str(level),
            'raised_from': None if raised_from is None else str(raised_from),
            'raised_because': because,
            'gtid_before': gtid_before,
            'size_bytes': size_bytes,
            'quiesced_sec': quiesced_sec,
            'snapshot_sec': snapshot_sec,
            'filesystem_used_bytes': filesystem_used_bytes,
        }
        with self._transactions.writing() as session:
            # The age of the last backup, and the order of copies, compare it with times of others.
            now = self._transactions.database_time(session)
            taken_at = (now - datetime.timedelta(seconds=age_sec)).replace(microsecond=0)
            ours = claims.write_conditions(claim)
            if not self._update_in(
                session, claim.resource_id, *ours, snapshot_at=taken_at, **values
            ):
                raise backup_rows.claim_lost(claim)

    def invalidate_snapshot(self, claim: Claim) -> None:
        """Record that a snapshot, if one exists, is not proved to be consistent."""
        self._write(claim, snapshot_at=None, snapshot_sec=None, quiesced_sec=None)

    @retry_on_deadlock
    def record_taken(
        self,
        claim: Claim,
        snapshot: str,
        cinder_id: str,
        take_sec: float,
        *,
        copy: bool = False,
        verify: bool = False,
    ) -> None:
        """Record that a backup is complete, release it, and request what is configured.

        :param snapshot: the name that Cinder gave the snapshot in Ceph
        :param copy: whether to request a copy in the vault
        :param verify: whether to request a verification
        """
        values = {'snapshot': snapshot, 'cinder_snapshot_id': cinder_id, 'take_sec': take_sec}
        values |= claims.cleared_claim()
        with self._transactions.writing() as session:
            ours = claims.write_conditions(claim)
            if not self._move_in(session, claim.resource_id, Event.COMPLETE, *ours, **values):
                raise backup_rows.claim_lost(claim)
            self.queue.request_in(session, claim.resource_id, copy=copy, verify=verify)

    def record_failed(self, claim: Claim, error: str) -> None:
        """Record that a backup failed, with the reason, and release it."""
        self._move(claim, Event.FAIL, error=error, **claims.cleared_claim())

    def clear_location(self, claim: Claim) -> None:
        """Record that a failed backup has no snapshot any more."""
        self._write(claim, snapshot=None, cinder_snapshot_id=None)

    # Deletion.

    @retry_on_deadlock
    def begin_deleting(self, backup_id: str, claimant: Claimant) -> Claim | None:
        """Begin to delete a backup; no other operation on it can begin from now on.

        :returns: the claim; None: a worker still takes, copies or verifies the backup and must
            release it first, or the backup does not exist
        :raises ClaimLostError: another worker deletes the backup
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
                    f'backup {backup_id} is being deleted by {row.claimed_by}'
                )
        return None

    def record_not_deleted(
        self,
        backup_id: str,
        claim: Claim | None,
        error: str,
        pause: datetime.timedelta | None = None,
    ) -> None:
        """Record why the deletion of a backup failed, and release it for the next attempt.

        :param claim: None: another worker has not released the backup; its claim stays
        :param pause: until the next attempt, 10 minutes at most; None: it is due once claims expire
        """
        if claim is not None:
            retry_at = None if pause is None else self._transactions.read_database_time() + pause
            self._write(claim, error=error, delete_retry_at=retry_at, **claims.cleared_claim())
        else:
            self._update(
                backup_id, tables.BackupRow.state == str(RecordState.DELETING), error=error
            )

    @retry_on_deadlock
    def delete(self, claim: Claim) -> None:
        """Delete the record of a deleted backup, and the references of its children to it."""
        row = tables.BackupRow
        with self._transactions.writing() as session:
            state = session.scalar(sa.select(row.state).where(*claims.write_conditions(claim)))
            if state is None:
                raise backup_rows.claim_lost(claim)
            assert backup_states.next_state(state, Event.FINISH_DELETION) == ABSENT
            done = session.connection().execute(
                sa.delete(row).where(*claims.write_conditions(claim), row.state == state)
            )
            if not done.rowcount:
                raise backup_rows.claim_lost(claim)
            session.execute(
                sa.update(row).where(row.parent_id == claim.resource_id).values(parent_id=None)
            )

    # Volumes and images that outlive their instance.

    @retry_on_deadlock
    def keep_volume(self, volume_id: str, instance_id: str, project_id: str) -> None:
        """Record a volume that outlives its instance; idempotent."""
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

    @retry_on_deadlock
    def delete_kept_volume(self, volume_id: str) -> None:
        with self._transactions.writing() as session:
            row = tables.KeptVolumeRow
            session.execute(sa.delete(row).where(row.volume_id == volume_id))

    @retry_on_deadlock
    def record_trashed(self, pool: str, image_id: str, name: str) -> None:
        """Record an image that is about to be moved to the trash; idempotent."""
        with self._transactions.writing() as session:
            session.merge(
                tables.TrashedImageRow(
                    pool=pool,
                    image_id=image_id,
                    name=name,
                    created_at=self._transactions.database_time(session),
                )
            )

    def trashed_images(self) -> list[backup_record.TrashedImage]:
        with self._transactions.reading() as session:
            return [
                backup_record.TrashedImage(row.pool, row.image_id, row.name, row.created_at)
                for row in session.scalars(sa.select(tables.TrashedImageRow))
            ]

    @retry_on_deadlock
    def delete_trashed_image(self, pool: str, image_id: str) -> None:
        with self._transactions.writing() as session:
            row = tables.TrashedImageRow
            session.execute(sa.delete(row).where(row.pool == pool, row.image_id == image_id))

    # Internals.

    def _insert(self, session: Any, backup_id: str, event: Event, **values: Any) -> None:
        """Add the row of a backup at its first event."""
        state = str(backup_states.next_state(ABSENT, event))
        now = self._clock()
        times = {'created_at': now, 'updated_at': now}
        insert(session, tables.BackupRow(backup_id=backup_id, state=state, **times, **values))

    @staticmethod
    def _clear_error(session: Any, claim: Claim) -> None:
        session.execute(
            sa.update(tables.BackupRow)
            .where(*claims.write_conditions(claim))
            .values(error=None, delete_retry_at=None)
        )

    def _list(self, *conditions: Any) -> list[backup_record.BackupRecord]:
        with self._transactions.reading() as session:
            rows = session.scalars(
                sa.select(tables.BackupRow)
                .where(*conditions)
                .order_by(tables.BackupRow.created_at.desc(), tables.BackupRow.backup_id)
            )
            return [row.as_model() for row in rows]
