# SPDX-License-Identifier: Apache-2.0
"""Flatten volumes that must not keep their parent, while they are in use.

A volume whose parent is in another pool reads from the vault, at the vault's speed, and depends on
its copies. The volume of a replica that was promoted or detached keeps the image of its old source.
The volume's metadata in Cinder mark it as not flattened yet; Ceph shows when it is.

The guest of a clone does not trim its volume, since a discard of what it reads from its parent
frees nothing. Once the volume has no parent, flattened by this module or by an operator, the
taskmanager tells the guest, and records it in Cinder after the guest's answer. So a guest that does
not answer is told later.

A volume for whose data its pool has no room waits, and the log and ``trove-ceph-manage doctor`` say
so: it serves meanwhile, and a pool that it fills would block its OSDs for all.
"""

import collections
import contextlib

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.storage import image_types, tasks
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.strategies.restore import room

LOG = logging.getLogger(__name__)


def flatten_dependents(deps: BackupDependencies) -> None:
    """Have the storage service flatten the volumes that are marked; do not wait.

    Tells the guests of volumes that have no parent any more. Several processes may call this at
    once. It raises no error: the periodic task tries again.
    """
    promised: collections.Counter[str] = collections.Counter()
    try:
        for volume in deps.cinder.list_own_volumes():
            if volume.may_be_clone and volume.has_image:
                _continue(deps, volume, promised)
    except exceptions.TroveCephError as error:
        LOG.warning('Volumes cannot be flattened now; will retry: %s', error)


def flatten_volume(deps: BackupDependencies, instance_id: str) -> None:
    """Do so for the volume of one instance, such as one that was just restored."""
    try:
        instance = deps.trove.find_instance(instance_id)
        volume_id = instance.volume_id if instance else None
        volume = deps.cinder.find_volume(volume_id) if volume_id else None
        if volume and volume.project_id == deps.cinder.project_id and volume.may_be_clone:
            _continue(deps, volume, collections.Counter())
    except exceptions.TroveCephError as error:
        LOG.warning(
            'The volume of instance %s is not flattened now; will retry: %s',
            *(instance_id, error),
        )


def stop_flattening(deps: BackupDependencies, volume_id: str) -> None:
    """Stop flattening a volume that is about to be deleted, since no client may have it open."""
    try:
        volume = deps.cinder.find_volume(volume_id)
        facts = _find_clone(deps, volume) if volume else None
        if facts:
            with contextlib.suppress(exceptions.NotFoundError):
                deps.storage.cancel(_operation(facts))
    except exceptions.TroveCephError as error:
        LOG.warning('A flatten of volume %s may still be running: %s', volume_id, error)


def why_waiting(
    deps: BackupDependencies, volume: cinder_resources.Volume, facts: image_types.ImageFacts
) -> str | None:
    """Return why a clone is not flattened that is marked; None: it is, or need not be."""
    if not _must_be_flattened(volume, facts):
        return None
    try:
        room.check_flatten(deps, facts, {})
    except exceptions.NoSpaceError as error:
        return str(error)
    return None


def _continue(
    deps: BackupDependencies,
    volume: cinder_resources.Volume,
    promised: collections.Counter[str],
) -> None:
    """Have a volume flattened, or record that it is.

    :param promised: bytes that are about to be copied, by the names of pools
    """
    try:
        instance = deps.trove.find_instance_of_volume(volume.id)
        if instance is None and not volume.is_marked:
            # Somebody else has created it from a snapshot.
            return
        facts = _find_clone(deps, volume)
        if facts is None:
            if instance is not None and instance.has_our_guest_agent:
                _tell_guest(deps, instance.id)
            deps.cinder.record_independent(volume.id)
            LOG.info('%s has no parent', volume)
        elif _must_be_flattened(volume, facts) and not _is_going(deps, volume, instance):
            pool, most_bytes = room.check_flatten(deps, facts, promised)
            promised[pool] += most_bytes
            deps.storage.start(_operation(facts), tasks.FlattenTask(facts.image))
    except exceptions.TroveCephError as error:
        LOG.warning('%s cannot be flattened now; will retry: %s', volume, error)


def _tell_guest(deps: BackupDependencies, instance_id: str) -> None:
    """Have the guest trim its volume from now on.

    :raises GuestUnavailableError: it does not answer
    """
    # An agent of an earlier release trims all volumes.
    with contextlib.suppress(exceptions.GuestOutdatedError):
        deps.guest(instance_id).record_flattened()


def _find_clone(
    deps: BackupDependencies, volume: cinder_resources.Volume
) -> image_types.ImageFacts | None:
    """Return the image of a volume if it has a parent; else None."""
    image = deps.find_image(volume)
    facts = None if image is None else deps.storage.describe(image)
    return None if facts is None or facts.parent is None else facts


def _must_be_flattened(volume: cinder_resources.Volume, facts: image_types.ImageFacts) -> bool:
    is_asked = volume.metadata.get(cinder_resources.DEPENDENT_KEY) == cinder_resources.TO_FLATTEN
    return is_asked or (facts.parent is not None and facts.parent.pool != facts.image.pool)


def _is_going(
    deps: BackupDependencies,
    volume: cinder_resources.Volume,
    instance: backup_types.Instance | None,
) -> bool:
    """Return whether a volume is about to be deleted, which no client may have open then.

    :param instance: that has it; None: it has been deleted
    """
    if instance is not None:
        return instance.is_deleting
    is_kept = deps.records.find_kept_volume(volume.id) is not None
    return is_kept and not deps.records.of_volume(volume.id)


def _operation(facts: image_types.ImageFacts) -> str:
    return tasks.FlattenTask.operation_id(facts.image_id)
