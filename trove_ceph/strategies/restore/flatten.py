# SPDX-License-Identifier: Apache-2.0
"""Flatten volumes that must not keep their parent, while they are in use.

A volume whose parent is in another pool reads from the vault, at the vault's speed, and depends on
its copies. The volume of a replica that was promoted or detached keeps the image of its old source.
The volume's metadata in Cinder mark it as not flattened yet; Ceph shows when it is.
"""

import contextlib

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.storage import image_types, tasks
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)


def flatten_dependents(deps: BackupDependencies) -> None:
    """Have the storage service flatten the volumes that are marked; do not wait.

    Several processes may call this at once. It raises no error: the periodic task tries again.
    """
    try:
        for volume in deps.cinder.find_dependent_volumes():
            if volume.project_id == deps.cinder.project_id and volume.has_image:
                _continue(deps, volume)
    except exceptions.TroveCephError as error:
        LOG.warning('Volumes cannot be flattened now; will retry: %s', error)


def stop_flattening(deps: BackupDependencies, volume_id: str) -> None:
    """Stop flattening a volume that is about to be deleted, since no client may have it open."""
    try:
        volume = deps.cinder.find_volume(volume_id)
        facts = _find_dependent(deps, volume) if volume else None
        if facts:
            with contextlib.suppress(exceptions.NotFoundError):
                deps.storage.cancel(_operation(facts))
    except exceptions.TroveCephError as error:
        LOG.warning('A flatten of volume %s may still be running: %s', volume_id, error)


def _continue(deps: BackupDependencies, volume: cinder_resources.Volume) -> None:
    try:
        facts = _find_dependent(deps, volume)
        if facts is None:
            deps.cinder.record_independent(volume.id)
            LOG.info('%s is flattened', volume)
        elif not _is_being_deleted(deps, volume):
            deps.storage.start(_operation(facts), tasks.FlattenTask(facts.image))
    except exceptions.TroveCephError as error:
        LOG.warning('%s cannot be flattened now; will retry: %s', volume, error)


def _find_dependent(
    deps: BackupDependencies, volume: cinder_resources.Volume
) -> image_types.ImageFacts | None:
    """Return the image of a volume if it has a parent that it must not keep; else None."""
    image = deps.find_image(volume)
    if image is None:
        return None
    facts = deps.storage.describe(image)
    mark = volume.metadata.get(cinder_resources.DEPENDENT_KEY)
    if facts.parent is None:
        return None
    is_foreign = facts.parent.pool != image.pool
    return facts if is_foreign or mark == cinder_resources.TO_FLATTEN else None


def _is_being_deleted(deps: BackupDependencies, volume: cinder_resources.Volume) -> bool:
    # The volume of a source that was never a replica has no operation.
    operation_id = volume.metadata.get(cinder_resources.OPERATION_KEY, '')
    instance = deps.trove.find_instance(operation_id)
    return instance is not None and instance.is_deleting


def _operation(facts: image_types.ImageFacts) -> str:
    return tasks.FlattenTask.operation_id(facts.image_id)
