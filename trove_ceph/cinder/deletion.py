# SPDX-License-Identifier: Apache-2.0
"""Deletion of a volume through Cinder without leftovers in Ceph."""

from trove_ceph import exceptions, steps
from trove_ceph.cinder import checks, client, wait
from trove_ceph.cinder import storage as cinder_storage
from trove_ceph.storage import image_types


class VolumeDeletion:
    """Delete a volume, unless something still needs it.

    Cinder alone does harm if an image has clones or snapshots that Cinder does not know: it
    flattens each clone before it answers the next request, and it moves an image with foreign
    snapshots to the trash, where it stays.
    """

    def __init__(
        self,
        storage: cinder_storage.Storage,
        cinder: client.Cinder,
        volume_id: str,
        wait_limits: wait.WaitLimits | None = None,
    ):
        self._storage = storage
        self._cinder = cinder
        self._volume_id = volume_id
        # Cinder tries to delete a busy image three times, five seconds apart.
        self._wait_limits = wait_limits or wait.WaitLimits(timeout_sec=300)

    def steps(self) -> list[steps.Step]:
        """Return the steps of the deletion."""
        return [
            steps.Step('check that nothing needs the volume', self.check_unneeded),
            steps.Step('delete the volume', self.ensure_deleted, commits=True),
        ]

    def check_unneeded(self) -> None:
        """Check that nothing needs the volume; a volume that is gone passes.

        :raises BusyError: the volume has snapshots, or its image has children or clients
        """
        image = self._find_image()
        if image is None:
            return
        if snapshots := self._cinder.list_snapshots(self._volume_id):
            raise exceptions.BusyError(
                f'volume {self._volume_id}: has {", ".join(map(str, snapshots))}'
            )
        if obstacles := self._storage.describe(image, with_usage=False).obstacles():
            raise exceptions.BusyError(
                f'volume {self._volume_id}: {image} has {obstacles}, which Cinder does not know '
                'about'
            )

    def ensure_deleted(self) -> None:
        """Delete the volume through Cinder, and check that nothing of it is left in Ceph.

        :raises BusyError: the image is left, possibly in the trash
        :raises ServiceUnavailableError: Cinder did not delete the volume
        """
        image = self._find_image()
        self._cinder.delete_volume(self._volume_id)
        self._wait_limits.until_gone(self._cinder.find_volume, self._volume_id)
        if image is not None and (left := self._find_left(image)):
            raise exceptions.BusyError(
                f'volume {self._volume_id}: Cinder deleted it but left {left} in Ceph'
            )

    def _find_left(self, image: image_types.ImageRef) -> str | None:
        for trashed in self._storage.list_trash(image.pool):
            if trashed.name == image.name:
                return str(trashed)
        # Cinder renames an image with clones to "<name>.deleted".
        for name in (image.name, f'{image.name}.deleted'):
            try:
                candidate = image_types.ImageRef(image.pool, name)
                return str(self._storage.describe(candidate, with_usage=False).image)
            except exceptions.NotFoundError:
                continue
        return None

    def _find_image(self) -> image_types.ImageRef | None:
        volume = self._cinder.find_volume(self._volume_id)
        return None if volume is None else checks.image_of(self._cinder, volume)
