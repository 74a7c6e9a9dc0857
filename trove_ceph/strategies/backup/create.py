# SPDX-License-Identifier: Apache-2.0
"""Take a backup: a snapshot of the one image that holds data, redo log and binary logs.

With quiesce ``none`` the snapshot comes first, so that the backup shows the database as it was when
the backup was requested. The server's settings are checked while Cinder adopts the snapshot, and
the answer must prove that they were the same when the snapshot was taken (:mod:`settings_proof`).
If it does not, the snapshot is removed and the backup is taken in the order of the other levels:
check the settings, quiesce the server, take the snapshot, and check that no setting was changed.

The snapshot counts only once the record says that the settings were safe and the server was
quiesced as required when it was taken. A run after an interruption keeps a snapshot that is
recorded so, and takes any other one again.

Once Trove shows the backup as complete, no failure of any worker undoes any of it.
"""

import dataclasses
from collections.abc import Callable

from oslo_log import log as logging
from oslo_utils import units

from trove_ceph import exceptions, operation_events, steps
from trove_ceph.cinder import checks, snapshots
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.claims import Claim
from trove_ceph.db.roles import Role
from trove_ceph.enums import QuiesceLevel, VerifyWhen
from trove_ceph.storage import image_types
from trove_ceph.strategies.backup import (
    backup_snapshot,
    backup_types,
    claimed,
    options,
    quiesce_level,
    settings_check,
    tenant_errors,
)
from trove_ceph.strategies.backup import quiesce as backup_quiesce
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)


def create_backup(
    deps: BackupDependencies,
    backup_id: str,
    requested: options.BackupOptions | None = None,
    claim: Claim | None = None,
) -> None:
    """Take a backup that Trove has recorded, or continue it; Trove shows tenants the result.

    A backup that is being deleted, or that another worker takes, is left to that worker.

    :param requested: its options; those of a backup that is continued are in its record
    :param claim: of a worker that continues it; None: the first step claims the backup
    :raises TroveCephError: it failed. All but its record, which has the reason, is removed. A
        backup that Trove shows already stays as it is, and is continued later
    """
    creation = BackupCreation(deps, backup_id, requested, claim)
    report = operation_events.begin(operation_events.Operation.BACKUP_TAKE, backup_id=backup_id)
    try:
        with report.ending():
            try:
                steps.run(f'backup {backup_id}', creation.steps(), report.enter)
            except settings_check.NotProvedError as error:
                LOG.info(
                    'Backup %s: start again and check the settings first: %s', backup_id, error
                )
                creation = BackupCreation(
                    *(deps, backup_id, requested, creation.claim),
                    check_first=True,
                    began=creation.began,
                )
                steps.run(f'backup {backup_id}', creation.steps(), report.enter)
    except exceptions.ClaimLostError as error:
        LOG.info('%s', error)
        creation.release()
    except Exception as error:
        if creation.may_be_shown:
            LOG.warning(
                'Backup %s may already be COMPLETED in Trove, so it is left for recovery: %s',
                backup_id,
                error,
            )
            creation.release()
        else:
            _record_failure(deps, backup_id, creation.claim, error)
        raise
    finally:
        deps.heartbeat.drop(creation.claim)


def _record_failure(
    deps: BackupDependencies, backup_id: str, claim: Claim | None, error: Exception
) -> None:
    try:
        if claim is not None:
            deps.records.record_failed(claim, tenant_errors.tenant_message(error))
        elif deps.records.find(backup_id) is not None:
            return
        deps.trove.fail_backup(backup_id)
    except exceptions.ClaimLostError as lost:
        LOG.info('%s', lost)
        if claim is not None:
            deps.records.claims.release(claim)
    except Exception:
        LOG.exception('Backup %s failed, and its failure could not be recorded', backup_id)


@dataclasses.dataclass(frozen=True)
class _TakenSnapshot:
    """A snapshot that this process has taken.

    :param began: just before it was requested, by the taskmanager's monotonic clock
    :param ended: when it existed
    :param quiesced_sec: how long the server was quiesced; None if it was not
    """

    began: float
    ended: float
    size_bytes: int
    quiesced_sec: float | None


class BackupCreation:
    """One backup that is being taken.

    :param check_first: check the settings before the snapshot at every level
    :param began: when the backup began; None: now
    """

    def __init__(
        self,
        deps: BackupDependencies,
        backup_id: str,
        requested: options.BackupOptions | None = None,
        claim: Claim | None = None,
        check_first: bool = False,
        began: float | None = None,
    ):
        self._deps = deps
        self._records = deps.records
        #: None until the first step.
        self.claim: Claim | None = None
        if claim is not None:
            self._use_claim(claim)
        self._requested = requested or options.BackupOptions()
        self._backup_id = backup_id
        self._check_first = check_first
        self._is_continued = False
        self._is_proved = False
        self._parent_id: str | None = None
        self._level: QuiesceLevel
        self._trove_backup: backup_types.TroveBackup
        self._instance: backup_types.Instance
        self._image: image_types.ImageRef
        self._volume: cinder_resources.Volume
        self._adoption: snapshots.SnapshotAdoption
        self._settings: settings_check.SettingsCheck
        self._answer_before: settings_check.Answer | None = None
        self._decision: quiesce_level.Decision
        self._taken: _TakenSnapshot
        self._await_answer: Callable[[], settings_check.Answer]
        self._snapshot: cinder_resources.Snapshot
        self.began = deps.clock() if began is None else began
        #: Whether Trove may show the backup. False after a look at Trove, until this run shows it.
        self.may_be_shown = True

    def steps(self) -> list[steps.Step]:
        """Return the steps that are left."""
        last = steps.Step('record the backup as complete', self._record_complete, commits=True)
        if self._is_shown():
            return [last]
        return [
            steps.Step('begin the backup', self._begin, undo=self._undo),
            steps.Step('find the volume', self._find_volume),
            steps.Step('check the settings of the server', self._check_settings),
            steps.Step('take the snapshot', self._take_snapshot),
            steps.Step('have Cinder manage the snapshot', self._manage_snapshot),
            steps.Step('prove the settings of the snapshot', self._prove_settings),
            steps.Step('show the backup as complete', self._show, commits=True),
            last,
        ]

    def release(self) -> None:
        """Release the claim, so that the next worker that claims the backup continues it."""
        if self.claim is not None:
            self._records.claims.release(self.claim)

    # The steps.

    def _begin(self) -> None:
        found = self._deps.trove.find_backup(self._backup_id)
        if found is None or found.is_deleted:
            raise self._refuse('was deleted')
        record = self._records.find(found.id)
        if record is not None and record.state is RecordState.FAILED:
            raise self._refuse(f'has failed before: {record.error}')
        if record is not None and record.state is RecordState.DELETING:
            raise exceptions.ClaimLostError(f'backup {self._backup_id} is being deleted')
        self._trove_backup = found
        self._is_continued = record is not None
        self._is_proved = record is not None and record.snapshot_at is not None
        self._parent_id = found.parent_id or (record.parent_id if record else None)
        quiesce = self._requested.quiesce or (record.quiesce_wanted if record else None)
        # The options are recorded now, since nothing else stores them.
        claim = self._deps.heartbeat.acquire(
            lambda: self._records.begin_taking(
                found.id,
                found.instance_id,
                found.project_id,
                self._deps.worker,
                found.parent_id,
                claim=self.claim,
                **dataclasses.asdict(self._requested),
            )
        )
        if self.claim is None and claim is not None:
            self._use_claim(claim)
        self._deps.trove.begin_backup(found.id)
        instance = self._deps.trove.find_instance(found.instance_id)
        if instance is None or instance.is_deleted or instance.is_deleting:
            raise self._refuse(f'instance {found.instance_id} was deleted')
        self._instance = instance
        self._level = QuiesceLevel(quiesce) if quiesce else self._deps.policy.level_of(instance)
        self._check_parent()

    def _check_parent(self) -> None:
        if self._parent_id is None:
            return
        parent = self._deps.trove.find_backup(self._parent_id)
        if parent is None or parent.instance_id != self._instance.id:
            raise self._refuse(
                f'its parent {self._parent_id} is no backup of instance {self._instance.id}'
            )

    def _undo(self) -> None:
        # A worker that has resumed the backup works on the same snapshot.
        if self._renew_claim() and not self._is_shown():
            backup_snapshot.remove_leftovers(self._deps, self._claim)

    def _find_volume(self) -> None:
        instance = self._instance
        volume = instance.volume_id and self._deps.cinder.find_volume(instance.volume_id)
        if not volume:
            raise self._refuse(f'instance {instance.id} has no volume')
        image = self._deps.find_image(volume)
        if image is None:
            raise exceptions.NotAdoptableError(
                f'{volume} is on backend {volume.backend}, which belongs to no tier'
            )
        self._image, self._volume = image, volume
        self._settings = settings_check.SettingsCheck(
            self._deps,
            instance.id,
            self._deps.guest(instance.id),
            f'Backup {self._backup_id} of instance {instance.id}',
        )
        snapshot = self._to_adopt()
        self._adoption = backup_snapshot.adoption(self._deps, snapshot)
        self._is_proved = self._is_proved and self._adoption.exists()
        if not self._is_proved:
            checks.check_volume(self._deps.cinder.project_id, snapshot, volume)
        self._records.record_location(
            self._claim, snapshot.snapshot, volume.id, volume.size_gib * units.Gi
        )

    def _check_settings(self) -> None:
        """Check the settings, unless the snapshot comes first."""
        self._decision = quiesce_level.Decision(self._level)
        if self._is_proved or (self._level is QuiesceLevel.NONE and not self._check_first):
            return
        checks.check_backend(self._deps.cinder, self._to_adopt(), self._volume)
        self._answer_before = self._settings.ask()
        self._decision = self._settings.decide(self._level, self._answer_before)
        if self._decision.raised_from is not None:
            LOG.warning(
                'Backup %s of instance %s is taken with quiesce %s instead of %s: %s',
                *(self._backup_id, self._instance.id, self._decision.level),
                *(self._decision.raised_from, self._decision.because),
            )
        # The answer may have taken long.
        self._require_claim()

    def _take_snapshot(self) -> None:
        if self._is_proved:
            return
        if self._is_continued:
            # Cinder may have the snapshot of an earlier run whose undo was interrupted.
            backup_snapshot.remove(self._deps, self._claim)
        with backup_quiesce.quiesced(
            self._settings.guest,
            self._backup_id,
            self._decision.level,
            self._deps.policy.limit_sec,
            self._deps.clock,
        ) as hold:
            began = self._deps.clock()
            facts = self._deps.storage.create_snapshot(self._to_adopt().snapshot)
            ended = self._deps.clock()
        self._taken = _TakenSnapshot(began, ended, facts.size_bytes, hold.seconds)
        # The guest agent answers while Cinder adopts the snapshot.
        self._await_answer = self._deps.begin(self._settings.ask)

    def _manage_snapshot(self) -> None:
        self._require_claim()
        if not self._is_proved and self._answer_before is None:
            checks.check_backend(self._deps.cinder, self._to_adopt(), self._volume)
        self._snapshot = self._adoption.ensure_managed()

    def _prove_settings(self) -> None:
        """Record that the snapshot is a backup, if the settings at its time are proved safe.

        :raises NotProvedError: they are not proved, and must be checked before another snapshot
        :raises UnsafeSettingsError: they were unsafe, or were changed
        """
        if self._is_proved:
            return
        answer = self._await_answer()
        decision = self._settings.decide(self._decision.level, answer)
        if self._answer_before is None:
            position = self._settings.prove_past(answer, decision, self._taken.began)
        else:
            position = self._settings.prove_unchanged(self._answer_before, answer, decision)
        self._records.record_checked_snapshot(
            self._claim,
            level=self._decision.level,
            raised_from=self._decision.raised_from,
            because=self._decision.because,
            gtid_before=position,
            filesystem_used_bytes=answer.filesystem_used_bytes,
            size_bytes=self._taken.size_bytes,
            quiesced_sec=self._taken.quiesced_sec,
            snapshot_sec=self._taken.ended - self.began,
            age_sec=self._deps.clock() - self._taken.ended,
        )

    def _show(self) -> None:
        self._require_claim()
        self.may_be_shown = True
        self._deps.trove.complete_backup(
            self._backup_id, self._snapshot.id, self._snapshot.size_gib
        )

    def _record_complete(self) -> None:
        # Our record comes last: a backup that it shows as being taken is continued after a crash.
        shown = self._deps.trove.find_backup(self._backup_id)
        if shown is None or shown.snapshot_id is None:
            raise self._refuse('was deleted')
        if self.claim is None and not self._claim_shown_backup():
            return
        self._records.record_taken(
            self._claim,
            cinder_resources.rbd_name(shown.snapshot_id),
            shown.snapshot_id,
            self._deps.clock() - self.began,
            copy=self._deps.policy.copy,
            verify=self._deps.policy.verify is VerifyWhen.ALWAYS,
        )

    # What the steps share.

    def _is_shown(self) -> bool:
        self.may_be_shown = True
        found = self._deps.trove.find_backup(self._backup_id)
        self.may_be_shown = found is not None and found.is_shown
        return self.may_be_shown

    def _to_adopt(self) -> cinder_resources.SnapshotToAdopt:
        return backup_snapshot.to_adopt(
            self._backup_id,
            self._image,
            self._volume.id,
            description=self._trove_backup.description,
            metadata={
                'backup_id': self._backup_id,
                'instance_id': self._instance.id,
                'tenant_id': self._instance.project_id,
                'datastore': self._instance.datastore,
                'datastore_version': self._instance.version,
            },
        )

    @property
    def _claim(self) -> Claim:
        assert self.claim is not None
        return self.claim

    def _use_claim(self, claim: Claim) -> None:
        self.claim = claim
        self._deps.heartbeat.add(claim)
        self._deps = claimed.guarded(self._deps, claim)

    def _renew_claim(self) -> bool:
        return self.claim is not None and self._records.claims.heartbeat(self.claim)

    def _require_claim(self) -> None:
        """Renew the claim.

        :raises ClaimLostError: the backup is being deleted, or another worker takes it
        """
        if not self._renew_claim():
            raise exceptions.ClaimLostError(
                f'backup {self._backup_id} is being deleted, or another worker takes it'
            )

    def _claim_shown_backup(self) -> bool:
        """Claim a backup that Trove shows; return False if its record is complete already."""
        record = self._records.get(self._backup_id)
        if record.state is not RecordState.TAKING:
            return False
        claim = self._deps.heartbeat.acquire(
            lambda: self._records.claims.claim(Role.TAKE, self._backup_id, self._deps.worker)
        )
        if claim is None:
            raise exceptions.ClaimLostError(f'backup {self._backup_id}: another worker takes it')
        self._use_claim(claim)
        return True

    def _refuse(self, reason: str) -> exceptions.InvalidBackupError:
        return exceptions.InvalidBackupError(f'backup {self._backup_id}: {reason}')
