# SPDX-License-Identifier: Apache-2.0
"""The data volumes of instances whose servers are replaced, in Cinder and Ceph."""

from collections.abc import Callable, Mapping
from typing import Protocol

from trove_ceph import exceptions
from trove_ceph.cinder import resources
from trove_ceph.storage import image_types
from trove_ceph.strategies.guests import bind

#: What tenants read of a volume that is not detached yet.
_SHOWN = 'waits until the volume is detached'
_ATTACHED = ('reserved', 'attaching', 'in-use', 'detaching')


class Cinder(Protocol):
    """The volumes in Cinder."""

    def find_volume(self, volume_id: str) -> resources.Volume | None: ...
    def find_attachments(self, volume_id: str) -> Mapping[str, str]: ...
    def delete_attachment(self, attachment_id: str) -> None: ...


class ReplacementVolumes:
    """The volumes of replacements; see :class:`.replacement.dependencies.Volumes`.

    :param find_image: returns the image of a volume; None: the volume is on no tier
    :param describe: returns the facts of an image
    :param fence: see :meth:`.VolumeFence.fence`
    """

    def __init__(
        self,
        cinder: Cinder,
        find_image: Callable[[resources.Volume], image_types.ImageRef | None],
        describe: Callable[[image_types.ImageRef], image_types.ImageFacts],
        fence: bind.Fence,
    ):
        self._cinder = cinder
        self._find_image = find_image
        self._describe = describe
        self.fence = fence

    def check(self, volume_id: str) -> None:
        """Check that a volume can be fenced.

        :raises ReplacementRefusedError: it does not exist, or is on no tier
        """
        volume = self._cinder.find_volume(volume_id)
        image = None if volume is None else self._find_image(volume)
        if image is None:
            what = 'does not exist' if volume is None else 'is on no tier'
        elif 'exclusive-lock' not in self._describe(image).features:
            what = 'its image has no exclusive-lock feature'
        else:
            return
        raise exceptions.ReplacementRefusedError(
            f'volume {volume_id}: {what}, so that no server can be kept from writing to it'
        )

    def detach(self, volume_id: str, server_id: str) -> None:
        """Return when a volume is attached to no server.

        :param server_id: the only server, deleted by now, whose attachment may be removed
        :raises InProgressError: Nova has not detached it yet, or another server has it
        """
        volume = self._cinder.find_volume(volume_id)
        if volume is None:
            return
        attachments = self._cinder.find_attachments(volume_id)
        if others := attachments.keys() - {server_id}:
            raise exceptions.InProgressError(
                f'volume {volume_id}: is attached to server {", ".join(sorted(others))}, '
                f'expected only {server_id}',
                _SHOWN,
            )
        if (attachment_id := attachments.get(server_id)) is not None:
            # Nova has deleted the server and not detached the volume, as if its host is down.
            self._cinder.delete_attachment(attachment_id)
            volume = self._cinder.find_volume(volume_id)
        # What else keeps a server from getting it, Nova or Cinder says; a deletion needs only this.
        if volume is not None and volume.status in _ATTACHED:
            raise exceptions.InProgressError(
                f'volume {volume_id}: expected the status available, found {volume.status}',
                _SHOWN,
            )
