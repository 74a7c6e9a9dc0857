# SPDX-License-Identifier: Apache-2.0
"""The storage back end of the fake cluster."""

import contextlib
import datetime
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from typing import TypeVar

from trove_ceph import exceptions
from trove_ceph.storage import backend, image_types
from trove_ceph.storage.fake import cluster as fake_cluster

Answer = TypeVar('Answer')


class FakeBackend(backend.Backend):
    """One client of the fake cluster."""

    def __init__(self, cluster: fake_cluster.Cluster):
        self.cluster = cluster

    @property
    def cluster_id(self) -> str:
        return self.cluster.cluster_id

    def create_image(
        self, image: image_types.ImageRef, size_bytes: int, options: image_types.ImageOptions
    ) -> None:
        with self._connected() as cluster:
            cluster.add(image, size_bytes, options)

    def list_images(
        self, pool: str, prefix: str = '', after: str = '', limit: int = 1000
    ) -> list[image_types.ListedImage]:
        with self._connected() as cluster:
            cluster.check_pool(pool)
            found = [
                image_types.ListedImage(one.ref, one.image_id)
                for one in cluster.images
                if one.pool == pool
                and not one.trashed_at
                and one.name.startswith(prefix)
                and one.name > after
            ]
        return sorted(found, key=lambda one: one.image)[:limit]

    def describe(
        self, image: image_types.ImageRef, with_usage: bool = True
    ) -> image_types.ImageFacts:
        with self._connected() as cluster:
            return self.facts(cluster.get(image), with_usage)

    def describe_pool(self, pool: str) -> Iterator[image_types.ImageFacts]:
        with self._connected() as cluster:
            cluster.check_pool(pool)
            images = [one for one in cluster.images if one.pool == pool and not one.trashed_at]
        for image in images:
            yield self.facts(image)

    def facts(self, image: fake_cluster.Image, with_usage: bool = False) -> image_types.ImageFacts:
        """Describe an image."""
        clients = clients_of(image)
        parent = image.parent
        used = {id(data): len(data) for state in image.states for data in state.objects.values()}
        return image_types.ImageFacts(
            image=image.ref,
            image_id=image.image_id,
            size_bytes=image.size_bytes,
            object_bytes=image.options.object_bytes,
            features=image.options.features,
            data_pool=image.options.data_pool,
            parent=parent.image.ref.snapshot(parent.snapshot.name) if parent else None,
            snapshots=tuple(
                image_types.SnapshotFacts(
                    one.name,
                    one.snapshot_id,
                    one.size_bytes,
                    one.created_at,
                    one.removed_name is not None,
                    one.removed_name,
                )
                for one in image.snapshots
            ),
            children=self.cluster.children(image),
            clients=tuple(sorted(clients.watchers)),
            lock_owner=clients.lock_owner,
            qos=image.qos,
            metadata=dict(image.metadata),
            used_bytes=sum(used.values()) if with_usage else None,
            created_at=image.created_at,
            qos_is_whole=image.qos_is_whole,
            clone_depth=image.clone_depth,
        )

    def create_snapshot(self, snapshot: image_types.SnapshotRef) -> None:
        with self._connected() as cluster:
            take_snapshot(cluster, cluster.get(snapshot.of), snapshot.name)

    def remove_snapshot(self, snapshot: image_types.SnapshotRef) -> None:
        with self._connected() as cluster:
            remove_snapshot(cluster, cluster.get(snapshot.of), snapshot.name)

    def rename_snapshot(self, snapshot: image_types.SnapshotRef, name: str) -> None:
        with self._connected() as cluster:
            image = cluster.get(snapshot.of)
            found = image.snapshot(snapshot.name)
            check_free(image, name)
            found.name = name

    def clone(
        self,
        snapshot: image_types.SnapshotRef,
        image: image_types.ImageRef,
        options: image_types.ImageOptions,
    ) -> None:
        with self._connected() as cluster:
            parent = cluster.get(snapshot.of)
            state = parent.snapshot(snapshot.name)
            clone = cluster.add(image, state.size_bytes, options)
            clone.parent = fake_cluster.Parent(parent, state)

    def flatten(
        self,
        image: image_types.ImageRef,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        with self._connected() as cluster:
            found = cluster.get(image)
            if found.parent is None:
                return
            canceled = exceptions.CanceledError(f'flattening {image}: canceled')
            for done in range(0, found.size_bytes, found.options.object_bytes):
                try:
                    if progress is not None:
                        progress(done, found.size_bytes)
                except exceptions.StorageError as error:
                    raise canceled from error
                if cancel is not None and cancel.is_set():
                    raise canceled
            found.flatten()
            cluster.drop_unneeded_snapshots()

    def set_qos(self, image: image_types.ImageRef, qos: image_types.Qos) -> None:
        with self._connected() as cluster:
            found = cluster.get(image)
            found.qos, found.qos_is_whole = qos, True

    def remove(self, image: image_types.ImageRef) -> None:
        with self._connected() as cluster:
            found = cluster.get(image)
            if found.snapshots or found.watchers:
                raise self._busy('removing', found)
            cluster.images.remove(found)
            cluster.drop_unneeded_snapshots()

    def _busy(self, verb: str, image: fake_cluster.Image) -> exceptions.BusyError:
        return exceptions.BusyError(f'{verb} {image.ref}: it has {self.facts(image).obstacles()}')

    def trash(
        self, image: image_types.ImageRef, image_id: str | None = None
    ) -> image_types.TrashedImage:
        with self._connected() as cluster:
            found = cluster.get(image)
            if image_id not in (None, found.image_id):
                raise exceptions.NotFoundError(
                    f'{image}: has id {found.image_id}, expected {image_id}'
                )
            if found.watchers:
                raise self._busy('moving to the trash', found)
            found.trashed_at = datetime.datetime.now(datetime.UTC)
            (trashed,) = [
                one for one in self.list_trash(image.pool) if one.image_id == found.image_id
            ]
            return trashed

    def list_trash(self, pool: str) -> list[image_types.TrashedImage]:
        with self._connected() as cluster:
            cluster.check_pool(pool)
            return [
                image_types.TrashedImage(
                    *(pool, one.image_id, one.name, one.trashed_at, cluster.children(one)),
                    one.size_bytes,
                )
                for one in cluster.images
                if one.pool == pool and one.trashed_at
            ]

    def restore(self, pool: str, image_id: str, name: str) -> None:
        with self._connected() as cluster:
            image = cluster.trashed(pool, image_id)
            if cluster.find(image_types.ImageRef(pool, name)):
                raise exceptions.AlreadyExistsError(f'{pool}/{name} exists')
            image.name, image.trashed_at = name, None

    def purge(self, pool: str, image_id: str) -> None:
        with self._connected() as cluster:
            image = cluster.trashed(pool, image_id)
            if cluster.children(image):
                raise self._busy('purging', image)
            cluster.images.remove(image)
            cluster.drop_unneeded_snapshots()

    def usage(self, pool: str) -> image_types.PoolUsage:
        with self._connected() as cluster:
            return cluster.usage(pool)

    def busiest_images(self, pool: str) -> list[image_types.ImagePerformance]:
        with self._connected() as cluster:
            cluster.check_pool(pool)
            return [one for one in cluster.performance if one.image.pool == pool]

    def open_reader(self, snapshot: image_types.SnapshotRef) -> 'FakeReader':
        with self._connected() as cluster:
            image = cluster.get(snapshot.of)
            return FakeReader(image, image.snapshot(snapshot.name))

    def open_writer(self, image: image_types.ImageRef) -> 'FakeWriter':
        with self._connected() as cluster:
            found = cluster.get(image)
            if found.lock_owner not in (None, *cluster.blocklist):
                raise exceptions.BusyError(f'{image} is held by {found.lock_owner}')
            return FakeWriter(self, found)

    def read_header(self, image: image_types.ImageRef) -> image_types.ImageHeader:
        with self._connected() as cluster:
            found = cluster.get(image)
            return image_types.ImageHeader(
                image, found.image_id, found.options.features, dict(found.metadata)
            )

    def find_clients(self, image: image_types.ImageRef) -> image_types.Clients:
        with self._connected() as cluster:
            return clients_of(cluster.get(image))

    def do_clients_answer(self, image: image_types.ImageRef, timeout_sec: float = 5) -> bool:
        with self._connected() as cluster:
            return not cluster.get(image).watchers & cluster.paused

    def set_image_metadata(
        self, image: image_types.ImageRef, entries: Mapping[str, str | None]
    ) -> None:
        with self._connected() as cluster:
            set_metadata(cluster.get(image), entries)

    def blocklist_expiries(self) -> Mapping[str, datetime.datetime]:
        return dict(self.cluster.blocklist)

    def blocklist(self, addresses: Iterable[str], expire_sec: int) -> None:
        with self._connected() as cluster:
            until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=expire_sec)
            cluster.blocklist = dict.fromkeys(addresses, until) | cluster.blocklist
            for image in cluster.images:
                image.watchers -= cluster.blocklist.keys()

    def unblocklist(self, addresses: Iterable[str]) -> None:
        with self._connected() as cluster:
            for address in addresses:
                cluster.blocklist.pop(address, None)

    def break_lock(self, image: image_types.ImageRef, owner: str) -> None:
        with self._connected() as cluster:
            found = cluster.get(image)
            if found.lock_owner == owner:
                found.lock_owner = None

    def await_blocklist(self, image: image_types.ImageRef) -> None:
        with self._connected() as cluster:
            cluster.get(image)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[fake_cluster.Cluster]:
        with self.cluster.lock:
            yield self.cluster


class FakeReader(backend.ImageReader):
    """A snapshot of the fake cluster, opened for reading."""

    def __init__(self, image: fake_cluster.Image, state: fake_cluster.Snapshot):
        self._image = image
        self._state = state
        self.size_bytes = state.size_bytes
        self.object_bytes = image.options.object_bytes

    def changed_objects(
        self, offset: int, length: int, since: str | None
    ) -> list[image_types.Extent]:
        earlier = self._image.snapshot(since) if since is not None else None
        found = []
        for number in self._numbers(offset, length):
            new = fake_cluster.find_object(self._state, number)
            old = fake_cluster.find_object(earlier, number) if earlier else b''
            if new is not old:
                start = number * self.object_bytes
                size = min(self.object_bytes, self.size_bytes - start)
                found.append(image_types.Extent(start, size, bool(new)))
        return image_types.joined(found)

    def changes(self, offset: int, length: int, since: str) -> list[image_types.Extent]:
        earlier = self._image.snapshot(since)
        found = []
        for number in self._numbers(offset, length):
            new = fake_cluster.find_object(self._state, number)
            old = fake_cluster.find_object(earlier, number)
            for start, exists in fake_cluster.changed_sectors(old, new, self.object_bytes):
                at = number * self.object_bytes + start
                size = min(fake_cluster.SECTOR_BYTES, self.size_bytes - at)
                if size > 0:
                    found.append(image_types.Extent(at, size, exists))
        return image_types.joined(found)

    def read(self, offset: int, length: int) -> Future[bytes]:
        return _answered(lambda: self._read(offset, length))

    def _read(self, offset: int, length: int) -> bytes:
        parts = []
        for number in self._numbers(offset, length):
            data = fake_cluster.find_object(self._state, number)
            parts.append(data.ljust(self.object_bytes, b'\0'))
        start = offset % self.object_bytes
        return b''.join(parts)[start : start + length]

    def _numbers(self, offset: int, length: int) -> range:
        end = min(offset + length, self.size_bytes)
        return range(offset // self.object_bytes, -(-end // self.object_bytes))

    def close(self) -> None:
        """Do nothing: no resource is held."""


class FakeWriter(backend.ImageWriter):
    """An image of the fake cluster, under the lock of one client."""

    def __init__(self, owner: FakeBackend, image: fake_cluster.Image):
        self._owner = owner
        self._cluster = owner.cluster
        self._address = f'192.0.2.1:0/{self._cluster.next_number()}'
        self._image = image
        image.watchers.add(self._address)
        image.lock_owner = self._address

    def facts(self) -> image_types.ImageFacts:
        return self._do(lambda: self._owner.facts(self._image))

    def resize(self, size_bytes: int) -> None:
        self._do(lambda: self._image.resize(size_bytes))

    def write(self, offset: int, data: bytes) -> Future[None]:
        def request() -> None:
            self._cluster.check_space(self._image, len(data))
            self._image.write(offset, data)

        return _answered(lambda: self._do(request))

    def zero(self, offset: int, length: int) -> Future[None]:
        return _answered(lambda: self._do(lambda: self._image.zero(offset, length)))

    def flush(self) -> None:
        self._do(lambda: None)

    def set_metadata(self, key: str, value: str | None) -> None:
        self._do(lambda: set_metadata(self._image, {key: value}))

    def create_snapshot(self, name: str) -> None:
        self._do(lambda: take_snapshot(self._cluster, self._image, name))

    def remove_snapshot(self, name: str) -> None:
        self._do(lambda: remove_snapshot(self._cluster, self._image, name))

    def roll_back(self, name: str) -> None:
        def request() -> None:
            state = self._image.snapshot(name)
            self._image.objects = dict(state.objects)
            self._image.size_bytes = state.size_bytes

        self._do(request)

    def close(self) -> None:
        with self._cluster.lock:
            self._image.watchers.discard(self._address)
            if self._image.lock_owner == self._address:
                self._image.lock_owner = None

    def _do(self, request: Callable[[], Answer]) -> Answer:
        with self._cluster.lock:
            if self._address in self._cluster.blocklist:
                raise exceptions.CephUnreachableError(f'{self._address} is on the blocklist')
            return request()


def clients_of(image: fake_cluster.Image) -> image_types.Clients:
    return image_types.Clients(frozenset(image.watchers), image.lock_owner)


def take_snapshot(cluster: fake_cluster.Cluster, image: fake_cluster.Image, name: str) -> None:
    check_free(image, name)
    image.take(name, cluster.next_number())


def check_free(image: fake_cluster.Image, name: str) -> None:
    if any(one.name == name for one in image.snapshots):
        raise exceptions.AlreadyExistsError(f'{image.ref.snapshot(name)} exists')


def remove_snapshot(cluster: fake_cluster.Cluster, image: fake_cluster.Image, name: str) -> None:
    state = image.snapshot(name)
    state.removed_name, state.name = name, str(uuid.uuid4())
    cluster.drop_unneeded_snapshots()


def set_metadata(image: fake_cluster.Image, entries: Mapping[str, str | None]) -> None:
    for key, value in entries.items():
        if value is None:
            image.metadata.pop(key, None)
        else:
            image.metadata[key] = value


def _answered(request: Callable[[], Answer]) -> Future[Answer]:
    future: Future[Answer] = Future()
    try:
        future.set_result(request())
    except exceptions.StorageError as error:
        future.set_exception(error)
    return future
