# SPDX-License-Identifier: Apache-2.0
"""Copying a backup to the vault, of which only what changed since an earlier copy is moved.

A copy is complete by itself whatever it was built on: base and copy are snapshots of one image. So
the base is a matter of cost alone, and any earlier backup will do of which both are still there:
the copy in the vault, and the snapshot of the same volume that it is a copy of.
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
    """Where a copy goes, and upon which other one it is built.

    :param base: None where all of it is moved
    :param because: why that is not the one that it was to be built on
    """

    image: image_types.ImageRef
    base: backup_record.BackupRecord | None = None
    because: str | None = None

    def __str__(self) -> str:
        moved = f'what changed since backup {self.base.backup_id}' if self.base else 'all of it'
        return f'to {self.image}, {moved}' + (f', because {self.because}' if self.because else '')


def copy_to_vault(deps: BackupDependencies, claim: Claim) -> None:
    """Copy a backup to the vault, or carry on with it; nothing if the copy is there.

    What was moved stays when it fails, except where the vault is full, and the next attempt goes on
    there.

    :param claim: on the backup, to copy it
    :raises TroveCephError: it failed; it may be tried again
    """
    steps.run(f'copy of backup {claim.resource_id}', VaultCopy(deps, claim).steps())


class VaultCopy:
    """One backup that is being copied, by the worker that has claimed it."""

    def __init__(self, deps: BackupDependencies, claim: Claim):
        self._deps = claimed.guarded(deps, claim)
        self._records = deps.records
        self._claim = claim
        self._backup_id = claim.resource_id
        self._report: copying.CopyReport | None = None

    def steps(self) -> list[steps.Step]:
        """Return the steps."""
        return [
            steps.Step('check the backup', self._check),
            steps.Step('choose the base', self._choose, commits=True),
            steps.Step('copy', self._copy),
            steps.Step('write down the copy', self._note),
        ]

    def _check(self) -> None:
        record = self._records.get(self._backup_id)
        if not record.state.is_complete or record.location is None:
            raise exceptions.InvalidBackupError(
                f'backup {self._backup_id}: is {record.state}, and not copied'
            )
        # Without a vault nothing is begun.
        self._deps.vault()

    def _choose(self) -> None:
        record = self._records.get(self._backup_id)
        if record.copied_at is not None:
            return
        plan = _plan(self._deps, record)
        assert record.location is not None
        place = plan.image.snapshot(record.location.name)
        base_id = plan.base.backup_id if plan.base else None
        vault.check_quota(self._deps, record, plan.base)
        if (record.copy, record.copy_base_id) == (place, base_id):
            return
        (LOG.warning if plan.because else LOG.info)(
            'Backup %s of instance %s is copied %s', record.backup_id, record.instance_id, plan
        )
        if record.copy is not None and record.copy != place:
            # What was begun elsewhere is not gone on with.
            vault.remove(self._deps, self._backup_id, record.copy)
        self._records.results.begin_copying(self._claim, place, base_id, plan.because)

    def _copy(self) -> None:
        record = self._records.get(self._backup_id)
        if record.copied_at is not None or record.copy_wanted_at is None:
            return
        assert record.location is not None and record.copy is not None
        base = self._records.get(record.copy_base_id) if record.copy_base_id else None
        since = base.location.name if base and base.location else None
        work = tasks.CopyTask(record.location, record.copy.of, since)
        try:
            # Each request has a job of its own: the result of an earlier one would say that a copy
            # is there which was removed since.
            name = f'copy.{record.copy_wanted_at:%Y%m%dT%H%M%S}'
            self._report = storage_jobs.run(self._deps, self._claim, name, work)
        except (exceptions.NoSpaceError, exceptions.AlreadyExistsError) as error:
            self._give_up(record.copy, error)
            raise

    def _give_up(self, begun: image_types.SnapshotRef, error: Exception) -> None:
        """Let what does not count take neither the space nor the place of what does."""
        try:
            vault.remove(self._deps, self._backup_id, begun)
            self._records.results.clear_copy(self._claim)
        except exceptions.TroveCephError as failure:
            error.add_note(f'{begun} is left behind: {failure}')

    def _note(self) -> None:
        report = self._report
        if report is None:
            return
        self._records.results.note_copied(
            self._claim,
            report.copied_bytes,
            report.copy_sec + report.compare_sec,
            report.used_bytes or None,
            verify=self._deps.policy.verify is VerifyWhen.COPIED,
        )


def _plan(deps: BackupDependencies, record: backup_record.BackupRecord) -> Plan:
    """Choose the base of a copy: what was begun with, what was asked for, or the latest there is.

    :raises NotFoundError: the snapshot that is to be copied is not there
    """
    assert record.location is not None
    source = deps.storage.describe(record.location.of)
    if source.find_snapshot(record.location.name) is None:
        raise exceptions.NotFoundError(f'{record.location}: is not there any more')
    pool = deps.vault()
    if record.copy is not None and record.copy.pool == pool:
        facts = vault.find_facts(deps, record.copy.of)
        complete = copying.complete_copies(facts) if facts else {}
        if record.copy.name in complete or (record.copy_base_id is None and not complete):
            base = deps.records.find(record.copy_base_id) if record.copy_base_id else None
            return Plan(record.copy.of, base, record.copy_base_because)
    if record.copy is None and record.copy_base_because:
        # Nothing that lies beside a copy that was damaged.
        return Plan(vault.place_for_first(deps, record, pool), None, record.copy_base_because)
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
        # The first is the one that should have been it.
        because = because or f'backup {candidate.backup_id} {obstacle}'
    return Plan(vault.place_for_first(deps, record, pool), None, because)


def _ordered(
    record: backup_record.BackupRecord,
    others: list[backup_record.BackupRecord],
    source: image_types.ImageFacts,
) -> list[backup_record.BackupRecord]:
    """Order those on which a copy may be built, the best first."""
    numbers = {one.name: one.snapshot_id for one in source.snapshots}

    def number(one: backup_record.BackupRecord) -> int:
        return numbers.get(one.location.name, 0) if one.location else 0

    wanted = [record.copy_base_id, record.parent_id]
    asked_for = [one for one in others if one.backup_id in wanted]
    earlier = [
        one
        for one in others
        if one not in asked_for and one.copied_at is not None and number(one) < number(record)
    ]
    return [
        *sorted(asked_for, key=lambda one: wanted.index(one.backup_id)),
        *sorted(earlier, key=number, reverse=True),
    ]


def _find_obstacle(
    deps: BackupDependencies,
    record: backup_record.BackupRecord,
    base: backup_record.BackupRecord,
    source: image_types.ImageFacts,
    pool: str,
) -> str | None:
    """Tell why a copy cannot be built on that of another backup; None if it can."""
    if not base.state.is_complete:
        return f'is {base.state}'
    if base.copied_at is None or base.copy is None:
        return 'is not in the vault'
    if base.copy.pool != pool:
        LOG.info(
            'Backup %s: the copy of backup %s is in pool %s, and not in %s',
            *(record.backup_id, base.backup_id, base.copy.pool, pool),
        )
        return 'has its copy in another vault'
    if base.location is None or record.location is None or base.location.of != record.location.of:
        return 'was taken of another volume'
    found, own = (source.find_snapshot(one.name) for one in (base.location, record.location))
    if found is None:
        return 'has no snapshot any more'
    if own is None or found.snapshot_id > own.snapshot_id:
        return 'was taken later'
    facts = vault.find_facts(deps, base.copy.of)
    complete = copying.complete_copies(facts) if facts else {}
    origin = complete.get(base.copy.name)
    expected = source.image_id, found.snapshot_id
    if origin is None or (origin.image_id, origin.snapshot_id) != expected:
        return 'has no complete copy any more'
    return None
