# SPDX-License-Identifier: Apache-2.0
"""Leave the exclusive lock of a volume to an owner that is silent and may come back.

The watch of an image's client expires 30 s after its last sign of life, but its lock stays. librbd
then takes the lock for any work that needs it, and puts the former owner on the blocklist (see
BreakRequest.cc in src/librbd/managed_lock of Ceph's source). A server whose host was only paused or
cut off could never write to its volume again. No snapshot is worth that, so such work is refused as
busy for a while. Fences, deletions and the trash mean to cut the owner off, and do not ask.

This keeps an owner that has been silent for longer than 30 s when the work begins. An owner whose
watch expires during the work, within milliseconds, still loses its lock; during the minutes of a
flatten the owners are looked at again and again.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator

from oslo_log import log as logging

from trove_ceph import exceptions, waiting
from trove_ceph.storage import backend, image_types, names
from trove_ceph.storage_service import leases

LOG = logging.getLogger(__name__)

#: How long work waits for an owner, counted from the first work that was refused. A host that was
#: silent for longer counts as dead.
LIMIT_SEC = 600.0
# A client watches again within seconds after an OSD has restarted.
_REWATCH_SEC = 3.0
_RETRY_SEC = 0.5
_POLL_SEC = 2.0
_EVENT_POLL_SEC = 0.1


class SilentOwners:
    """The owners of locks that may come back, as this copy of the service has seen them.

    :param clock: counts while the machine is suspended
    """

    def __init__(
        self,
        storage: backend.Backend,
        wait_sec: float = _REWATCH_SEC,
        clock: Callable[[], float] = leases.time_since_boot,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._storage = storage
        self._wait_sec = wait_sec
        self._clock = clock
        self._sleep = sleep
        self._mutex = threading.Lock()
        self._first_seen: dict[tuple[image_types.ImageRef, str], float] = {}

    def check(self, image: image_types.ImageRef) -> None:
        """Check that work which needs the lock of an image takes it from no silent owner.

        :raises BusyError: it would; the message names the owner
        """
        deadline = waiting.Deadline(self._wait_sec, self._clock, self._sleep)
        while True:
            try:
                self._check_now(image)
                return
            except exceptions.BusyError:
                if not deadline.pause(_RETRY_SEC):
                    raise

    @contextlib.contextmanager
    def checked(
        self, image: image_types.ImageRef, cancel: threading.Event
    ) -> Iterator[threading.Event]:
        """Check the owners of a clone and of its parent, before and during a flatten.

        The end of a flatten removes the parent's snapshot if it was removed before, for which it
        needs the parent's lock. Yields an event that is set when the work must stop.

        :param cancel: an event that stops the work, too
        :raises BusyError: an owner is silent; the work can be resumed later
        """
        facts = self._storage.describe(image, with_usage=False)
        images = [image, *([facts.parent.of] if facts.parent else [])]
        for one in images:
            self.check(one)
        stop, ended = _EitherEvent(cancel), threading.Event()
        found: list[exceptions.BusyError] = []

        def watch() -> None:
            while not ended.wait(_POLL_SEC):
                try:
                    for one in images:
                        self._check_now(one)
                except exceptions.BusyError as error:
                    found.append(error)
                    stop.set()
                    return
                except exceptions.StorageError as error:
                    LOG.debug('%s: its clients cannot be listed just now: %s', image, error)

        thread = threading.Thread(target=watch, name=f'owners-{image}', daemon=True)
        thread.start()
        try:
            yield stop
        except exceptions.CanceledError as error:
            if found and not cancel.is_set():
                raise found[0] from error
            raise
        finally:
            ended.set()
            thread.join()

    def _check_now(self, image: image_types.ImageRef) -> None:
        # Only copies of this service write to its own images, and a dead one never comes back.
        owner = None if names.parse(image.name) else self._find(image)
        now = self._clock()
        with self._mutex:
            for key in [key for key in self._first_seen if key[0] == image and key[1] != owner]:
                del self._first_seen[key]
            if owner is None:
                return
            silent_sec = now - self._first_seen.setdefault((image, owner), now)
        if silent_sec >= LIMIT_SEC:
            LOG.warning(
                '%s: its owner %s has been silent for %.0f s and counts as dead: whoever needs the '
                'lock now takes it',
                *(image, owner, silent_sec),
            )
            return
        raise exceptions.BusyError(
            f'{image}: its client {owner} holds the exclusive lock and has been silent for more '
            'than 30 s; it may come back, and could not write any more if its lock was taken. '
            f'Try again later: it counts as dead in {LIMIT_SEC - silent_sec:.0f} s, and at once '
            'after a failover'
        )

    def _find(self, image: image_types.ImageRef) -> str | None:
        """Return the address of the silent owner of an image's lock, if it has one."""
        owner = self._unwatched_owner(image)
        # Twice, since a client may have opened the image and locked it between two requests: it
        # watches before it locks.
        if owner is None or self._unwatched_owner(image) != owner:
            return None
        return None if owner in self._storage.blocklisted() else owner

    def _unwatched_owner(self, image: image_types.ImageRef) -> str | None:
        try:
            clients = self._storage.find_clients(image)
        except exceptions.NotFoundError:
            # The parent of a clone may be in the trash.
            return None
        return None if clients.lock_owner in clients.watchers else clients.lock_owner


class _EitherEvent(threading.Event):
    """An event that also counts as set when another one is."""

    def __init__(self, other: threading.Event):
        super().__init__()
        self._other = other

    def is_set(self) -> bool:
        return super().is_set() or self._other.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        def sleep(seconds: float) -> None:
            threading.Event.wait(self, seconds)

        deadline = waiting.Deadline(math.inf if timeout is None else timeout, sleep=sleep)
        while not self.is_set():
            if not deadline.pause(_EVENT_POLL_SEC):
                return False
        return True
