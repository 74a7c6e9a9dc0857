# SPDX-License-Identifier: Apache-2.0
"""What the storage verbs take and return. Nothing here knows Ceph's libraries."""

import dataclasses
import datetime
from collections.abc import Collection, Iterable, Mapping

from oslo_utils import units

MIB = units.Mi

#: What Cinder's volumes have, too: an exclusive lock to fence by, an object map to compare by.
DEFAULT_FEATURES = frozenset(
    {'layering', 'exclusive-lock', 'object-map', 'fast-diff', 'deep-flatten'}
)


@dataclasses.dataclass(frozen=True, order=True)
class ImageRef:
    """An image by its place."""

    pool: str
    name: str

    def __str__(self) -> str:
        return f'{self.pool}/{self.name}'

    def snapshot(self, name: str) -> 'SnapshotRef':
        return SnapshotRef(self.pool, self.name, name)


@dataclasses.dataclass(frozen=True, order=True)
class SnapshotRef:
    """A snapshot by its place."""

    pool: str
    image: str
    name: str

    def __str__(self) -> str:
        return f'{self.pool}/{self.image}@{self.name}'

    @property
    def of(self) -> ImageRef:
        """The image of which it is a snapshot."""
        return ImageRef(self.pool, self.image)


@dataclasses.dataclass(frozen=True)
class ListedImage:
    """An image as its pool lists it."""

    image: ImageRef
    image_id: str

    def __str__(self) -> str:
        return str(self.image)


@dataclasses.dataclass(frozen=True)
class ImageOptions:
    """How a new image is made.

    :param data_pool: the pool of its data, where that is not the image's own: an erasure-coded one
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
                f'{self}: a limit cannot be negative, nor a burst lower than its limit'
            )


@dataclasses.dataclass(frozen=True)
class Child:
    """A clone, and the snapshot that it was made from.

    :param snapshot: Ceph's own name of the snapshot: a removed one has another than it once had
    :param trashed: the clone lies in the trash of its pool
    """

    image: ImageRef
    image_id: str
    snapshot: str
    trashed: bool = False

    def __str__(self) -> str:
        return (
            f'{self.image} (in the trash, id {self.image_id})' if self.trashed else f'{self.image}'
        )


@dataclasses.dataclass(frozen=True)
class SnapshotFacts:
    """One snapshot of an image.

    :param snapshot_id: never used twice in a pool
    :param removed: it was removed and only its clones keep it; it goes with the last of them
    :param removed_name: the name it had before
    """

    name: str
    snapshot_id: int
    size_bytes: int
    created_at: datetime.datetime
    removed: bool = False
    removed_name: str | None = None


@dataclasses.dataclass(frozen=True)
class ImageFacts:
    """What Ceph says of an image.

    :param image_id: stays the same when the image is renamed, trashed and restored
    :param used_bytes: what image and snapshots occupy before replication, counted in whole
        objects, and too high where removed snapshots are kept; None when it was not asked for
    :param parent: the snapshot of which the image is a clone; its name is Ceph's own when it was
        removed
    :param clients: the addresses that have the image open for writing
    :param lock_owner: the address that holds the exclusive lock
    :param metadata: without limits and other librbd options, which are in ``qos``
    :param created_at: None where nobody noted it
    :param qos_is_whole: False where limits lack what ``set_qos`` sets with them, or that is there
        without limits
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

    @property
    def snapshot_names(self) -> list[str]:
        """Its snapshots, oldest first, without those that were removed and their clones keep."""
        return [one.name for one in self.snapshots if not one.removed]

    def find_snapshot(self, name: str) -> SnapshotFacts | None:
        return next((one for one in self.snapshots if one.name == name), None)

    def obstacles(self, cut_off: Collection[str] = ()) -> str:
        """Name what stands in the way of removing the image; empty when nothing does.

        :param cut_off: the addresses of clients that are on the blocklist
        """
        found = {
            'children': self.children,
            'snapshots': self.snapshot_names,
            'clients': [one for one in self.clients if one not in cut_off],
            f'on rbd_header.{self.image_id} still listed, but cut off,': [
                one for one in self.clients if one in cut_off
            ],
        }
        return '; '.join(
            f'{kind} {", ".join(map(str, these))}' for kind, these in found.items() if these
        )


@dataclasses.dataclass(frozen=True)
class ImageHeader:
    """What an image says of itself, without a look at its snapshots and relatives.

    The members are those of :class:`ImageFacts`.
    """

    image: ImageRef
    image_id: str
    features: frozenset[str]
    metadata: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class TrashedImage:
    """An image in the trash of its pool: its clones still read from it, nobody opens it by name.

    :param name: the name it had
    """

    pool: str
    image_id: str
    name: str
    trashed_at: datetime.datetime
    children: tuple[Child, ...]

    def __str__(self) -> str:
        return f'{self.pool}/{self.name} (in the trash, id {self.image_id})'


@dataclasses.dataclass(frozen=True)
class PoolUsage:
    """How full a pool is.

    :param stored_bytes: as clients wrote it
    :param used_bytes: with copies or coding chunks
    :param available_bytes: what clients can still write before its fullest OSD is full
    :param fill: from 0 to 1, against its quota where that is tighter
    :param full: Ceph refuses writes to it now
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
class Extent:
    """A part of an image.

    :param exists: False where the part reads as zeros because nothing is stored there
    """

    offset: int
    length: int
    exists: bool = True

    @property
    def end(self) -> int:
        return self.offset + self.length


def joined(extents: Iterable[Extent]) -> list[Extent]:
    """Join neighbours of one kind; the extents come in order."""
    found: list[Extent] = []
    for extent in extents:
        if found and (found[-1].end, found[-1].exists) == (extent.offset, extent.exists):
            before = found.pop()
            extent = Extent(before.offset, before.length + extent.length, extent.exists)
        found.append(extent)
    return found


@dataclasses.dataclass(frozen=True)
class Clients:
    """Who else holds an image.

    :param watchers: the addresses that have it open for writing; a dead client's stays for 30 s
    :param lock_owner: whose exclusive lock it is; it stays until somebody breaks it
    """

    watchers: frozenset[str]
    lock_owner: str | None

    @property
    def addresses(self) -> frozenset[str]:
        return self.watchers | ({self.lock_owner} if self.lock_owner else set())
