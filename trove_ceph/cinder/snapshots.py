# SPDX-License-Identifier: Apache-2.0
"""Adoption of snapshots: create them with librbd and let Cinder manage them."""

import contextlib
from collections.abc import Callable

from trove_ceph import exceptions, steps
from trove_ceph.cinder import checks, client, resources, wait
from trove_ceph.cinder import storage as cinder_storage


class SnapshotAdoption:
    """Create a snapshot of a volume's image and let Cinder manage it.

    The volume may be in use. Each ``ensure_*`` and ``remove_*`` observes the present state once and
    does what is missing, so each is safe to repeat after an interruption. Cinder's snapshot is
    found by the operation's id in its metadata.

    :param cinder: Cinder as an administrator in the volume's project
    :param make: creates the librbd snapshot; called only if it does not exist, neither under its
        own name nor under Cinder's
    """

    def __init__(
        self,
        storage: cinder_storage.Storage,
        cinder: client.Cinder,
        request: resources.SnapshotToAdopt,
        make: Callable[[], None],
        wait_limits: wait.WaitLimits | None = None,
    ):
        self._storage = storage
        self._cinder = cinder
        self._request = request
        self._make = make
        self._wait_limits = wait_limits or wait.WaitLimits()
        self._managed: resources.Snapshot | None = None

    @property
    def snapshot_id(self) -> str:
        """Cinder's id of the snapshot.

        :raises NotFoundError: :meth:`ensure_managed` has not succeeded yet
        """
        if self._managed is None:
            raise exceptions.NotFoundError(
                f'{self._request.snapshot}: Cinder does not manage it yet'
            )
        return self._managed.id

    def steps(self) -> list[steps.Step]:
        """Return the steps of the adoption."""
        return [
            steps.Step('check the volume', self.check_volume),
            steps.Step('create the snapshot', self.ensure_created, undo=self.remove_unmanaged),
            steps.Step(
                'let Cinder manage the snapshot', self.ensure_managed, undo=self.remove_managed
            ),
        ]

    def check_volume(self) -> None:
        """Check that Cinder can manage the snapshot, unless it does so already.

        :raises NotAdoptableError: Cinder would refuse the snapshot
        """
        if not self._records():
            volume = self._cinder.find_volume(self._request.volume_id)
            found = checks.check_volume(self._cinder.project_id, self._request, volume)
            checks.check_backend(self._cinder, self._request, found)

    def exists(self) -> bool:
        """Return whether the snapshot exists, under its own name or under Cinder's."""
        # List Cinder's snapshots first: Cinder may rename the snapshot meanwhile, but never back.
        records = self._records()
        existing = self._existing_names()
        return self._request.snapshot.name in existing or any(
            record.rbd_name in existing for record in records
        )

    def ensure_created(self) -> None:
        """Create the librbd snapshot if it does not exist."""
        if not self.exists():
            self._make()

    def ensure_managed(self) -> resources.Snapshot:
        """Let Cinder manage the snapshot, wait for completion, and return Cinder's snapshot.

        :raises AdoptionFailedError: Cinder accepted the request and failed
        """
        records = self._settled_records()
        adopted = self._find_adopted(records) if records else None
        self._delete([one for one in records if adopted is None or one.id != adopted.id])
        if adopted is None:
            adopted = self._manage()
        if records:
            # A second snapshot that was created while Cinder renamed the first one.
            self.remove_unmanaged()
        self._managed = adopted
        return adopted

    def remove_managed(self) -> None:
        """Delete the snapshot through Cinder, also in Ceph; idempotent."""
        self._delete(self._settled_records())

    def remove_unmanaged(self) -> None:
        """Remove the librbd snapshot that Cinder does not manage yet; idempotent."""
        with contextlib.suppress(exceptions.NotFoundError):
            self._storage.remove_snapshot(self._request.snapshot)

    def remove(self) -> None:
        """Remove the snapshot from Cinder and from Ceph; idempotent."""
        self.remove_managed()
        self.remove_unmanaged()

    def _manage(self) -> resources.Snapshot:
        snapshot_id = self._cinder.manage_snapshot(self._request)
        managed = self._wait_limits.until_settled(self._cinder.find_snapshot, snapshot_id)
        if managed is None or managed.failed:
            raise exceptions.AdoptionFailedError(
                f'{self._request.snapshot}: Cinder\'s snapshot {snapshot_id} '
                f'{f"is in status {managed.status}" if managed else "disappeared"}; see the logs '
                'of cinder-scheduler and cinder-volume'
            )
        return managed

    def _find_adopted(self, records: list[resources.Snapshot]) -> resources.Snapshot | None:
        """Return the record whose snapshot Cinder has renamed; repair its status if needed."""
        existing = self._existing_names()
        renamed = [one for one in records if one.rbd_name in existing]
        renamed.sort(key=lambda one: one.failed)
        if not renamed:
            return None
        if renamed[0].failed:
            # Cinder failed after it had renamed the snapshot, so only the status is wrong.
            self._cinder.set_snapshot_status(renamed[0].id, 'available')
        return renamed[0]

    def _settled_records(self) -> list[resources.Snapshot]:
        """Return Cinder's snapshots of this operation once none of them is in progress."""
        settled = (
            self._wait_limits.until_settled(self._cinder.find_snapshot, record.id)
            if record.under_way
            else record
            for record in self._records()
        )
        return [record for record in settled if record is not None]

    def _records(self) -> list[resources.Snapshot]:
        """Return Cinder's snapshots of this operation; foreign projects' metadata is ignored."""
        return [
            one
            for one in self._cinder.list_snapshots(self._request.volume_id)
            if one.metadata.get(resources.OPERATION_KEY) == self._request.operation_id
            and one.project_id == self._cinder.project_id
        ]

    def _existing_names(self) -> set[str]:
        """Return the names of the image's snapshots; an image that is gone has none."""
        with contextlib.suppress(exceptions.NotFoundError):
            facts = self._storage.describe(self._request.snapshot.of, with_usage=False)
            return set(facts.snapshot_names)
        return set()

    def _delete(self, records: list[resources.Snapshot]) -> None:
        for record in records:
            self._cinder.delete_snapshot(record.id)
            self._wait_limits.until_gone(self._cinder.find_snapshot, record.id)
