# SPDX-License-Identifier: Apache-2.0
"""Taking a backup: a snapshot of the one image that holds data, redo and binary logs.

The snapshot counts only once it is written down that the server was held as promised until it was
made. One that is found without that, after an interruption, is removed and made again; one with it
is kept, since what was true when it was made cannot be made true later.

Once Trove shows the backup as complete nothing of it is undone, by whomever and whatever fails.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from oslo_log import log as logging
from oslo_utils import units

from trove_ceph import exceptions, steps
from trove_ceph.cinder import model as cinder_model
from trove_ceph.cinder import snapshots
from trove_ceph.db.claims import Claim
from trove_ceph.db.model import State
from trove_ceph.db.roles import Role
from trove_ceph.storage import model as storage_model
from trove_ceph.storage import names
from trove_ceph.strategies.backup import claimed, holding, levels, model, reasons, request
from trove_ceph.strategies.backup.model import Level, Verify
from trove_ceph.strategies.backup.tools import Tools

LOG = logging.getLogger(__name__)


def take(
    tools: Tools,
    backup_id: str,
    asked: request.Request | None = None,
    claim: Claim | None = None,
) -> None:
    """Take a backup that Trove knows of, or carry on with it; tenants see how it ended.

    A backup whose deletion begins, or that another worker takes, is left to that worker.

    :param asked: what was asked for with it; of one that is carried on with it is in the record
    :param claim: of a worker that carries on; None: the backup is claimed in the first step
    :raises TroveCephError: it failed; nothing is left of it but the reason, in its record. One that
        is shown already is left as it is, and carried on with
    """
    taking = Taking(tools, backup_id, asked, claim)
    try:
        steps.run(
            f'backup {backup_id}',
            taking.steps(),
            None,
            note=lambda _name, number, _count: taking.show_life(number),
        )
    except exceptions.ClaimLostError as error:
        LOG.info('%s', error)
        taking.release()
    except Exception as error:
        if taking.may_be_shown:
            LOG.warning('Backup %s may be shown already: %s', backup_id, error)
            taking.release()
        else:
            _fail(tools, backup_id, taking.claim, error)
        raise
    finally:
        tools.heartbeat.drop(taking.claim)


def _fail(tools: Tools, backup_id: str, claim: Claim | None, error: Exception) -> None:
    try:
        if claim is not None:
            tools.records.note_failed(claim, reasons.plain(error))
        elif tools.records.find(backup_id) is not None:
            return
        tools.trove.fail_backup(backup_id)
    except exceptions.ClaimLostError as lost:
        LOG.info('%s', lost)
        if claim is not None:
            tools.records.claims.release(claim)
    except Exception:
        LOG.exception('Backup %s failed, which could not be written down', backup_id)


def clear(tools: Tools, claim: Claim) -> None:
    """Have nothing be there of a backup that could not be taken; harmless when repeated."""
    remove_snapshot(tools, claim)
    tools.records.forget_place(claim)


def remove_snapshot(tools: Tools, claim: Claim) -> None:
    """Have no snapshot of a backup be there, in Cinder or in Ceph; harmless when repeated.

    Where it would be is taken from the record, since the instance may be gone.

    :raises ClaimLostError: another worker has the backup
    """
    backup_id = claim.resource_id
    record = tools.records.find(backup_id)
    if record is None or record.place is None or record.volume_id is None:
        return
    # A snapshot without this would be made anew, this without a snapshot would not.
    tools.records.forget_snapshot(claim)
    wanted = _to_adopt(backup_id, record.place.of, record.volume_id)
    for step in reversed(_adoption(tools, wanted).steps()):
        if step.undo is not None:
            step.undo(None)


def _to_adopt(
    backup_id: str, image: storage_model.ImageRef, volume_id: str, **facts: Any
) -> cinder_model.SnapshotToAdopt:
    snapshot = image.snapshot(names.snapshot_name('backup', backup_id))
    # As Trove's own driver names them.
    name = f'trove-{backup_id}-backup'
    return cinder_model.SnapshotToAdopt(backup_id, snapshot, volume_id, name, **facts)


def _adoption(
    tools: Tools, wanted: cinder_model.SnapshotToAdopt, make: Callable[[], None] | None = None
) -> snapshots.SnapshotAdoption:
    return snapshots.SnapshotAdoption(
        tools.storage, tools.cinder, wanted, make or _never, tools.patience
    )


def _never() -> None:
    raise AssertionError('what is only undone makes nothing')


class Taking:
    """One backup that is being taken."""

    def __init__(
        self,
        tools: Tools,
        backup_id: str,
        asked: request.Request | None = None,
        claim: Claim | None = None,
    ):
        self._tools = tools
        self._records = tools.records
        #: None until the first step.
        self.claim: Claim | None = None
        if claim is not None:
            self._has(claim)
        self._asked = asked or request.Request()
        self._began = tools.clock()
        self._backup_id = backup_id
        self._is_carried_on = False
        self._wanted: model.TroveBackup
        self._instance: model.Instance
        self._image: storage_model.ImageRef
        self._adoption: snapshots.SnapshotAdoption
        self._snapshot: cinder_model.Snapshot
        #: False once it was found not to be, until it is to be shown by this one.
        self.may_be_shown = True

    def steps(self) -> list[steps.Step[Any]]:
        """Return the steps that are left, which take no notice of their context."""
        last: steps.Step[Any] = steps.Step(
            'write down the backup', lambda _: self._note(), commits=True
        )
        if self._is_shown():
            return [last]
        return [
            steps.Step('begin the backup', lambda _: self._begin(), undo=lambda _: self._undo()),
            steps.Step('find the volume', lambda _: self._find_volume()),
            steps.Step('check the parent', lambda _: self._check_parent()),
            steps.Step('check the volume', lambda _: self._check(None)),
            steps.Step('check the settings of the server', lambda _: self._check_settings()),
            steps.Step('take the snapshot', lambda _: self._take()),
            steps.Step('make the snapshot known to Cinder', lambda _: self._manage(None)),
            steps.Step('look at the snapshot in Cinder', lambda _: self._look()),
            steps.Step('show the backup as complete', lambda _: self._show(), commits=True),
            last,
        ]

    def _begin(self) -> None:
        found = self._tools.trove.find_backup(self._backup_id)
        if found is None or found.is_deleted:
            raise self._refuse('was deleted')
        record = self._records.find(found.id)
        if record is not None and record.state is State.FAILED:
            raise self._refuse(f'was given up: {record.error}')
        if record is not None and record.state is State.DELETING:
            raise exceptions.ClaimLostError(f'backup {self._backup_id}: is being deleted')
        self._wanted = found
        self._is_carried_on = record is not None
        # What is asked for with it at once: nobody else will know.
        claim = self._tools.heartbeat.acquire(
            lambda: self._records.begin_taking(
                found.id,
                found.instance_id,
                found.project_id,
                self._tools.worker,
                found.parent_id,
                claim=self.claim,
                **dataclasses.asdict(self._asked),
            )
        )
        if self.claim is None and claim is not None:
            self._has(claim)
        self._tools.trove.begin_backup(found.id)

    def show_life(self, number: int) -> None:
        """Show before each step that it is being taken.

        :param number: of the step, whose first one writes down by whom
        :raises ClaimLostError: it is being deleted, or another worker takes it
        """
        if number > 1 and not self._is_ours():
            raise exceptions.ClaimLostError(
                f'backup {self._backup_id}: is being deleted, or another worker takes it'
            )

    def release(self) -> None:
        """Let the next worker that asks carry on."""
        if self.claim is not None:
            self._records.claims.release(self.claim)

    def _has(self, claim: Claim) -> None:
        self.claim = claim
        self._tools.heartbeat.add(claim)
        self._tools = claimed.guarded(self._tools, claim)

    @property
    def _claim(self) -> Claim:
        assert self.claim is not None
        return self.claim

    def _is_ours(self) -> bool:
        return self.claim is not None and self._records.claims.heartbeat(self.claim)

    def _undo(self) -> None:
        # Another worker that has taken over works on the same snapshot.
        if self._is_ours() and not self._is_shown():
            clear(self._tools, self._claim)

    def _is_shown(self) -> bool:
        self.may_be_shown = True
        found = self._tools.trove.find_backup(self._backup_id)
        self.may_be_shown = found is not None and found.is_shown
        return self.may_be_shown

    def _find_volume(self) -> None:
        instance = self._tools.trove.find_instance(self._wanted.instance_id)
        if instance is None or instance.is_deleted or instance.is_deleting:
            raise self._refuse(f'instance {self._wanted.instance_id} was deleted')
        volume = instance.volume_id and self._tools.cinder.find_volume(instance.volume_id)
        if not volume:
            raise self._refuse(f'instance {instance.id} has no volume')
        image = self._tools.place(volume)
        if image is None:
            raise exceptions.NotAdoptableError(
                f'{volume}: lies on {volume.backend}, which is in none of the tiers'
            )
        self._instance, self._image = instance, image
        self._guest = self._tools.guest(instance.id)
        self._adoption = self._adopt(volume.id)
        check, take, manage = self._adoption.steps()
        self._check, self._make_missing, self._manage = check.do, take.do, manage.do
        self._records.note_place(
            self._claim, image.snapshot(self._name), volume.id, volume.size_gib * units.Gi
        )

    def _adopt(self, volume_id: str) -> snapshots.SnapshotAdoption:
        wanted = _to_adopt(
            self._backup_id,
            self._image,
            volume_id,
            description=self._wanted.description,
            metadata={
                'backup_id': self._backup_id,
                'instance_id': self._instance.id,
                'tenant_id': self._instance.project_id,
                'datastore': self._instance.datastore,
                'datastore_version': self._instance.version,
            },
        )
        return _adoption(self._tools, wanted, self._make)

    def _check_parent(self) -> None:
        parent_id = self._records.get(self._backup_id).parent_id
        if parent_id is None:
            return
        parent = self._tools.trove.find_backup(parent_id)
        if parent is None or parent.instance_id != self._instance.id:
            raise self._refuse(
                f'its parent {parent_id} is no backup of instance {self._instance.id}'
            )

    def _check_settings(self) -> None:
        if self._is_proved():
            return
        found = self._guest.check_backup_settings()
        decision = levels.decide(
            f'instance {self._instance.id}',
            self._level(),
            found['reasons'],
            self._tools.policy.unsafe_action,
        )
        if decision.raised_from is not None:
            LOG.warning(
                'Backup %s of instance %s is taken with quiesce %s instead of %s: %s',
                *(self._backup_id, self._instance.id, decision.level),
                *(decision.raised_from, decision.because),
            )
        self._records.note_level(
            self._claim,
            decision.level,
            decision.raised_from,
            decision.because,
            found.get('gtid_executed'),
        )

    def _level(self) -> Level:
        wanted = self._records.get(self._backup_id).quiesce_wanted
        return Level(wanted) if wanted else self._tools.policy.level_of(self._instance)

    def _take(self) -> None:
        if self._is_carried_on and not self._is_proved():
            # Cinder may have it already, from one whose undoing was cut off.
            remove_snapshot(self._tools, self._claim)
        self._make_missing(None)

    def _make(self) -> None:
        record = self._records.get(self._backup_id)
        with holding.held(
            self._guest,
            self._backup_id,
            Level(record.quiesce or Level.NONE),
            self._tools.policy.limit_sec,
            self._tools.clock,
        ) as hold:
            facts = self._tools.storage.create_snapshot(self._image.snapshot(self._name))
        self._records.note_snapshot(self._claim, facts.size_bytes, hold.seconds)

    def _look(self) -> None:
        cinder_id = self._adoption.snapshot_id
        snapshot = self._tools.cinder.find_snapshot(cinder_id)
        if snapshot is None:
            raise exceptions.NotFoundError(f'backup {self._backup_id}: no snapshot {cinder_id}')
        self._snapshot = snapshot

    def _show(self) -> None:
        self.may_be_shown = True
        self._tools.trove.complete_backup(
            self._backup_id, self._snapshot.id, self._snapshot.size_gib
        )

    def _note(self) -> None:
        # Our record last: what it says is being taken is carried on with after a crash.
        shown = self._tools.trove.find_backup(self._backup_id)
        if shown is None or shown.snapshot_id is None:
            raise self._refuse('was deleted')
        if self.claim is None and not self._claim_what_is_shown():
            return
        self._records.note_taken(
            self._claim,
            cinder_model.rbd_name(shown.snapshot_id),
            shown.snapshot_id,
            self._tools.clock() - self._began,
            copy=self._tools.policy.copy,
            verify=self._tools.policy.verify is Verify.ALWAYS,
        )

    def _claim_what_is_shown(self) -> bool:
        """Claim a backup that Trove shows; return False where its record says so already."""
        record = self._records.get(self._backup_id)
        if record.state is not State.TAKING:
            return False
        claim = self._tools.heartbeat.acquire(
            lambda: self._records.claims.claim(Role.TAKE, self._backup_id, self._tools.worker)
        )
        if claim is None:
            raise exceptions.ClaimLostError(f'backup {self._backup_id}: another worker takes it')
        self._has(claim)
        return True

    def _is_proved(self) -> bool:
        return self._records.get(self._backup_id).snapshot_at is not None

    @property
    def _name(self) -> str:
        return names.snapshot_name('backup', self._backup_id)

    def _refuse(self, reason: str) -> exceptions.InvalidBackupError:
        return exceptions.InvalidBackupError(f'backup {self._backup_id}: {reason}')
