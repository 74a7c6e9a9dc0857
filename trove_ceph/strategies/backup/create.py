# SPDX-License-Identifier: Apache-2.0
"""Taking a backup: a snapshot of the one image that holds data, redo and binary logs.

With quiesce ``none`` the snapshot comes first, so that the backup shows the database as it was when
it was requested. The server's settings are checked while Cinder takes the snapshot over, and the
answer must prove that they were the same when the snapshot was taken (:mod:`settings_proof`). Where
it does not, the snapshot is removed and the backup is taken in the order of the other levels: check
the settings, hold the server, take the snapshot, and check once more that nothing was changed.

The snapshot counts only once it is written down that the settings were safe and the server was held
as promised when it was taken. One that is found without that, after an interruption, is removed and
taken again; one with it is kept.

Once Trove shows the backup as complete nothing of it is undone, by whomever and whatever fails.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from oslo_log import log as logging
from oslo_utils import units

from trove_ceph import exceptions, steps
from trove_ceph.cinder import checks, snapshots
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.claims import Claim
from trove_ceph.db.roles import Role
from trove_ceph.enums import QuiesceLevel, VerifyWhen
from trove_ceph.storage import image_types, names
from trove_ceph.strategies.backup import (
    backup_types,
    claimed,
    options,
    quiesce_level,
    settings_proof,
    tenant_errors,
)
from trove_ceph.strategies.backup import quiesce as backup_quiesce
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.verification import report as verification

LOG = logging.getLogger(__name__)


def create_backup(
    deps: BackupDependencies,
    backup_id: str,
    asked: options.BackupOptions | None = None,
    claim: Claim | None = None,
) -> None:
    """Take a backup that Trove knows of, or carry on with it; tenants see how it ended.

    A backup whose deletion begins, or that another worker takes, is left to that worker.

    :param asked: what was asked for with it; of one that is carried on with it is in the record
    :param claim: of a worker that carries on; None: the backup is claimed in the first step
    :raises TroveCephError: it failed; nothing is left of it but the reason, in its record. One that
        is shown already is left as it is, and carried on with
    """
    taking = BackupCreation(deps, backup_id, asked, claim)
    try:
        try:
            steps.run(f'backup {backup_id}', taking.steps())
        except NotProvedError as error:
            LOG.info('Backup %s: the settings are checked first now: %s', backup_id, error)
            taking = BackupCreation(
                deps, backup_id, asked, taking.claim, check_first=True, began=taking.began
            )
            steps.run(f'backup {backup_id}', taking.steps())
    except exceptions.ClaimLostError as error:
        LOG.info('%s', error)
        taking.release()
    except Exception as error:
        if taking.may_be_shown:
            LOG.warning('Backup %s may be shown already: %s', backup_id, error)
            taking.release()
        else:
            _fail(deps, backup_id, taking.claim, error)
        raise
    finally:
        deps.heartbeat.drop(taking.claim)


class NotProvedError(exceptions.TroveCephError):
    """The settings under which a snapshot was taken are not proved by a check after it."""


def _fail(deps: BackupDependencies, backup_id: str, claim: Claim | None, error: Exception) -> None:
    try:
        if claim is not None:
            deps.records.note_failed(claim, tenant_errors.plain_reason(error))
        elif deps.records.find(backup_id) is not None:
            return
        deps.trove.fail_backup(backup_id)
    except exceptions.ClaimLostError as lost:
        LOG.info('%s', lost)
        if claim is not None:
            deps.records.claims.release(claim)
    except Exception:
        LOG.exception('Backup %s failed, which could not be written down', backup_id)


def clear(deps: BackupDependencies, claim: Claim) -> None:
    """Have nothing be there of a backup that could not be taken; harmless when repeated."""
    remove_snapshot(deps, claim)
    deps.records.clear_location(claim)


def remove_snapshot(deps: BackupDependencies, claim: Claim) -> None:
    """Have no snapshot of a backup be there, in Cinder or in Ceph; harmless when repeated.

    Where it would be is taken from the record, since the instance may be gone.

    :raises ClaimLostError: another worker has the backup
    """
    backup_id = claim.resource_id
    record = deps.records.find(backup_id)
    if record is None or record.location is None or record.volume_id is None:
        return
    # A snapshot without this would be made anew, this without a snapshot would not.
    deps.records.invalidate_snapshot(claim)
    wanted = _to_adopt(backup_id, record.location.of, record.volume_id)
    _adoption(deps, wanted).remove()


def _to_adopt(
    backup_id: str, image: image_types.ImageRef, volume_id: str, **facts: Any
) -> cinder_resources.SnapshotToAdopt:
    snapshot = image.snapshot(names.snapshot_name('backup', backup_id))
    # As Trove's own driver names them.
    name = f'trove-{backup_id}-backup'
    return cinder_resources.SnapshotToAdopt(backup_id, snapshot, volume_id, name, **facts)


def _adoption(
    deps: BackupDependencies,
    wanted: cinder_resources.SnapshotToAdopt,
    make: Callable[[], None] | None = None,
) -> snapshots.SnapshotAdoption:
    return snapshots.SnapshotAdoption(
        deps.storage, deps.cinder, wanted, make or _never, deps.patience
    )


def _never() -> None:
    raise AssertionError('what is only removed makes nothing')


@dataclasses.dataclass(frozen=True)
class _Answer:
    """What the guest agent said of the settings, and when that was here."""

    found: Mapping[str, Any]
    at: float


@dataclasses.dataclass(frozen=True)
class _Taken:
    """A snapshot that was taken by this process.

    :param began: just before it was requested
    :param ended: when it was there
    :param quiesced_sec: how long the server was held; None where it was not
    """

    began: float
    ended: float
    size_bytes: int
    quiesced_sec: float | None


def _plausible_bytes(told: Any) -> int | None:
    """Return a number of bytes that a guest told; None of what is none, or fits into no column."""
    is_number = isinstance(told, int) and not isinstance(told, bool)
    return told if is_number and 0 <= told < 1 << 63 else None


class BackupCreation:
    """One backup that is being taken.

    :param check_first: the settings are checked before the snapshot, whatever the level
    :param began: when it was begun; None: now
    """

    def __init__(
        self,
        deps: BackupDependencies,
        backup_id: str,
        asked: options.BackupOptions | None = None,
        claim: Claim | None = None,
        check_first: bool = False,
        began: float | None = None,
    ):
        self._deps = deps
        self._records = deps.records
        #: None until the first step.
        self.claim: Claim | None = None
        if claim is not None:
            self._has(claim)
        self._asked = asked or options.BackupOptions()
        self._backup_id = backup_id
        self._check_first = check_first
        self._is_carried_on = False
        self._is_proved = False
        self._parent_id: str | None = None
        self._level: QuiesceLevel
        self._wanted: backup_types.TroveBackup
        self._instance: backup_types.Instance
        self._image: image_types.ImageRef
        self._volume: cinder_resources.Volume
        self._adoption: snapshots.SnapshotAdoption
        self._before: _Answer | None = None
        self._decision: quiesce_level.Decision
        self._taken: _Taken
        self._await_answer: Callable[[], _Answer]
        self._snapshot: cinder_resources.Snapshot
        self.began = deps.clock() if began is None else began
        #: False once it was found not to be, until it is to be shown by this one.
        self.may_be_shown = True

    def steps(self) -> list[steps.Step]:
        """Return the steps that are left."""
        last = steps.Step('write down the backup', self._note, commits=True)
        if self._is_shown():
            return [last]
        return [
            steps.Step('begin the backup', self._begin, undo=self._undo),
            steps.Step('find the volume', self._find_volume),
            steps.Step('check the settings of the server', self._check_settings),
            steps.Step('take the snapshot', self._take),
            steps.Step('make the snapshot known to Cinder', self._manage),
            steps.Step('check what the snapshot was taken under', self._prove),
            steps.Step('show the backup as complete', self._show, commits=True),
            last,
        ]

    def _begin(self) -> None:
        found = self._deps.trove.find_backup(self._backup_id)
        if found is None or found.is_deleted:
            raise self._refuse('was deleted')
        record = self._records.find(found.id)
        if record is not None and record.state is RecordState.FAILED:
            raise self._refuse(f'was given up: {record.error}')
        if record is not None and record.state is RecordState.DELETING:
            raise exceptions.ClaimLostError(f'backup {self._backup_id}: is being deleted')
        self._wanted = found
        self._is_carried_on = record is not None
        self._is_proved = record is not None and record.snapshot_at is not None
        self._parent_id = found.parent_id or (record.parent_id if record else None)
        quiesce = self._asked.quiesce or (record.quiesce_wanted if record else None)
        # What is asked for with it at once: nobody else will know.
        claim = self._deps.heartbeat.acquire(
            lambda: self._records.begin_taking(
                found.id,
                found.instance_id,
                found.project_id,
                self._deps.worker,
                found.parent_id,
                claim=self.claim,
                **dataclasses.asdict(self._asked),
            )
        )
        if self.claim is None and claim is not None:
            self._has(claim)
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

    def _require_ours(self) -> None:
        """Show that it is being taken.

        :raises ClaimLostError: it is being deleted, or another worker takes it
        """
        if not self._is_ours():
            raise exceptions.ClaimLostError(
                f'backup {self._backup_id}: is being deleted, or another worker takes it'
            )

    def release(self) -> None:
        """Let the next worker that asks carry on."""
        if self.claim is not None:
            self._records.claims.release(self.claim)

    def _has(self, claim: Claim) -> None:
        self.claim = claim
        self._deps.heartbeat.add(claim)
        self._deps = claimed.guarded(self._deps, claim)

    @property
    def _claim(self) -> Claim:
        assert self.claim is not None
        return self.claim

    def _is_ours(self) -> bool:
        return self.claim is not None and self._records.claims.heartbeat(self.claim)

    def _undo(self) -> None:
        # Another worker that has taken over works on the same snapshot.
        if self._is_ours() and not self._is_shown():
            clear(self._deps, self._claim)

    def _is_shown(self) -> bool:
        self.may_be_shown = True
        found = self._deps.trove.find_backup(self._backup_id)
        self.may_be_shown = found is not None and found.is_shown
        return self.may_be_shown

    def _find_volume(self) -> None:
        instance = self._instance
        volume = instance.volume_id and self._deps.cinder.find_volume(instance.volume_id)
        if not volume:
            raise self._refuse(f'instance {instance.id} has no volume')
        image = self._deps.place(volume)
        if image is None:
            raise exceptions.NotAdoptableError(
                f'{volume}: lies on {volume.backend}, which is in none of the tiers'
            )
        self._image, self._volume = image, volume
        self._guest = self._deps.guest(instance.id)
        wanted = self._to_adopt()
        self._adoption = _adoption(self._deps, wanted)
        self._is_proved = self._is_proved and self._adoption.exists()
        if not self._is_proved:
            checks.check_volume(self._deps.cinder.project_id, wanted, volume)
        self._records.note_location(
            self._claim, wanted.snapshot, volume.id, volume.size_gib * units.Gi
        )

    def _to_adopt(self) -> cinder_resources.SnapshotToAdopt:
        return _to_adopt(
            self._backup_id,
            self._image,
            self._volume.id,
            description=self._wanted.description,
            metadata={
                'backup_id': self._backup_id,
                'instance_id': self._instance.id,
                'tenant_id': self._instance.project_id,
                'datastore': self._instance.datastore,
                'datastore_version': self._instance.version,
            },
        )

    def _check_settings(self) -> None:
        """Check them now, unless the snapshot comes first."""
        self._decision = quiesce_level.Decision(self._level)
        if self._is_proved or (self._level is QuiesceLevel.NONE and not self._check_first):
            return
        checks.check_backend(self._deps.cinder, self._to_adopt(), self._volume)
        self._before = self._ask()
        self._decision = self._decide(self._level, self._before)
        if self._decision.raised_from is not None:
            LOG.warning(
                'Backup %s of instance %s is taken with quiesce %s instead of %s: %s',
                *(self._backup_id, self._instance.id, self._decision.level),
                *(self._decision.raised_from, self._decision.because),
            )
        # The answer may have taken long.
        self._require_ours()

    def _ask(self) -> _Answer:
        found = self._guest.check_backup_settings()
        return _Answer(found, self._deps.clock())

    def _decide(self, level: QuiesceLevel, answer: _Answer) -> quiesce_level.Decision:
        return quiesce_level.decide(
            f'instance {self._instance.id}',
            level,
            answer.found['reasons'],
            self._deps.policy.unsafe_action,
        )

    def _position(self, found: object) -> str | None:
        """Return what the guest says it has executed, unless it is too long to be compared."""
        if not isinstance(found, str):
            return None
        if len(found) > verification.MAX_GTID_BYTES:
            LOG.warning(
                'Backup %s of instance %s: the guest\'s gtid_executed has %d characters, and up to '
                '%d are recorded; a verification will not compare it',
                *(self._backup_id, self._instance.id, len(found), verification.MAX_GTID_BYTES),
            )
            return None
        return found

    def _take(self) -> None:
        if self._is_proved:
            return
        if self._is_carried_on:
            # Cinder may have it already, from one whose undoing was cut off.
            remove_snapshot(self._deps, self._claim)
        with backup_quiesce.held(
            self._guest,
            self._backup_id,
            self._decision.level,
            self._deps.policy.limit_sec,
            self._deps.clock,
        ) as hold:
            began = self._deps.clock()
            facts = self._deps.storage.create_snapshot(self._to_adopt().snapshot)
            ended = self._deps.clock()
        self._taken = _Taken(began, ended, facts.size_bytes, hold.seconds)
        # Cinder takes it over meanwhile.
        self._await_answer = self._deps.begin(self._ask)

    def _manage(self) -> None:
        self._require_ours()
        if not self._is_proved and self._before is None:
            checks.check_backend(self._deps.cinder, self._to_adopt(), self._volume)
        self._snapshot = self._adoption.ensure_managed()

    def _prove(self) -> None:
        """Write down that the snapshot is good, if the settings when it was taken are proved.

        :raises NotProvedError: they are not, and the settings must be checked first
        :raises UnsafeSettingsError: they were not safe, or not for long enough
        """
        if self._is_proved:
            return
        answer = self._await_answer()
        decision = self._decide(self._decision.level, answer)
        if self._before is None:
            position = self._prove_first(answer, decision)
        else:
            position = self._prove_same(self._before, answer, decision)
        self._records.note_checked_snapshot(
            self._claim,
            level=self._decision.level,
            raised_from=self._decision.raised_from,
            because=self._decision.because,
            gtid_before=self._position(position),
            filesystem_used_bytes=_plausible_bytes(answer.found.get('filesystem_used_bytes')),
            size_bytes=self._taken.size_bytes,
            quiesced_sec=self._taken.quiesced_sec,
            age_sec=self._deps.clock() - self._taken.ended,
        )

    def _prove_first(self, answer: _Answer, decision: quiesce_level.Decision) -> str | None:
        """Prove the settings of a snapshot that came first, and return a position before it."""
        if decision.raised_from is not None:
            raise NotProvedError(decision.because)
        elapsed_sec = answer.at - self._taken.began
        if gap := settings_proof.find_gap(answer.found, elapsed_sec):
            raise NotProvedError(gap)
        return settings_proof.find_position(answer.found, elapsed_sec)

    def _prove_same(
        self, before: _Answer, after: _Answer, decision: quiesce_level.Decision
    ) -> str | None:
        """Prove that nothing was changed around the snapshot, and return the position before it."""
        ids = [one.found.get('settings_id') for one in (before, after)]
        if decision.raised_from is not None or ids[0] != ids[1]:
            raise exceptions.UnsafeSettingsError(
                f'instance {self._instance.id}: its settings were changed while the snapshot was '
                'taken; take another backup'
            )
        return before.found.get('gtid_executed')

    def _show(self) -> None:
        self._require_ours()
        self.may_be_shown = True
        self._deps.trove.complete_backup(
            self._backup_id, self._snapshot.id, self._snapshot.size_gib
        )

    def _note(self) -> None:
        # Our record last: what it says is being taken is carried on with after a crash.
        shown = self._deps.trove.find_backup(self._backup_id)
        if shown is None or shown.snapshot_id is None:
            raise self._refuse('was deleted')
        if self.claim is None and not self._claim_what_is_shown():
            return
        self._records.note_taken(
            self._claim,
            cinder_resources.rbd_name(shown.snapshot_id),
            shown.snapshot_id,
            self._deps.clock() - self.began,
            copy=self._deps.policy.copy,
            verify=self._deps.policy.verify is VerifyWhen.ALWAYS,
        )

    def _claim_what_is_shown(self) -> bool:
        """Claim a backup that Trove shows; return False where its record says so already."""
        record = self._records.get(self._backup_id)
        if record.state is not RecordState.TAKING:
            return False
        claim = self._deps.heartbeat.acquire(
            lambda: self._records.claims.claim(Role.TAKE, self._backup_id, self._deps.worker)
        )
        if claim is None:
            raise exceptions.ClaimLostError(f'backup {self._backup_id}: another worker takes it')
        self._has(claim)
        return True

    def _refuse(self, reason: str) -> exceptions.InvalidBackupError:
        return exceptions.InvalidBackupError(f'backup {self._backup_id}: {reason}')
