# SPDX-License-Identifier: Apache-2.0
"""The lock store in Ceph: one object per pool, in a namespace apart from the images.

An entry is a key of the object's omap, and a lock is one of its advisory locks. Both are on the
same object, so that one request can check a lock and write an entry. In a full pool, OSDs refuse
requests that create or extend objects; locks and omap of an existing object still work.
"""

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping

import rados

from trove_ceph import exceptions
from trove_ceph.storage import lock_store
from trove_ceph.storage.ceph import connection, lock_class

#: librbd does not use it, and ``rados ls`` does not list it by default.
NAMESPACE = 'trove_ceph'
OBJECT = 'ledger'
# Entries in one answer of an OSD (osd_max_omap_entries_per_request).
_PAGE = 1024


class CephLockStore(lock_store.LockStore):
    """The lock store of a cluster, with a separate connection for each pool.

    Locks belong to the client that took them, and a request without answer makes its connection
    connect again as another client. If pools shared a connection, one silent pool would cost the
    locks of the others.

    :param connect: returns a connection. It opens no image, so no fence concerns it, and its
        requests time out long before a lock expires
    """

    def __init__(self, connect: Callable[[], connection.Connection]):
        self._connect = connect
        self._links: dict[str, connection.Connection] = {}
        self._mutex = threading.Lock()

    def prepare(self, pool: str) -> None:
        with self._pool(pool, 'preparing the lock store') as context:
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
                    # This client holds it: the answer to an earlier attempt was lost.
                    self.renew(lock, holder, duration_sec)
                    return None
                except rados.ObjectBusy:
                    if found := self._find_holder(context, lock):
                        return found

    def renew(self, lock: lock_store.Lock, holder: lock_store.Holder, duration_sec: int) -> None:
        with self._pool(lock.pool, f'renewing the lock {lock}') as context, _translating_loss(lock):
            self._lock(context, lock, holder, duration_sec, must_renew=True)

    def _lock(
        self,
        context: rados.Ioctx,
        lock: lock_store.Lock,
        holder: lock_store.Holder,
        duration_sec: int,
        must_renew: bool = False,
    ) -> None:
        argument = lock_class.lock(_name(lock), holder, duration_sec, must_renew)
        self._operate(context, lambda request: request.execute('lock', 'lock', argument))

    def release(self, lock: lock_store.Lock, holder: lock_store.Holder) -> None:
        # Unlocking would leave an attribute for each image that ever existed.
        with self._pool(lock.pool, f'releasing the lock {lock}') as context:
            with contextlib.suppress(exceptions.LockLostError):
                self._operate(
                    context,
                    lambda request: request.rm_xattr(lock_class.attribute(_name(lock))),
                    (lock, holder),
                )

    def find_holder(self, lock: lock_store.Lock) -> lock_store.Holder | None:
        with self._pool(lock.pool, f'reading the lock {lock}') as context:
            return self._find_holder(context, lock)

    @staticmethod
    def _find_holder(context: rados.Ioctx, lock: lock_store.Lock) -> lock_store.Holder | None:
        try:
            argument = lock_class.get_info(_name(lock))
            _, answer = context.execute(OBJECT, 'lock', 'get_info', argument)
        except rados.ObjectNotFound:
            return None
        return lock_class.read_holder(answer)

    def write(
        self,
        pool: str,
        entries: Mapping[str, str | None],
        guard: tuple[lock_store.Lock, lock_store.Holder] | None = None,
    ) -> None:
        new = {key: value.encode() for key, value in entries.items() if value is not None}
        removed = tuple(key for key, value in entries.items() if value is None)
        with self._pool(pool, 'writing entries') as context:

            def fill(request: rados.WriteOp) -> None:
                if new:
                    context.set_omap(request, tuple(new), tuple(new.values()))
                if removed:
                    context.remove_omap_keys(request, removed)

            self._operate(context, fill, guard, create=True)

    def read(self, pool: str, prefix: str) -> dict[str, str]:
        found: dict[str, str] = {}
        with self._pool(pool, 'reading entries') as context:
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
        """Send one atomic request."""
        with contextlib.ExitStack() as stack:
            request = stack.enter_context(rados.WriteOpCtx())
            if guard is not None:
                lock, holder = guard
                stack.enter_context(_translating_loss(lock))
                argument = lock_class.assert_locked(_name(lock), holder.cookie)
                request.execute('lock', 'assert_locked', argument)
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
    """Return a short name for a lock: Ceph limits attribute names to 100 bytes.

    The limit is osd_max_attr_name_len. The lock's description names its holder and purpose.
    """
    return hashlib.sha256(lock.name.encode()).hexdigest()


@contextlib.contextmanager
def _translating_loss(lock: lock_store.Lock) -> Iterator[None]:
    """Translate the errors of a lost lock to LockLostError."""
    try:
        yield
    except (rados.ObjectNotFound, rados.ObjectBusy) as error:
        raise exceptions.LockLostError(f'{lock}: the lock is lost') from error
