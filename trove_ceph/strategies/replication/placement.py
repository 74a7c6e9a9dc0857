# SPDX-License-Identifier: Apache-2.0
"""Choose where the volume of a replica is created. Nothing is changed."""

import dataclasses

from trove_ceph import exceptions
from trove_ceph.cinder import checks
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.db.replica_record import ReplicationPolicy
from trove_ceph.storage import image_types
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.tiers import tier_types
from trove_ceph.tiers.tier_types import Purpose


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
    requested: str | None,
    policy: ReplicationPolicy | None,
) -> Placement:
    """Return the placement of the volume of a replica.

    :param source: the volume of its source, and ``image`` that volume's image
    :param requested: the name of a volume type: that of the source, which Trove's API fills in for
        a new replica, or that of a replica that gets a fresh clone. The tier of the source
        chooses, unless this is of another tier for data, as that of a former source
    :param policy: of the source; its volume type takes precedence over all others
    :raises ReplicaRefusedError: the type of the policy, or the requested one, is not that of a tier
        for replicas or data
    :raises NotAdoptableError: none of its back ends is up
    """
    volume_type = _type_of_policy(tiers, policy) or _type_by_tiers(
        tiers, source.volume_type, requested or source.volume_type
    )
    backends = checks.find_backends(deps.cinder, 'replica', volume_type)
    # A clone in the pool of its parent needs no other pool.
    backend = next((one for one in backends if one.pool == image.pool), backends[0])
    return Placement(volume_type, backend)


def _type_of_policy(tiers: tier_types.TiersFile, policy: ReplicationPolicy | None) -> str | None:
    if policy is None or policy.replica_volume_type is None:
        return None
    if policy.replica_volume_type not in tiers.for_replicas:
        # The tiers file was changed since the policy was set.
        raise exceptions.ReplicaRefusedError(
            f'instance {policy.instance_id}: its policy has --replica-volume-type '
            f'{policy.replica_volume_type}, which is not for replicas any more; set another one, '
            'or default'
        )
    return policy.replica_volume_type


def _type_by_tiers(tiers: tier_types.TiersFile, of_source: str, requested: str) -> str:
    """Return the volume type of a replica of a source without one in its policy."""
    fitting = tiers.for_replicas
    by_tier = _type_of_replicas(tiers, fitting.get(of_source)) or of_source
    if requested == of_source:
        return by_tier
    if requested not in fitting:
        raise exceptions.ReplicaRefusedError(
            f'volume type {requested} is not for replicas; create another replica, and delete '
            'this one'
        )
    # The tiers file may name another tier for replicas by now, or none.
    return by_tier if fitting[requested].purpose is Purpose.REPLICA else requested


def _type_of_replicas(tiers: tier_types.TiersFile, tier: tier_types.Tier | None) -> str | None:
    """Return the volume type of the tier on which the replicas of a tier are."""
    if tier is None or tier.replicas_on is None:
        return None
    found = tiers.tiers[tier.replicas_on].volume_type
    return found.name if found else None
