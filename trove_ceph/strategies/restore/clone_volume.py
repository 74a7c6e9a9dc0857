# SPDX-License-Identifier: Apache-2.0
"""Making a volume of a backup where Cinder cannot: from the vault, or on another tier.

A clone costs the same at any size, and is usable at once, in whatever pool. Its id is that of the
instance, by which everything that was made for it is found again.
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


def clone_volume(deps: BackupDependencies, wanted: RestoreRequest, plan: RestorePlan) -> None:
    """Make the volume, and give it to the instance.

    :raises TroveCephError: it could not be made; nothing is left of it
    """
    steps.run(str(wanted), VolumeClone(deps, wanted, plan).steps())


def remove_clone(deps: BackupDependencies, instance: backup_types.Instance) -> None:
    """Remove what an interrupted restore left of an instance that has no volume; often nothing.

    What cannot be removed now is once the instance is deleted.
    """
    for volume in deps.cinder.find_volumes(instance.id):
        if volume.project_id != deps.cinder.project_id:
            # Tenants may write down what they like about theirs.
            continue
        # Cinder itself could not delete one that still reads from the vault.
        deps.records.keep_volume(volume.id, instance.id, instance.project_id)
        flatten.stop_flattening(deps, volume.id)
        volume_cleanup.delete_volume(deps, volume.id)
    for pool in {backend.pool for backend in deps.cinder.list_backends()}:
        _remove(deps, _image(pool, instance.id))


class VolumeClone:
    """One volume that is being made."""

    def __init__(self, deps: BackupDependencies, wanted: RestoreRequest, plan: RestorePlan):
        self._deps = deps
        self._wanted = wanted
        self._source = plan.source
        self._image = _image(plan.backend.pool, wanted.instance_id)
        self._adoption = volumes.VolumeAdoption(
            deps.storage,
            deps.cinder,
            cinder_resources.ImageToAdopt(
                wanted.instance_id,
                self._image,
                wanted.volume_type,
                plan.backend.name,
                # As Trove names it, by which it deletes it.
                f'trove-{wanted.instance_id}',
                f'datastore volume for {wanted.instance_id}',
                {
                    'backup_id': wanted.backup_id,
                    cinder_resources.DEPENDENT_KEY: cinder_resources.DEPENDENT,
                },
            ),
            self._clone,
            lambda: _remove(deps, self._image),
            patience=deps.wait_limits,
        )

    def steps(self) -> list[steps.Step]:
        """Return the steps."""
        return [
            *self._adoption.steps(),
            steps.Step('extend the volume', self._extend),
            steps.Step(
                'give the volume to the instance',
                self._give,
                undo=lambda: self._deps.trove.set_volume(self._wanted.instance_id, None),
            ),
        ]

    def _clone(self) -> None:
        # Whoever holds volumes to the limits of their tier hears of it from Cinder.
        self._deps.storage.clone(self._source, self._image, image_types.Qos())

    def _extend(self) -> None:
        volume_id = self._adoption.volume_id
        volume = self._deps.cinder.find_volume(volume_id)
        if volume is None or volume.size_gib >= self._wanted.size_gib:
            return
        self._deps.cinder.extend_volume(volume_id, self._wanted.size_gib)
        extended = self._deps.wait_limits.until_settled(self._deps.cinder.find_volume, volume_id)
        if extended is None or extended.size_gib < self._wanted.size_gib:
            raise exceptions.AdoptionFailedError(
                f'{extended or volume_id}: was not extended to {self._wanted.size_gib} GiB; '
                'cinder-volume\'s log tells why'
            )

    def _give(self) -> None:
        instance = self._deps.trove.find_instance(self._wanted.instance_id)
        if instance is None or instance.is_deleted or instance.is_deleting:
            raise exceptions.InvalidBackupError(f'{self._wanted}: the instance was deleted')
        self._deps.trove.set_volume(self._wanted.instance_id, self._adoption.volume_id)


def _image(pool: str, instance_id: str) -> image_types.ImageRef:
    return image_types.ImageRef(pool, names.image_name('restore', instance_id))


def _remove(deps: BackupDependencies, image: image_types.ImageRef) -> None:
    with contextlib.suppress(exceptions.NotFoundError):
        facts = deps.storage.describe(image)
        volume_cleanup.trash(deps, image, facts.image_id)
        volume_cleanup.purge_trashed(deps)
