# SPDX-License-Identifier: Apache-2.0
"""Volumes that the storage service clones from a snapshot, and that Cinder then manages.

The image has the id of the operation in its name, and the volume in its metadata. By these a later
run, and the deletion of the instance, find all that was created.
"""

import contextlib
import dataclasses
from collections.abc import Mapping

from trove_ceph import exceptions, steps
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.cinder import volumes
from trove_ceph.storage import image_types, names
from trove_ceph.strategies.backup import volume_cleanup
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.strategies.restore import flatten

#: The purposes of such images.
KINDS = ('replica', 'restore')


@dataclasses.dataclass(frozen=True)
class CloneRequest:
    """A request for a volume that is a clone.

    :param kind: the purpose of the image, one of :data:`KINDS`
    :param operation_id: by which a repeated operation finds what it has created; that of the
        instance if the volume is its first one
    :param instance_id: of the instance that will have the volume
    :param source: the snapshot to clone
    :param backend: the Cinder back end that will have the volume
    :param volume_type: the name of its volume type
    :param name: of the volume; None: the one by which Trove deletes volumes of the instance
    :param description: of the volume; None: the one that Trove gives
    """

    kind: str
    operation_id: str
    instance_id: str
    source: image_types.SnapshotRef
    backend: cinder_resources.StorageBackend
    volume_type: str
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    name: str | None = None
    description: str | None = None

    @property
    def image(self) -> image_types.ImageRef:
        """The image, until Cinder renames it."""
        name = names.image_name(self.kind, self.operation_id)
        return image_types.ImageRef(self.backend.pool, name)


class ClonedVolume:
    """One volume that is a clone; the steps are safe to repeat after an interruption."""

    def __init__(self, deps: BackupDependencies, request: CloneRequest):
        self._deps = deps
        self._request = request
        self._adoption = volumes.VolumeAdoption(
            deps.storage,
            deps.cinder,
            cinder_resources.ImageToAdopt(
                request.operation_id,
                request.image,
                request.volume_type,
                request.backend.name,
                request.name or volume_name(request.instance_id),
                request.description or volume_description(request.instance_id),
                request.metadata,
            ),
            self._clone,
            lambda: _remove_image(deps, request.image),
            wait_limits=deps.wait_limits,
        )

    @property
    def volume_id(self) -> str:
        """Cinder's id of the volume.

        :raises NotFoundError: Cinder does not manage it yet
        """
        return self._adoption.volume_id

    def assignment(self) -> steps.Step:
        """Return the step that assigns the volume to an instance without a volume."""
        return steps.Step(
            'assign the volume to the instance',
            self._assign,
            undo=lambda: self._deps.trove.set_volume(self._request.instance_id, None),
        )

    def steps_for_instance(self, size_gib: int) -> list[steps.Step]:
        """Return the steps that create the volume with a size, and assign it to the instance."""
        return [
            *self.steps(),
            steps.Step('extend the volume', lambda: self.extend(size_gib)),
            self.assignment(),
        ]

    def steps(self) -> list[steps.Step]:
        """Return the steps that create the volume."""
        return [
            steps.Step('remove an incomplete clone', self._remove_incomplete),
            *self._adoption.steps(),
        ]

    def _remove_incomplete(self) -> None:
        """Remove a clone whose creation was killed before librbd recorded its parent.

        It would be taken for the clone, and reads as zeros.
        """
        with contextlib.suppress(exceptions.NotFoundError):
            if self._deps.storage.describe(self._request.image).parent is None:
                _remove_image(self._deps, self._request.image)

    def extend(self, size_gib: int) -> None:
        """See :func:`extend`."""
        extend(self._deps, self.volume_id, size_gib)

    def _clone(self) -> None:
        # No limits here: the reconciler of limits finds the volume in Cinder and sets them.
        self._deps.storage.clone(self._request.source, self._request.image, image_types.Qos())

    def _assign(self) -> None:
        instance_id = self._request.instance_id
        instance = self._deps.trove.find_instance(instance_id)
        if instance is None or instance.is_deleted or instance.is_deleting:
            raise exceptions.RecordNotFoundError(f'instance {instance_id}: was deleted meanwhile')
        self._deps.trove.set_volume(instance_id, self.volume_id)


def extend(deps: BackupDependencies, volume_id: str, size_gib: int) -> None:
    """Extend a volume to a size, unless it is as large already.

    :raises AdoptionFailedError: Cinder accepted the request and failed
    """
    volume = deps.cinder.find_volume(volume_id)
    if volume is None or volume.size_gib >= size_gib:
        return
    deps.cinder.extend_volume(volume.id, size_gib)
    extended = deps.wait_limits.until_settled(deps.cinder.find_volume, volume.id)
    if extended is None or extended.size_gib < size_gib:
        raise exceptions.AdoptionFailedError(
            f'{extended or volume} was not extended to {size_gib} GiB; see the log of cinder-volume'
        )


def volume_name(instance_id: str) -> str:
    """Return the name of an instance's volume, by which Trove deletes it."""
    return f'trove-{instance_id}'


def volume_description(instance_id: str) -> str:
    """Return the description that Trove gives to an instance's volume."""
    return f'datastore volume for {instance_id}'


def remove(deps: BackupDependencies, operation_id: str, instance_id: str, project_id: str) -> None:
    """Remove what an operation has created, if anything; idempotent.

    What cannot be removed now is removed after the instance is deleted.

    :param instance_id: of the instance for which it created the volume
    """
    for volume in deps.cinder.find_volumes(operation_id):
        if volume.project_id != deps.cinder.project_id:
            # A tenant may write any metadata to a volume of its own.
            continue
        # Cinder could not delete a volume whose parent is in another pool.
        deps.records.keep_volume(volume.id, instance_id, project_id)
        flatten.stop_flattening(deps, volume.id)
        volume_cleanup.delete_volume(deps, volume.id)
    remove_images(deps, operation_id)


def remove_images(deps: BackupDependencies, operation_id: str) -> None:
    """Remove the images that an operation has created and Cinder does not manage; idempotent."""
    for pool in {backend.pool for backend in deps.cinder.list_backends()}:
        for kind in KINDS:
            _remove_image(deps, image_types.ImageRef(pool, names.image_name(kind, operation_id)))


def _remove_image(deps: BackupDependencies, image: image_types.ImageRef) -> None:
    try:
        facts = deps.storage.describe(image)
    except (exceptions.NotFoundError, exceptions.InvalidRequestError):
        # The storage service refuses a pool that no tier has. It has none of our images.
        return
    with contextlib.suppress(exceptions.NotFoundError):
        volume_cleanup.trash(deps, image, facts.image_id)
        volume_cleanup.purge_trashed(deps)
