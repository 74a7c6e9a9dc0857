# SPDX-License-Identifier: Apache-2.0
"""The interface to a Ceph cluster's block storage.

Every verb may raise CephUnreachableError, StorageError when Ceph refuses the request, and
NotFoundError when a pool, image or snapshot does not exist. No verb waits until a full pool has
space: verbs that write raise NoSpaceError. A back end may be used by several threads.
"""

import abc
import datetime
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future

from trove_ceph.storage import image_types

#: The key of the address of the client that flattens an image, in the metadata of the image.
FLATTENER_KEY = 'trove_ceph.flattener'


class ImageReader(abc.ABC):
    """An image opened at a snapshot, whose data never changes."""

    size_bytes: int
    object_bytes: int

    @abc.abstractmethod
    def changed_objects(
        self, offset: int, length: int, since: str | None
    ) -> list[image_types.Extent]:
        """Return the objects of a range that may differ from an earlier snapshot.

        It is cheap with an object map. Adjacent extents of the same kind are joined.

        :param since: the earlier snapshot; None returns the objects that exist
        :raises NotFoundError: the earlier snapshot does not exist
        """

    @abc.abstractmethod
    def changes(self, offset: int, length: int, since: str) -> list[image_types.Extent]:
        """Return the bytes of a range that were written or discarded since an earlier snapshot.

        It takes one request for each object of the range.
        """

    @abc.abstractmethod
    def read(self, offset: int, length: int) -> Future[bytes]:
        """Start a read; parts that do not exist read as zeros."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the image after all started requests have completed."""

    def __enter__(self) -> 'ImageReader':
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class ImageWriter(abc.ABC):
    """An image opened for writing under its exclusive lock: no other client can write to it."""

    @abc.abstractmethod
    def facts(self) -> image_types.ImageFacts:
        """Describe the image as it is now."""

    @abc.abstractmethod
    def resize(self, size_bytes: int) -> None:
        """Grow the image with zeros, or truncate it."""

    @abc.abstractmethod
    def write(self, offset: int, data: bytes) -> Future[None]:
        """Start a write; the future completes when the data is on disk."""

    @abc.abstractmethod
    def zero(self, offset: int, length: int) -> Future[None]:
        """Start zeroing a range, which frees its space."""

    @abc.abstractmethod
    def flush(self) -> None:
        """Return when all completed writes are on disk."""

    @abc.abstractmethod
    def set_metadata(self, key: str, value: str | None) -> None:
        """Set one entry of the image's metadata; None removes it if it exists."""

    @abc.abstractmethod
    def create_snapshot(self, name: str) -> None:
        """Create a snapshot.

        :raises AlreadyExistsError: a snapshot with this name exists
        """

    @abc.abstractmethod
    def remove_snapshot(self, name: str) -> None:
        """Remove a snapshot; its clones keep their data."""

    @abc.abstractmethod
    def roll_back(self, name: str) -> None:
        """Roll the image back to a snapshot, its size included."""

    @abc.abstractmethod
    def close(self) -> None:
        """Close the image after all started requests have completed."""

    def __enter__(self) -> 'ImageWriter':
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class Backend(abc.ABC):
    """One cluster, accessed with one key."""

    @property
    @abc.abstractmethod
    def cluster_id(self) -> str:
        """The fsid of the cluster."""

    @abc.abstractmethod
    def create_image(
        self, image: image_types.ImageRef, size_bytes: int, options: image_types.ImageOptions
    ) -> None:
        """Create an empty image.

        :raises AlreadyExistsError: an image with this name exists
        """

    @abc.abstractmethod
    def list_images(
        self, pool: str, prefix: str = '', after: str = '', limit: int = 1000
    ) -> list[image_types.ListedImage]:
        """List images of a pool ordered by name, without opening them.

        :param prefix: of the names
        :param after: the name after which the list begins
        :param limit: maximum number of images
        """

    @abc.abstractmethod
    def describe(
        self, image: image_types.ImageRef, with_usage: bool = True
    ) -> image_types.ImageFacts:
        """Describe an image.

        :param with_usage: compute the used space, which takes time in proportion to the size and
            the number of snapshots
        """

    @abc.abstractmethod
    def describe_pool(self, pool: str) -> Iterator[image_types.ImageFacts]:
        """Describe all images of a pool, one after another, without their used space.

        Each is opened once. An image that is removed meanwhile is skipped.
        """

    @abc.abstractmethod
    def create_snapshot(self, snapshot: image_types.SnapshotRef) -> None:
        """Create a snapshot, even of an image in use; its clients are not paused.

        :raises AlreadyExistsError: a snapshot with this name exists
        """

    @abc.abstractmethod
    def remove_snapshot(self, snapshot: image_types.SnapshotRef) -> None:
        """Remove a snapshot; its clones keep their data, and Ceph deletes it with the last clone.

        :raises BusyError: the snapshot is protected, since clones of format 1 need it
        """

    @abc.abstractmethod
    def rename_snapshot(self, snapshot: image_types.SnapshotRef, name: str) -> None:
        """Rename a snapshot, without effect on its clones and the image's clients.

        :raises AlreadyExistsError: a snapshot has the new name
        """

    @abc.abstractmethod
    def clone(
        self,
        snapshot: image_types.SnapshotRef,
        image: image_types.ImageRef,
        options: image_types.ImageOptions,
    ) -> None:
        """Create a clone of a snapshot, which may be in another pool of the cluster.

        The time it takes does not depend on the size.

        :raises AlreadyExistsError: an image with this name exists
        """

    @abc.abstractmethod
    def flatten(
        self,
        image: image_types.ImageRef,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        """Flatten a clone, which may be in use; do nothing for an image without parent.

        A repetition resumes the work. No data is lost, however an earlier attempt of this or of
        another program ended.

        :param progress: called in any thread with the bytes done and the bytes in total; it may
            raise StorageError, which cancels the work like ``cancel``
        :param cancel: once set, the work is canceled soon
        :raises CanceledError: the work was canceled before it was complete
        :raises BusyError: the client that has the image open does not go on with it
        """

    @abc.abstractmethod
    def set_qos(self, image: image_types.ImageRef, qos: image_types.Qos) -> None:
        """Set the limits of an image; clients that have it open apply them within seconds."""

    @abc.abstractmethod
    def remove(self, image: image_types.ImageRef) -> None:
        """Delete an image permanently.

        :raises BusyError: the image has snapshots, children or clients, which the message names
        """

    @abc.abstractmethod
    def trash(
        self, image: image_types.ImageRef, image_id: str | None = None
    ) -> image_types.TrashedImage:
        """Move an image to the trash, which frees its name; its clones still read from it.

        :param image_id: the expected id; an image with this name but another id is not moved
        :raises BusyError: a client has it open
        :raises NotFoundError: there is no image with this name, or it has another id
        """

    @abc.abstractmethod
    def list_trash(self, pool: str) -> list[image_types.TrashedImage]:
        """List the images in the trash of a pool.

        An image that cannot be opened, because Ceph misses a part of it, has no size and no
        children in the list.
        """

    @abc.abstractmethod
    def restore(self, pool: str, image_id: str, name: str) -> None:
        """Restore an image from the trash.

        :raises AlreadyExistsError: an image with this name exists
        """

    @abc.abstractmethod
    def purge(self, pool: str, image_id: str) -> None:
        """Delete an image in the trash permanently, with its snapshots.

        :raises NotFoundError: there is no such image, or Ceph misses a part of it; ``list_trash``
            lists it then
        :raises BusyError: the image has children, which the message names; no snapshot was removed
        """

    @abc.abstractmethod
    def usage(self, pool: str) -> image_types.PoolUsage:
        """Return the space usage of a pool; the numbers are seconds old."""

    @abc.abstractmethod
    def busiest_images(self, pool: str) -> list[image_types.ImagePerformance]:
        """Return the performance of the images with most writes.

        Ceph measures a pool for one minute after each request; so the first one finds nothing.

        :returns: at most 64 images; those without a request lately may be left out
        """

    @abc.abstractmethod
    def open_reader(self, snapshot: image_types.SnapshotRef) -> ImageReader:
        """Open an image at a snapshot."""

    @abc.abstractmethod
    def open_writer(self, image: image_types.ImageRef) -> ImageWriter:
        """Open an image for writing with a new client, under the exclusive lock.

        If a client with the lock died within the last half minute, wait until its watch expires and
        blocklist it.

        :raises BusyError: another client, of this or another back end, holds the lock
        """

    # Used by fencing.py.

    @abc.abstractmethod
    def read_header(self, image: image_types.ImageRef) -> image_types.ImageHeader:
        """Read the header of an image, without querying relatives and clients."""

    @abc.abstractmethod
    def find_clients(self, image: image_types.ImageRef) -> image_types.Clients:
        """Return the clients of an image, including writers of this back end."""

    @abc.abstractmethod
    def do_clients_answer(self, image: image_types.ImageRef, timeout_sec: float = 5) -> bool:
        """Return whether all clients that have an image open for writing answer in time.

        One that is paused or cut off does not; it stays listed for 30 s.
        """

    @abc.abstractmethod
    def set_image_metadata(
        self, image: image_types.ImageRef, entries: Mapping[str, str | None]
    ) -> None:
        """Set entries of the metadata of an image atomically; None removes an entry.

        Other clients may have the image open; they are neither waited for nor notified.
        """

    def blocklisted(self) -> frozenset[str]:
        """Return the addresses on the blocklist of the cluster."""
        return frozenset(self.blocklist_expiries())

    @abc.abstractmethod
    def blocklist_expiries(self) -> Mapping[str, datetime.datetime]:
        """Return until when each address is on the blocklist, with a time zone."""

    @abc.abstractmethod
    def blocklist(self, addresses: Iterable[str], expire_sec: int) -> None:
        """Add clients to the blocklist, so that the cluster refuses their requests.

        :param expire_sec: for how long; an existing entry keeps its expiry
        """

    @abc.abstractmethod
    def unblocklist(self, addresses: Iterable[str]) -> None:
        """Remove clients from the blocklist; ignore those that are not on it."""

    @abc.abstractmethod
    def break_lock(self, image: image_types.ImageRef, owner: str) -> None:
        """Break the exclusive lock of a client; do nothing if that client does not hold it."""

    @abc.abstractmethod
    def await_blocklist(self, image: image_types.ImageRef) -> None:
        """Return when every OSD that can receive writes to the image enforces the blocklist."""
