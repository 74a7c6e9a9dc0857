# SPDX-License-Identifier: Apache-2.0
"""Check that there is room for volumes, or for the data of clones. Nothing is changed."""

from collections.abc import Mapping

from trove_ceph import exceptions
from trove_ceph.cinder import checks
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.storage import image_types
from trove_ceph.strategies.backup.dependencies import BackupDependencies

#: The part of a pool that flattens and new replicas leave free, as other pools share its OSDs. It
#: is the distance between Ceph's nearfull and full ratios, 0.85 and 0.95.
KEPT_FREE = 0.1


def check_room(
    deps: BackupDependencies,
    subject: str,
    backend: cinder_resources.StorageBackend,
    volume_type: str,
    size_gib: int,
    count: int = 1,
    kept_free: float = 0,
) -> None:
    """Check that volumes can be created now.

    :param subject: what the message begins with
    :param backend: the Cinder back end that will have them
    :param volume_type: the name of their volume type
    :param size_gib: of each volume
    :param count: how many
    :param kept_free: the part of each pool that must be free, from 0 to 1
    :raises NoSpaceError: a pool that would have their data or headers is full, or less is free
    :raises QuotaExceededError: Cinder's quota does not allow the volumes
    """
    for pool in deps.pools_of(backend.pool):
        usage = deps.storage.usage(pool)
        if usage.full:
            raise exceptions.NoSpaceError(f'{subject}: {usage}')
        if usage.fill > 1 - kept_free:
            raise exceptions.NoSpaceError(f'{subject}: {kept_free:.0%} must be free: {usage}')
    projects = [deps.cinder.project_id]
    checks.check_quota(deps.cinder, projects, subject, volume_type, size_gib, count)


def check_flatten(
    deps: BackupDependencies, facts: image_types.ImageFacts, promised: Mapping[str, int]
) -> tuple[str, int]:
    """Check that the pool of a clone has room for what its parents have.

    A full OSD blocks the writes of all pools that it is in, also those of sources.

    :param facts: of the clone
    :param promised: bytes that other clones may still be about to copy, by the names of pools
    :returns: the pool, and how many bytes may be copied into it
    :raises NoSpaceError: the message has what is needed and what is free
    """
    pool = facts.data_pool or facts.image.pool
    usage = deps.storage.usage(pool)
    most_bytes = _most_bytes_to_copy(deps, facts)
    kept_bytes = int(KEPT_FREE * (usage.stored_bytes + usage.available_bytes))
    free_bytes = usage.available_bytes - kept_bytes - promised.get(pool, 0)
    if most_bytes > free_bytes:
        raise exceptions.NoSpaceError(
            f'{facts.image}: to flatten it may take {most_bytes // image_types.MIB} MiB, and '
            f'{max(0, free_bytes) // image_types.MIB} MiB can be used, since '
            f'{kept_bytes // image_types.MIB} MiB stay free: {usage}'
        )
    return pool, most_bytes


def _most_bytes_to_copy(deps: BackupDependencies, facts: image_types.ImageFacts) -> int:
    """Return a bound of what a clone stores in addition when it is flattened."""
    own = deps.storage.describe(facts.image, with_usage=True)
    # The space of its snapshots does not tell what the clone itself has.
    own_bytes = 0 if own.snapshots else own.used_bytes or 0
    most_bytes = max(0, facts.size_bytes - own_bytes)
    above_bytes, below, parent = 0, own, own.parent
    while parent is not None:
        try:
            image = deps.storage.describe(parent.of, with_usage=True)
        except exceptions.NotFoundError:
            # It is in the trash, where its space cannot be measured.
            return most_bytes
        if below.image_id not in [one.image_id for one in image.children]:
            # As well, and another image has its name, such as that of the vault.
            return most_bytes
        above_bytes += image.used_bytes or 0
        below, parent = image, image.parent
    return min(most_bytes, above_bytes)
