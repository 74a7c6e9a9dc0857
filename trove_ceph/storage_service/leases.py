# SPDX-License-Identifier: Apache-2.0
"""Hold locks for as long as work takes, and know when they are lost.

A lease is good until a time of our own clock, which is before the cluster's clock ends it: counted
from before the request that took or renewed it, and less a tenth. Whoever works under a lease asks
it before each piece; a process that was paused for longer finds it expired before it goes on. So
the clock must count while the machine is suspended, as that of the cluster does.

Each pool is renewed by itself: one that does not answer costs the leases that have locks in it, and
no others.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence

from oslo_log import log as logging

from trove_ceph import exceptions, waiting
from trove_ceph.storage import lock_store

LOG = logging.getLogger(__name__)

#: Of the duration, after which a lease that was not renewed is no good.
SAFE_PART = 0.9
_POLL_SEC = 0.2


def time_since_boot() -> float:
    """Return the seconds since the machine was started, those included for which it was suspended.

    :func:`time.monotonic` leaves these out (clock_gettime(2)).
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """Locks that are held together, until they are released or lost.

    :param on_loss: called once, in the thread that finds it out
    """

    def __init__(
        self,
        locks: Sequence[lock_store.Lock],
        holder: lock_store.Holder,
        clock: Callable[[], float],
        on_loss: Callable[[], None],
    ):
        self.locks = tuple(locks)
        self.holder = holder
        self._clock = clock
        self._on_loss = on_loss
        self._good_until: dict[str, float] = {}
        self._lost = threading.Event()

    @property
    def guard(self) -> tuple[lock_store.Lock, lock_store.Holder]:
        """What an entry beside the first lock is written under."""
        return self.locks[0], self.holder

    def is_good(self) -> bool:
        """Whether nobody else can have any of the locks."""
        if not self._lost.is_set() and self._clock() >= min(self._good_until.values()):
            self.lose()
        return not self._lost.is_set()

    def locks_in(self, pool: str) -> list[lock_store.Lock]:
        return [lock for lock in self.locks if lock.pool == pool]

    def extend(self, pool: str, until: float) -> None:
        """Note until when the locks in a pool are good."""
        self._good_until[pool] = until

    def lose(self) -> None:
        """Note that a lock is gone."""
        if not self._lost.is_set():
            self._lost.set()
            LOG.warning('Lost %s', ', '.join(map(str, self.locks)))
            self._on_loss()


class Leases:
    """All that this copy of the service holds.

    :param name: of this copy of the service, for others to read
    :param duration_sec: after which the locks of a dead copy are free
    """

    def __init__(
        self,
        entries: lock_store.LockStore,
        name: str,
        duration_sec: int,
        clock: Callable[[], float] = time_since_boot,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.name = name
        self.duration_sec = duration_sec
        self._ledger = entries
        self._clock = clock
        self._sleep = sleep
        self._held: set[Lease] = set()
        self._mutex = threading.Lock()
        self._failure: str | None = None

    def take(
        self,
        locks: Sequence[lock_store.Lock],
        operation: str,
        what: str,
        on_loss: Callable[[], None] = lambda: None,
    ) -> Lease:
        """Take locks, all or none.

        :param operation: the operation's id, which others can read off the lock
        :param what: is done under them
        :raises BusyError: somebody else has one; the message says who, and for which operation
        :raises ServiceUnavailableError: locks are not renewed here any more
        """
        self._check_not_failed()
        cookie = f'{operation}/{uuid.uuid4().hex}'
        holder = lock_store.Holder(cookie, f'{self.name} for {what}, operation {operation}')
        lease = Lease(locks, holder, self._clock, on_loss)
        asked_at = self._clock()
        taken: list[lock_store.Lock] = []
        try:
            # In one order everywhere, so that of two at least one gets through.
            for lock in sorted(set(locks)):
                other = self._ledger.take(lock, holder, self.duration_sec)
                if other is not None:
                    raise exceptions.BusyError(f'{lock}: held by {other.description}')
                taken.append(lock)
        except exceptions.StorageError:
            self._release(taken, holder)
            raise
        for lock in locks:
            lease.extend(lock.pool, self._good_until(asked_at))
        with self._mutex:
            self._held.add(lease)
            has_failed = self._failure is not None
        if has_failed:
            self.release(lease)
            self._check_not_failed()
        return lease

    def fail(self, reason: str) -> None:
        """Lose all leases, and take no others: what renews them has ended.

        :param reason: for those who ask for a lease
        """
        with self._mutex:
            self._failure = self._failure or reason
            held = list(self._held)
        for lease in held:
            lease.lose()

    def _check_not_failed(self) -> None:
        if self._failure is not None:
            raise exceptions.ServiceUnavailableError(f'{self.name}: {self._failure}')

    def release(self, lease: Lease) -> None:
        """Give all of them back; what cannot be given back ends by itself."""
        with self._mutex:
            self._held.discard(lease)
        self._release(lease.locks, lease.holder)

    @contextlib.contextmanager
    def held(self, locks: Sequence[lock_store.Lock], what: str, wait_sec: float) -> Iterator[Lease]:
        """Hold locks for a verb that is soon over; others like it are waited for.

        :raises BusyError: somebody else still has one after ``wait_sec``
        """
        deadline = waiting.Deadline(wait_sec, self._clock, self._sleep)
        while True:
            try:
                lease = self.take(locks, what, what)
                break
            except exceptions.BusyError:
                if not deadline.pause(_POLL_SEC):
                    raise
        try:
            yield lease
        finally:
            self.release(lease)

    def renew(self, pool: str) -> None:
        """Renew what is held in a pool; to be called several times within the duration."""
        with self._mutex:
            held = [lease for lease in self._held if lease.locks_in(pool)]
        for lease in held:
            self._renew(lease, pool)

    def _renew(self, lease: Lease, pool: str) -> None:
        if not lease.is_good():
            return
        asked_at = self._clock()
        locks = lease.locks_in(pool)
        try:
            for lock in locks:
                self._ledger.renew(lock, lease.holder, self.duration_sec)
        except exceptions.LockLostError:
            # Given back meanwhile, it is not there either.
            with self._mutex:
                is_lost = lease in self._held
            if is_lost:
                lease.lose()
        except exceptions.StorageError as error:
            # It may be good for a while yet, and the next attempt may do.
            LOG.warning('Could not renew %s: %s', ', '.join(map(str, locks)), error)
            lease.is_good()
        else:
            lease.extend(pool, self._good_until(asked_at))

    def _good_until(self, asked_at: float) -> float:
        return asked_at + self.duration_sec * SAFE_PART

    def _release(self, locks: Sequence[lock_store.Lock], holder: lock_store.Holder) -> None:
        for lock in locks:
            try:
                self._ledger.release(lock, holder)
            except exceptions.StorageError as error:
                LOG.warning('Could not release %s, it ends by itself: %s', lock, error)
