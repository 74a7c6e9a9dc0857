# SPDX-License-Identifier: Apache-2.0
"""Images made with librbd become volumes of Cinder."""

import contextlib
from collections.abc import Callable

from trove_ceph import exceptions, steps
from trove_ceph.cinder import checks, client, resources, wait
from trove_ceph.cinder import storage as cinder_storage
from trove_ceph.storage import image_types


class VolumeAdoption:
    """Makes an image, such as a clone in another pool, and has Cinder take it over as a volume.

    Each ``ensure_*`` and ``remove_*`` observes once what is there and does what is missing, so all
    are safe to repeat after an interruption: the volume is found by the operation's id in its
    metadata.

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
        self._managed: resources.Volume | None = None

    @property
    def volume_id(self) -> str:
        """Cinder's id of the volume.

        :raises NotFoundError: :meth:`ensure_managed` has not returned yet
        """
        return self._get_managed().id

    def steps(self) -> list[steps.Step]:
        """Return the whole adoption as steps."""
        return [
            steps.Step('check the volume type', self.check_target),
            steps.Step('make the image', self.ensure_image, undo=self.remove_image),
            steps.Step('check the image and the quota', self.check_image),
            steps.Step('make the image a volume', self.ensure_managed, undo=self.remove_managed),
            steps.Step(
                'give the volume to its project', self.ensure_owned, undo=self.remove_offers
            ),
        ]

    def check_target(self) -> None:
        """Check that volume type and back end fit, unless Cinder has the volume already.

        :raises NotAdoptableError: they do not
        """
        if not self._records():
            checks.check_target(self._cinder, self._wanted)

    def ensure_image(self) -> None:
        """Make the image where there is none."""
        # The records first, its own name next: Cinder may rename it meanwhile, and never back.
        records = self._records()
        if self._exists(self._wanted.image):
            return
        if not any(one.has_image or self._finds_image_of(one) for one in records):
            self._make()

    def check_image(self) -> None:
        """Check that the image can be a volume, and that there is quota for it.

        :raises NotAdoptableError: it cannot
        :raises QuotaExceededError: there is not
        """
        if not self._records():
            size_gib = checks.check_image(self._storage, self._wanted)
            checks.check_quota(self._cinder, self._projects, self._wanted, size_gib)

    def ensure_managed(self) -> resources.Volume:
        """Have Cinder take the image over, wait until it has, and return the volume.

        :raises AdoptionFailedError: Cinder failed at it
        """
        records = self._settled_records()
        adopted = next((one for one in records if one.has_image), None)
        self._delete([one for one in records if adopted is None or one.id != adopted.id])
        if adopted is None:
            if records and not self._exists(self._wanted.image):
                # It went with a volume that failed after Cinder had renamed it.
                self._make()
            adopted = self._manage()
        if records:
            # One that was made although Cinder was about to rename the first.
            self.remove_image()
        self._managed = adopted
        return adopted

    def ensure_owned(self) -> None:
        """Give the volume to the project that shall have it, where that is another."""
        volume = self._get_managed()
        if volume.project_id == self._owner.project_id:
            return
        # Nobody knows the key of one that was offered before an interruption.
        self._cinder.withdraw_volume(volume.id)
        transfer = self._cinder.offer_volume(volume.id, f'trove_ceph {self._wanted.operation_id}')
        self._owner.accept_volume(transfer)

    def remove_offers(self) -> None:
        """Withdraw what is on offer of the volume; harmless when repeated."""
        for record in self._records():
            if record.project_id == self._cinder.project_id:
                self._cinder.withdraw_volume(record.id)

    def remove_managed(self) -> None:
        """Have Cinder delete the volume with its image; harmless when there is none."""
        self._delete(self._settled_records())

    def remove_image(self) -> None:
        """Remove the image that Cinder has not taken over; harmless when repeated."""
        with contextlib.suppress(exceptions.NotFoundError):
            self._remove_made()

    def _manage(self) -> resources.Volume:
        volume_id = self._cinder.manage_volume(self._wanted)
        made = self._patience.until_settled(self._cinder.find_volume, volume_id)
        if made is None or made.failed:
            raise exceptions.AdoptionFailedError(
                f'{self._wanted.image}: Cinder\'s volume {volume_id} ended in '
                f'{made.status if made else "nothing"}; the logs of cinder-scheduler and '
                'cinder-volume tell why'
            )
        return made

    def _get_managed(self) -> resources.Volume:
        if self._managed is None:
            raise exceptions.NotFoundError(f'{self._wanted.image}: is not Cinder\'s yet')
        return self._managed

    def _settled_records(self) -> list[resources.Volume]:
        """Cinder's volumes of this operation, once Cinder works on none of them."""
        settled = (
            self._patience.until_settled(self._cinder.find_volume, record.id)
            if record.under_way
            else record
            for record in self._records()
        )
        return [record for record in settled if record is not None]

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
            if record.failed:
                # Cinder shows so what it calls error_managing, and with a volume that it deletes
                # in that state it does not give back the quota that it took.
                self._cinder.set_volume_status(record.id, 'error')
            self._cinder.delete_volume(record.id)
            self._patience.until_gone(self._cinder.find_volume, record.id)
