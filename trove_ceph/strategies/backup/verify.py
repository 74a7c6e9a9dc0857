# SPDX-License-Identifier: Apache-2.0
"""Verify a backup: start a real server from a clone of it, and query that server.

If the backup is in the vault, its copy is inspected. The copy was compared byte for byte with the
snapshot when it was made.

One inspection never marks a backup as damaged. If the first one finds damage, the backup is
*suspected*. A second one, of another clone and by another copy of the storage service if there is
one, must find the same. If the second one finds the backup sound, the suspicion is dropped. If the
two disagree, or the second does not finish, the suspicion stays.

A copy that two inspections found damaged is removed, and made again in full in another image, only
after the snapshot was inspected too and found sound. Nothing else is ever removed because of the
result of an inspection. A damaged backup is marked as sound again only by an inspection of all its
tables.
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


def verify_backup(deps: BackupDependencies, claim: Claim) -> RecordState | None:
    """Verify a backup, or continue; do nothing if no verification is requested.

    A backup that does not restore is not an error: the record has the result.

    :param claim: on the backup, in the role VERIFY
    :returns: VERIFIED, DAMAGED or SUSPECTED; None: there was nothing to do
    :raises TroveCephError: the inspection failed and proves nothing; it may be retried
    """
    verification = BackupVerification(deps, claim)
    steps.run(f'verification of backup {claim.resource_id}', verification.steps())
    return verification.verdict


class BackupVerification:
    """One backup that is being verified, by the worker that has claimed it."""

    def __init__(self, deps: BackupDependencies, claim: Claim):
        self._deps = claimed.guarded(deps, claim)
        self._records = deps.records
        self._claim = claim
        self._backup_id = claim.resource_id
        self._judgement: Judgement | None = None
        # If the snapshot was inspected besides the copy: the findings about the copy, and why the
        # copy must be replaced.
        self._copy_judgement: Judgement | None = None
        self._copy_fault: str | None = None

    @property
    def verdict(self) -> RecordState | None:
        """The state that the findings mean; None: nothing was inspected."""
        if self._judgement is None:
            return None
        if self._judgement.found.ok:
            return RecordState.VERIFIED
        return RecordState.DAMAGED if self._judgement.is_damaged else RecordState.SUSPECTED

    def steps(self) -> list[steps.Step]:
        """Return the steps; the storage service owns the clone."""
        return [
            steps.Step('check the backup', self._check),
            steps.Step('inspect', self._inspect_locations),
            steps.Step('record the result', self._record_result, commits=True),
        ]

    def _check(self) -> None:
        record = self._records.get(self._backup_id)
        if not record.state.can_be_verified or record.location is None:
            raise exceptions.InvalidBackupError(
                f'backup {self._backup_id} is {record.state} and cannot be verified'
            )

    def _inspect_locations(self) -> None:
        record = self._records.get(self._backup_id)
        if record.verify_wanted_at is None:
            return
        assert record.location is not None
        if record.copied_at is None or record.copy is None:
            self._judgement = self._judge(record, record.location)
            return
        if self._exists(record.copy):
            judgement = self._judge(record, record.copy)
            # _exists raises an error if Ceph does not answer, so a fault of Ceph is no finding.
            if not (judgement.is_damaged and self._exists(record.location)):
                self._judgement = judgement
                return
            self._copy_judgement = judgement
            self._copy_fault = f'it was damaged: {_text(judgement.found)}'
        else:
            self._copy_fault = 'it no longer exists'
        self._judgement = self._judge(record, record.location)

    def _exists(self, snapshot: image_types.SnapshotRef) -> bool:
        facts = vault.find_facts(self._deps, snapshot.of)
        return facts is not None and snapshot.name in facts.snapshot_names

    def _judge(
        self, record: backup_record.BackupRecord, snapshot: image_types.SnapshotRef
    ) -> 'Judgement':
        """Inspect a snapshot or a copy, and a second time if the first finds damage."""
        name = f'verify.{record.verify_wanted_at:%Y%m%dT%H%M%S}'
        found = self._inspect(record, snapshot, name)
        if not found.is_against:
            return Judgement(found)
        document = self._document(record, Judgement(found), snapshot)
        LOG.warning('%s: %s; inspect it a second time', self._subject(record), _text(found))
        self._records.results.record_suspected(
            self._claim,
            document,
            sum(found.seconds.values()),
            f'{_text(found)}; a second inspection has not confirmed this yet',
        )
        again = self._inspect(record, snapshot, f'{name}.again', avoid=found.inspected_by)
        return Judgement(again, first=found)

    def _inspect(
        self,
        record: backup_record.BackupRecord,
        snapshot: image_types.SnapshotRef,
        name: str,
        avoid: str | None = None,
    ) -> verification.Inspection:
        """Inspect a snapshot or a copy.

        :param name: of the job; each request for a verification has its own
        :param avoid: the copy of the storage service that did the first inspection
        """
        backup = self._deps.trove.find_backup(self._backup_id)
        if backup is None or not backup.version:
            raise exceptions.InvalidBackupError(
                f'backup {self._backup_id}: its datastore version is no longer known'
            )
        is_known = record.gtid_executed is not None
        task = tasks.InspectTask(
            snapshot,
            self._backup_id,
            backup.version,
            expected_gtid=record.gtid_executed if is_known else record.gtid_before,
            exact=is_known,
            deep=True if record.state is RecordState.DAMAGED else None,
        )
        return storage_jobs.run(self._deps, self._claim, name, task, avoid)

    def _record_result(self) -> None:
        judgement = self._judgement
        record = self._records.find(self._backup_id)
        if judgement is None or record is None:
            return
        found, results = judgement.found, self._records.results
        snapshot = record.location if record.copied_at is None or self._copy_fault else record.copy
        document = self._document(record, judgement, snapshot)
        took_sec = sum(found.seconds.values())
        if self._copy_fault and found.ok:
            self._replace_copy(record, self._copy_fault)
        if found.ok:
            self._log_sound(record, judgement)
            results.record_verified(self._claim, found.gtid_executed, document, took_sec)
        elif judgement.is_damaged:
            error = (
                f'two inspections found it {_text(found)}; do not rely on it: check the instance, '
                'take another backup and verify that one'
            )
            LOG.error('%s does not restore: %s', self._subject(record), error)
            results.record_damaged(self._claim, document, took_sec, error)
        else:
            error = _why_undecided(judgement)
            LOG.warning('%s: %s', self._subject(record), error)
            results.record_unfinished(self._claim, document, took_sec, error)

    def _log_sound(self, record: backup_record.BackupRecord, judgement: 'Judgement') -> None:
        subject = self._subject(record)
        LOG.info('%s: %s', subject, judgement.found)
        for one in filter(None, (judgement, self._copy_judgement)):
            if one.found.ok and one.first is not None:
                LOG.warning(
                    '%s is sound, although an inspection by %s found %s; check that host',
                    *(subject, one.first.inspected_by, _text(one.first)),
                )
        if judgement.first is None and (before := _earlier_findings(record)):
            LOG.warning(
                '%s is sound, although an earlier verification found it %s',
                *(subject, before['verdict']),
            )

    def _subject(self, record: backup_record.BackupRecord) -> str:
        return f'Backup {self._backup_id} of instance {record.instance_id}'

    def _document(
        self,
        record: backup_record.BackupRecord,
        judgement: 'Judgement',
        snapshot: image_types.SnapshotRef | None,
    ) -> dict[str, Any]:
        """Return the result as it is recorded, with the findings of an earlier verification."""
        document = judgement.document() | {'of': 'copy' if snapshot == record.copy else 'snapshot'}
        if self._copy_judgement is not None:
            document['copy'] = self._copy_judgement.document()
        if judgement.first is None and (before := _earlier_findings(record)):
            document['before'] = before
        return document

    def _replace_copy(self, record: backup_record.BackupRecord, reason: str) -> None:
        """Request the copy again, in full: no copy in the same image may be its base."""
        assert record.copy is not None
        LOG.error('The copy of backup %s is made again: %s', self._backup_id, reason)
        vault.remove_copy(self._deps, self._backup_id, record.copy)
        self._records.results.replace_copy(self._claim, reason)


@dataclasses.dataclass(frozen=True)
class Judgement:
    """The result of the inspections of one snapshot or copy.

    :param found: the result of the last inspection
    :param first: the result of the first one, which found damage; None if there was only one
    """

    found: verification.Inspection
    first: verification.Inspection | None = None

    @property
    def is_damaged(self) -> bool:
        """Whether two inspections, each of its own clone, found the same damage."""
        return (
            self.first is not None
            and self.first.is_against
            and self.first.verdict == self.found.verdict
            and self.first.clone_id != self.found.clone_id
        )

    def document(self) -> dict[str, Any]:
        document = _as_document(self.found)
        if self.first is not None:
            document['first'] = _as_document(self.first)
        return document


def _earlier_findings(record: backup_record.BackupRecord) -> dict[str, Any] | None:
    """Return the latest result of an earlier verification that found damage."""
    if record.state not in (RecordState.SUSPECTED, RecordState.DAMAGED) or not record.verification:
        return None
    last = dict(record.verification)
    before = last.pop('before', None) or last.get('first')
    return last if last['verdict'] in verification.AGAINST else before


def _why_undecided(judgement: Judgement) -> str:
    text = _text(judgement.found)
    if judgement.found.verdict == verification.UNFINISHED:
        text += '; allow more time for inspections, or fewer checks'
    if judgement.first is not None:
        text += f'; an earlier inspection found {_text(judgement.first)}; verify it again'
    return text


def _text(found: verification.Inspection) -> str:
    return f'{found.verdict}: {"; ".join(found.reasons) or "no reason was given"}'


def _as_document(found: verification.Inspection) -> dict[str, Any]:
    document = dataclasses.asdict(found)
    return document | {name: list(document[name]) for name in ('reasons', 'prepared_xa')}
