# SPDX-License-Identifier: Apache-2.0
"""What the copies of the storage service tell each other: locks, and entries of text.

Both are kept in the pool that they are about, so they need no other store, and no copy of the
service can look for them elsewhere than another. Every verb may raise CephUnreachableError, and
NotFoundError for a pool that is not there.
"""

import abc
import dataclasses
from collections.abc import Mapping


@dataclasses.dataclass(frozen=True, order=True)
class Lock:
    """What can be held by one at a time."""

    pool: str
    name: str

    def __str__(self) -> str:
        return f'{self.pool}/{self.name}'


@dataclasses.dataclass(frozen=True)
class Holder:
    """Who holds a lock.

    :param cookie: what it was taken with
    :param description: for humans
    """

    cookie: str
    description: str


class LockStore(abc.ABC):
    """Locks and entries of one cluster, through one client for each pool.

    What is asked of one pool waits for no other. A lock belongs to the client and the cookie that
    took it. It ends by itself when it is not renewed in time, by the clock of the cluster; never
    before its time, and seconds after it.
    """

    @abc.abstractmethod
    def prepare(self, pool: str) -> None:
        """Make room in a pool, so that all the verbs work there when it is full."""

    @abc.abstractmethod
    def take(self, lock: Lock, holder: Holder, duration_sec: int) -> Holder | None:
        """Take a lock if nobody has it; return who has it, None when it is ours now."""

    @abc.abstractmethod
    def renew(self, lock: Lock, holder: Holder, duration_sec: int) -> None:
        """Hold a lock for as long again, from now.

        :raises LockLostError: it was not renewed in time
        """

    @abc.abstractmethod
    def release(self, lock: Lock, holder: Holder) -> None:
        """Give a lock back; nothing if it was lost."""

    @abc.abstractmethod
    def find_holder(self, lock: Lock) -> Holder | None:
        """Tell who holds a lock now."""

    @abc.abstractmethod
    def write(
        self,
        pool: str,
        entries: Mapping[str, str | None],
        guard: tuple[Lock, Holder] | None = None,
    ) -> None:
        """Set entries of a pool, None removes one; all or nothing.

        :param guard: a lock of the same pool that must be held by this client at that very moment
        :raises LockLostError: it is not
        """

    @abc.abstractmethod
    def read(self, pool: str, prefix: str) -> dict[str, str]:
        """Return the entries whose keys begin with a prefix."""
