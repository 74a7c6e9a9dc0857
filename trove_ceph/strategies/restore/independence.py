# SPDX-License-Identifier: Apache-2.0
"""Parting volumes from images in other pools that they read from, while they are used.

Until then what a volume reads comes from the vault, as slowly as that is, and with its copies. That
it is not yet done is in the metadata of the volume in Cinder, and whether it is done is asked of
Ceph.
"""

import contextlib

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.cinder import model as cinder_model
from trove_ceph.storage import job
from trove_ceph.storage import model as storage_model
from trove_ceph.strategies.backup.tools import Tools

LOG = logging.getLogger(__name__)


def carry_on(tools: Tools) -> None:
    """Have the storage service copy what volumes still read elsewhere; returns soon.

    For several processes at once. Nothing here fails anybody: what cannot be done now is done
    later.
    """
    try:
        for volume in tools.cinder.find_dependent_volumes():
            if volume.project_id == tools.cinder.project_id and volume.has_image:
                _carry_on_with(tools, volume)
    except exceptions.TroveCephError as error:
        LOG.warning('Volumes that read from other pools wait: %s', error)


def stop(tools: Tools, volume_id: str) -> None:
    """Stop it for a volume that is to be deleted, which nobody may have open; nothing otherwise."""
    try:
        volume = tools.cinder.find_volume(volume_id)
        facts = _find_dependent(tools, volume) if volume else None
        if facts:
            with contextlib.suppress(exceptions.NotFoundError):
                tools.storage.cancel(_operation(facts))
    except exceptions.TroveCephError as error:
        LOG.warning('Volume %s may still be read for: %s', volume_id, error)


def _carry_on_with(tools: Tools, volume: cinder_model.Volume) -> None:
    try:
        facts = _find_dependent(tools, volume)
        if facts is None:
            tools.cinder.note_independent(volume.id)
            LOG.info('%s reads from no other pool any more', volume)
        elif not _is_being_deleted(tools, volume):
            tools.storage.start(_operation(facts), job.Flatten(facts.image))
    except exceptions.TroveCephError as error:
        LOG.warning('%s goes on reading from another pool: %s', volume, error)


def _find_dependent(tools: Tools, volume: cinder_model.Volume) -> storage_model.ImageFacts | None:
    """Return the image of a volume, if it reads from another one in another pool."""
    image = tools.place(volume)
    if image is None:
        return None
    facts = tools.storage.describe(image)
    return facts if facts.parent and facts.parent.pool != image.pool else None


def _is_being_deleted(tools: Tools, volume: cinder_model.Volume) -> bool:
    instance = tools.trove.find_instance(volume.metadata[cinder_model.OPERATION_KEY])
    return instance is not None and instance.is_deleting


def _operation(facts: storage_model.ImageFacts) -> str:
    return f'flatten.{facts.image_id}'
