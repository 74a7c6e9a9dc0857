# SPDX-License-Identifier: Apache-2.0
"""The state of the fake cluster: pools, images, objects, clients and locks."""

import dataclasses
import datetime
import itertools
import threading
import time
import uuid
from collections.abc import Callable, Iterator

from trove_ceph import exceptions
from trove_ceph.storage import image_types, lock_store

SECTOR_BYTES = 512

# Objects by number. They are never changed in place, so snapshots share them. An object may be
# shorter than the others, and an empty object hides that of the parent.
Objects = dict[int, bytes]


@dataclasses.dataclass
class Snapshot:
    """A state of an image; ``objects`` does not include those read from a parent."""

    name: str
    snapshot_id: int
    size_bytes: int
    objects: Objects
    parent: 'Parent | None'
    created_at: datetime.datetime
    removed_name: str | None = None


@dataclasses.dataclass(frozen=True)
class Parent:
    """The parent of a clone."""

    image: 'Image'
    snapshot: Snapshot


class Image:
    """An image, its current state and its snapshots."""

    def __init__(self, image_id: str, pool: str, name: str, size_bytes: int):
        self.image_id = image_id
        self.pool = pool
        self.name = name
        self.size_bytes = size_bytes
        self.options = image_types.ImageOptions()
        self.objects: Objects = {}
        self.parent: Parent | None = None
        self.snapshots: list[Snapshot] = []
        self.metadata: dict[str, str] = {}
        self.qos = image_types.Qos()
        self.qos_is_whole = True
        self.watchers: set[str] = set()
        self.lock_owner: str | None = None
        self.created_at = datetime.datetime.now(datetime.UTC)
        self.trashed_at: datetime.datetime | None = None

    @property
    def ref(self) -> image_types.ImageRef:
        return image_types.ImageRef(self.pool, self.name)

    @property
    def clone_depth(self) -> int:
        depth, parent = 0, self.parent
        while parent:
            depth, parent = depth + 1, parent.snapshot.parent
        return depth

    @property
    def states(self) -> list['Image | Snapshot']:
        """The current state and those of the snapshots."""
        return [self, *self.snapshots]

    def snapshot(self, name: str) -> Snapshot:
        """Return a snapshot by its name.

        :raises NotFoundError: the snapshot does not exist
        """
        for snapshot in self.snapshots:
            if snapshot.name == name:
                return snapshot
        raise exceptions.NotFoundError(f'{self.ref.snapshot(name)}: does not exist')

    def take(self, name: str, snapshot_id: int) -> None:
        self.snapshots.append(
            Snapshot(
                name,
                snapshot_id,
                self.size_bytes,
                dict(self.objects),
                self.parent,
                datetime.datetime.now(datetime.UTC),
            )
        )

    def resize(self, size_bytes: int) -> None:
        if size_bytes < self.size_bytes:
            self.zero(size_bytes, self.size_bytes - size_bytes)
        self.size_bytes = size_bytes

    def write(self, offset: int, data: bytes) -> None:
        length = self.options.object_bytes
        while data:
            number, start = divmod(offset, length)
            part = data[: length - start]
            old = find_object(self, number)
            self.objects[number] = old[:start].ljust(start, b'\0') + part + old[start + len(part) :]
            offset, data = offset + len(part), data[len(part) :]

    def zero(self, offset: int, length: int) -> None:
        object_bytes = self.options.object_bytes
        end = min(offset + length, self.size_bytes)
        while offset < end:
            number, start = divmod(offset, object_bytes)
            count = min(object_bytes - start, end - offset)
            old = find_object(self, number)
            new = old[:start]
            if tail := old[start + count :]:
                new = new.ljust(start, b'\0') + bytes(count) + tail
            if new or self.parent:
                self.objects[number] = new
            else:
                self.objects.pop(number, None)
            offset += count

    def flatten(self) -> None:
        for state in self.states:
            if state.parent:
                numbers = range(-(-state.size_bytes // self.options.object_bytes))
                whole = {number: find_object(state, number) for number in numbers}
                state.objects = {number: found for number, found in whole.items() if found}
                state.parent = None


def find_object(state: Image | Snapshot, number: int) -> bytes:
    """Return the data of an object in a state of an image, up to its last written byte."""
    if number in state.objects:
        return state.objects[number]
    return find_object(state.parent.snapshot, number) if state.parent else b''


def changed_sectors(old: bytes, new: bytes, length: int) -> Iterator[tuple[int, bool]]:
    """Yield the sectors in which two states of an object differ, and whether they are stored."""
    for start in range(0, length, SECTOR_BYTES):
        before, after = old[start : start + SECTOR_BYTES], new[start : start + SECTOR_BYTES]
        if before.ljust(SECTOR_BYTES, b'\0') != after.ljust(SECTOR_BYTES, b'\0'):
            yield start, bool(after)


@dataclasses.dataclass(frozen=True)
class LockEntry:
    """A lock of one client, with its expiry by the cluster's clock."""

    client: object
    holder: lock_store.Holder
    expires_at: float

    def is_held_by(self, client: object, holder: lock_store.Holder) -> bool:
        return self.client is client and self.holder.cookie == holder.cookie


class Cluster:
    """The state that all clients of the cluster share.

    :param pools: the capacity of each pool in bytes
    :param clock: by which locks expire
    """

    def __init__(self, pools: dict[str, int], clock: Callable[[], float] = time.monotonic):
        self.cluster_id = str(uuid.uuid4())
        self.capacities = dict(pools)
        self.images: list[Image] = []
        self.blocklist: dict[str, datetime.datetime] = {}
        #: Addresses of clients that do not answer.
        self.paused: set[str] = set()
        self.performance: list[image_types.ImagePerformance] = []
        self.clock = clock
        self.locks: dict[lock_store.Lock, LockEntry] = {}
        self.entries: dict[str, dict[str, str]] = {}
        self.lock = threading.RLock()
        self._numbers = itertools.count(1)

    def next_number(self) -> int:
        return next(self._numbers)

    def check_pool(self, pool: str) -> None:
        if pool not in self.capacities:
            raise exceptions.NotFoundError(f'pool {pool}: does not exist')

    def find(self, image: image_types.ImageRef) -> Image | None:
        self.check_pool(image.pool)
        for one in self.images:
            if one.ref == image and one.trashed_at is None:
                return one
        return None

    def get(self, image: image_types.ImageRef) -> Image:
        found = self.find(image)
        if found is None:
            raise exceptions.NotFoundError(f'{image}: does not exist')
        return found

    def trashed(self, pool: str, image_id: str) -> Image:
        self.check_pool(pool)
        for one in self.images:
            if (one.pool, one.image_id) == (pool, image_id) and one.trashed_at is not None:
                return one
        raise exceptions.NotFoundError(f'image {image_id} in the trash of {pool}: does not exist')

    def add(
        self, image: image_types.ImageRef, size_bytes: int, options: image_types.ImageOptions
    ) -> Image:
        for pool in filter(None, (image.pool, options.data_pool)):
            self.check_pool(pool)
        if self.find(image):
            raise exceptions.AlreadyExistsError(f'{image} exists')
        created = Image(f'{self.next_number():x}', image.pool, image.name, size_bytes)
        created.options = options
        self.images.append(created)
        return created

    def children(self, image: Image) -> tuple[image_types.Child, ...]:
        """List the clones of all snapshots of an image."""
        return tuple(
            image_types.Child(
                one.ref, one.image_id, one.parent.snapshot.name, trashed=one.trashed_at is not None
            )
            for one in self.images
            if one.parent and one.parent.image is image
        )

    def drop_unneeded_snapshots(self) -> None:
        """Drop removed snapshots that no clone needs any more."""
        needed = {
            id(state.parent.snapshot)
            for image in self.images
            for state in image.states
            if state.parent
        }
        for image in self.images:
            image.snapshots = [
                one for one in image.snapshots if one.removed_name is None or id(one) in needed
            ]

    def usage(self, pool: str) -> image_types.PoolUsage:
        self.check_pool(pool)
        stored = {
            id(data): len(data)
            for image in self.images
            if (image.options.data_pool or image.pool) == pool
            for state in image.states
            for data in state.objects.values()
        }
        used, capacity = sum(stored.values()), self.capacities[pool]
        fill = used / capacity if capacity else 1.0
        return image_types.PoolUsage(
            pool, used, used, max(0, capacity - used), fill, near_full=fill > 0.85, full=fill >= 1
        )

    def check_space(self, image: Image, added_bytes: int) -> None:
        pool = image.options.data_pool or image.pool
        usage = self.usage(pool)
        if usage.full or usage.stored_bytes + added_bytes > self.capacities[pool]:
            raise exceptions.NoSpaceError(f'writing {image.ref}: {usage}')
