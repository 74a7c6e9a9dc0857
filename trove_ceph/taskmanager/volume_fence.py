# SPDX-License-Identifier: Apache-2.0
"""Fence a data volume: have the storage service fence its image."""

from collections.abc import Callable
from typing import Protocol

from trove_ceph import exceptions
from trove_ceph.cinder import resources
from trove_ceph.storage import image_types, tasks
from trove_ceph.storage_service import rpcapi

#: Longer than the fence itself takes, which waits for up to 60 s for clients to disappear.
_TIMEOUT_SEC = 180


class Cinder(Protocol):
    """The volumes in Cinder."""

    def find_volume(self, volume_id: str) -> resources.Volume | None: ...


class VolumeFence:
    """Fences data volumes.

    :param find_image: returns the image of a volume; None: the volume is on no tier
    """

    def __init__(
        self,
        cinder: Cinder,
        storage: rpcapi.StorageAPI,
        find_image: Callable[[resources.Volume], image_types.ImageRef | None],
    ):
        self._cinder = cinder
        self._storage = storage
        self._find_image = find_image

    def fence(self, volume_id: str, confirm: Callable[[], None] | None = None) -> None:
        """Return when Ceph has proved that no present client can write to a volume.

        The caller must ensure that no process opens the image later.

        With ``confirm``, a worker that is suspended at any point of this, for however long, cuts
        off no server of its successor. Its fence names the clients that it has seen before
        ``confirm`` returned, hence before there was a successor, and Ceph is told of these alone.
        The fence of the successor has cut them off as well.

        :param confirm: raises ClaimLostError if another worker has resumed this, by the database
            and not by a clock; None: there is only one worker
        :raises NotFencedError: there is no proof yet; a repetition continues
        :raises ClaimLostError: ``confirm`` raised it, and nothing was fenced
        """
        try:
            image = self._image(volume_id)
            facts = self._storage.describe(image)
            only = None
            if confirm is not None:
                owner = frozenset(filter(None, (facts.lock_owner,)))
                only = frozenset(facts.clients) | owner
                confirm()
            self._storage.run(
                tasks.FenceTask.operation_id(facts.image_id, only),
                tasks.FenceTask(image, only=only),
                _TIMEOUT_SEC,
            )
        except (exceptions.NotFencedError, exceptions.ClaimLostError):
            raise
        except exceptions.TroveCephError as error:
            raise exceptions.NotFencedError(
                f'volume {volume_id}: could not be fenced: {error}'
            ) from error

    def _image(self, volume_id: str) -> image_types.ImageRef:
        volume = self._cinder.find_volume(volume_id)
        image = None if volume is None else self._find_image(volume)
        if image is None:
            what = 'does not exist' if volume is None else 'is on no tier'
            raise exceptions.NotFencedError(
                f'volume {volume_id}: {what}, so that its clients are not known'
            )
        return image
