# SPDX-License-Identifier: Apache-2.0
"""Making a volume of a backup where Cinder cannot: from the vault, or on another tier.

A clone costs the same at any size, and is usable at once, in whatever pool. Its id is that of the
instance, by which everything that was made for it is found again.
"""

import contextlib

from trove_ceph import exceptions, steps
from trove_ceph.cinder import model as cinder_model
from trove_ceph.cinder import volumes
from trove_ceph.storage import model as storage_model
from trove_ceph.storage import names
from trove_ceph.strategies.backup import model as backup_model
from trove_ceph.strategies.backup import reclaiming
from trove_ceph.strategies.backup.tools import Tools
from trove_ceph.strategies.restore import independence
from trove_ceph.strategies.restore.model import Plan, Wanted


def restore(tools: Tools, wanted: Wanted, plan: Plan) -> None:
    """Make the volume, and give it to the instance.

    :raises TroveCephError: it could not be made; nothing is left of it
    """
    steps.run(str(wanted), Restoring(tools, wanted, plan).steps())


def clean_up(tools: Tools, instance: backup_model.Instance) -> None:
    """Remove what an interrupted restore left of an instance that has no volume; often nothing.

    What cannot be removed now is once the instance is deleted.
    """
    for volume in tools.cinder.find_volumes(instance.id):
        if volume.project_id != tools.cinder.project_id:
            # Tenants may write down what they like about theirs.
            continue
        # Cinder itself could not delete one that still reads from the vault.
        tools.records.keep_volume(volume.id, instance.id, instance.project_id)
        independence.stop(tools, volume.id)
        reclaiming.delete_volume(tools, volume.id)
    for pool in {backend.pool for backend in tools.cinder.list_backends()}:
        _remove(tools, _image(pool, instance.id))


class Restoring:
    """One volume that is being made."""

    def __init__(self, tools: Tools, wanted: Wanted, plan: Plan):
        self._tools = tools
        self._wanted = wanted
        self._source = plan.source
        self._image = _image(plan.backend.pool, wanted.instance_id)
        self._adoption = volumes.VolumeAdoption(
            tools.storage,
            tools.cinder,
            cinder_model.ImageToAdopt(
                wanted.instance_id,
                self._image,
                wanted.volume_type,
                plan.backend.name,
                # As Trove names it, by which it deletes it.
                f'trove-{wanted.instance_id}',
                f'datastore volume for {wanted.instance_id}',
                {
                    'backup_id': wanted.backup_id,
                    cinder_model.DEPENDENT_KEY: cinder_model.DEPENDENT,
                },
            ),
            self._clone,
            lambda: _remove(tools, self._image),
            patience=tools.patience,
        )

    def steps(self) -> list[steps.Step]:
        """Return the steps."""
        return [
            *self._adoption.steps(),
            steps.Step('extend the volume', self._extend),
            steps.Step(
                'give the volume to the instance',
                self._give,
                undo=lambda: self._tools.trove.set_volume(self._wanted.instance_id, None),
            ),
        ]

    def _clone(self) -> None:
        # Whoever holds volumes to the limits of their tier hears of it from Cinder.
        self._tools.storage.clone(self._source, self._image, storage_model.Qos())

    def _extend(self) -> None:
        volume_id = self._adoption.volume_id
        volume = self._tools.cinder.find_volume(volume_id)
        if volume is None or volume.size_gib >= self._wanted.size_gib:
            return
        self._tools.cinder.extend_volume(volume_id, self._wanted.size_gib)
        extended = self._tools.patience.until_settled(self._tools.cinder.find_volume, volume_id)
        if extended is None or extended.size_gib < self._wanted.size_gib:
            raise exceptions.AdoptionFailedError(
                f'{extended or volume_id}: was not extended to {self._wanted.size_gib} GiB; '
                'cinder-volume\'s log tells why'
            )

    def _give(self) -> None:
        instance = self._tools.trove.find_instance(self._wanted.instance_id)
        if instance is None or instance.is_deleted or instance.is_deleting:
            raise exceptions.InvalidBackupError(f'{self._wanted}: the instance was deleted')
        self._tools.trove.set_volume(self._wanted.instance_id, self._adoption.volume_id)


def _image(pool: str, instance_id: str) -> storage_model.ImageRef:
    return storage_model.ImageRef(pool, names.image_name('restore', instance_id))


def _remove(tools: Tools, image: storage_model.ImageRef) -> None:
    with contextlib.suppress(exceptions.NotFoundError):
        facts = tools.storage.describe(image)
        reclaiming.trash(tools, image, facts.image_id)
        reclaiming.purge_trashed(tools)
