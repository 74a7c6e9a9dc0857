# SPDX-License-Identifier: Apache-2.0
"""Parting volumes from images in other pools that they read from, while they are used.

Until then what a volume reads comes from the vault, as slowly as that is, and with its copies. That
it is not yet done is in the metadata of the volume in Cinder, and whether it is done is asked of
Ceph.
"""

import contextlib

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.storage import image_types, tasks
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)


def flatten_dependents(deps: BackupDependencies) -> None:
    """Have the storage service copy what volumes still read elsewhere; returns soon.

    For several processes at once. Nothing here fails anybody: what cannot be done now is done
    later.
    """
    try:
        for volume in deps.cinder.find_dependent_volumes():
            if volume.project_id == deps.cinder.project_id and volume.has_image:
                _carry_on_with(deps, volume)
    except exceptions.TroveCephError as error:
        LOG.warning('Volumes that read from other pools wait: %s', error)


def stop_flattening(deps: BackupDependencies, volume_id: str) -> None:
    """Stop it for a volume that is to be deleted, which nobody may have open; nothing otherwise."""
    try:
        volume = deps.cinder.find_volume(volume_id)
        facts = _find_dependent(deps, volume) if volume else None
        if facts:
            with contextlib.suppress(exceptions.NotFoundError):
                deps.storage.cancel(_operation(facts))
    except exceptions.TroveCephError as error:
        LOG.warning('Volume %s may still be read for: %s', volume_id, error)


def _carry_on_with(deps: BackupDependencies, volume: cinder_resources.Volume) -> None:
    try:
        facts = _find_dependent(deps, volume)
        if facts is None:
            deps.cinder.note_independent(volume.id)
            LOG.info('%s reads from no other pool any more', volume)
        elif not _is_being_deleted(deps, volume):
            deps.storage.start(_operation(facts), tasks.FlattenTask(facts.image))
    except exceptions.TroveCephError as error:
        LOG.warning('%s goes on reading from another pool: %s', volume, error)


def _find_dependent(
    deps: BackupDependencies, volume: cinder_resources.Volume
) -> image_types.ImageFacts | None:
    """Return the image of a volume, if it reads from another one in another pool."""
    image = deps.find_image(volume)
    if image is None:
        return None
    facts = deps.storage.describe(image)
    return facts if facts.parent and facts.parent.pool != image.pool else None


def _is_being_deleted(deps: BackupDependencies, volume: cinder_resources.Volume) -> bool:
    instance = deps.trove.find_instance(volume.metadata[cinder_resources.OPERATION_KEY])
    return instance is not None and instance.is_deleting


def _operation(facts: image_types.ImageFacts) -> str:
    return f'flatten.{facts.image_id}'
