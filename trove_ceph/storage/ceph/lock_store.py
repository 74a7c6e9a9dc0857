# SPDX-License-Identifier: Apache-2.0
"""Locks and entries in Ceph: all of a pool on one object, out of the way of its images.

An entry is a key of the object's omap, a lock one of its advisory locks; on the same object, so
that one request can do both. Where a pool is full, OSDs refuse what makes objects or makes them
longer. Neither locks nor omap do once the object is there.
"""

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping

import rados

from trove_ceph import exceptions
from trove_ceph.storage import lock_store
from trove_ceph.storage.ceph import connection, lock_class

#: Neither librbd nor ``rados ls`` look into it.
NAMESPACE = 'trove_ceph'
OBJECT = 'ledger'
# What OSDs give in one answer (osd_max_omap_entries_per_request).
_PAGE = 1024


class CephLockStore(lock_store.LockStore):
    """The ledger of a cluster through a connection of its own for each pool.

    Locks belong to the client that took them, and a request that gets no answer makes its
    connection begin anew. So no pool may share one with another, whose locks would go with it.

    :param connect: makes a connection; it opens no image, so nobody fences it, and its requests
        give up long before a lock ends
    """

    def __init__(self, connect: Callable[[], connection.Connection]):
        self._connect = connect
        self._links: dict[str, connection.Connection] = {}
        self._mutex = threading.Lock()

    def prepare(self, pool: str) -> None:
        with self._pool(pool, 'preparing the ledger') as context:
            self._operate(context, lambda _: None, create=True)

    def take(
        self, lock: lock_store.Lock, holder: lock_store.Holder, duration_sec: int
    ) -> lock_store.Holder | None:
        with self._pool(lock.pool, f'taking the lock {lock}') as context:
            while True:
                try:
                    self._lock(context, lock, holder, duration_sec)
                    return None
                except rados.ObjectExists:
                    # It is ours: the answer to an earlier attempt was lost on its way.
                    self.renew(lock, holder, duration_sec)
                    return None
                except rados.ObjectBusy:
                    if found := self._find_holder(context, lock):
                        return found

    def renew(self, lock: lock_store.Lock, holder: lock_store.Holder, duration_sec: int) -> None:
        with self._pool(lock.pool, f'renewing the lock {lock}') as context, _lost(lock):
            self._lock(context, lock, holder, duration_sec, must_renew=True)

    def _lock(
        self,
        context: rados.Ioctx,
        lock: lock_store.Lock,
        holder: lock_store.Holder,
        duration_sec: int,
        must_renew: bool = False,
    ) -> None:
        wanted = lock_class.lock(_name(lock), holder, duration_sec, must_renew)
        self._operate(context, lambda request: request.execute('lock', 'lock', wanted))

    def release(self, lock: lock_store.Lock, holder: lock_store.Holder) -> None:
        # Unlocking would leave the attribute behind, one for each image that ever was.
        with self._pool(lock.pool, f'releasing the lock {lock}') as context:
            with contextlib.suppress(exceptions.LockLostError):
                self._operate(
                    context,
                    lambda request: request.rm_xattr(lock_class.attribute(_name(lock))),
                    (lock, holder),
                )

    def find_holder(self, lock: lock_store.Lock) -> lock_store.Holder | None:
        with self._pool(lock.pool, f'asking for the lock {lock}') as context:
            return self._find_holder(context, lock)

    @staticmethod
    def _find_holder(context: rados.Ioctx, lock: lock_store.Lock) -> lock_store.Holder | None:
        try:
            question = lock_class.get_info(_name(lock))
            _, answer = context.execute(OBJECT, 'lock', 'get_info', question)
        except rados.ObjectNotFound:
            return None
        return lock_class.read_holder(answer)

    def write(
        self,
        pool: str,
        entries: Mapping[str, str | None],
        guard: tuple[lock_store.Lock, lock_store.Holder] | None = None,
    ) -> None:
        kept = {key: value.encode() for key, value in entries.items() if value is not None}
        removed = tuple(key for key, value in entries.items() if value is None)
        with self._pool(pool, 'writing the ledger') as context:

            def fill(request: rados.WriteOp) -> None:
                if kept:
                    context.set_omap(request, tuple(kept), tuple(kept.values()))
                if removed:
                    context.remove_omap_keys(request, removed)

            self._operate(context, fill, guard, create=True)

    def read(self, pool: str, prefix: str) -> dict[str, str]:
        found: dict[str, str] = {}
        with self._pool(pool, 'reading the ledger') as context:
            last = ''
            while True:
                page = self._read_page(context, prefix, last)
                found.update(page)
                if len(page) < _PAGE:
                    return found
                last = max(page)

    @staticmethod
    def _read_page(context: rados.Ioctx, prefix: str, after: str) -> dict[str, str]:
        with rados.ReadOpCtx() as request:
            entries, _ = context.get_omap_vals(request, after, prefix, _PAGE)
            try:
                context.operate_read_op(request, OBJECT)
            except rados.ObjectNotFound:
                return {}
            return {key: value.decode() for key, value in entries}

    @staticmethod
    def _operate(
        context: rados.Ioctx,
        fill: Callable[[rados.WriteOp], None],
        guard: tuple[lock_store.Lock, lock_store.Holder] | None = None,
        create: bool = False,
    ) -> None:
        """Send one request, all of which is done or nothing."""
        with contextlib.ExitStack() as stack:
            request = stack.enter_context(rados.WriteOpCtx())
            if guard is not None:
                lock, holder = guard
                stack.enter_context(_lost(lock))
                asserted = lock_class.assert_locked(_name(lock), holder.cookie)
                request.execute('lock', 'assert_locked', asserted)
            if create:
                request.new(rados.LIBRADOS_CREATE_IDEMPOTENT)
            fill(request)
            context.operate_write_op(request, OBJECT)

    @contextlib.contextmanager
    def _pool(self, pool: str, subject: str) -> Iterator[rados.Ioctx]:
        with self._mutex:
            if pool not in self._links:
                self._links[pool] = self._connect()
            link = self._links[pool]
        with link.pool(pool) as context:
            context.set_namespace(NAMESPACE)
            with link.translated(f'{subject} of pool {pool}', [pool]):
                yield context


def _name(lock: lock_store.Lock) -> str:
    """Name a lock of any length in an attribute, whose name may have 100 bytes in Ceph.

    osd_max_attr_name_len; who holds it, and what for, is in the lock's description.
    """
    return hashlib.sha256(lock.name.encode()).hexdigest()


@contextlib.contextmanager
def _lost(lock: lock_store.Lock) -> Iterator[None]:
    """Tell that a lock is not ours from all else that may go wrong."""
    try:
        yield
    except (rados.ObjectNotFound, rados.ObjectBusy) as error:
        raise exceptions.LockLostError(f'{lock}: is not held any more') from error
