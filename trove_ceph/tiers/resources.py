# SPDX-License-Identifier: Apache-2.0
"""Resources of Ceph, Cinder and Trove, in the same form for the observed and desired state."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where CRUSH places the parts of an object: each in another failure domain.

    :param device_class: None: OSDs of all classes
    """

    root: str
    device_class: str | None
    failure_domain: str

    def __str__(self) -> str:
        return f'{self.device_class or "every class"} by {self.failure_domain} under {self.root}'


@dataclasses.dataclass(frozen=True)
class Rule:
    """A CRUSH rule.

    :param placement: None: a rule that tiers do not support
    :param profile: the erasure code profile from which the rule is created
    """

    name: str
    placement: Placement | None
    profile: str | None = None


@dataclasses.dataclass(frozen=True)
class Profile:
    """An erasure code profile."""

    name: str
    k: int
    m: int
    plugin: str
    technique: str
    placement: Placement


@dataclasses.dataclass(frozen=True)
class Pool:
    """A pool.

    :param rule: name of its CRUSH rule
    :param size: copies, or chunks of an erasure code
    :param pg_num: None: Ceph's autoscaler chooses it
    :param target_size_ratio: for the autoscaler; 0: not set
    :param compression_algorithm: None: no compression
    :param rbd: whether the pool is enabled for RBD, the last step of its creation
    :param keeps_groups: do not compare placement groups and settings of the autoscaler
    :param profile: the erasure code profile; None: a replicated pool
    :param overwrites: whether an erasure-coded pool allows overwrites, as RBD requires
    :param data_pool: default data pool of new images; None: the pool itself
    """

    name: str
    rule: str
    size: int
    min_size: int
    pg_num: int | None
    autoscale: str
    target_size_ratio: float = 0.0
    compression_mode: str = 'none'
    compression_algorithm: str | None = None
    rbd: bool = True
    profile: str | None = None
    overwrites: bool = False
    data_pool: str | None = None
    keeps_groups: bool = False


@dataclasses.dataclass(frozen=True)
class Usage:
    """The usage of a pool.

    :param fill: used share of its capacity, 0 to 1
    """

    objects: int
    stored_bytes: int
    fill: float


@dataclasses.dataclass(frozen=True)
class User:
    """A cephx user and its caps by service, without its key.

    :param exclusive: revoke all other caps
    """

    name: str
    caps: Mapping[str, str]
    exclusive: bool = False


@dataclasses.dataclass(frozen=True)
class Osd:
    """An OSD.

    :param serves: whether it is in and has a weight, so that CRUSH places data on it
    :param buckets: the CRUSH buckets above it, name by type
    """

    number: int
    device_class: str | None
    up: bool
    serves: bool
    buckets: Mapping[str, str]

    def member_of(self, placement: Placement) -> str | None:
        """Return its failure domain under a placement; None: the placement excludes it."""
        if self.buckets.get('root') != placement.root:
            return None
        if placement.device_class not in (None, self.device_class):
            return None
        if placement.failure_domain == 'osd':
            return f'osd.{self.number}'
        return self.buckets.get(placement.failure_domain)


@dataclasses.dataclass(frozen=True)
class QosSpecs:
    """QoS specs of Cinder."""

    name: str
    consumer: str
    specs: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class VolumeType:
    """A volume type of Cinder.

    :param backend: its extra spec ``volume_backend_name``
    :param qos: the name of the QoS specs associated with it
    :param keeps_backend: do not compare the extra spec
    :param keeps_qos: do not compare the QoS specs
    """

    name: str
    backend: str | None
    description: str
    public: bool
    qos: str | None
    keeps_backend: bool = False
    keeps_qos: bool = False


@dataclasses.dataclass(frozen=True)
class RbdBackend:
    """A back end of Cinder's RBD driver, as it reports to the scheduler.

    :param name: its ``volume_backend_name``
    :param fsid: id of the Ceph cluster
    :param pool: the pool of its volumes
    :param user: its cephx user, without ``client.``
    """

    name: str
    fsid: str
    pool: str
    user: str


@dataclasses.dataclass(frozen=True)
class VolumeOfTier:
    """A volume of Cinder.

    :param name_id: the id in the name of its image; it differs from the volume's id after a
        migration whose last step, renaming the image, failed
    :param backend: ``volume_backend_name`` of its back end; None: not scheduled yet
    :param volume_type: name of its type; None: it has none
    """

    id: str
    name_id: str
    backend: str | None
    volume_type: str | None
    size_gib: int
    status: str

    @property
    def image_name(self) -> str:
        """The name of its image, by Cinder's default ``volume_name_template``."""
        return f'volume-{self.name_id}'


@dataclasses.dataclass(frozen=True)
class CephState:
    """The state of Ceph; mappings are by name.

    :param profiles: None: a profile that tiers do not support
    :param copies: the least number of complete copies, or chunks, of any placement group of a pool
    :param max_pgs_per_osd: mon_max_pg_per_osd
    :param allows_single_copy: mon_allow_pool_size_one
    """

    osds: tuple[Osd, ...]
    rules: Mapping[str, Rule]
    profiles: Mapping[str, Profile | None]
    pools: Mapping[str, Pool]
    usage: Mapping[str, Usage]
    users: Mapping[str, User]
    copies: Mapping[str, int]
    max_pgs_per_osd: int
    allows_single_copy: bool

    def serving(self, placement: Placement) -> list[Osd]:
        """Return the OSDs from which a placement chooses."""
        return [osd for osd in self.osds if osd.serves and osd.member_of(placement)]

    def members(self, placement: Placement) -> set[str]:
        """Return the failure domains from which a placement chooses."""
        found = (osd.member_of(placement) for osd in self.osds if osd.serves)
        return {member for member in found if member}


@dataclasses.dataclass(frozen=True)
class CinderState:
    """The state of Cinder.

    :param types: volume types by name
    :param qos: QoS specs by name
    :param volumes: sizes in GiB of the volumes of each type, in all projects
    :param type_names: names of volume types by id
    :param backends: back ends that have reported to the scheduler; None: it does not answer
    :param rbd_backends: those of them that use the RBD driver
    """

    types: Mapping[str, VolumeType]
    qos: Mapping[str, QosSpecs]
    volumes: Mapping[str, tuple[int, ...]]
    type_names: Mapping[str, str]
    backends: frozenset[str] | None
    rbd_backends: tuple[RbdBackend, ...] = ()


@dataclasses.dataclass(frozen=True)
class TroveState:
    """The state of Trove.

    :param associations: names or ids of volume types for each queried ``datastore/version``; None:
        the version does not exist
    """

    associations: Mapping[str, frozenset[str] | None]


@dataclasses.dataclass(frozen=True)
class Observed:
    """The observed state of all systems; None: a system that was left out."""

    ceph: CephState | None = None
    cinder: CinderState | None = None
    trove: TroveState | None = None


@dataclasses.dataclass(frozen=True)
class Desired:
    """The desired state, in the order of creation."""

    profiles: tuple[Profile, ...]
    rules: tuple[Rule, ...]
    pools: tuple[Pool, ...]
    users: tuple[User, ...]
    qos: tuple[QosSpecs, ...]
    types: tuple[VolumeType, ...]
    associations: Mapping[str, frozenset[str]]
