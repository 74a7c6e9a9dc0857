# SPDX-License-Identifier: Apache-2.0
"""Flatten an image so that it can be called off, which librbd has no word for.

A client of its own does it. To call it off, that client is put on the blocklist: its requests end
with an error, and nobody else's. Where a hypervisor has the image open, librbd has asked it to do
the work, and it goes on with it, which does no harm.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator

import rbd

from trove_ceph import exceptions
from trove_ceph.storage import model
from trove_ceph.storage.ceph import connection

_POLL_SEC = 0.2
#: Nobody is ever that client again; longer than its last requests may be on their way.
_EXPIRE_SEC = 3600


class Flattening:
    """One image's.

    :param link: a connection to the cluster, which is not used for the work
    """

    def __init__(
        self,
        link: connection.Connection,
        image: model.ImageRef,
        progress: Callable[[int, int], None] | None,
        cancel: threading.Event | None,
    ):
        self._link = link
        self._image = image
        self._progress = progress
        self._cancel = cancel or threading.Event()
        self._refused = threading.Event()
        self._ended = threading.Event()

    def run(self) -> None:
        """Do it.

        :raises CanceledError: it was called off
        """
        own = self._link.another()
        try:
            with (
                own.pool(self._image.pool) as context,
                own.translated(f'flattening {self._image}', [self._image.pool]),
                rbd.Image(context, self._image.name) as handle,
            ):
                if _has_parent(handle):
                    if handle.features() & rbd.RBD_FEATURE_OBJECT_MAP:
                        # librbd skips objects of which the map says that they exist. A client that
                        # ended in the middle may have said so of some that it did not come to
                        # write, which would read as zeros once the parent is gone.
                        handle.rebuild_object_map()
                    with self._called_off_by_blocklist(_address(own, handle)):
                        handle.flatten(on_progress=self._note(handle.stat()['obj_size']))
        except exceptions.StorageError as error:
            if self._is_called_off():
                raise exceptions.CanceledError(f'flattening {self._image}: canceled') from error
            raise
        finally:
            own.close()

    def _is_called_off(self) -> bool:
        return self._cancel.is_set() or self._refused.is_set()

    def _note(self, object_bytes: int) -> Callable[[int, int], int]:
        def note(number: int, count: int) -> int:
            # Called by a thread of librbd's, which drops exceptions and ignores the answer.
            try:
                if self._progress is not None:
                    self._progress(number * object_bytes, count * object_bytes)
            except exceptions.StorageError:
                self._refused.set()
            return 0

        return note

    @contextlib.contextmanager
    def _called_off_by_blocklist(self, address: str) -> Iterator[None]:
        watching = threading.Thread(target=self._watch, args=(address,), daemon=True)
        watching.start()
        try:
            yield
        finally:
            self._ended.set()
            watching.join()

    def _watch(self, address: str) -> None:
        while not self._ended.wait(_POLL_SEC):
            if self._is_called_off():
                # Tried again until it works: Ceph may not answer just now.
                with contextlib.suppress(exceptions.StorageError):
                    subject = f'blocklisting {address}'
                    with self._link.using() as cluster, self._link.translated(subject):
                        cluster.blocklist_add(address, _EXPIRE_SEC)
                    return


def _has_parent(handle: rbd.Image) -> bool:
    try:
        handle.get_parent_image_spec()
    except rbd.ImageNotFound:
        return False
    return True


def _address(own: connection.Connection, handle: rbd.Image) -> str:
    """Return the address of a connection, as it watches an open image."""
    ourselves = own.cluster.get_instance_id()
    return next(one['addr'] for one in handle.watchers_list() if one['id'] == ourselves)
