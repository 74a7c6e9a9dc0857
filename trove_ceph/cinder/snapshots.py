# SPDX-License-Identifier: Apache-2.0
"""Snapshots made with librbd become snapshots of Cinder."""

import contextlib
from collections.abc import Callable

from trove_ceph import exceptions, steps
from trove_ceph.cinder import checks, client, resources, wait
from trove_ceph.cinder import storage as cinder_storage


class SnapshotAdoption:
    """Makes a snapshot of a volume's image and has Cinder take it over.

    The volume may be in use. Each ``ensure_*`` and ``remove_*`` observes once what is there and
    does what is missing, so all are safe to repeat after an interruption: Cinder's snapshot is
    found by the operation's id in its metadata.

    :param cinder: as an administrator in the volume's project
    :param make: makes the librbd snapshot; it is called only when there is none yet, under this
        name or under Cinder's
    """

    def __init__(
        self,
        storage: cinder_storage.Storage,
        cinder: client.Cinder,
        wanted: resources.SnapshotToAdopt,
        make: Callable[[], None],
        patience: wait.WaitLimits | None = None,
    ):
        self._storage = storage
        self._cinder = cinder
        self._wanted = wanted
        self._make = make
        self._patience = patience or wait.WaitLimits()
        self._managed: resources.Snapshot | None = None

    @property
    def snapshot_id(self) -> str:
        """Cinder's id of the snapshot.

        :raises NotFoundError: :meth:`ensure_managed` has not returned yet
        """
        if self._managed is None:
            raise exceptions.NotFoundError(f'{self._wanted.snapshot}: is not Cinder\'s yet')
        return self._managed.id

    def steps(self) -> list[steps.Step]:
        """Return the whole adoption as steps."""
        return [
            steps.Step('check the volume', self.check_volume),
            steps.Step('take the snapshot', self.ensure_taken, undo=self.remove_taken),
            steps.Step(
                'make the snapshot known to Cinder', self.ensure_managed, undo=self.remove_managed
            ),
        ]

    def check_volume(self) -> None:
        """Check that Cinder will take the snapshot over, unless it has done so already.

        :raises NotAdoptableError: it will not
        """
        if not self._records():
            volume = self._cinder.find_volume(self._wanted.volume_id)
            found = checks.check_volume(self._cinder.project_id, self._wanted, volume)
            checks.check_backend(self._cinder, self._wanted, found)

    def exists(self) -> bool:
        """Tell whether the snapshot is there, under its own name or under Cinder's."""
        # The records first: Cinder may rename the snapshot meanwhile, and never back.
        records = self._records()
        taken = self._taken()
        return self._wanted.snapshot.name in taken or any(
            record.rbd_name in taken for record in records
        )

    def ensure_taken(self) -> None:
        """Make the librbd snapshot where there is none."""
        if not self.exists():
            self._make()

    def ensure_managed(self) -> resources.Snapshot:
        """Have Cinder take the snapshot over, wait until it has, and return Cinder's.

        :raises AdoptionFailedError: Cinder failed at it
        """
        records = self._settled_records()
        adopted = self._find_adopted(records) if records else None
        self._delete([one for one in records if adopted is None or one.id != adopted.id])
        if adopted is None:
            adopted = self._manage()
        if records:
            # One that was taken although Cinder was about to rename the first.
            self.remove_taken()
        self._managed = adopted
        return adopted

    def remove_managed(self) -> None:
        """Have Cinder delete its snapshot, in Ceph too; harmless when there is none."""
        self._delete(self._settled_records())

    def remove_taken(self) -> None:
        """Remove the librbd snapshot that Cinder has not taken over; harmless when repeated."""
        with contextlib.suppress(exceptions.NotFoundError):
            self._storage.remove_snapshot(self._wanted.snapshot)

    def remove(self) -> None:
        """Remove the snapshot from Cinder and from Ceph; harmless when repeated."""
        self.remove_managed()
        self.remove_taken()

    def _manage(self) -> resources.Snapshot:
        snapshot_id = self._cinder.manage_snapshot(self._wanted)
        made = self._patience.until_settled(self._cinder.find_snapshot, snapshot_id)
        if made is None or made.failed:
            raise exceptions.AdoptionFailedError(
                f'{self._wanted.snapshot}: Cinder\'s snapshot {snapshot_id} ended in '
                f'{made.status if made else "nothing"}; the logs of cinder-scheduler and '
                'cinder-volume tell why'
            )
        return made

    def _find_adopted(self, records: list[resources.Snapshot]) -> resources.Snapshot | None:
        """Return the record whose snapshot Cinder has renamed, and accept it if Cinder gave up."""
        taken = self._taken()
        there = [one for one in records if one.rbd_name in taken]
        there.sort(key=lambda one: one.failed)
        if not there:
            return None
        if there[0].failed:
            # Cinder gave up after it had renamed the snapshot: all else is there.
            self._cinder.set_snapshot_status(there[0].id, 'available')
        return there[0]

    def _settled_records(self) -> list[resources.Snapshot]:
        """Cinder's snapshots of this operation, once Cinder works on none of them."""
        settled = (
            self._patience.until_settled(self._cinder.find_snapshot, record.id)
            if record.under_way
            else record
            for record in self._records()
        )
        return [record for record in settled if record is not None]

    def _records(self) -> list[resources.Snapshot]:
        """Cinder's snapshots of this operation; others cannot pass theirs off as such."""
        return [
            one
            for one in self._cinder.list_snapshots(self._wanted.volume_id)
            if one.metadata.get(resources.OPERATION_KEY) == self._wanted.operation_id
            and one.project_id == self._cinder.project_id
        ]

    def _taken(self) -> set[str]:
        """The names of the image's snapshots; an image that is gone has none."""
        with contextlib.suppress(exceptions.NotFoundError):
            facts = self._storage.describe(self._wanted.snapshot.of, with_usage=False)
            return set(facts.snapshot_names)
        return set()

    def _delete(self, records: list[resources.Snapshot]) -> None:
        for record in records:
            self._cinder.delete_snapshot(record.id)
            self._patience.until_gone(self._cinder.find_snapshot, record.id)
