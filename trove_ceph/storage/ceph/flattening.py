# SPDX-License-Identifier: Apache-2.0
"""Flatten an image so that it can be called off, which librbd has no word for, and loses nothing.

A client of its own does it. To call it off, that client is put on the blocklist: its requests end
with an error, and nobody else's. Where a hypervisor has the image open, librbd has asked it to do
the work, and it goes on with it, which does no harm.

What was cut off in the middle earlier, by this or by anything else, is mended first, since librbd
would lose data (see :mod:`unwritten`). A hypervisor that dies while it does the work is such a
case: librbd would take over as soon as Ceph has forgotten it, and finish without another look.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import rbd
from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.storage import image_types
from trove_ceph.storage.ceph import connection, object_map_repair

LOG = logging.getLogger(__name__)

_POLL_SEC = 0.2
#: Nobody is ever that client again; longer than its last requests may be on their way.
_EXPIRE_SEC = 3600
# Without word of who does the work. Ceph forgets a dead client 30 s after its last sign of life,
# which comes every 5 s (osd_client_watch_timeout, objecter_tick_interval).
_SILENCE_SEC = 15


class Flattening:
    """One image's.

    :param link: a connection to the cluster, which is not used for the work
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
        self._refused = threading.Event()
        self._heard_at = 0.0
        self._is_silent = False

    def run(self) -> None:
        """Do it.

        :raises CanceledError: it was called off
        """
        while True:
            self._is_silent = False
            try:
                self._go_on()
                object_map_repair.copy_up(self._link, self._image, self._go_on)
                self._flatten()
                return
            except exceptions.StorageError as error:
                if self._is_called_off():
                    raise self._canceled() from error
                if not self._is_silent:
                    raise
                LOG.warning('%s: the client that flattens it is silent, so look again', self._image)

    def _flatten(self) -> None:
        own = self._link.another()
        try:
            with (
                own.pool(self._image.pool) as context,
                own.translated(f'flattening {self._image}', [self._image.pool]),
                rbd.Image(context, self._image.name) as handle,
            ):
                if _has_parent(handle):
                    with self._called_off_by_blocklist(handle, _address(own, handle)):
                        handle.flatten(on_progress=self._note(handle.stat()['obj_size']))
        finally:
            own.close()

    def _go_on(self) -> None:
        """Raise CanceledError once it is called off."""
        self._note(0)(0, 0)
        if self._is_called_off():
            raise self._canceled()

    def _canceled(self) -> exceptions.CanceledError:
        return exceptions.CanceledError(f'flattening {self._image}: canceled')

    def _is_called_off(self) -> bool:
        return self._cancel.is_set() or self._refused.is_set()

    def _note(self, object_bytes: int) -> Callable[[int, int], int]:
        def note(number: int, count: int) -> int:
            self._heard_at = time.monotonic()
            # Called by a thread of librbd's, which drops exceptions and ignores the answer.
            try:
                if self._progress is not None:
                    self._progress(number * object_bytes, count * object_bytes)
            except exceptions.StorageError:
                self._refused.set()
            return 0

        return note

    @contextlib.contextmanager
    def _called_off_by_blocklist(self, handle: rbd.Image, address: str) -> Iterator[None]:
        ended = threading.Event()
        self._heard_at = time.monotonic()
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
            if self._is_called_off() or self._is_silent:
                # Tried again until it works: Ceph may not answer just now.
                with contextlib.suppress(exceptions.StorageError):
                    subject = f'blocklisting {address}'
                    with self._link.using() as cluster, self._link.translated(subject):
                        cluster.blocklist_add(address, _EXPIRE_SEC)
                    return

    def _is_silent_now(self, handle: rbd.Image) -> bool:
        """Whether somebody else does the work, and nothing was heard of that for long."""
        if time.monotonic() - self._heard_at < _SILENCE_SEC:
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
