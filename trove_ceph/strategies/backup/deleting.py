# SPDX-License-Identifier: Apache-2.0
"""Deleting a backup, wherever it is; nothing else is touched that tenants have.

A backup is complete by itself: what was taken after it, or was made from it, does not need it.
"""

import contextlib
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.db import model
from trove_ceph.db.claims import Claim
from trove_ceph.storage import job
from trove_ceph.strategies.backup import claimed, reasons, reclaiming, taking, vault
from trove_ceph.strategies.backup.tools import Tools

LOG = logging.getLogger(__name__)

#: A copy ends at its next piece, and the claim of a worker that has died expires.
_CANCEL_TIMEOUT_SEC = 60
_POLL_SEC = 0.5


def delete(tools: Tools, backup_id: str, claim: Claim | None = None) -> None:
    """Delete a backup of ours, or carry on with it; tenants see it until all of it is gone.

    A backup that another worker deletes is left to that one.

    :param claim: of a worker that carries on; None: it is claimed as soon as nobody works on it
    :raises TroveCephError: not everything could be deleted; the reason is in its record
    """
    volume_id = tools.records.get(backup_id).volume_id
    deleting = Deleting(tools, backup_id, claim)
    try:
        steps.run(
            f'deletion of backup {backup_id}',
            deleting.steps(),
            None,
            note=lambda *_: deleting.show_life(),
        )
    except exceptions.ClaimLostError as error:
        LOG.info('%s', error)
        return
    except Exception as error:
        _note(tools, backup_id, deleting.claim, error)
        raise
    finally:
        tools.heartbeat.drop(deleting.claim)
    if volume_id is not None:
        reclaiming.reclaim_volume(tools, volume_id)
    reclaiming.purge_trashed(tools)


def _note(tools: Tools, backup_id: str, claim: Claim | None, error: Exception) -> None:
    try:
        tools.records.note_not_deleted(backup_id, claim, reasons.plain(error))
        tools.trove.fail_deletion(backup_id)
    except Exception:
        LOG.exception('Backup %s was not deleted, which could not be written down', backup_id)


class Deleting:
    """One backup that is being deleted."""

    def __init__(self, tools: Tools, backup_id: str, claim: Claim | None = None):
        self._tools = tools
        self._records = tools.records
        self._backup_id = backup_id
        #: None until nobody else works on the backup.
        self.claim: Claim | None = None
        if claim is not None:
            self._has(claim)

    def steps(self) -> list[steps.Step[Any]]:
        """Return the steps, which take no notice of their context; all roll forward."""
        return [
            steps.Step('begin the deletion', lambda _: self._begin(), commits=True),
            steps.Step('stop what works on the backup', lambda _: self._stop_jobs()),
            steps.Step('delete the copy in the vault', lambda _: self._delete_copy()),
            steps.Step('delete the snapshot', lambda _: self._delete_snapshot()),
            # The record last: without it nobody would carry on.
            steps.Step(
                'show the backup no more',
                lambda _: self._tools.trove.delete_backup(self._backup_id),
            ),
            steps.Step('forget the backup', lambda _: self._forget()),
        ]

    def show_life(self) -> None:
        """Show before each step that the backup is being deleted.

        :raises ClaimLostError: another worker deletes it now
        """
        if self.claim is not None and not self._records.claims.heartbeat(self.claim):
            raise exceptions.ClaimLostError(f'the {self.claim} is lost, so the work ends')

    def _has(self, claim: Claim) -> None:
        self.claim = claim
        self._tools.heartbeat.add(claim)
        self._tools = claimed.guarded(self._tools, claim)

    def _begin(self) -> None:
        """Have nobody begin anything with the backup, and claim it if nobody works on it."""
        if self.claim is None:
            claim = self._tools.heartbeat.acquire(
                lambda: self._records.begin_deleting(self._backup_id, self._tools.worker)
            )
            if claim is not None:
                self._has(claim)

    def _stop_jobs(self) -> None:
        deadline = self._tools.clock() + _CANCEL_TIMEOUT_SEC
        while True:
            # First, since a worker that has let go has written down before what is to be stopped.
            self._begin()
            record = self._records.find(self._backup_id)
            if record is None:
                return
            active = self._active_jobs(record)
            if self.claim is not None and not active:
                return
            if self._tools.clock() >= deadline:
                busy = ', '.join(map(str, active)) or record.claimed_by
                raise exceptions.BusyError(
                    f'backup {self._backup_id}: is still worked on by {busy}'
                )
            for one in active:
                with contextlib.suppress(exceptions.NotFoundError):
                    self._tools.storage.cancel(one.operation_id)
            self._tools.sleep(_POLL_SEC)

    def _active_jobs(self, record: model.Backup) -> list[job.Job]:
        locks = {job.snapshot_lock(place) for place in (record.place, record.copy) if place}
        return [
            one
            for one in self._tools.storage.list_jobs()
            if one.state.is_active and locks.intersection(one.work.locks)
        ]

    def _delete_copy(self) -> None:
        record = self._records.find(self._backup_id)
        if self.claim is not None and record is not None and record.copy is not None:
            vault.remove(self._tools, self._backup_id, record.copy)
            self._records.results.forget_copy(self.claim)

    def _delete_snapshot(self) -> None:
        if self.claim is not None:
            taking.remove_snapshot(self._tools, self.claim)

    def _forget(self) -> None:
        if self.claim is not None:
            self._records.forget(self.claim)
