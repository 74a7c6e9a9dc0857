# SPDX-License-Identifier: Apache-2.0
"""Deleting a backup, wherever it is; nothing else is touched that tenants have.

A backup is complete by itself: what was taken after it, or was made from it, does not need it.
"""

import contextlib
import datetime

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.db import backup_record
from trove_ceph.storage import tasks
from trove_ceph.strategies.backup import create, tenant_errors, vault, volume_cleanup
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)

#: A copy ends at its next piece.
_CANCEL_TIMEOUT_SEC = 60
_POLL_SEC = 0.5
#: After which a worker that was to be seen every few seconds has died.
_SILENCE = datetime.timedelta(seconds=60)
#: The same of one that was to be seen at each step of taking a backup, none of which takes longer.
_TAKER_SILENCE = datetime.timedelta(minutes=15)


def delete_backup(deps: BackupDependencies, backup_id: str) -> None:
    """Delete a backup of ours, or carry on with it; tenants see it until all of it is gone.

    :raises TroveCephError: not everything could be deleted; the reason is in its record
    """
    volume_id = deps.records.get(backup_id).volume_id
    try:
        steps.run(
            f'deletion of backup {backup_id}',
            BackupDeletion(deps, backup_id).steps(),
            note=lambda *_: deps.records.beat(
                backup_id, deps.worker, backup_record.RecordState.DELETING
            ),
        )
    except Exception as error:
        _note(deps, backup_id, error)
        raise
    if volume_id is not None:
        volume_cleanup.reclaim_volume(deps, volume_id)
    volume_cleanup.purge_trashed(deps)


def _note(deps: BackupDependencies, backup_id: str, error: Exception) -> None:
    try:
        deps.records.note_not_deleted(backup_id, tenant_errors.plain_reason(error))
        deps.trove.fail_deletion(backup_id)
    except Exception:
        LOG.exception('Backup %s was not deleted, which could not be written down', backup_id)


class BackupDeletion:
    """One backup that is being deleted."""

    def __init__(self, deps: BackupDependencies, backup_id: str):
        self._deps = deps
        self._records = deps.records
        self._backup_id = backup_id

    def steps(self) -> list[steps.Step]:
        """Return the steps; all roll forward."""
        return [
            steps.Step('begin the deletion', self._begin, commits=True),
            steps.Step('stop what works on the backup', self._stop_jobs),
            steps.Step('delete the copy in the vault', self._delete_copy),
            steps.Step(
                'delete the snapshot',
                lambda: create.remove_snapshot(self._deps, self._backup_id),
            ),
            # The record last: without it nobody would carry on.
            steps.Step(
                'show the backup no more',
                lambda: self._deps.trove.delete_backup(self._backup_id),
            ),
            steps.Step('forget the backup', lambda: self._records.forget(self._backup_id)),
        ]

    def _begin(self) -> None:
        self._is_left_alone()

    def _is_left_alone(self) -> bool:
        """Have nobody begin anything with it; tell whether nobody who has is still at it."""
        return self._records.begin_deleting(
            self._backup_id, self._deps.worker, _SILENCE, _TAKER_SILENCE
        )

    def _stop_jobs(self) -> None:
        deadline = self._deps.deadline(_CANCEL_TIMEOUT_SEC)
        while True:
            # First, since whoever has let go has written down before what is to be stopped.
            is_free = self._is_left_alone()
            record = self._records.find(self._backup_id)
            if record is None:
                return
            active = self._active_jobs(record)
            if is_free and not active:
                return
            for one in active:
                with contextlib.suppress(exceptions.NotFoundError):
                    self._deps.storage.cancel(one.operation_id)
            if not deadline.pause(_POLL_SEC):
                busy = ', '.join(map(str, active)) or record.worker
                raise exceptions.BusyError(
                    f'backup {self._backup_id}: is still worked on by {busy}'
                )

    def _active_jobs(self, record: backup_record.BackupRecord) -> list[tasks.Job]:
        locks = {tasks.snapshot_lock(place) for place in (record.place, record.copy) if place}
        return [
            one
            for one in self._deps.storage.list_jobs()
            if one.state.is_active and locks.intersection(one.work.locks)
        ]

    def _delete_copy(self) -> None:
        record = self._records.find(self._backup_id)
        if record is not None and record.copy is not None:
            vault.remove(self._deps, self._backup_id, record.copy)
            self._records.copies.forget_copy(self._backup_id)
