# SPDX-License-Identifier: Apache-2.0
"""Choose where the volume of a replica is created, and check the room. Nothing is changed."""

import dataclasses

from trove_ceph import exceptions
from trove_ceph.cinder import checks
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.storage import image_types
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.tiers import tier_types
from trove_ceph.tiers.tier_types import Purpose

_PURPOSES = (Purpose.DATA, Purpose.REPLICA)


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the volume of a replica is created.

    :param volume_type: the name of its volume type
    :param backend: the Cinder back end that will have it
    """

    volume_type: str
    backend: cinder_resources.StorageBackend


def choose(
    deps: BackupDependencies,
    tiers: tier_types.TiersFile,
    source: cinder_resources.Volume,
    image: image_types.ImageRef,
    requested: str | None = None,
) -> Placement:
    """Return the placement of the volume of a replica.

    :param source: the volume of its source, and ``image`` that volume's image
    :param requested: the name of a volume type: that of the source, which Trove's API fills in for
        a new replica, or that of a replica that gets a fresh clone. The tier of the source
        chooses, unless this is of another tier for data
    :raises ReplicaRefusedError: the requested type is not that of a tier for replicas or data
    :raises NotAdoptableError: none of its back ends is up
    """
    offered = {one.volume_type.name: one for one in tiers.tiers.values() if one.volume_type}
    volume_type = requested or source.volume_type
    of_source = _type_of_replicas(tiers, offered.get(source.volume_type))
    if volume_type == source.volume_type:
        volume_type = of_source or volume_type
    elif volume_type not in offered or offered[volume_type].purpose not in _PURPOSES:
        fitting = [name for name, one in offered.items() if one.purpose in _PURPOSES]
        raise exceptions.ReplicaRefusedError(
            f'volume type {volume_type} is not for replicas, expected one of '
            f'{", ".join(fitting)}; create another replica, and delete this one'
        )
    elif offered[volume_type].purpose is Purpose.REPLICA:
        # The tiers file may name another tier by now.
        volume_type = of_source or volume_type
    backends = checks.find_backends(deps.cinder, 'replica', volume_type)
    # A clone in the pool of its parent needs no other pool.
    backend = next((one for one in backends if one.pool == image.pool), backends[0])
    return Placement(volume_type, backend)


def check_room(
    deps: BackupDependencies, subject: str, target: Placement, size_gib: int, count: int = 1
) -> None:
    """Check that volumes can be created at a placement now.

    :param subject: what the message begins with
    :param size_gib: of each volume
    :param count: how many
    :raises NoSpaceError: the pool is full
    :raises QuotaExceededError: Cinder's quota does not allow the volumes
    """
    usage = deps.storage.usage(target.backend.pool)
    if usage.full:
        raise exceptions.NoSpaceError(f'{subject}: {usage}')
    project_id = deps.cinder.project_id
    if shortage := deps.cinder.find_shortage(project_id, target.volume_type, size_gib, count):
        raise exceptions.QuotaExceededError(f'{subject}: {shortage}')


def _type_of_replicas(tiers: tier_types.TiersFile, tier: tier_types.Tier | None) -> str | None:
    """Return the volume type of the tier on which the replicas of a tier are."""
    if tier is None or tier.replicas_on is None:
        return None
    found = tiers.tiers[tier.replicas_on].volume_type
    return found.name if found else None
