# SPDX-License-Identifier: Apache-2.0
"""Images opened for copying, with asynchronous requests that return futures."""

import contextlib
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import rados
import rbd

from trove_ceph import exceptions
from trove_ceph.storage import backend, image_types
from trove_ceph.storage.ceph import connection, description, snapshots

Answer = TypeVar('Answer')


class _Opened:
    """An open image, with the open pool that it needs."""

    def __init__(self, link: connection.Connection, image: image_types.ImageRef, **options: Any):
        self._link = link
        self._image = image
        self._pools = [image.pool]
        self._stack = contextlib.ExitStack()
        with link.translated(f'opening {image}'), contextlib.ExitStack() as stack:
            self._context = stack.enter_context(link.pool(image.pool))
            self.handle: rbd.Image = stack.enter_context(
                rbd.Image(self._context, image.name, **options)
            )
            data_pool = description.data_pool_of(self.handle, self._context, link)
            # From here on close() closes it.
            self._stack = stack.pop_all()
        self._pools.append(data_pool or image.pool)

    def close(self) -> None:
        with self._link.translated(f'closing {self._image}'):
            self._stack.close()

    def _start(
        self,
        subject: str,
        request: Callable[[Callable[..., None]], Any],
        answer: Callable[..., Answer],
    ) -> Future[Answer]:
        """Start a request and return its future.

        :param request: starts the request with the given callback
        :param answer: returns the result from the arguments of the callback
        """
        future: Future[Answer] = Future()

        def done(completion: rbd.Completion, *data: Any) -> None:
            # Called in a thread of librbd, where an exception would be lost.
            try:
                code = completion.get_return_value()
                if code < 0:
                    raise self._error(subject, -code)
                future.set_result(answer(*data))
            except Exception as error:
                future.set_exception(error)

        with self._link.translated(subject, self._pools):
            request(done)
        return future

    def _error(self, subject: str, code: int) -> exceptions.StorageError:
        # Without the usage of a full pool: this thread of librbd must not wait for a request.
        return self._link.translate(rados.OSError(subject, errno=code), subject)


class Reader(_Opened, backend.ImageReader):
    """An image opened at a snapshot."""

    def __init__(self, link: connection.Connection, snapshot: image_types.SnapshotRef):
        super().__init__(link, snapshot.of, snapshot=snapshot.name, read_only=True)
        self._name = str(snapshot)
        try:
            with link.translated(f'opening {snapshot}'):
                stat = self.handle.stat()
        except BaseException:
            self.close()
            raise
        self.size_bytes = stat['size']
        self.object_bytes = stat['obj_size']

    def changed_objects(
        self, offset: int, length: int, since: str | None
    ) -> list[image_types.Extent]:
        return self._diff(offset, length, since, whole_object=True)

    def changes(self, offset: int, length: int, since: str) -> list[image_types.Extent]:
        return self._diff(offset, length, since, whole_object=False)

    def _diff(
        self, offset: int, length: int, since: str | None, whole_object: bool
    ) -> list[image_types.Extent]:
        joined: list[tuple[int, int, bool]] = []

        def note(start: int, count: int, exists: bool) -> None:
            if joined and (sum(joined[-1][:2]), joined[-1][2]) == (start, exists):
                start, count = joined[-1][0], joined[-1][1] + count
                joined.pop()
            joined.append((start, count, exists))

        with self._link.translated(f'comparing {self._name} with {since or "nothing"}'):
            self.handle.diff_iterate(
                offset, length, since, note, include_parent=True, whole_object=whole_object
            )
        return [image_types.Extent(*found) for found in joined]

    def read(self, offset: int, length: int) -> Future[bytes]:
        # Data that is read once should not evict other data from the OSDs' caches.
        no_cache = rados.LIBRADOS_OP_FLAG_FADVISE_NOCACHE
        return self._start(
            f'reading {self._name}',
            lambda done: self.handle.aio_read(offset, length, done, no_cache),
            lambda data: data,
        )


class Writer(_Opened, backend.ImageWriter):
    """An image under the exclusive lock of a new client.

    If Ceph becomes unreachable, the lock may stay with the client, and no client can break its own
    lock. So each writer is another client.
    """

    def __init__(self, link: connection.Connection, image: image_types.ImageRef):
        client = link.new_client()
        try:
            super().__init__(client, image)
        except BaseException:
            # Nothing else would disconnect it: the binding does not when the handle is collected.
            client.close()
            raise
        try:
            with self._translated('locking'):
                self.handle.lock_acquire(rbd.RBD_LOCK_MODE_EXCLUSIVE)
        except exceptions.BusyError as error:
            try:
                with self._translated('finding the client that has it locked'):
                    clients = description.clients_of(self.handle, self._link)
            finally:
                self.close()
            raise exceptions.BusyError(
                f'{image} is held by {clients.lock_owner or "another client"}'
            ) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._link.close()

    def facts(self) -> image_types.ImageFacts:
        with self._translated('describing'):
            return description.describe(self.handle, self._image, self._context, self._link)

    def resize(self, size_bytes: int) -> None:
        with self._translated('resizing'):
            self.handle.resize(size_bytes)

    def write(self, offset: int, data: bytes) -> Future[None]:
        return self._start(
            f'writing {self._image}',
            lambda done: self.handle.aio_write(data, offset, done),
            lambda: None,
        )

    def zero(self, offset: int, length: int) -> Future[None]:
        # A discard would not change ranges that are not aligned to rbd_discard_granularity_bytes.
        return self._start(
            f'zeroing {self._image}',
            lambda done: self.handle.aio_write_zeroes(offset, length, done),
            lambda: None,
        )

    def flush(self) -> None:
        with self._translated('flushing'):
            self.handle.flush()

    def set_metadata(self, key: str, value: str | None) -> None:
        with self._translated('changing metadata of'):
            if value is not None:
                self.handle.metadata_set(key, value)
            else:
                # The entry was not set.
                with contextlib.suppress(KeyError):
                    self.handle.metadata_remove(key)

    def create_snapshot(self, name: str) -> None:
        with self._translated(f'creating snapshot {name} of'):
            snapshots.create(self.handle, self._context, name)

    def remove_snapshot(self, name: str) -> None:
        with self._translated(f'removing snapshot {name} of'):
            self.handle.remove_snap(name)

    def roll_back(self, name: str) -> None:
        with self._translated(f'rolling back to {name}'):
            self.handle.rollback_to_snap(name)

    def _translated(self, verb: str) -> contextlib.AbstractContextManager[None]:
        return self._link.translated(f'{verb} {self._image}', self._pools)
