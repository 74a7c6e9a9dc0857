# SPDX-License-Identifier: Apache-2.0
"""Verifying a backup: a real server is started from a clone of it, and asked.

Of one that is in the vault the copy is looked at, which held byte for byte what its snapshot does
when it was made. Where that is damaged and the snapshot is not, the backup is sound: the copy is
removed, and made again, whole and elsewhere. A backup that was found damaged is called sound again
only by a verification of all of it.
"""

import contextlib
import dataclasses
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.db import backup_record
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.claims import Claim
from trove_ceph.storage import image_types, tasks
from trove_ceph.strategies.backup import claimed, storage_jobs, vault
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.verification import report as verification

LOG = logging.getLogger(__name__)


def verify_backup(deps: BackupDependencies, claim: Claim) -> None:
    """Verify a backup, or carry on with it; nothing if it is not wanted.

    That a backup does not restore is no error: it is written down.

    :param claim: on the backup, to verify it
    :raises TroveCephError: whether it restores could not be found out; it may be tried again
    """
    steps.run(
        f'verification of backup {claim.resource_id}', BackupVerification(deps, claim).steps(), None
    )


class BackupVerification:
    """One backup that is being verified, by the worker that has claimed it."""

    def __init__(self, deps: BackupDependencies, claim: Claim):
        self._deps = claimed.guarded(deps, claim)
        self._records = deps.records
        self._claim = claim
        self._backup_id = claim.resource_id
        self._found: verification.Inspection | None = None
        # Of a copy: what was found, and why it cannot stay, where the snapshot was looked at.
        self._of_copy: verification.Inspection | None = None
        self._fault: str | None = None

    def steps(self) -> list[steps.Step[Any]]:
        """Return the steps, which take no notice of their context; the clone is the service's."""
        return [
            steps.Step('check the backup', lambda _: self._check()),
            steps.Step('inspect', lambda _: self._inspect_places()),
            steps.Step('write down what was found', lambda _: self._note(), commits=True),
        ]

    def _check(self) -> None:
        record = self._records.get(self._backup_id)
        if (
            not (record.state.is_complete or record.state is RecordState.DAMAGED)
            or record.place is None
        ):
            raise exceptions.InvalidBackupError(
                f'backup {self._backup_id}: is {record.state}, and not verified'
            )

    def _inspect_places(self) -> None:
        record = self._records.get(self._backup_id)
        if record.verify_wanted_at is None:
            return
        assert record.place is not None
        if record.copied_at is None or record.copy is None:
            self._found = self._inspect(record, record.place)
            return
        if self._is_there(record.copy):
            found = self._inspect(record, record.copy)
            if not (_is_damaged(found) and self._is_at_hand(record.place)):
                self._found = found
                return
            self._of_copy, self._fault = found, f'it was damaged: {_text(found)}'
        else:
            self._fault = 'it is not there any more'
        self._found = self._inspect(record, record.place)

    def _is_at_hand(self, snapshot: image_types.SnapshotRef) -> bool:
        """Tell whether a snapshot can be looked at; its pool may be lost."""
        with contextlib.suppress(exceptions.StorageError):
            return self._is_there(snapshot)
        return False

    def _is_there(self, snapshot: image_types.SnapshotRef) -> bool:
        facts = vault.find_facts(self._deps, snapshot.of)
        return facts is not None and snapshot.name in facts.snapshot_names

    def _inspect(
        self, record: backup_record.BackupRecord, place: image_types.SnapshotRef
    ) -> verification.Inspection:
        backup = self._deps.trove.find_backup(self._backup_id)
        if backup is None or not backup.version:
            raise exceptions.InvalidBackupError(
                f'backup {self._backup_id}: its version of the datastore is not known any more'
            )
        is_known = record.gtid_executed is not None
        work = tasks.InspectTask(
            place,
            self._backup_id,
            backup.version,
            expected_gtid=record.gtid_executed if is_known else record.gtid_before,
            exact=is_known,
            deep=True if record.state is RecordState.DAMAGED else None,
        )
        # Each request has a job of its own, whichever worker carries on with it.
        name = f'verify.{record.verify_wanted_at:%Y%m%dT%H%M%S}'
        return storage_jobs.run(self._deps, self._claim, name, work)

    def _note(self) -> None:
        found = self._found
        record = self._records.find(self._backup_id)
        if found is None or record is None:
            return
        is_of_copy = record.copied_at is not None and self._fault is None
        document = _document(record, found, is_of_copy, self._of_copy)
        took_sec = sum(found.seconds.values())
        subject = f'Backup {self._backup_id} of instance {record.instance_id}'
        if self._fault and not _is_damaged(found):
            self._replace_copy(record, self._fault)
        if found.ok:
            LOG.info('%s: %s', subject, found)
            self._records.results.note_verified(
                self._claim, found.gtid_executed, document, took_sec
            )
        elif found.verdict == verification.UNFINISHED:
            error = f'{_text(found)}; it has to be given more time, or checked less'
            LOG.warning('%s: %s', subject, error)
            self._records.results.note_unfinished(self._claim, document, took_sec, error)
        else:
            error = (
                f'{_text(found)}; do not rely on it: look after the instance, and take another '
                'backup and have it verified'
            )
            LOG.error('%s does not restore: %s', subject, error)
            self._records.results.note_damaged(self._claim, document, took_sec, error)

    def _replace_copy(self, record: backup_record.BackupRecord, reason: str) -> None:
        """Have the copy be made again; nothing of what lies beside it may be built upon."""
        assert record.copy is not None
        LOG.error('The copy of backup %s is made again, since %s', self._backup_id, reason)
        vault.remove(self._deps, self._backup_id, record.copy)
        self._records.results.replace_copy(self._claim, reason)


def _is_damaged(found: verification.Inspection) -> bool:
    return not found.ok and found.verdict != verification.UNFINISHED


def _text(found: verification.Inspection) -> str:
    return f'{found.verdict}: {"; ".join(found.reasons) or "no reason was given"}'


def _document(
    record: backup_record.BackupRecord,
    found: verification.Inspection,
    is_of_copy: bool,
    of_copy: verification.Inspection | None,
) -> dict[str, Any]:
    """Return what is told of a verification; what an earlier one found to be wrong stays in it."""
    document = _plain(found)
    document['of'] = 'copy' if is_of_copy else 'snapshot'
    if of_copy is not None:
        document['copy'] = _plain(of_copy)
    if record.state is RecordState.DAMAGED and record.verification:
        document['before'] = dict(record.verification)
    return document


def _plain(found: verification.Inspection) -> dict[str, Any]:
    return dataclasses.asdict(found) | {'reasons': list(found.reasons)}
