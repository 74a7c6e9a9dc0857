# SPDX-License-Identifier: Apache-2.0
"""Adoption of volumes: create images with librbd and let Cinder manage them."""

import contextlib
from collections.abc import Callable

from trove_ceph import exceptions, steps
from trove_ceph.cinder import checks, client, resources, wait
from trove_ceph.cinder import storage as cinder_storage
from trove_ceph.storage import image_types


class VolumeAdoption:
    """Create an image, such as a clone in another pool, and let Cinder manage it as a volume.

    Each ``ensure_*`` and ``remove_*`` observes the present state once and does what is missing, so
    each is safe to repeat after an interruption. The volume is found by the operation's id in its
    metadata.

    :param cinder: Cinder as an administrator; the volume is created in the project of its token
    :param make: creates the image; called only if it does not exist, neither under its own name nor
        under Cinder's
    :param remove: removes the created image, which may be gone
    :param owner: Cinder as a member of the project that receives the volume; None: the same project
    """

    def __init__(
        self,
        storage: cinder_storage.Storage,
        cinder: client.Cinder,
        request: resources.ImageToAdopt,
        make: Callable[[], None],
        remove: Callable[[], None],
        owner: client.Cinder | None = None,
        wait_limits: wait.WaitLimits | None = None,
    ):
        self._storage = storage
        self._cinder = cinder
        self._request = request
        self._make = make
        self._remove_created = remove
        self._owner = owner or cinder
        self._projects = [cinder.project_id, self._owner.project_id]
        self._wait_limits = wait_limits or wait.WaitLimits()
        self._managed: resources.Volume | None = None

    @property
    def volume_id(self) -> str:
        """Cinder's id of the volume.

        :raises NotFoundError: :meth:`ensure_managed` has not succeeded yet
        """
        return self._get_managed().id

    def steps(self) -> list[steps.Step]:
        """Return the steps of the adoption."""
        return [
            steps.Step('check the volume type', self.check_target),
            steps.Step('create the image', self.ensure_image, undo=self.remove_image),
            steps.Step('check the image and the quota', self.check_image),
            steps.Step(
                'let Cinder manage the image', self.ensure_managed, undo=self.remove_managed
            ),
            steps.Step(
                'transfer the volume to its project',
                self.ensure_transferred,
                undo=self.withdraw_transfers,
            ),
        ]

    def check_target(self) -> None:
        """Check that volume type and back end fit, unless Cinder manages the volume already.

        :raises NotAdoptableError: one of them does not fit
        """
        if not self._records():
            checks.check_target(self._cinder, self._request)

    def ensure_image(self) -> None:
        """Create the image if it does not exist."""
        # List Cinder's volumes first: Cinder may rename the image meanwhile, but never back.
        records = self._records()
        if self._exists(self._request.image):
            return
        if not any(one.has_image or self._image_exists(one) for one in records):
            self._make()

    def check_image(self) -> None:
        """Check that the image can become a volume, and that there is quota for it.

        :raises NotAdoptableError: the image cannot become a volume
        :raises QuotaExceededError: a project lacks quota
        """
        if not self._records():
            size_gib = checks.check_image(self._storage, self._request)
            request = self._request
            checks.check_quota(
                self._cinder, self._projects, str(request.image), request.volume_type, size_gib
            )

    def ensure_managed(self) -> resources.Volume:
        """Let Cinder manage the image, wait for completion, and return the volume.

        :raises AdoptionFailedError: Cinder accepted the request and failed
        """
        records = self._settled_records()
        adopted = next((one for one in records if one.has_image), None)
        self._delete([one for one in records if adopted is None or one.id != adopted.id])
        if adopted is None:
            if records and not self._exists(self._request.image):
                # The image was deleted with a volume that failed after Cinder had renamed it.
                self._make()
            adopted = self._manage()
        if records:
            # A second image that was created while Cinder renamed the first one.
            self.remove_image()
        self._managed = adopted
        return adopted

    def ensure_transferred(self) -> None:
        """Transfer the volume to the owner's project if it is another one."""
        volume = self._get_managed()
        if volume.project_id == self._owner.project_id:
            return
        # The key of a transfer from before an interruption is lost.
        self._cinder.withdraw_volume(volume.id)
        transfer = self._cinder.offer_volume(volume.id, f'trove_ceph {self._request.operation_id}')
        self._owner.accept_volume(transfer)

    def withdraw_transfers(self) -> None:
        """Withdraw open transfers of the volume; idempotent."""
        for record in self._records():
            if record.project_id == self._cinder.project_id:
                self._cinder.withdraw_volume(record.id)

    def remove_managed(self) -> None:
        """Delete the volume with its image through Cinder; idempotent."""
        self._delete(self._settled_records())

    def remove_image(self) -> None:
        """Remove the image that Cinder does not manage yet; idempotent."""
        with contextlib.suppress(exceptions.NotFoundError):
            self._remove_created()

    def _manage(self) -> resources.Volume:
        volume_id = self._cinder.manage_volume(self._request)
        managed = self._wait_limits.until_settled(self._cinder.find_volume, volume_id)
        if managed is None or managed.failed:
            raise exceptions.AdoptionFailedError(
                f'{self._request.image}: Cinder\'s volume {volume_id} '
                f'{f"is in status {managed.status}" if managed else "disappeared"}; see the logs '
                'of cinder-scheduler and cinder-volume'
            )
        return managed

    def _get_managed(self) -> resources.Volume:
        if self._managed is None:
            raise exceptions.NotFoundError(f'{self._request.image}: Cinder does not manage it yet')
        return self._managed

    def _settled_records(self) -> list[resources.Volume]:
        """Return Cinder's volumes of this operation once none of them is in progress."""
        settled = (
            self._wait_limits.until_settled(self._cinder.find_volume, record.id)
            if record.under_way
            else record
            for record in self._records()
        )
        return [record for record in settled if record is not None]

    def _records(self) -> list[resources.Volume]:
        """Return Cinder's volumes of this operation; foreign projects' metadata is ignored."""
        return [
            one
            for one in self._cinder.find_volumes(self._request.operation_id)
            if one.project_id in self._projects
        ]

    def _image_exists(self, record: resources.Volume) -> bool:
        return self._exists(image_types.ImageRef(self._request.image.pool, record.image_name))

    def _exists(self, image: image_types.ImageRef) -> bool:
        with contextlib.suppress(exceptions.NotFoundError):
            self._storage.describe(image, with_usage=False)
            return True
        return False

    def _delete(self, records: list[resources.Volume]) -> None:
        for record in records:
            if record.failed:
                # The real status is error_managing. Cinder does not release the quota of a volume
                # that is deleted in that status, so reset it first.
                self._cinder.set_volume_status(record.id, 'error')
            self._cinder.delete_volume(record.id)
            self._wait_limits.until_gone(self._cinder.find_volume, record.id)
