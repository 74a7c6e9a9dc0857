# SPDX-License-Identifier: Apache-2.0
"""Keep the pools of warm guests, in any number of taskmanagers.

The taskmanager that has claimed a pool keeps it until it dies; see :mod:`trove_ceph.db.claims`. A
round never fails: what went wrong is logged once, and retried by a later round.

While an operator adds a pool to the configuration of one taskmanager after the other, the others do
not know it yet. So each records which pools it has, and another one touches a pool that it does not
have only when no taskmanager has had it for a while.
"""

import datetime
from collections.abc import Callable

from trove_ceph import exceptions
from trove_ceph.strategies.guests.dependencies import KeeperDependencies
from trove_ceph.strategies.guests.kept_pool import KeptPool, Thread
from trove_ceph.strategies.guests.pool_memory import PoolMemory
from trove_ceph.strategies.guests.pool_spec import PoolSpec

#: Without a taskmanager that has a pool in its configuration, others delete its guests after this
#: time: longer than the last one of them takes to restart.
FORGET_AFTER = datetime.timedelta(minutes=10)
_READING = 'reading the records of guests'


class Keeper:
    """Keeps the pools; one thread calls it.

    :param deps: of all pools
    :param make_thread: returns the thread in which the rounds of one pool run
    """

    def __init__(self, deps: KeeperDependencies, make_thread: Callable[[], Thread]):
        self._deps = deps
        self._make_thread = make_thread
        self._specs = {one.name: one for one in deps.pools}
        self._kept: dict[str, KeptPool] = {}
        self._memory = PoolMemory('Warm guests')

    def keep(self) -> None:
        """Start one round of each pool that this taskmanager keeps or can claim.

        Pools that are no longer configured are kept until their guests are gone. Without pools and
        guests, this is one query.
        """
        try:
            kept = self._find_pools()
        except exceptions.TroveCephError as error:
            self._memory.warn(_READING, error)
            return
        self._memory.succeed(_READING)
        for pool in sorted(kept):
            self._pool(pool).keep(kept[pool])
        for pool in self._kept.keys() - kept.keys():
            self._kept[pool].release()

    def _find_pools(self) -> dict[str, PoolSpec | None]:
        """Return the pools to keep; without a spec, no taskmanager has them any more."""
        store = self._deps.store
        if self._specs:
            store.note_configured(self._specs.keys())
            self._prune_requests()
        forgotten = store.pools() - self._specs.keys()
        if forgotten:
            forgotten -= store.configured_since(store.now() - FORGET_AFTER)
        return {**self._specs, **dict.fromkeys(forgotten)}

    def _prune_requests(self) -> None:
        # Twice the window: nothing that is still counted is deleted.
        window = self._deps.settings.demand_window
        self._deps.store.prune_requests(self._deps.store.now() - 2 * window)

    def _pool(self, pool: str) -> KeptPool:
        if pool not in self._kept:
            self._kept[pool] = KeptPool(self._deps, pool, self._make_thread())
        return self._kept[pool]
