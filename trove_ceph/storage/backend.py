# SPDX-License-Identifier: Apache-2.0
"""The verbs of a Ceph cluster's block storage, as the rest of trove_ceph knows them.

Every verb may raise CephUnreachableError, and StorageError when Ceph refuses; NotFoundError where
a pool, image or snapshot that it names is missing. None waits for a full pool to be emptied: what
writes raises NoSpaceError. Back ends may be used by several threads.
"""

import abc
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future

from trove_ceph.storage import image_types


class ImageReader(abc.ABC):
    """An image opened at a snapshot, which is therefore constant."""

    size_bytes: int
    object_bytes: int

    @abc.abstractmethod
    def changed_objects(
        self, offset: int, length: int, since: str | None
    ) -> list[image_types.Extent]:
        """Tell which objects of a range may differ from an earlier snapshot.

        Costs next to nothing with an object map. Neighbours of one kind are joined.

        :param since: None tells which objects exist
        :raises NotFoundError: there is no such earlier snapshot
        """

    @abc.abstractmethod
    def changes(self, offset: int, length: int, since: str) -> list[image_types.Extent]:
        """Tell which bytes of a range were written or discarded since an earlier snapshot.

        Costs a request for each object of the range.
        """

    @abc.abstractmethod
    def read(self, offset: int, length: int) -> Future[bytes]:
        """Begin to read; parts that do not exist are zeros."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the image once all that was begun has ended."""

    def __enter__(self) -> 'ImageReader':
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class ImageWriter(abc.ABC):
    """An image held for writing, exclusively: no other client can write to it meanwhile."""

    @abc.abstractmethod
    def facts(self) -> image_types.ImageFacts:
        """Describe the image as it is now."""

    @abc.abstractmethod
    def resize(self, size_bytes: int) -> None:
        """Grow with zeros, or cut off what is beyond."""

    @abc.abstractmethod
    def write(self, offset: int, data: bytes) -> Future[None]:
        """Begin to write; the future ends when the data is on disk."""

    @abc.abstractmethod
    def zero(self, offset: int, length: int) -> Future[None]:
        """Begin to make a part read as zeros, giving back its space."""

    @abc.abstractmethod
    def flush(self) -> None:
        """Return when all that was written is on disk."""

    @abc.abstractmethod
    def set_metadata(self, key: str, value: str | None) -> None:
        """Set one entry of the image's metadata, or remove it if it is there."""

    @abc.abstractmethod
    def create_snapshot(self, name: str) -> None:
        """Make a snapshot.

        :raises AlreadyExistsError: there is one of this name
        """

    @abc.abstractmethod
    def remove_snapshot(self, name: str) -> None:
        """Remove a snapshot; clones made of it keep what they read."""

    @abc.abstractmethod
    def roll_back(self, name: str) -> None:
        """Make the image what it was at a snapshot, its size included."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the image once all that was begun has ended."""

    def __enter__(self) -> 'ImageWriter':
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class Backend(abc.ABC):
    """One cluster, through one key."""

    @property
    @abc.abstractmethod
    def cluster_id(self) -> str:
        """The cluster's own id, the same for all that reach it."""

    @abc.abstractmethod
    def create_image(
        self, image: image_types.ImageRef, size_bytes: int, options: image_types.ImageOptions
    ) -> None:
        """Make an empty image.

        :raises AlreadyExistsError: there is one of this name
        """

    @abc.abstractmethod
    def list_images(
        self, pool: str, prefix: str = '', after: str = '', limit: int = 1000
    ) -> list[image_types.ListedImage]:
        """List images of a pool in the order of their names, without opening any.

        :param prefix: what their names begin with
        :param after: the name after which the list begins
        :param limit: how many at most
        """

    @abc.abstractmethod
    def describe(
        self, image: image_types.ImageRef, with_usage: bool = True
    ) -> image_types.ImageFacts:
        """Describe an image.

        :param with_usage: count the space it uses, which takes longer the larger the image is and
            the more snapshots it has
        """

    @abc.abstractmethod
    def describe_pool(self, pool: str) -> Iterator[image_types.ImageFacts]:
        """Describe all images of a pool, one after another, without the space they use.

        Each is opened once. One that goes away meanwhile is left out.
        """

    @abc.abstractmethod
    def create_snapshot(self, snapshot: image_types.SnapshotRef) -> None:
        """Make a snapshot, of an image in use too; nobody is asked to pause.

        :raises AlreadyExistsError: there is one of this name
        """

    @abc.abstractmethod
    def remove_snapshot(self, snapshot: image_types.SnapshotRef) -> None:
        """Remove a snapshot; clones made of it keep what they read, and it then goes with the last.

        :raises BusyError: it is protected, as clones of format 1 need it
        """

    @abc.abstractmethod
    def rename_snapshot(self, snapshot: image_types.SnapshotRef, name: str) -> None:
        """Give a snapshot another name; its clones and the image's clients take no notice.

        :raises AlreadyExistsError: there is one of this name
        """

    @abc.abstractmethod
    def clone(
        self,
        snapshot: image_types.SnapshotRef,
        image: image_types.ImageRef,
        options: image_types.ImageOptions,
    ) -> None:
        """Make a new image that reads from a snapshot what it did not write itself.

        It may lie in another pool of the cluster. Takes as long for any size.

        :raises AlreadyExistsError: there is an image of this name
        """

    @abc.abstractmethod
    def flatten(
        self,
        image: image_types.ImageRef,
        progress: Callable[[int, int], None] | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        """Copy into a clone all that it reads from its parent, and part them; it may be in use.

        An image without a parent is left as it is. What was copied is not copied again next time,
        and nothing is lost, however an earlier attempt ended, be it another program's.

        :param progress: told the bytes that are done, and all; it may raise StorageError, which
            ends the work as ``cancel`` does. Called in any thread
        :param cancel: once set, the work ends soon
        :raises CanceledError: it was asked to end before it was done
        """

    @abc.abstractmethod
    def set_qos(self, image: image_types.ImageRef, qos: image_types.Qos) -> None:
        """Set the limits of an image; clients that have it open follow within seconds."""

    @abc.abstractmethod
    def remove(self, image: image_types.ImageRef) -> None:
        """Delete an image for good.

        :raises BusyError: it has snapshots, children or clients, which the message names
        """

    @abc.abstractmethod
    def trash(
        self, image: image_types.ImageRef, image_id: str | None = None
    ) -> image_types.TrashedImage:
        """Move an image out of the way of its name; its clones go on reading from it.

        :param image_id: which it must be: another image that was made by this name stays
        :raises BusyError: a client has it open
        :raises NotFoundError: there is no image of this name, or it is another one
        """

    @abc.abstractmethod
    def list_trash(self, pool: str) -> list[image_types.TrashedImage]:
        """List what lies in the trash of a pool."""

    @abc.abstractmethod
    def restore(self, pool: str, image_id: str, name: str) -> None:
        """Take an image out of the trash again.

        :raises AlreadyExistsError: there is an image of this name
        """

    @abc.abstractmethod
    def purge(self, pool: str, image_id: str) -> None:
        """Delete an image in the trash for good, with its snapshots.

        :raises BusyError: it has children, which the message names; no snapshot was removed
        """

    @abc.abstractmethod
    def usage(self, pool: str) -> image_types.PoolUsage:
        """Tell how full a pool is; the numbers are seconds old."""

    @abc.abstractmethod
    def open_reader(self, snapshot: image_types.SnapshotRef) -> ImageReader:
        """Open an image at a snapshot."""

    @abc.abstractmethod
    def open_writer(self, image: image_types.ImageRef) -> ImageWriter:
        """Open an image for writing as a client of its own, and keep everybody else from it.

        Waits for a client that died within the last half minute to be forgotten, and blocklists it.

        :raises BusyError: another client holds it, of this back end or of another
        """

    # What fencing.py is made of.

    @abc.abstractmethod
    def read_header(self, image: image_types.ImageRef) -> image_types.ImageHeader:
        """Read what an image says of itself; asks for no other image and no client."""

    @abc.abstractmethod
    def find_clients(self, image: image_types.ImageRef) -> image_types.Clients:
        """Tell who holds an image, writers of this back end included."""

    @abc.abstractmethod
    def set_image_metadata(
        self, image: image_types.ImageRef, entries: Mapping[str, str | None]
    ) -> None:
        """Set entries of the metadata of an image, all or none of them; None removes one.

        Others may hold the image, and are neither waited for nor told.
        """

    @abc.abstractmethod
    def blocklisted(self) -> frozenset[str]:
        """List the addresses of which the cluster takes no writes."""

    @abc.abstractmethod
    def blocklist(self, addresses: Iterable[str], expire_sec: int) -> None:
        """Have the cluster take no more requests of these clients.

        :param expire_sec: for how long; an entry that is there already ends when it would
        """

    @abc.abstractmethod
    def unblocklist(self, addresses: Iterable[str]) -> None:
        """Remove entries; those that are gone are left out."""

    @abc.abstractmethod
    def break_lock(self, image: image_types.ImageRef, owner: str) -> None:
        """Take the exclusive lock from a client; nothing if that client does not hold it."""

    @abc.abstractmethod
    def await_blocklist(self, image: image_types.ImageRef) -> None:
        """Return when every OSD that can be asked to write to the image obeys the blocklist."""
