# SPDX-License-Identifier: Apache-2.0
"""Leave the exclusive lock of a volume to an owner that is silent and may come back.

The watch of an image's client expires 30 s after its last sign of life, but its lock stays. librbd
then takes the lock for any work that needs it, and puts the former owner on the blocklist (see
BreakRequest.cc in src/librbd/managed_lock of Ceph's source). A server whose host was only paused or
cut off could never write to its volume again. No snapshot is worth that, so such work is refused as
busy for a while. Fences mean to cut the owner off, and do not ask.

The owner is asked before the work, not in the same moment: one that falls silent between the two,
or during the work, may still lose its lock. A flatten is stopped then if this service does it; one
that librbd has delegated to the hypervisor of the clone goes on.
"""

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator

from oslo_log import log as logging

from trove_ceph import exceptions, waiting
from trove_ceph.storage import backend, image_types, names
from trove_ceph.storage_service import leases

LOG = logging.getLogger(__name__)

#: How long work waits for an owner, counted by each copy of the service from the first work that it
#: refused. A host that was silent for longer counts as dead.
LIMIT_SEC = 600.0
#: The count starts again if no work needed the lock for this long: the owner may have answered
#: others meanwhile. It is longer than an hour, after which some clean-up is tried again.
FORGET_SEC = 7200.0
# A client watches again within seconds after an OSD has restarted, and a busy one answers late.
_PATIENCE_SEC = 15.0
_RETRY_SEC = 0.5
# During a flatten.
_POLL_SEC = 5.0
_LOOKS = 2
_EVENT_POLL_SEC = 0.1


@dataclasses.dataclass
class _Silence:
    """The silence of one owner, in seconds of the clock."""

    first: float
    last: float
    is_told: bool = False


class SilentOwners:
    """The owners of locks that may come back, as this copy of the service has seen them.

    :param clock: counts while the machine is suspended
    """

    def __init__(
        self,
        storage: backend.Backend,
        clock: Callable[[], float] = leases.time_since_boot,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self._storage = storage
        self._clock = clock
        self._sleep = sleep
        self._mutex = threading.Lock()
        self._silences: dict[tuple[image_types.ImageRef, str], _Silence] = {}

    def check(self, image: image_types.ImageRef) -> None:
        """Check that work which needs the lock of an image takes it from no silent owner.

        :raises SilentOwnerError: it would; the message names the owner
        """
        deadline = waiting.Deadline(_PATIENCE_SEC, self._clock, self._sleep)
        while True:
            try:
                self._check_now(image)
                return
            except exceptions.SilentOwnerError:
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
        :raises SilentOwnerError: an owner is silent; the work can be resumed later
        """
        facts = self._storage.describe(image, with_usage=False)
        images = [image, *([facts.parent.of] if facts.parent else [])]
        for one in images:
            self.check(one)
        stop, ended = _EitherEvent(cancel), threading.Event()
        found: list[exceptions.SilentOwnerError] = []

        def watch() -> None:
            while not ended.wait(_POLL_SEC):
                try:
                    for one in images:
                        self._check_now(one)
                    found.clear()
                except exceptions.SilentOwnerError as error:
                    found.append(error)
                    if len(found) == _LOOKS:
                        stop.set()
                        return
                except exceptions.StorageError as error:
                    LOG.debug('%s: its clients cannot be listed just now: %s', image, error)

        thread = threading.Thread(target=watch, name=f'owners-{image}', daemon=True)
        thread.start()
        try:
            yield stop
        except exceptions.CanceledError as error:
            if len(found) == _LOOKS and not cancel.is_set():
                raise found[0] from error
            raise
        finally:
            ended.set()
            thread.join()

    def _check_now(self, image: image_types.ImageRef) -> None:
        # Only copies of this service write to its own images, and a dead one never comes back.
        owner = None if names.parse(image.name) else self._find(image)
        silent_sec = self._note(image, owner)
        if silent_sec is not None and silent_sec < LIMIT_SEC:
            raise exceptions.SilentOwnerError(
                f'{image}: its client {owner} holds the exclusive lock and does not answer; it may '
                'come back, and could not write any more if its lock was taken. Try again later: '
                f'after {LIMIT_SEC:.0f} s it counts as dead, and at once after a failover'
            )

    def _note(self, image: image_types.ImageRef, owner: str | None) -> float | None:
        """Note the silent owner of an image, if it has one; return for how long it is silent."""
        now = self._clock()
        with self._mutex:
            for key, silence in list(self._silences.items()):
                is_over = key[0] == image and key[1] != owner
                if is_over or now - silence.last > FORGET_SEC:
                    del self._silences[key]
            if owner is None:
                return None
            silence = self._silences.setdefault((image, owner), _Silence(now, now))
            silence.last = now
            silent_sec = now - silence.first
            is_new = silent_sec >= LIMIT_SEC and not silence.is_told
            silence.is_told |= is_new
        if is_new:
            LOG.warning(
                '%s: its owner %s has not answered for %.0f s and counts as dead; the next work '
                'that needs the lock takes it',
                *(image, owner, silent_sec),
            )
        return silent_sec

    def _find(self, image: image_types.ImageRef) -> str | None:
        """Return the address of the silent owner of an image's lock, if it has one."""
        try:
            owner = self._unheard_owner(image)
            # Twice, since a client may have opened the image and locked it between two requests: it
            # watches before it locks.
            if owner is None or self._unheard_owner(image) != owner:
                return None
            header = self._storage.read_header(image)
        except exceptions.NotFoundError:
            # The parent of a clone may be in the trash.
            return None
        is_gone = owner in self._storage.blocklisted()
        # A dead copy of this service never comes back.
        is_gone |= owner == header.metadata.get(backend.FLATTENER_KEY)
        return None if is_gone else owner

    def _unheard_owner(self, image: image_types.ImageRef) -> str | None:
        clients = self._storage.find_clients(image)
        if clients.lock_owner not in clients.watchers:
            return clients.lock_owner
        return None if self._storage.do_clients_answer(image) else clients.lock_owner


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
