# SPDX-License-Identifier: Apache-2.0
"""A volume is deleted through Cinder so that nothing of it is left in Ceph."""

from trove_ceph import exceptions, steps
from trove_ceph.cinder import checks, client, wait
from trove_ceph.cinder import storage as cinder_storage
from trove_ceph.storage import image_types


class VolumeDeletion:
    """Deletes a volume that nothing needs any more, and refuses where something does.

    What Cinder does of itself where it does not know what is in the way: it copies the image into
    each of its clones, wherever they lie, before it answers the next request; and it moves an image
    with snapshots that are not its own to the trash, where nobody ever looks.
    """

    def __init__(
        self,
        storage: cinder_storage.Storage,
        cinder: client.Cinder,
        volume_id: str,
        patience: wait.WaitLimits | None = None,
    ):
        self._storage = storage
        self._cinder = cinder
        self._volume_id = volume_id
        # Cinder tries three times, five seconds apart, where something is in the way.
        self._patience = patience or wait.WaitLimits(timeout_sec=300)

    def steps(self) -> list[steps.Step]:
        """Return the whole deletion as steps."""
        return [
            steps.Step('check that nothing needs the volume', self.check_unneeded),
            steps.Step('delete the volume', self.ensure_deleted, commits=True),
        ]

    def check_unneeded(self) -> None:
        """Check that nothing needs the volume; one that is gone is not needed.

        :raises BusyError: something does
        """
        image = self._find_image()
        if image is None:
            return
        if known := self._cinder.list_snapshots(self._volume_id):
            raise exceptions.BusyError(
                f'volume {self._volume_id}: has {", ".join(map(str, known))}'
            )
        if obstacles := self._storage.describe(image, with_usage=False).obstacles():
            raise exceptions.BusyError(
                f'volume {self._volume_id}: {image} has {obstacles}, of which Cinder does not know'
            )

    def ensure_deleted(self) -> None:
        """Have Cinder delete the volume, and check that nothing of it is left in Ceph.

        :raises BusyError: something is left
        :raises ServiceUnavailableError: Cinder did not delete it
        """
        image = self._find_image()
        self._cinder.delete_volume(self._volume_id)
        self._patience.until_gone(self._cinder.find_volume, self._volume_id)
        if image is not None and (left := self._find_left(image)):
            raise exceptions.BusyError(
                f'volume {self._volume_id}: Cinder deleted it and left {left}'
            )

    def _find_left(self, image: image_types.ImageRef) -> str | None:
        for trashed in self._storage.list_trash(image.pool):
            if trashed.name == image.name:
                return str(trashed)
        # Cinder keeps under this name what volumes were made from with Cinder itself.
        for name in (image.name, f'{image.name}.deleted'):
            try:
                there = image_types.ImageRef(image.pool, name)
                return str(self._storage.describe(there, with_usage=False).image)
            except exceptions.NotFoundError:
                continue
        return None

    def _find_image(self) -> image_types.ImageRef | None:
        volume = self._cinder.find_volume(self._volume_id)
        return None if volume is None else checks.image_of(self._cinder, volume)
