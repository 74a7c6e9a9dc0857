# SPDX-License-Identifier: Apache-2.0
"""The arguments and results of the storage verbs, independent of Ceph's libraries."""

import dataclasses
import datetime
from collections.abc import Collection, Iterable, Mapping

from oslo_utils import units

MIB = units.Mi

#: The features of Cinder's volumes: fencing needs the exclusive lock, comparing the object map.
DEFAULT_FEATURES = frozenset(
    {'layering', 'exclusive-lock', 'object-map', 'fast-diff', 'deep-flatten'}
)


@dataclasses.dataclass(frozen=True, order=True)
class ImageRef:
    """The pool and name of an image."""

    pool: str
    name: str

    def __str__(self) -> str:
        return f'{self.pool}/{self.name}'

    def snapshot(self, name: str) -> 'SnapshotRef':
        return SnapshotRef(self.pool, self.name, name)


@dataclasses.dataclass(frozen=True, order=True)
class SnapshotRef:
    """The pool, image and name of a snapshot."""

    pool: str
    image: str
    name: str

    def __str__(self) -> str:
        return f'{self.pool}/{self.image}@{self.name}'

    @property
    def of(self) -> ImageRef:
        """The image of the snapshot."""
        return ImageRef(self.pool, self.image)


@dataclasses.dataclass(frozen=True)
class ListedImage:
    """An entry in the list of a pool's images."""

    image: ImageRef
    image_id: str

    def __str__(self) -> str:
        return str(self.image)


@dataclasses.dataclass(frozen=True)
class ImageOptions:
    """The options of a new image.

    :param data_pool: an erasure-coded pool for its data; None for the pool of the image
    :param object_bytes: a power of two from 4 KiB to 32 MiB
    """

    data_pool: str | None = None
    object_bytes: int = 4 * MIB
    features: frozenset[str] = DEFAULT_FEATURES


@dataclasses.dataclass(frozen=True)
class Qos:
    """Limits of one image, enforced by each client that has it open; 0 means no limit.

    librbd spreads a burst over one second (rbd_qos_*_burst_seconds).
    """

    iops: int = 0
    iops_burst: int = 0
    bytes_per_sec: int = 0
    bytes_per_sec_burst: int = 0

    def __post_init__(self) -> None:
        limits = ((self.iops, self.iops_burst), (self.bytes_per_sec, self.bytes_per_sec_burst))
        if any(limit < 0 or (burst and burst < limit) for limit, burst in limits):
            raise ValueError(
                f'{self}: limits must not be negative, and a burst must not be below its limit'
            )


@dataclasses.dataclass(frozen=True)
class Child:
    """A clone and its parent snapshot.

    :param image: its name is empty if its pool does not answer
    :param snapshot: Ceph's current name of the snapshot; Ceph renames a removed snapshot
    :param trashed: whether the clone is in the trash of its pool
    """

    image: ImageRef
    image_id: str
    snapshot: str
    trashed: bool = False

    def __str__(self) -> str:
        if not self.image.name:
            return f'image {self.image_id} of pool {self.image.pool}, which does not answer'
        return (
            f'{self.image} (in the trash, id {self.image_id})' if self.trashed else f'{self.image}'
        )


@dataclasses.dataclass(frozen=True)
class SnapshotFacts:
    """One snapshot of an image.

    :param snapshot_id: never reused in a pool
    :param removed: it was removed, and Ceph keeps it until its last clone is gone
    :param removed_name: its name before it was removed
    """

    name: str
    snapshot_id: int
    size_bytes: int
    created_at: datetime.datetime
    removed: bool = False
    removed_name: str | None = None


@dataclasses.dataclass(frozen=True)
class ImageFacts:
    """The facts that Ceph reports about an image.

    :param image_id: stays the same when the image is renamed, trashed and restored
    :param used_bytes: space of image and snapshots before replication, counted in whole objects,
        and too high while Ceph keeps removed snapshots; None if it was not requested
    :param parent: the snapshot of which the image is a clone; Ceph renames a removed snapshot
    :param clients: the addresses that have the image open for writing
    :param lock_owner: the address that holds the exclusive lock
    :param metadata: without librbd options; the limits among them are in ``qos``
    :param created_at: None if it is unknown
    :param qos_is_whole: False if the limits lack the schedule tick that ``set_qos`` sets with
        them, or the tick is set without limits
    :param clone_depth: the number of images, one above the other, from which the image reads what
        it does not store itself; 0 for an image without parent
    """

    image: ImageRef
    image_id: str
    size_bytes: int
    object_bytes: int
    features: frozenset[str]
    data_pool: str | None
    parent: SnapshotRef | None
    snapshots: tuple[SnapshotFacts, ...]
    children: tuple[Child, ...]
    clients: tuple[str, ...]
    lock_owner: str | None
    qos: Qos
    metadata: Mapping[str, str]
    used_bytes: int | None = None
    created_at: datetime.datetime | None = None
    qos_is_whole: bool = True
    clone_depth: int = 0

    @property
    def snapshot_names(self) -> list[str]:
        """The names of the snapshots, oldest first, without removed ones."""
        return [one.name for one in self.snapshots if not one.removed]

    def find_snapshot(self, name: str) -> SnapshotFacts | None:
        return next((one for one in self.snapshots if one.name == name), None)

    def obstacles(self, cut_off: Collection[str] = ()) -> str:
        """Return what prevents the removal of the image; empty if nothing does.

        :param cut_off: the addresses of clients that are on the blocklist
        """
        found = {
            'children': self.children,
            'snapshots': self.snapshot_names,
            'clients': [one for one in self.clients if one not in cut_off],
            f'blocklisted clients that still watch rbd_header.{self.image_id}': [
                one for one in self.clients if one in cut_off
            ],
        }
        return '; '.join(
            f'{kind} {", ".join(map(str, these))}' for kind, these in found.items() if these
        )


@dataclasses.dataclass(frozen=True)
class ImageHeader:
    """The facts in the header of an image; the members are those of :class:`ImageFacts`."""

    image: ImageRef
    image_id: str
    features: frozenset[str]
    metadata: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class TrashedImage:
    """An image in the trash of its pool; its clones still read from it.

    :param name: its name before it was moved to the trash
    :param size_bytes: its size; None if only its entry is left, if it cannot be opened, or if an
        older service tells
    """

    pool: str
    image_id: str
    name: str
    trashed_at: datetime.datetime
    children: tuple[Child, ...]
    size_bytes: int | None = None

    def __str__(self) -> str:
        return f'{self.pool}/{self.name} (in the trash, id {self.image_id})'


@dataclasses.dataclass(frozen=True)
class PoolUsage:
    """The space usage of a pool.

    :param stored_bytes: data of clients
    :param used_bytes: with replicas or coding chunks
    :param available_bytes: how much clients can still write before the fullest OSD is full
    :param fill: from 0 to 1, relative to the quota if that is tighter
    :param full: whether Ceph refuses writes to the pool now
    """

    pool: str
    stored_bytes: int
    used_bytes: int
    available_bytes: int
    fill: float
    near_full: bool
    full: bool

    def __str__(self) -> str:
        state = ', full' if self.full else ', nearly full' if self.near_full else ''
        return (
            f'pool {self.pool}: {self.fill:.0%} filled{state}, {self.stored_bytes // MIB} MiB '
            f'stored, {self.available_bytes // MIB} MiB available'
        )


@dataclasses.dataclass(frozen=True)
class ImagePerformance:
    """What the clients of an image get from the OSDs, within some seconds before a request.

    :param reads_per_sec: requests for an object or a part of it
    :param read_sec: mean duration of a read on the OSDs, without the network to the client
    """

    image: ImageRef
    reads_per_sec: float
    writes_per_sec: float
    read_sec: float
    write_sec: float


@dataclasses.dataclass(frozen=True)
class Extent:
    """A range of an image.

    :param exists: False if the range reads as zeros because nothing is stored there
    """

    offset: int
    length: int
    exists: bool = True

    @property
    def end(self) -> int:
        return self.offset + self.length


def joined(extents: Iterable[Extent]) -> list[Extent]:
    """Join adjacent extents of the same kind; the extents must be in order."""
    found: list[Extent] = []
    for extent in extents:
        if found and (found[-1].end, found[-1].exists) == (extent.offset, extent.exists):
            before = found.pop()
            extent = Extent(before.offset, before.length + extent.length, extent.exists)
        found.append(extent)
    return found


@dataclasses.dataclass(frozen=True)
class Clients:
    """The other clients of an image.

    :param watchers: the addresses that have it open for writing; that of a dead client stays 30 s
    :param lock_owner: the owner of the exclusive lock, which stays until a client breaks the lock
    """

    watchers: frozenset[str]
    lock_owner: str | None

    @property
    def addresses(self) -> frozenset[str]:
        return self.watchers | ({self.lock_owner} if self.lock_owner else set())
