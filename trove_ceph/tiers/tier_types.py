# SPDX-License-Identifier: Apache-2.0
"""What the tiers file says, checked and with every default filled in."""

import dataclasses
import enum
from collections.abc import Mapping

from trove_ceph.mysql import tuning

#: From the narrowest to the widest; the types of Ceph's default CRUSH map.
FAILURE_DOMAINS = (
    'osd',
    'host',
    'chassis',
    'rack',
    'row',
    'pdu',
    'pod',
    'room',
    'datacenter',
    'zone',
    'region',
)


#: The services that a cephx user can have caps for.
SERVICES = ('mds', 'mgr', 'mon', 'osd')


class Purpose(enum.StrEnum):
    """What a tier's pool holds."""

    DATA = 'data'
    REPLICA = 'replica'
    VAULT = 'vault'
    IMAGES = 'images'


class TierLimits(enum.StrEnum):
    """Who holds a volume to its tier's IOPS and throughput."""

    FRONT_END = 'front-end'
    IMAGE = 'image'
    KEEP = 'keep'
    NONE = 'none'


class Role(enum.StrEnum):
    """What a cephx user is for, from which its caps follow."""

    CINDER = 'cinder'
    GLANCE = 'glance'
    STORAGE = 'storage'


@dataclasses.dataclass(frozen=True)
class PlacementGroups:
    """How many placement groups a pool gets: exactly one of the four is set.

    :param count: so many, a power of two
    :param share: of the data on the device class, 0 to 1; the count follows from the OSDs
    :param autoscale: the same share, given to Ceph's autoscaler, which decides
    :param keep: whatever the pool has; a new pool is left to Ceph's autoscaler
    """

    count: int | None = None
    share: float | None = None
    autoscale: float | None = None
    keep: bool = False


@dataclasses.dataclass(frozen=True)
class Erasure:
    """An erasure-coded data pool beside the replicated pool, which then holds metadata only.

    :param pool: the data pool
    :param min_size: chunks that must be there for a write
    :param metadata_device_class: where the replicated pool lies, None for OSDs of every class
    :param metadata_pg_num: placement groups of the replicated pool
    """

    k: int
    m: int
    plugin: str
    technique: str
    pool: str
    min_size: int
    metadata_device_class: str | None
    metadata_pg_num: int

    @property
    def chunks(self) -> int:
        """The OSDs that hold a part of each object."""
        return self.k + self.m


@dataclasses.dataclass(frozen=True)
class VolumeType:
    """The volume type through which Cinder offers a tier.

    :param backend: ``volume_backend_name`` of the back end in cinder.conf
    :param names_backend: the type has it as an extra spec; without one Cinder's scheduler is free
        to choose among all back ends
    """

    name: str
    backend: str
    description: str
    public: bool
    names_backend: bool = True


@dataclasses.dataclass(frozen=True)
class Tier:
    """One class of storage.

    :param device_class: None for OSDs of every class
    :param pool: holds its images; with an erasure code their headers only
    :param copies: of what lies in ``pool``
    :param min_size: copies that must be there for a write
    :param iops: what each volume is promised, None for a tier without a promise
    :param throughput_mib_per_sec: a volume's limit, None for none
    :param datastore_versions: ``datastore/version`` that may be created on this tier
    """

    name: str
    purpose: Purpose
    device_class: str | None
    failure_domain: str
    crush_root: str
    pool: str
    copies: int
    min_size: int
    erasure: Erasure | None
    placement_groups: PlacementGroups
    compression_mode: str
    compression_algorithm: str
    iops: tuning.Tier | None
    throughput_mib_per_sec: int | None
    qos: TierLimits
    volume_type: VolumeType | None
    datastore_versions: tuple[str, ...]

    @property
    def pools(self) -> tuple[str, ...]:
        """Every pool of the tier."""
        return (self.pool, self.erasure.pool) if self.erasure else (self.pool,)


@dataclasses.dataclass(frozen=True)
class User:
    """A cephx user.

    :param name: such as ``client.cinder``
    :param role: None for one that gets what ``pools`` and ``caps`` say and nothing else
    :param tiers: the names of those it works on by its role
    :param pools: further pools that it may work on as it may on those of its tiers
    :param caps: further grants by service
    :param exclusive: it has no other grants; those that it has are revoked
    """

    name: str
    role: Role | None
    tiers: tuple[str, ...]
    pools: tuple[str, ...] = ()
    caps: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    exclusive: bool = False


@dataclasses.dataclass(frozen=True)
class TiersFile:
    """Everything that the file describes; both by name, in the file's order.

    :param notes: what the author of the file should know, and need not do anything about
    """

    tiers: Mapping[str, Tier]
    users: Mapping[str, User]
    notes: tuple[str, ...] = ()
