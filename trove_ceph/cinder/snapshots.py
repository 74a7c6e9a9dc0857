# SPDX-License-Identifier: Apache-2.0
"""Snapshots made with librbd become snapshots of Cinder."""

import contextlib
from collections.abc import Callable
from typing import Any

from trove_ceph import exceptions, steps
from trove_ceph.cinder import checks, client, resources, wait
from trove_ceph.cinder import storage as cinder_storage


class SnapshotAdoption:
    """Makes a snapshot of a volume's image and has Cinder take it over.

    The volume may be in use. Where the operation was interrupted, running the steps again finds
    Cinder's snapshot by the operation's id in its metadata.

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

    @property
    def snapshot_id(self) -> str:
        """Cinder's id of the snapshot.

        :raises NotFoundError: it is not Cinder's yet
        """
        adopted = self._adopted()
        if adopted is None:
            raise exceptions.NotFoundError(f'{self._wanted.snapshot}: not adopted')
        return adopted.id

    def steps(self) -> list[steps.Step[Any]]:
        """Return the steps, which take no notice of their context."""
        return [
            steps.Step('check the volume', lambda _: self._check()),
            steps.Step(
                'take the snapshot', lambda _: self._take(), undo=lambda _: self._remove_untaken()
            ),
            steps.Step(
                'make the snapshot known to Cinder',
                lambda _: self._manage(),
                undo=lambda _: self._delete(self._records()),
            ),
        ]

    def _check(self) -> None:
        if not self._records():
            checks.check_volume(self._cinder, self._wanted)

    def _take(self) -> None:
        # The records first: Cinder may rename the snapshot meanwhile, and never back.
        records = self._records()
        taken = self._taken()
        if self._wanted.snapshot.name not in taken and not any(
            record.rbd_name in taken for record in records
        ):
            self._make()

    def _manage(self) -> None:
        for record in self._records():
            self._patience.until_settled(self._cinder.find_snapshot, record.id)
        self._repair()
        adopted = self._adopted()
        self._delete([one for one in self._records() if adopted is None or one.id != adopted.id])
        if adopted is None:
            snapshot_id = self._cinder.manage_snapshot(self._wanted)
            made = self._patience.until_settled(self._cinder.find_snapshot, snapshot_id)
            if made is None or made.failed:
                raise exceptions.AdoptionFailedError(
                    f'{self._wanted.snapshot}: Cinder\'s snapshot {snapshot_id} ended in '
                    f'{made.status if made else "nothing"}; the logs of cinder-scheduler and '
                    'cinder-volume tell why'
                )
        # One that was taken although Cinder was about to rename the first.
        self._remove_untaken()

    def _repair(self) -> None:
        """Accept what Cinder gave up after it had renamed the snapshot: all else is there."""
        taken = self._taken()
        for record in self._records():
            if record.failed and record.rbd_name in taken:
                self._cinder.set_snapshot_status(record.id, 'available')

    def _adopted(self) -> resources.Snapshot | None:
        records = [one for one in self._records() if not one.failed and not one.under_way]
        taken = self._taken() if records else set()
        return next((one for one in records if one.rbd_name in taken), None)

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
            self._patience.until_settled(self._cinder.find_snapshot, record.id)
            self._cinder.delete_snapshot(record.id)
            self._patience.until_gone(self._cinder.find_snapshot, record.id)

    def _remove_untaken(self) -> None:
        with contextlib.suppress(exceptions.NotFoundError):
            self._storage.remove_snapshot(self._wanted.snapshot)
