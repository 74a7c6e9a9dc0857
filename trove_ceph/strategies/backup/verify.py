# SPDX-License-Identifier: Apache-2.0
"""Verify a backup: start a real server from a clone of it, and ask that server.

Of a backup that is in the vault the copy is inspected, which was compared byte for byte with its
snapshot when it was made.

Nothing is called damaged by one inspection. What the first one finds makes the backup *suspected*;
a second one, of another clone and by another copy of the storage service where there is one, must
find the same. If it finds the backup sound the suspicion is dropped, and if the two do not agree,
or the second comes to no end, it stays.

A copy that two inspections found damaged is removed, and made again, whole and elsewhere, only
after the snapshot was inspected as well and found sound. Nothing else is ever removed because of
what an inspection finds. A backup that was found damaged is called sound again only by an
inspection of all its tables.
"""

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
        f'verification of backup {claim.resource_id}', BackupVerification(deps, claim).steps()
    )


class BackupVerification:
    """One backup that is being verified, by the worker that has claimed it."""

    def __init__(self, deps: BackupDependencies, claim: Claim):
        self._deps = claimed.guarded(deps, claim)
        self._records = deps.records
        self._claim = claim
        self._backup_id = claim.resource_id
        self._judged: Judgement | None = None
        # Of a copy: what was found, and why it cannot stay, where the snapshot was looked at.
        self._of_copy: Judgement | None = None
        self._fault: str | None = None

    def steps(self) -> list[steps.Step]:
        """Return the steps; the clone is the service's."""
        return [
            steps.Step('check the backup', self._check),
            steps.Step('inspect', self._inspect_places),
            steps.Step('write down what was found', self._note, commits=True),
        ]

    def _check(self) -> None:
        record = self._records.get(self._backup_id)
        if not record.state.can_be_verified or record.location is None:
            raise exceptions.InvalidBackupError(
                f'backup {self._backup_id}: is {record.state}, and not verified'
            )

    def _inspect_places(self) -> None:
        record = self._records.get(self._backup_id)
        if record.verify_wanted_at is None:
            return
        assert record.location is not None
        if record.copied_at is None or record.copy is None:
            self._judged = self._judge(record, record.location)
            return
        if self._is_there(record.copy):
            judged = self._judge(record, record.copy)
            # Where Ceph does not answer, nobody knows whether the snapshot would restore.
            if not (judged.is_damaged and self._is_there(record.location)):
                self._judged = judged
                return
            self._of_copy, self._fault = judged, f'it was damaged: {_text(judged.found)}'
        else:
            self._fault = 'it is not there any more'
        self._judged = self._judge(record, record.location)

    def _is_there(self, snapshot: image_types.SnapshotRef) -> bool:
        facts = vault.find_facts(self._deps, snapshot.of)
        return facts is not None and snapshot.name in facts.snapshot_names

    def _judge(
        self, record: backup_record.BackupRecord, place: image_types.SnapshotRef
    ) -> 'Judgement':
        """Inspect a place, and once more if that found something against it."""
        name = f'verify.{record.verify_wanted_at:%Y%m%dT%H%M%S}'
        found = self._inspect(record, place, name)
        if not found.is_against:
            return Judgement(found)
        document = self._document(record, Judgement(found), place)
        LOG.warning('%s: %s; it is inspected once more', self._subject(record), _text(found))
        self._records.results.note_suspected(
            self._claim,
            document,
            sum(found.seconds.values()),
            f'{_text(found)}; this is not confirmed yet by a second inspection',
        )
        again = self._inspect(record, place, f'{name}.again', avoid=found.inspected_by)
        return Judgement(again, first=found)

    def _inspect(
        self,
        record: backup_record.BackupRecord,
        place: image_types.SnapshotRef,
        name: str,
        avoid: str | None = None,
    ) -> verification.Inspection:
        """Inspect a place by a job of this name: each request for a verification has its own.

        :param avoid: the copy of the service that did it before
        """
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
        return storage_jobs.run(self._deps, self._claim, name, work, avoid)

    def _note(self) -> None:
        judged = self._judged
        record = self._records.find(self._backup_id)
        if judged is None or record is None:
            return
        found, results = judged.found, self._records.results
        place = record.location if record.copied_at is None or self._fault else record.copy
        document = self._document(record, judged, place)
        took_sec = sum(found.seconds.values())
        if self._fault and found.ok:
            self._replace_copy(record, self._fault)
        if found.ok:
            self._tell_sound(record, judged)
            results.note_verified(self._claim, found.gtid_executed, document, took_sec)
        elif judged.is_damaged:
            error = (
                f'{_text(found)}, as two inspections found; do not rely on it: look after the '
                'instance, and take another backup and have it verified'
            )
            LOG.error('%s does not restore: %s', self._subject(record), error)
            results.note_damaged(self._claim, document, took_sec, error)
        else:
            error = _why_undecided(judged)
            LOG.warning('%s: %s', self._subject(record), error)
            results.note_unfinished(self._claim, document, took_sec, error)

    def _tell_sound(self, record: backup_record.BackupRecord, judged: 'Judgement') -> None:
        subject = self._subject(record)
        LOG.info('%s: %s', subject, judged.found)
        for one in filter(None, (judged, self._of_copy)):
            if one.found.ok and one.first is not None:
                LOG.warning(
                    '%s: is sound, although an inspection by %s found %s; look at that host',
                    *(subject, one.first.inspected_by, _text(one.first)),
                )
        if judged.first is None and (before := _against(record)):
            LOG.warning('%s: is sound, although it was found %s before', subject, before['verdict'])

    def _subject(self, record: backup_record.BackupRecord) -> str:
        return f'Backup {self._backup_id} of instance {record.instance_id}'

    def _document(
        self,
        record: backup_record.BackupRecord,
        judged: 'Judgement',
        place: image_types.SnapshotRef | None,
    ) -> dict[str, Any]:
        """Return what is told of a verification; what an earlier one found stays in it."""
        document = judged.document() | {'of': 'copy' if place == record.copy else 'snapshot'}
        if self._of_copy is not None:
            document['copy'] = self._of_copy.document()
        if judged.first is None and (before := _against(record)):
            document['before'] = before
        return document

    def _replace_copy(self, record: backup_record.BackupRecord, reason: str) -> None:
        """Have the copy be made again; nothing of what lies beside it may be built upon."""
        assert record.copy is not None
        LOG.error('The copy of backup %s is made again, since %s', self._backup_id, reason)
        vault.remove(self._deps, self._backup_id, record.copy)
        self._records.results.replace_copy(self._claim, reason)


@dataclasses.dataclass(frozen=True)
class Judgement:
    """What the inspections of one place come to.

    :param found: by the last one
    :param first: what the one before found against it; None where there was only one
    """

    found: verification.Inspection
    first: verification.Inspection | None = None

    @property
    def is_damaged(self) -> bool:
        """Whether two inspections, each of a clone of its own, say the same against it."""
        return (
            self.first is not None
            and self.first.is_against
            and self.first.verdict == self.found.verdict
            and self.first.clone_id != self.found.clone_id
        )

    def document(self) -> dict[str, Any]:
        told = _plain(self.found)
        if self.first is not None:
            told['first'] = _plain(self.first)
        return told


def _against(record: backup_record.BackupRecord) -> dict[str, Any] | None:
    """Return what verifications before this one found against a backup, the latest of them."""
    if record.state not in (RecordState.SUSPECTED, RecordState.DAMAGED) or not record.verification:
        return None
    told = dict(record.verification)
    before = told.pop('before', None) or told.get('first')
    return told if told['verdict'] in verification.AGAINST else before


def _why_undecided(judged: Judgement) -> str:
    told = _text(judged.found)
    if judged.found.verdict == verification.UNFINISHED:
        told += '; it has to be given more time, or checked less'
    if judged.first is not None:
        told += f'; an inspection before found {_text(judged.first)}; have it verified again'
    return told


def _text(found: verification.Inspection) -> str:
    return f'{found.verdict}: {"; ".join(found.reasons) or "no reason was given"}'


def _plain(found: verification.Inspection) -> dict[str, Any]:
    told = dataclasses.asdict(found)
    return told | {name: list(told[name]) for name in ('reasons', 'prepared_xa')}
