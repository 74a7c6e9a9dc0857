# SPDX-License-Identifier: Apache-2.0
"""Images made with librbd become volumes of Cinder."""

import contextlib
from collections.abc import Callable
from typing import Any

from trove_ceph import exceptions, steps
from trove_ceph.cinder import checks, client, resources, wait
from trove_ceph.cinder import storage as cinder_storage
from trove_ceph.storage import image_types


class VolumeAdoption:
    """Makes an image, such as a clone in another pool, and has Cinder take it over as a volume.

    Where the operation was interrupted, running the steps again finds the volume by the operation's
    id in its metadata.

    :param cinder: as an administrator; the volume begins in the project of its token
    :param make: makes the image; it is called only when there is none yet, under this name or under
        Cinder's
    :param remove: removes it again from where it was made; it may be gone
    :param owner: as a member of the project that shall have the volume, where that is another
    """

    def __init__(
        self,
        storage: cinder_storage.Storage,
        cinder: client.Cinder,
        wanted: resources.ImageToAdopt,
        make: Callable[[], None],
        remove: Callable[[], None],
        owner: client.Cinder | None = None,
        patience: wait.WaitLimits | None = None,
    ):
        self._storage = storage
        self._cinder = cinder
        self._wanted = wanted
        self._make = make
        self._remove_made = remove
        self._owner = owner or cinder
        self._projects = [cinder.project_id, self._owner.project_id]
        self._patience = patience or wait.WaitLimits()

    @property
    def volume_id(self) -> str:
        """Cinder's id of the volume.

        :raises NotFoundError: it is not Cinder's yet
        """
        return self._get_adopted().id

    def steps(self) -> list[steps.Step[Any]]:
        """Return the steps, which take no notice of their context."""
        return [
            steps.Step('check the volume type', lambda _: self._check_target()),
            steps.Step(
                'make the image', lambda _: self._make_missing(), undo=lambda _: self._remove()
            ),
            steps.Step('check the image and the quota', lambda _: self._check_image()),
            steps.Step(
                'make the image a volume',
                lambda _: self._manage(),
                undo=lambda _: self._delete(self._records()),
            ),
            steps.Step(
                'give the volume to its project',
                lambda _: self._hand_over(),
                undo=lambda _: self._withdraw(),
            ),
        ]

    def _check_target(self) -> None:
        if not self._records():
            checks.check_target(self._cinder, self._wanted)

    def _make_missing(self) -> None:
        # The records first, its own name next: Cinder may rename it meanwhile, and never back.
        records = self._records()
        if self._exists(self._wanted.image):
            return
        if not any(one.has_image or self._finds_image_of(one) for one in records):
            self._make()

    def _check_image(self) -> None:
        if not self._records():
            size_gib = checks.check_image(self._storage, self._wanted)
            checks.check_quota(self._cinder, self._projects, self._wanted, size_gib)

    def _manage(self) -> None:
        for record in self._records():
            self._patience.until_settled(self._cinder.find_volume, record.id)
        adopted = self._adopted()
        self._delete([one for one in self._records() if adopted is None or one.id != adopted.id])
        if adopted is None:
            # It went with a volume that failed after Cinder had renamed it.
            self._make_missing()
            volume_id = self._cinder.manage_volume(self._wanted)
            made = self._patience.until_settled(self._cinder.find_volume, volume_id)
            if made is None or made.failed:
                raise exceptions.AdoptionFailedError(
                    f'{self._wanted.image}: Cinder\'s volume {volume_id} ended in '
                    f'{made.status if made else "nothing"}; the logs of cinder-scheduler and '
                    'cinder-volume tell why'
                )
        # One that was made although Cinder was about to rename the first.
        self._remove()

    def _hand_over(self) -> None:
        volume = self._get_adopted()
        if volume.project_id == self._owner.project_id:
            return
        # Nobody knows the key of one that was offered before an interruption.
        self._withdraw()
        transfer = self._cinder.offer_volume(volume.id, f'trove_ceph {self._wanted.operation_id}')
        self._owner.accept_volume(transfer)

    def _withdraw(self) -> None:
        for record in self._records():
            if record.project_id == self._cinder.project_id:
                self._cinder.withdraw_volume(record.id)

    def _get_adopted(self) -> resources.Volume:
        adopted = self._adopted()
        if adopted is None:
            raise exceptions.NotFoundError(f'{self._wanted.image}: not adopted')
        return adopted

    def _adopted(self) -> resources.Volume | None:
        return next((one for one in self._records() if one.has_image), None)

    def _records(self) -> list[resources.Volume]:
        """Cinder's volumes of this operation; other projects cannot pass theirs off as such."""
        return [
            one
            for one in self._cinder.find_volumes(self._wanted.operation_id)
            if one.project_id in self._projects
        ]

    def _finds_image_of(self, record: resources.Volume) -> bool:
        return self._exists(image_types.ImageRef(self._wanted.image.pool, record.image_name))

    def _exists(self, image: image_types.ImageRef) -> bool:
        with contextlib.suppress(exceptions.NotFoundError):
            self._storage.describe(image, with_usage=False)
            return True
        return False

    def _delete(self, records: list[resources.Volume]) -> None:
        for record in records:
            found = self._patience.until_settled(self._cinder.find_volume, record.id)
            if found is not None and found.failed:
                # Cinder shows so what it calls error_managing, and with a volume that it deletes
                # in that state it does not give back the quota that it took.
                self._cinder.set_volume_status(record.id, 'error')
            self._cinder.delete_volume(record.id)
            self._patience.until_gone(self._cinder.find_volume, record.id)

    def _remove(self) -> None:
        with contextlib.suppress(exceptions.NotFoundError):
            self._remove_made()
