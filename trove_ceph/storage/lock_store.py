# SPDX-License-Identifier: Apache-2.0
"""The state that the copies of the storage service share: locks and text entries.

Both are stored in the pool that they concern, so no other store is needed, and every copy of the
service finds them in the same place. Every verb may raise CephUnreachableError, and NotFoundError
if the pool does not exist.
"""

import abc
import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, order=True)
class Lock:
    """A lock, held by at most one holder at a time."""

    pool: str
    name: str

    def __str__(self) -> str:
        return f'{self.pool}/{self.name}'


@dataclasses.dataclass(frozen=True)
class Holder:
    """The holder of a lock.

    :param cookie: identifies the holder within its client
    :param description: for humans
    """

    cookie: str
    description: str


class LockStore(abc.ABC):
    """The locks and entries of one cluster, with one client for each pool.

    A request to one pool never waits for another pool. A lock belongs to the client and the cookie
    that took it. If it is not renewed, it expires by the clock of the cluster: never early, and at
    most seconds late.
    """

    @abc.abstractmethod
    def prepare(self, pool: str) -> None:
        """Create the objects of the store in a pool, so that all verbs work when it is full."""

    @abc.abstractmethod
    def take(self, lock: Lock, holder: Holder, duration_sec: int) -> Holder | None:
        """Take a lock if it is free; return None on success, or its current holder."""

    @abc.abstractmethod
    def renew(self, lock: Lock, holder: Holder, duration_sec: int) -> None:
        """Extend a lock to ``duration_sec`` from now.

        :raises LockLostError: the lock was not renewed in time
        """

    @abc.abstractmethod
    def release(self, lock: Lock, holder: Holder) -> None:
        """Release a lock; do nothing if it was lost."""

    @abc.abstractmethod
    def find_holder(self, lock: Lock) -> Holder | None:
        """Return the current holder of a lock, or None."""

    @abc.abstractmethod
    def write(
        self,
        pool: str,
        entries: Mapping[str, str | None],
        guard: tuple[Lock, Holder] | None = None,
    ) -> None:
        """Set entries of a pool atomically; None removes an entry.

        :param guard: a lock of the same pool that this client must hold at that moment
        :raises LockLostError: this client does not hold it
        """

    @abc.abstractmethod
    def read(self, pool: str, prefix: str) -> dict[str, str]:
        """Return the entries whose keys begin with a prefix."""
