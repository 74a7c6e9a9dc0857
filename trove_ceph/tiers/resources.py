# SPDX-License-Identifier: Apache-2.0
"""What there is, or should be, in Ceph, Cinder and Trove, in one shape for both."""

import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where CRUSH puts the parts of an object: each on another member of the failure domain.

    :param device_class: None for OSDs of all classes
    """

    root: str
    device_class: str | None
    failure_domain: str

    def __str__(self) -> str:
        return f'{self.device_class or "every class"} by {self.failure_domain} under {self.root}'


@dataclasses.dataclass(frozen=True)
class Rule:
    """A CRUSH rule.

    :param placement: None for a rule of a kind that tiers do not have
    :param profile: the erasure code profile that it is made from
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

    :param rule: the name of its CRUSH rule
    :param size: copies, or chunks of an erasure code
    :param pg_num: None where Ceph's autoscaler decides
    :param target_size_ratio: what the autoscaler is told, 0 for nothing
    :param compression_algorithm: None where nothing is compressed
    :param rbd: it is enabled for RBD, which is the last thing done to a new pool
    :param keeps_groups: its placement groups and what the autoscaler is told are not compared
    :param profile: the erasure code profile, None for a replicated pool
    :param overwrites: an erasure-coded pool takes the writes of RBD
    :param data_pool: where new images put their data, None for the pool itself
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
    """What a pool holds.

    :param fill: share of what it can hold, 0 to 1
    """

    objects: int
    stored_bytes: int
    fill: float


@dataclasses.dataclass(frozen=True)
class User:
    """A cephx user and its caps by service; the key is Ceph's affair.

    :param exclusive: it should have no other caps than these
    """

    name: str
    caps: Mapping[str, str]
    exclusive: bool = False


@dataclasses.dataclass(frozen=True)
class Osd:
    """An OSD.

    :param serves: it is in, so that CRUSH gives it data
    :param places: the buckets above it, name by type
    """

    number: int
    device_class: str | None
    up: bool
    serves: bool
    places: Mapping[str, str]

    def member_of(self, placement: Placement) -> str | None:
        """Return the member of the failure domain that it belongs to, None if it is outside."""
        if self.places.get('root') != placement.root:
            return None
        if placement.device_class not in (None, self.device_class):
            return None
        if placement.failure_domain == 'osd':
            return f'osd.{self.number}'
        return self.places.get(placement.failure_domain)


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
    :param keeps_backend: whatever extra spec it has is not compared
    :param keeps_qos: whatever QoS specs it has are not compared
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
    :param fsid: of the cluster
    :param pool: where its volumes lie
    :param user: its cephx user, without ``client.``
    """

    name: str
    fsid: str
    pool: str
    user: str


@dataclasses.dataclass(frozen=True)
class VolumeOfTier:
    """A volume of Cinder.

    :param name_id: the id in the name of its image: another one than its own after a migration
        whose last step, the renaming, failed
    :param backend: the ``volume_backend_name`` where it lies, None before the scheduler chose
    :param volume_type: the name, None for a volume without one
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
    """What Ceph has; all by name.

    :param profiles: None for one that tiers could not have made
    :param copies: the least number of copies, or chunks, that any placement group of a pool has;
        while they are being made, those that are complete
    """

    osds: tuple[Osd, ...]
    rules: Mapping[str, Rule]
    profiles: Mapping[str, Profile | None]
    pools: Mapping[str, Pool]
    usage: Mapping[str, Usage]
    users: Mapping[str, User]
    copies: Mapping[str, int]
    max_pgs_per_osd: int

    def serving(self, placement: Placement) -> list[Osd]:
        """Return the OSDs that a placement chooses from."""
        return [osd for osd in self.osds if osd.serves and osd.member_of(placement)]

    def members(self, placement: Placement) -> set[str]:
        """Return the members of the failure domain that a placement chooses from."""
        found = (osd.member_of(placement) for osd in self.osds if osd.serves)
        return {member for member in found if member}


@dataclasses.dataclass(frozen=True)
class CinderState:
    """What Cinder has.

    :param types: by name
    :param qos: by name
    :param volumes: the sizes in GiB of the volumes of each type, of all projects
    :param type_names: by id
    :param backends: those that have reported to the scheduler, None where it does not answer
    :param rbd_backends: those of them that are Ceph's
    """

    types: Mapping[str, VolumeType]
    qos: Mapping[str, QosSpecs]
    volumes: Mapping[str, tuple[int, ...]]
    type_names: Mapping[str, str]
    backends: frozenset[str] | None
    rbd_backends: tuple[RbdBackend, ...] = ()


@dataclasses.dataclass(frozen=True)
class TroveState:
    """What Trove has.

    :param associations: names or ids of volume types for each ``datastore/version`` that was asked
        for; a version that does not exist is None
    """

    associations: Mapping[str, frozenset[str] | None]


@dataclasses.dataclass(frozen=True)
class Observed:
    """All of it; None for a system that was not to be looked at."""

    ceph: CephState | None = None
    cinder: CinderState | None = None
    trove: TroveState | None = None


@dataclasses.dataclass(frozen=True)
class Desired:
    """What should be there; the parts of a system come in the order in which they are made."""

    profiles: tuple[Profile, ...]
    rules: tuple[Rule, ...]
    pools: tuple[Pool, ...]
    users: tuple[User, ...]
    qos: tuple[QosSpecs, ...]
    types: tuple[VolumeType, ...]
    associations: Mapping[str, frozenset[str]]
