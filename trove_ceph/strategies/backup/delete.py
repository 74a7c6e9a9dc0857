# SPDX-License-Identifier: Apache-2.0
"""Delete a backup and its copy, and nothing else.

A backup is complete by itself: neither later backups nor instances restored from it need it.
"""

import contextlib
import datetime
from collections.abc import Iterator

from oslo_log import log as logging

from trove_ceph import exceptions, operation_events, steps
from trove_ceph.db import backup_record
from trove_ceph.db.claims import Claim
from trove_ceph.storage import image_types, tasks
from trove_ceph.strategies.backup import (
    backup_snapshot,
    claimed,
    tenant_errors,
    vault,
    volume_cleanup,
)
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)

#: Within this time a canceled copy stops at its next chunk, and a dead worker's claim expires.
_CANCEL_TIMEOUT_SEC = 60
_POLL_SEC = 0.5
#: Until the next attempt if a tier was removed: only an operator can add it again.
_TIER_PAUSE = datetime.timedelta(minutes=10)


def delete_backup(deps: BackupDependencies, backup_id: str, claim: Claim | None = None) -> None:
    """Delete a backup that we have recorded, or continue; tenants see it until all is deleted.

    A backup that another worker deletes is left to that worker.

    :param claim: of a worker that continues; None: the backup is claimed once no worker has it
    :raises TroveCephError: not everything could be deleted; the record has the reason
    """
    volume_id = deps.records.get(backup_id).volume_id
    deletion = BackupDeletion(deps, backup_id, claim)
    try:
        with operation_events.reported(
            operation_events.Operation.BACKUP_DELETE, backup_id=backup_id
        ):
            steps.run(
                f'deletion of backup {backup_id}',
                deletion.steps(),
                note=lambda *_: deletion.renew_claim(),
            )
    except exceptions.ClaimLostError as error:
        LOG.info('%s', error)
        return
    except Exception as error:
        _record_failure(deps, backup_id, deletion.claim, error)
        raise
    finally:
        deps.heartbeat.drop(deletion.claim)
    if volume_id is not None:
        volume_cleanup.reclaim_volume(deps, volume_id)
    volume_cleanup.purge_trashed(deps)


def _record_failure(
    deps: BackupDependencies, backup_id: str, claim: Claim | None, error: Exception
) -> None:
    pause = _TIER_PAUSE if isinstance(error, exceptions.MissingTierError) else None
    text = tenant_errors.tenant_message(error)
    try:
        deps.records.record_not_deleted(backup_id, claim, text, pause)
        deps.trove.fail_deletion(backup_id)
    except Exception:
        LOG.exception('Backup %s was not deleted, and the failure was not recorded', backup_id)


class BackupDeletion:
    """One backup that is being deleted."""

    def __init__(self, deps: BackupDependencies, backup_id: str, claim: Claim | None = None):
        self._deps = deps
        self._records = deps.records
        self._backup_id = backup_id
        #: None while another worker has the backup.
        self.claim: Claim | None = None
        if claim is not None:
            self._use_claim(claim)

    def steps(self) -> list[steps.Step]:
        """Return the steps; all roll forward."""
        return [
            steps.Step('begin the deletion', self._begin, commits=True),
            steps.Step('cancel the jobs on the backup', self._cancel_jobs),
            steps.Step('delete the copy in the vault', self._delete_copy),
            steps.Step('delete the snapshot', self._delete_snapshot),
            # The record comes last: without it no worker would continue the deletion.
            steps.Step(
                'mark the backup as deleted in Trove',
                lambda: self._deps.trove.delete_backup(self._backup_id),
            ),
            steps.Step('delete the record of the backup', self._delete_record),
        ]

    def renew_claim(self) -> None:
        """Renew the claim before each step.

        :raises ClaimLostError: another worker deletes the backup now
        """
        if self.claim is not None and not self._records.claims.heartbeat(self.claim):
            raise exceptions.ClaimLostError(f'the {self.claim} is lost, so the deletion stops')

    def _use_claim(self, claim: Claim) -> None:
        self.claim = claim
        self._deps.heartbeat.add(claim)
        self._deps = claimed.guarded(self._deps, claim)

    def _begin(self) -> None:
        """Let no worker begin anything with the backup, and claim it unless another has it."""
        if self.claim is None:
            claim = self._deps.heartbeat.acquire(
                lambda: self._records.begin_deleting(self._backup_id, self._deps.worker)
            )
            if claim is not None:
                self._use_claim(claim)

    def _cancel_jobs(self) -> None:
        deadline = self._deps.deadline(_CANCEL_TIMEOUT_SEC)
        while True:
            # First: a worker that has released the backup has recorded its jobs before.
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
                raise exceptions.BusyError(f'backup {self._backup_id} is still in use by {busy}')

    def _active_jobs(self, record: backup_record.BackupRecord) -> list[tasks.Job]:
        places = [place for place in (record.location, record.copy) if place]
        jobs, silent = self._deps.storage.survey_jobs()
        # A job that reads the backup, or copies it, is recorded in one of these pools.
        if unknown := sorted({place.pool for place in places}.intersection(silent)):
            raise exceptions.CephUnreachableError(
                f'backup {self._backup_id}: pool {", ".join(unknown)} does not answer, and may '
                'have jobs that use the backup'
            )
        locks = set(map(tasks.snapshot_lock, places))
        return [one for one in jobs if one.state.is_active and locks.intersection(one.work.locks)]

    def _delete_copy(self) -> None:
        record = self._records.find(self._backup_id)
        if self.claim is not None and record is not None and record.copy is not None:
            with _explained(f'the copy of backup {self._backup_id}', record.copy):
                vault.remove_copy(self._deps, self._backup_id, record.copy)
            self._records.results.clear_copy(self.claim)

    def _delete_snapshot(self) -> None:
        record = self._records.find(self._backup_id)
        if self.claim is not None and record is not None:
            with _explained(f'the snapshot of backup {self._backup_id}', record.location):
                backup_snapshot.remove(self._deps, self.claim)

    def _delete_record(self) -> None:
        if self.claim is not None:
            self._records.delete(self.claim)


@contextlib.contextmanager
def _explained(thing: str, place: image_types.SnapshotRef | None) -> Iterator[None]:
    """Say what an operator has to do if the storage service has no such pool any more.

    :raises MissingTierError: the tier was removed from the tiers file
    """
    try:
        yield
    except exceptions.InvalidRequestError as error:
        if place is None:
            raise
        raise exceptions.MissingTierError(
            f'{thing} is in pool {place.pool}, which no tier of the storage service has; add a '
            'tier with this pool to the tiers file again and restart trove-ceph-storage, then the '
            f'deletion goes on within {_TIER_PAUSE.total_seconds() / 60:.0f} minutes: {error}'
        ) from error
