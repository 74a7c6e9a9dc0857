# SPDX-License-Identifier: Apache-2.0
"""The lock store of the fake cluster."""

import contextlib
from collections.abc import Iterator, Mapping

from trove_ceph import exceptions
from trove_ceph.storage import lock_store
from trove_ceph.storage.fake import cluster as fake_cluster


class FakeLockStore(lock_store.LockStore):
    """The lock store as one client uses it."""

    def __init__(self, cluster: fake_cluster.Cluster):
        self.cluster = cluster

    def prepare(self, pool: str) -> None:
        with self._pool(pool):
            pass

    def take(
        self, lock: lock_store.Lock, holder: lock_store.Holder, duration_sec: int
    ) -> lock_store.Holder | None:
        with self._pool(lock.pool) as cluster:
            found = self._find(lock)
            if found is None or found.is_held_by(self, holder):
                self._hold(cluster, lock, holder, duration_sec)
                return None
            return found.holder

    def renew(self, lock: lock_store.Lock, holder: lock_store.Holder, duration_sec: int) -> None:
        with self._pool(lock.pool) as cluster:
            self._check(lock, holder)
            self._hold(cluster, lock, holder, duration_sec)

    def release(self, lock: lock_store.Lock, holder: lock_store.Holder) -> None:
        with self._pool(lock.pool) as cluster:
            found = self._find(lock)
            if found and found.is_held_by(self, holder):
                del cluster.locks[lock]

    def find_holder(self, lock: lock_store.Lock) -> lock_store.Holder | None:
        with self._pool(lock.pool):
            found = self._find(lock)
            return found.holder if found else None

    def write(
        self,
        pool: str,
        entries: Mapping[str, str | None],
        guard: tuple[lock_store.Lock, lock_store.Holder] | None = None,
    ) -> None:
        with self._pool(pool) as cluster:
            if guard is not None:
                self._check(*guard)
            stored = cluster.entries.setdefault(pool, {})
            for key, value in entries.items():
                if value is None:
                    stored.pop(key, None)
                else:
                    stored[key] = value

    def read(self, pool: str, prefix: str) -> dict[str, str]:
        with self._pool(pool) as cluster:
            stored = cluster.entries.get(pool, {})
            return {key: stored[key] for key in sorted(stored) if key.startswith(prefix)}

    @contextlib.contextmanager
    def _pool(self, pool: str) -> Iterator[fake_cluster.Cluster]:
        with self.cluster.lock:
            self.cluster.check_pool(pool)
            yield self.cluster

    def _find(self, lock: lock_store.Lock) -> fake_cluster.LockEntry | None:
        found = self.cluster.locks.get(lock)
        return found if found and found.expires_at > self.cluster.clock() else None

    def _check(self, lock: lock_store.Lock, holder: lock_store.Holder) -> None:
        found = self._find(lock)
        if found is None or not found.is_held_by(self, holder):
            raise exceptions.LockLostError(f'{lock}: the lock is lost')

    def _hold(
        self,
        cluster: fake_cluster.Cluster,
        lock: lock_store.Lock,
        holder: lock_store.Holder,
        duration_sec: int,
    ) -> None:
        expires_at = cluster.clock() + duration_sec
        cluster.locks[lock] = fake_cluster.LockEntry(self, holder, expires_at)
