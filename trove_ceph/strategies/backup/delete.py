# SPDX-License-Identifier: Apache-2.0
"""Deleting a backup, wherever it is; nothing else is touched that tenants have.

A backup is complete by itself: what was taken after it, or was made from it, does not need it.
"""

import contextlib

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.db import backup_record
from trove_ceph.db.claims import Claim
from trove_ceph.storage import tasks
from trove_ceph.strategies.backup import claimed, create, tenant_errors, vault, volume_cleanup
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)

#: A copy ends at its next piece, and the claim of a worker that has died expires.
_CANCEL_TIMEOUT_SEC = 60
_POLL_SEC = 0.5


def delete_backup(deps: BackupDependencies, backup_id: str, claim: Claim | None = None) -> None:
    """Delete a backup of ours, or carry on with it; tenants see it until all of it is gone.

    A backup that another worker deletes is left to that one.

    :param claim: of a worker that carries on; None: it is claimed as soon as nobody works on it
    :raises TroveCephError: not everything could be deleted; the reason is in its record
    """
    volume_id = deps.records.get(backup_id).volume_id
    deleting = BackupDeletion(deps, backup_id, claim)
    try:
        steps.run(
            f'deletion of backup {backup_id}',
            deleting.steps(),
            note=lambda *_: deleting.show_life(),
        )
    except exceptions.ClaimLostError as error:
        LOG.info('%s', error)
        return
    except Exception as error:
        _note(deps, backup_id, deleting.claim, error)
        raise
    finally:
        deps.heartbeat.drop(deleting.claim)
    if volume_id is not None:
        volume_cleanup.reclaim_volume(deps, volume_id)
    volume_cleanup.purge_trashed(deps)


def _note(deps: BackupDependencies, backup_id: str, claim: Claim | None, error: Exception) -> None:
    try:
        deps.records.note_not_deleted(backup_id, claim, tenant_errors.plain_reason(error))
        deps.trove.fail_deletion(backup_id)
    except Exception:
        LOG.exception('Backup %s was not deleted, which could not be written down', backup_id)


class BackupDeletion:
    """One backup that is being deleted."""

    def __init__(self, deps: BackupDependencies, backup_id: str, claim: Claim | None = None):
        self._deps = deps
        self._records = deps.records
        self._backup_id = backup_id
        #: None until nobody else works on the backup.
        self.claim: Claim | None = None
        if claim is not None:
            self._has(claim)

    def steps(self) -> list[steps.Step]:
        """Return the steps; all roll forward."""
        return [
            steps.Step('begin the deletion', self._begin, commits=True),
            steps.Step('stop what works on the backup', self._stop_jobs),
            steps.Step('delete the copy in the vault', self._delete_copy),
            steps.Step('delete the snapshot', self._delete_snapshot),
            # The record last: without it nobody would carry on.
            steps.Step(
                'show the backup no more',
                lambda: self._deps.trove.delete_backup(self._backup_id),
            ),
            steps.Step('forget the backup', self._forget),
        ]

    def show_life(self) -> None:
        """Show before each step that the backup is being deleted.

        :raises ClaimLostError: another worker deletes it now
        """
        if self.claim is not None and not self._records.claims.heartbeat(self.claim):
            raise exceptions.ClaimLostError(f'the {self.claim} is lost, so the work ends')

    def _has(self, claim: Claim) -> None:
        self.claim = claim
        self._deps.heartbeat.add(claim)
        self._deps = claimed.guarded(self._deps, claim)

    def _begin(self) -> None:
        """Have nobody begin anything with the backup, and claim it if nobody works on it."""
        if self.claim is None:
            claim = self._deps.heartbeat.acquire(
                lambda: self._records.begin_deleting(self._backup_id, self._deps.worker)
            )
            if claim is not None:
                self._has(claim)

    def _stop_jobs(self) -> None:
        deadline = self._deps.deadline(_CANCEL_TIMEOUT_SEC)
        while True:
            # First, since a worker that has let go has written down before what is to be stopped.
            self._begin()
            record = self._records.find(self._backup_id)
            if record is None:
                return
            active = self._active_jobs(record)
            if self.claim is not None and not active:
                return
            for one in active:
                with contextlib.suppress(exceptions.NotFoundError):
                    self._deps.storage.cancel(one.operation_id)
            if not deadline.pause(_POLL_SEC):
                busy = ', '.join(map(str, active)) or record.claimed_by
                raise exceptions.BusyError(
                    f'backup {self._backup_id}: is still worked on by {busy}'
                )

    def _active_jobs(self, record: backup_record.BackupRecord) -> list[tasks.Job]:
        locks = {tasks.snapshot_lock(place) for place in (record.location, record.copy) if place}
        return [
            one
            for one in self._deps.storage.list_jobs()
            if one.state.is_active and locks.intersection(one.work.locks)
        ]

    def _delete_copy(self) -> None:
        record = self._records.find(self._backup_id)
        if self.claim is not None and record is not None and record.copy is not None:
            vault.remove(self._deps, self._backup_id, record.copy)
            self._records.results.clear_copy(self.claim)

    def _delete_snapshot(self) -> None:
        if self.claim is not None:
            create.remove_snapshot(self._deps, self.claim)

    def _forget(self) -> None:
        if self.claim is not None:
            self._records.delete(self.claim)
