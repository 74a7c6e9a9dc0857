# SPDX-License-Identifier: Apache-2.0
"""Flatten an image such that the work can be canceled, which librbd does not offer, without loss.

A separate client does the work. Canceling puts that client on the blocklist, so that its requests
fail, and no others. If a hypervisor has the image open, librbd has delegated the work to it, and
it continues, which does no harm.

After an earlier interruption, by this or another program, the object map is repaired first, since
librbd would lose data otherwise (see :mod:`object_map_repair`). A hypervisor that dies during the
work is such an interruption: librbd would resume it as soon as its watch expires, and complete the
flatten without a repair.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import rbd
from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.storage import backend, image_types
from trove_ceph.storage.ceph import connection, metadata, object_map_repair

LOG = logging.getLogger(__name__)

_POLL_SEC = 0.2
#: The address is never used again; the entry outlasts the client's last requests in transit.
_EXPIRE_SEC = 3600
# Without progress from the client that does the work. The watch of a dead client expires 30 s after
# its last renewal, which comes every 5 s (osd_client_watch_timeout, objecter_tick_interval).
_SILENCE_SEC = 15
# A dead client costs two or three attempts. One that lives and is stuck, since its pool is full for
# example, would be asked for ever, and each attempt leaves an entry on the blocklist.
_MOST_STUCK = 6


class Flattening:
    """The flattening of one image.

    :param link: a connection to the cluster, which is not used for the work itself
    """

    def __init__(
        self,
        link: connection.Connection,
        image: image_types.ImageRef,
        progress: Callable[[int, int], None] | None,
        cancel: threading.Event | None,
    ):
        self._link = link
        self._image = image
        self._progress = progress
        self._cancel = cancel or threading.Event()
        self._progress_failed = threading.Event()
        self._progress_at = 0.0
        self._done_bytes = 0
        self._is_silent = False

    def run(self) -> None:
        """Flatten the image; do nothing if it has no parent.

        :raises CanceledError: the work was canceled
        :raises BusyError: the client that does the work is stuck
        """
        stuck = most_bytes = 0
        while True:
            self._is_silent, self._done_bytes = False, 0
            try:
                self._check_canceled()
                object_map_repair.copy_up(self._link, self._image, self._check_canceled)
                self._flatten()
                return
            except exceptions.StorageError as error:
                if self._is_canceled():
                    raise self._canceled_error() from error
                if not self._is_silent:
                    raise
                stuck = stuck + 1 if self._done_bytes <= most_bytes else 0
                most_bytes = max(most_bytes, self._done_bytes)
                if stuck == _MOST_STUCK:
                    raise exceptions.BusyError(
                        f'{self._image}: the client that has its exclusive lock does not go on to '
                        'flatten it; see whether its pool is full'
                    ) from error
                LOG.warning(
                    '%s: the client that flattens it does not answer; starting again', self._image
                )

    def _flatten(self) -> None:
        own = self._link.new_client()
        try:
            with (
                own.pool(self._image.pool) as context,
                own.translated(f'flattening {self._image}', [self._image.pool]),
                rbd.Image(context, self._image.name) as handle,
            ):
                if _has_parent(handle):
                    address = _address(own, handle)
                    metadata.change(context, handle.id(), {backend.FLATTENER_KEY: address})
                    with self._cancelable(handle, address):
                        handle.flatten(on_progress=self._note(handle.stat()['obj_size']))
                    metadata.change(context, handle.id(), {backend.FLATTENER_KEY: None})
        finally:
            own.close()

    def _check_canceled(self) -> None:
        """Raise CanceledError once the work is canceled."""
        self._note(0)(0, 0)
        if self._is_canceled():
            raise self._canceled_error()

    def _canceled_error(self) -> exceptions.CanceledError:
        return exceptions.CanceledError(f'flattening {self._image}: canceled')

    def _is_canceled(self) -> bool:
        return self._cancel.is_set() or self._progress_failed.is_set()

    def _note(self, object_bytes: int) -> Callable[[int, int], int]:
        def note(number: int, count: int) -> int:
            self._progress_at = time.monotonic()
            self._done_bytes = number * object_bytes
            # Called in a thread of librbd, which drops exceptions and ignores the result.
            try:
                if self._progress is not None:
                    self._progress(number * object_bytes, count * object_bytes)
            except exceptions.StorageError:
                self._progress_failed.set()
            return 0

        return note

    @contextlib.contextmanager
    def _cancelable(self, handle: rbd.Image, address: str) -> Iterator[None]:
        ended = threading.Event()
        self._progress_at = time.monotonic()
        watching = threading.Thread(target=self._watch, args=(handle, address, ended), daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            watching.join()

    def _watch(self, handle: rbd.Image, address: str, ended: threading.Event) -> None:
        while not ended.wait(_POLL_SEC):
            self._is_silent = self._is_silent_now(handle)
            if self._is_canceled() or self._is_silent:
                # Retried until it succeeds: Ceph may not answer just now.
                with contextlib.suppress(exceptions.StorageError):
                    subject = f'blocklisting {address}'
                    with self._link.using() as cluster, self._link.translated(subject):
                        cluster.blocklist_add(address, _EXPIRE_SEC)
                    return

    def _is_silent_now(self, handle: rbd.Image) -> bool:
        """Return whether another client does the work and has reported no progress for long."""
        if time.monotonic() - self._progress_at < _SILENCE_SEC:
            return False
        with contextlib.suppress(rbd.Error):
            has_lock = handle.features() & rbd.RBD_FEATURE_EXCLUSIVE_LOCK
            return bool(has_lock) and not handle.is_exclusive_lock_owner()
        return False


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
