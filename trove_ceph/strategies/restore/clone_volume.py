# SPDX-License-Identifier: Apache-2.0
"""Create a volume from a backup where Cinder cannot: from the vault, or on another tier.

A clone takes the same time at any size, is usable at once, and may be in any pool. Its name has the
id of the instance, by which a later run finds all that was created for it.
"""

import contextlib

from trove_ceph import exceptions, steps
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.cinder import volumes
from trove_ceph.storage import image_types, names
from trove_ceph.strategies.backup import backup_types, volume_cleanup
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.strategies.restore import flatten
from trove_ceph.strategies.restore.restore_types import RestorePlan, RestoreRequest


def clone_volume(deps: BackupDependencies, request: RestoreRequest, plan: RestorePlan) -> None:
    """Create the volume and assign it to the instance.

    :raises TroveCephError: the volume could not be created; nothing is left of it
    """
    steps.run(str(request), VolumeClone(deps, request, plan).steps())


def remove_clone(deps: BackupDependencies, instance: backup_types.Instance) -> None:
    """Remove what an interrupted restore left for an instance without a volume, if anything.

    What cannot be removed now is removed after the instance is deleted.
    """
    for volume in deps.cinder.find_volumes(instance.id):
        if volume.project_id != deps.cinder.project_id:
            # A tenant may write any metadata to a volume of its own.
            continue
        # Cinder could not delete a volume whose parent is in the vault.
        deps.records.keep_volume(volume.id, instance.id, instance.project_id)
        flatten.stop_flattening(deps, volume.id)
        volume_cleanup.delete_volume(deps, volume.id)
    for pool in {backend.pool for backend in deps.cinder.list_backends()}:
        _remove(deps, _image(pool, instance.id))


class VolumeClone:
    """One volume that is being created from a backup."""

    def __init__(self, deps: BackupDependencies, request: RestoreRequest, plan: RestorePlan):
        self._deps = deps
        self._request = request
        self._source = plan.source
        self._image = _image(plan.backend.pool, request.instance_id)
        self._adoption = volumes.VolumeAdoption(
            deps.storage,
            deps.cinder,
            cinder_resources.ImageToAdopt(
                request.instance_id,
                self._image,
                request.volume_type,
                plan.backend.name,
                # Trove deletes volumes by this name.
                f'trove-{request.instance_id}',
                f'datastore volume for {request.instance_id}',
                {
                    'backup_id': request.backup_id,
                    cinder_resources.DEPENDENT_KEY: cinder_resources.DEPENDENT,
                },
            ),
            self._clone,
            lambda: _remove(deps, self._image),
            wait_limits=deps.wait_limits,
        )

    def steps(self) -> list[steps.Step]:
        """Return the steps."""
        return [
            *self._adoption.steps(),
            steps.Step('extend the volume', self._extend),
            steps.Step(
                'assign the volume to the instance',
                self._assign,
                undo=lambda: self._deps.trove.set_volume(self._request.instance_id, None),
            ),
        ]

    def _clone(self) -> None:
        # No limits here: the reconciler of limits finds the volume in Cinder and sets them.
        self._deps.storage.clone(self._source, self._image, image_types.Qos())

    def _extend(self) -> None:
        volume_id = self._adoption.volume_id
        volume = self._deps.cinder.find_volume(volume_id)
        if volume is None or volume.size_gib >= self._request.size_gib:
            return
        self._deps.cinder.extend_volume(volume_id, self._request.size_gib)
        extended = self._deps.wait_limits.until_settled(self._deps.cinder.find_volume, volume_id)
        if extended is None or extended.size_gib < self._request.size_gib:
            raise exceptions.AdoptionFailedError(
                f'{extended or volume_id} was not extended to {self._request.size_gib} GiB; '
                'see the log of cinder-volume'
            )

    def _assign(self) -> None:
        instance = self._deps.trove.find_instance(self._request.instance_id)
        if instance is None or instance.is_deleted or instance.is_deleting:
            raise exceptions.InvalidBackupError(f'{self._request}: the instance was deleted')
        self._deps.trove.set_volume(self._request.instance_id, self._adoption.volume_id)


def _image(pool: str, instance_id: str) -> image_types.ImageRef:
    return image_types.ImageRef(pool, names.image_name('restore', instance_id))


def _remove(deps: BackupDependencies, image: image_types.ImageRef) -> None:
    with contextlib.suppress(exceptions.NotFoundError):
        facts = deps.storage.describe(image)
        volume_cleanup.trash(deps, image, facts.image_id)
        volume_cleanup.purge_trashed(deps)
