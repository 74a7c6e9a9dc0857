# SPDX-License-Identifier: Apache-2.0
"""Copy a backup to the vault: move only what changed since an earlier copy, the base.

A copy is complete by itself, since base and copy are snapshots of one image. So the choice of the
base affects the cost alone. Any earlier backup of the same volume will do, as long as both its
snapshot and its copy in the vault exist.
"""

import dataclasses

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.db import backup_record
from trove_ceph.db.claims import Claim
from trove_ceph.enums import VerifyWhen
from trove_ceph.storage import copying, image_types, tasks
from trove_ceph.strategies.backup import claimed, storage_jobs, vault
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The vault image and the base of a copy.

    :param base: None for a full copy
    :param because: why the copy does not have the base that was requested or comes first
    """

    image: image_types.ImageRef
    base: backup_record.BackupRecord | None = None
    because: str | None = None

    def __str__(self) -> str:
        kind = f'as an increment to backup {self.base.backup_id}' if self.base else 'in full'
        return f'to {self.image} {kind}' + (f', because {self.because}' if self.because else '')


def copy_to_vault(deps: BackupDependencies, claim: Claim) -> int | None:
    """Copy a backup to the vault, or continue; do nothing if the copy is complete.

    After a failure the next attempt continues with what was moved, unless the vault was full.

    :param claim: on the backup, in the role COPY
    :returns: the bytes that were moved; None: the copy was complete already
    :raises TroveCephError: the copy failed; it may be retried
    """
    copy = VaultCopy(deps, claim)
    steps.run(f'copy of backup {claim.resource_id}', copy.steps())
    return copy.moved_bytes


class VaultCopy:
    """One backup that is being copied, by the worker that has claimed it."""

    def __init__(self, deps: BackupDependencies, claim: Claim):
        self._deps = claimed.guarded(deps, claim)
        self._records = deps.records
        self._claim = claim
        self._backup_id = claim.resource_id
        self._report: copying.CopyReport | None = None

    @property
    def moved_bytes(self) -> int | None:
        """The bytes that all attempts moved; None: none of a copy that was complete already."""
        if self._report is None:
            return None
        # A storage service of an earlier release does not add them up.
        return max(self._report.copied_bytes, self._report.total_bytes)

    def steps(self) -> list[steps.Step]:
        """Return the steps."""
        return [
            steps.Step('check the backup', self._check),
            steps.Step('choose the base', self._choose, commits=True),
            steps.Step('copy', self._copy),
            steps.Step('record the copy', self._record_copy),
        ]

    def _check(self) -> None:
        record = self._records.get(self._backup_id)
        if not record.state.is_complete or record.location is None:
            raise exceptions.InvalidBackupError(
                f'backup {self._backup_id} is {record.state} and cannot be copied'
            )
        # Fails if there is no vault.
        self._deps.vault()

    def _choose(self) -> None:
        record = self._records.get(self._backup_id)
        if record.copied_at is not None:
            return
        plan = _plan(self._deps, record)
        assert record.location is not None
        copy = plan.image.snapshot(record.location.name)
        base_id = plan.base.backup_id if plan.base else None
        vault.check_quota(self._deps, record, plan.base)
        if (record.copy, record.copy_base_id) == (copy, base_id):
            return
        (LOG.warning if plan.because else LOG.info)(
            'Backup %s of instance %s is copied %s', record.backup_id, record.instance_id, plan
        )
        if record.copy is not None and record.copy != copy:
            # A copy that was begun in another image is not continued.
            vault.remove_copy(self._deps, self._backup_id, record.copy)
        self._records.results.begin_copying(self._claim, copy, base_id, plan.because)

    def _copy(self) -> None:
        record = self._records.get(self._backup_id)
        if record.copied_at is not None or record.copy_wanted_at is None:
            return
        assert record.location is not None and record.copy is not None
        base = self._records.get(record.copy_base_id) if record.copy_base_id else None
        since = base.location.name if base and base.location else None
        task = tasks.CopyTask(record.location, record.copy.of, since)
        try:
            # Each request has a job of its own: the result of an earlier job would report a copy
            # that was removed since.
            name = f'copy.{record.copy_wanted_at:%Y%m%dT%H%M%S}'
            self._report = storage_jobs.run(self._deps, self._claim, name, task)
        except (exceptions.NoSpaceError, exceptions.AlreadyExistsError) as error:
            self._discard(record.copy, error)
            raise

    def _discard(self, incomplete: image_types.SnapshotRef, error: Exception) -> None:
        """Remove an incomplete copy, so that it occupies neither space nor the name."""
        try:
            vault.remove_copy(self._deps, self._backup_id, incomplete)
            self._records.results.clear_copy(self._claim)
        except exceptions.TroveCephError as failure:
            error.add_note(f'{incomplete} is left behind: {failure}')

    def _record_copy(self) -> None:
        report, moved_bytes = self._report, self.moved_bytes
        if report is None or moved_bytes is None:
            return
        self._records.results.record_copied(
            self._claim,
            moved_bytes,
            report.copy_sec + report.compare_sec,
            report.used_bytes or None,
            verify=self._deps.policy.verify is VerifyWhen.COPIED,
        )


def _plan(deps: BackupDependencies, record: backup_record.BackupRecord) -> Plan:
    """Choose the base of a copy: the one it was begun with, the requested one, or the latest.

    :raises NotFoundError: the snapshot of the backup does not exist
    """
    assert record.location is not None
    source = deps.storage.describe(record.location.of)
    if source.find_snapshot(record.location.name) is None:
        raise exceptions.NotFoundError(f'{record.location} no longer exists')
    pool = deps.vault()
    if record.copy is not None and record.copy.pool == pool:
        facts = vault.find_facts(deps, record.copy.of)
        complete = copying.complete_copies(facts) if facts else {}
        if record.copy.name in complete or (record.copy_base_id is None and not complete):
            base = deps.records.find(record.copy_base_id) if record.copy_base_id else None
            return Plan(record.copy.of, base, record.copy_base_because)
    if record.copy is None and record.copy_base_because:
        # A damaged copy is replaced in full: no copy in its image may be the base.
        return Plan(vault.image_for_full_copy(deps, record, pool), None, record.copy_base_because)
    because = None
    others = [
        one
        for one in deps.records.of_instance(record.instance_id)
        if one.backup_id != record.backup_id
    ]
    if record.copy_base_id and record.copy_base_id not in [one.backup_id for one in others]:
        because = f'backup {record.copy_base_id} was deleted'
    for candidate in _ordered(record, others, source):
        obstacle = _find_obstacle(deps, record, candidate, source, pool)
        if obstacle is None:
            assert candidate.copy is not None
            return Plan(candidate.copy.of, candidate, because)
        # The first candidate is the one that should have been the base.
        because = because or f'backup {candidate.backup_id} {obstacle}'
    return Plan(vault.image_for_full_copy(deps, record, pool), None, because)


def _ordered(
    record: backup_record.BackupRecord,
    others: list[backup_record.BackupRecord],
    source: image_types.ImageFacts,
) -> list[backup_record.BackupRecord]:
    """Return the backups whose copies may be the base, the best first."""
    numbers = {one.name: one.snapshot_id for one in source.snapshots}

    def number(one: backup_record.BackupRecord) -> int:
        return numbers.get(one.location.name, 0) if one.location else 0

    requested_ids = [record.copy_base_id, record.parent_id]
    requested = [one for one in others if one.backup_id in requested_ids]
    earlier = [
        one
        for one in others
        if one not in requested and one.copied_at is not None and number(one) < number(record)
    ]
    return [
        *sorted(requested, key=lambda one: requested_ids.index(one.backup_id)),
        *sorted(earlier, key=number, reverse=True),
    ]


def _find_obstacle(
    deps: BackupDependencies,
    record: backup_record.BackupRecord,
    base: backup_record.BackupRecord,
    source: image_types.ImageFacts,
    pool: str,
) -> str | None:
    """Return why the copy of another backup cannot be the base; None if it can."""
    if not base.state.is_complete:
        return f'is {base.state}'
    if base.copied_at is None or base.copy is None:
        return 'is not in the vault'
    if base.copy.pool != pool:
        LOG.info(
            'Backup %s: the copy of backup %s is in pool %s instead of %s',
            *(record.backup_id, base.backup_id, base.copy.pool, pool),
        )
        return 'has its copy in another vault'
    if base.location is None or record.location is None or base.location.of != record.location.of:
        return 'was taken of another volume'
    found, own = (source.find_snapshot(one.name) for one in (base.location, record.location))
    if found is None:
        return 'no longer has a snapshot'
    if own is None or found.snapshot_id > own.snapshot_id:
        return 'was taken later'
    facts = vault.find_facts(deps, base.copy.of)
    complete = copying.complete_copies(facts) if facts else {}
    origin = complete.get(base.copy.name)
    expected = source.image_id, found.snapshot_id
    if origin is None or (origin.image_id, origin.snapshot_id) != expected:
        return 'no longer has a complete copy'
    return None
