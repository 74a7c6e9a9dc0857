# SPDX-License-Identifier: Apache-2.0
"""The content of the tiers file, validated and with defaults filled in."""

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
    """The kind of data in a tier's pool."""

    DATA = 'data'
    REPLICA = 'replica'
    VAULT = 'vault'
    IMAGES = 'images'


class TierLimits(enum.StrEnum):
    """What enforces the IOPS and the throughput of a tier's volumes."""

    FRONT_END = 'front-end'
    IMAGE = 'image'
    KEEP = 'keep'
    NONE = 'none'


class Role(enum.StrEnum):
    """The role of a cephx user, which determines its caps."""

    CINDER = 'cinder'
    GLANCE = 'glance'
    STORAGE = 'storage'


#: Placement groups on each OSD over all pools (QCT 2015, "Placement groups": "e.g., 100 per OSD").
PGS_PER_OSD = 100


@dataclasses.dataclass(frozen=True)
class PlacementGroups:
    """The policy for the number of placement groups; exactly one of the first four is set.

    :param count: this number, a power of two
    :param share: share of the data on the device class, 0 to 1; the number follows from the OSDs
    :param autoscale: the same share, given to Ceph's autoscaler, which chooses the number
    :param keep: keep the present number; Ceph's autoscaler chooses that of a new pool
    :param per_osd: placement groups on each OSD over all pools, with ``share``
    """

    count: int | None = None
    share: float | None = None
    autoscale: float | None = None
    keep: bool = False
    per_osd: float = PGS_PER_OSD


@dataclasses.dataclass(frozen=True)
class Erasure:
    """An erasure-coded data pool beside the replicated pool, which then holds metadata only.

    :param pool: the data pool
    :param min_size: chunks that must be available for I/O
    :param metadata_device_class: device class of the replicated pool; None: all classes
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
        """The number of OSDs that store a part of each object."""
        return self.k + self.m


@dataclasses.dataclass(frozen=True)
class VolumeType:
    """The volume type through which Cinder offers a tier.

    :param backend: ``volume_backend_name`` of the back end in cinder.conf
    :param names_backend: whether the type has the back end as an extra spec; without it, Cinder's
        scheduler chooses among all back ends
    """

    name: str
    backend: str
    description: str
    public: bool
    names_backend: bool = True


@dataclasses.dataclass(frozen=True)
class Tier:
    """One class of storage.

    :param device_class: None: OSDs of all classes
    :param pool: the pool of its images; with an erasure code, of their headers only
    :param copies: copies of each object in ``pool``
    :param min_size: copies that must be available for I/O
    :param iops: the IOPS promised to each volume; None: no promise
    :param throughput_mib_per_sec: limit of a volume; None: no limit
    :param datastore_versions: ``datastore/version`` that may be created on this tier
    :param replicas_on: the tier of the replicas of its instances; None: this one
    :param latency_ms: the objective for the mean time of a write; metrics compare it with what Ceph
        measures, and nothing enforces it
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
    replicas_on: str | None = None
    latency_ms: float | None = None

    @property
    def pools(self) -> tuple[str, ...]:
        """Every pool of the tier."""
        return (self.pool, self.erasure.pool) if self.erasure else (self.pool,)


@dataclasses.dataclass(frozen=True)
class User:
    """A cephx user.

    :param name: such as ``client.cinder``
    :param role: None: the user gets only ``pools`` and ``caps``
    :param tiers: names of the tiers to which its role applies
    :param pools: further pools with the same access as those of its tiers
    :param caps: further grants by service
    :param exclusive: revoke all other grants
    """

    name: str
    role: Role | None
    tiers: tuple[str, ...]
    pools: tuple[str, ...] = ()
    caps: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    exclusive: bool = False


@dataclasses.dataclass(frozen=True)
class TiersFile:
    """Tiers and users by name, in the order of the file."""

    tiers: Mapping[str, Tier]
    users: Mapping[str, User]

    def find_by_type(self, volume_type: str | None) -> Tier | None:
        """Return the tier that Cinder offers through a volume type; None: there is none.

        :param volume_type: its name
        """
        for tier in self.tiers.values():
            if tier.volume_type and tier.volume_type.name == volume_type:
                return tier
        return None

    @property
    def for_replicas(self) -> Mapping[str, Tier]:
        """The tiers on which replicas can be, by the names of their volume types."""
        return {
            tier.volume_type.name: tier
            for tier in self.tiers.values()
            if tier.volume_type and tier.purpose in (Purpose.DATA, Purpose.REPLICA)
        }
