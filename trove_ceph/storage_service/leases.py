# SPDX-License-Identifier: Apache-2.0
"""Hold locks while a job runs, and detect their loss.

A lease is valid until a time of our own clock that comes before the cluster expires the lock: it
counts from before the request that took or renewed the lock, and is shorter by a tenth. A job
checks its lease before each chunk, so a process that was paused for too long finds the lease
expired before it continues. The clock must therefore count while the machine is suspended, as the
cluster's clock does.

Each pool is renewed separately: a pool that does not answer costs only the leases with locks in it.
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

#: Fraction of the duration after which a lease that was not renewed is invalid.
SAFE_FRACTION = 0.9
_POLL_SEC = 0.2


def time_since_boot() -> float:
    """Return the seconds since boot, including the time that the machine was suspended.

    :func:`time.monotonic` does not count suspended time (clock_gettime(2)).
    """
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """Locks that are held together, until they are released or lost.

    :param on_loss: called once with the cookie, in the thread that detects the loss
    """

    def __init__(
        self,
        locks: Sequence[lock_store.Lock],
        holder: lock_store.Holder,
        clock: Callable[[], float],
        on_loss: Callable[[str], None],
    ):
        self.locks = tuple(locks)
        self.holder = holder
        self._clock = clock
        self._on_loss = on_loss
        self._valid_until: dict[str, float] = {}
        self._lost = threading.Event()

    @property
    def guard(self) -> tuple[lock_store.Lock, lock_store.Holder]:
        """The first lock and its holder, which guard writes of an entry beside the lock."""
        return self.locks[0], self.holder

    def is_valid(self) -> bool:
        """Return whether no other process can hold any of the locks."""
        if not self._lost.is_set() and self._clock() >= min(self._valid_until.values()):
            self.mark_lost()
        return not self._lost.is_set()

    def locks_in(self, pool: str) -> list[lock_store.Lock]:
        return [lock for lock in self.locks if lock.pool == pool]

    def extend(self, pool: str, until: float) -> None:
        """Set until when the locks in a pool are valid."""
        self._valid_until[pool] = until

    def mark_lost(self) -> None:
        """Mark the lease as lost."""
        if not self._lost.is_set():
            self._lost.set()
            LOG.warning('Lost the locks %s', ', '.join(map(str, self.locks)))
            self._on_loss(self.holder.cookie)


class Leases:
    """The leases of this copy of the service.

    :param name: of this copy, shown to others that want its locks
    :param duration_sec: after which the locks of a dead copy expire
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
        self._lock_store = entries
        self._clock = clock
        self._sleep = sleep
        self._active: set[Lease] = set()
        self._mutex = threading.Lock()
        self._failure: str | None = None

    def take(
        self,
        locks: Sequence[lock_store.Lock],
        operation: str,
        what: str,
        on_loss: Callable[[str], None] = lambda _cookie: None,
    ) -> Lease:
        """Take locks, all or none.

        :param operation: id of the operation, shown to others that want a lock
        :param what: description of the operation, shown likewise
        :raises BusyError: another process holds a lock; the message names it and its operation
        :raises ServiceUnavailableError: this copy of the service cannot renew locks any more
        """
        self._check_not_failed()
        cookie = f'{operation}/{uuid.uuid4().hex}'
        holder = lock_store.Holder(cookie, f'{self.name} for {what}, operation {operation}')
        lease = Lease(locks, holder, self._clock, on_loss)
        requested_at = self._clock()
        taken: list[lock_store.Lock] = []
        try:
            # In the same order everywhere, so that of two processes at least one gets all locks.
            for lock in sorted(set(locks)):
                other = self._lock_store.take(lock, holder, self.duration_sec)
                if other is not None:
                    raise exceptions.BusyError(f'{lock}: held by {other.description}')
                taken.append(lock)
        except exceptions.StorageError:
            self._release(taken, holder)
            raise
        for lock in locks:
            lease.extend(lock.pool, self._valid_until(requested_at))
        with self._mutex:
            self._active.add(lease)
            has_failed = self._failure is not None
        if has_failed:
            self.release(lease)
            self._check_not_failed()
        return lease

    def fail(self, reason: str) -> None:
        """Mark all leases as lost and refuse new ones, since the renewing thread has died.

        :param reason: for the error of later ``take`` calls
        """
        with self._mutex:
            self._failure = self._failure or reason
            active = list(self._active)
        for lease in active:
            lease.mark_lost()

    def _check_not_failed(self) -> None:
        if self._failure is not None:
            raise exceptions.ServiceUnavailableError(f'{self.name}: {self._failure}')

    def release(self, lease: Lease) -> None:
        """Release all locks of a lease; a lock that cannot be released expires."""
        with self._mutex:
            self._active.discard(lease)
        self._release(lease.locks, lease.holder)

    @contextlib.contextmanager
    def hold(self, locks: Sequence[lock_store.Lock], what: str, wait_sec: float) -> Iterator[Lease]:
        """Hold locks during a short verb; wait for other short verbs.

        :raises BusyError: another process still holds a lock after ``wait_sec``
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
        """Renew all locks in a pool; call it several times within the duration."""
        with self._mutex:
            active = [lease for lease in self._active if lease.locks_in(pool)]
        for lease in active:
            self._renew(lease, pool)

    def _renew(self, lease: Lease, pool: str) -> None:
        if not lease.is_valid():
            return
        requested_at = self._clock()
        locks = lease.locks_in(pool)
        try:
            for lock in locks:
                self._lock_store.renew(lock, lease.holder, self.duration_sec)
        except exceptions.LockLostError:
            # A lease that was released meanwhile has no locks either.
            with self._mutex:
                is_lost = lease in self._active
            if is_lost:
                lease.mark_lost()
        except exceptions.StorageError as error:
            # The lease may still be valid, and the next attempt may succeed.
            LOG.warning('Cannot renew the locks %s: %s', ', '.join(map(str, locks)), error)
            lease.is_valid()
        else:
            lease.extend(pool, self._valid_until(requested_at))

    def _valid_until(self, requested_at: float) -> float:
        return requested_at + self.duration_sec * SAFE_FRACTION

    def _release(self, locks: Sequence[lock_store.Lock], holder: lock_store.Holder) -> None:
        for lock in locks:
            try:
                self._lock_store.release(lock, holder)
            except exceptions.StorageError as error:
                LOG.warning('Cannot release the lock %s; it will expire: %s', lock, error)
