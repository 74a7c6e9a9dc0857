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
    NONE = 'none'


class Role(enum.StrEnum):
    """What a cephx user is for, from which its caps follow."""

    CINDER = 'cinder'
    GLANCE = 'glance'
    STORAGE = 'storage'


@dataclasses.dataclass(frozen=True)
class PlacementGroups:
    """How many placement groups a pool gets: exactly one of the three is set.

    :param count: so many, a power of two
    :param share: of the data on the device class, 0 to 1; the count follows from the OSDs
    :param autoscale: the same share, given to Ceph's autoscaler, which decides
    """

    count: int | None = None
    share: float | None = None
    autoscale: float | None = None


@dataclasses.dataclass(frozen=True)
class Erasure:
    """An erasure-coded data pool beside the replicated pool, which then holds metadata only.

    :param pool: the data pool
    :param min_size: chunks that must be there for a write
    :param metadata_device_class: where the replicated pool lies
    :param metadata_pg_num: placement groups of the replicated pool
    """

    k: int
    m: int
    plugin: str
    technique: str
    pool: str
    min_size: int
    metadata_device_class: str
    metadata_pg_num: int

    @property
    def chunks(self) -> int:
        """The OSDs that hold a part of each object."""
        return self.k + self.m


@dataclasses.dataclass(frozen=True)
class VolumeType:
    """The volume type through which Cinder offers a tier.

    :param backend: ``volume_backend_name`` of the back end in cinder.conf
    """

    name: str
    backend: str
    description: str
    public: bool


@dataclasses.dataclass(frozen=True)
class Tier:
    """One class of storage.

    :param pool: holds its images; with an erasure code their headers only
    :param copies: of what lies in ``pool``
    :param min_size: copies that must be there for a write
    :param iops: what each volume is promised, None for a tier without a promise
    :param throughput_mib_per_sec: a volume's limit, None for none
    :param latency_ms: the objective for one durable 16 KiB write, 99th percentile
    :param datastore_versions: ``datastore/version`` that may be created on this tier
    """

    name: str
    purpose: Purpose
    device_class: str
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
    latency_ms: float | None
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
    :param tiers: the names of those it works on
    """

    name: str
    role: Role
    tiers: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class TiersFile:
    """Everything that the file describes; both by name, in the file's order."""

    tiers: Mapping[str, Tier]
    users: Mapping[str, User]
