# SPDX-License-Identifier: Apache-2.0
"""Keep the pools of warm guests, in any number of taskmanagers.

The taskmanager that has claimed a pool keeps it until it dies; see :mod:`trove_ceph.db.claims`. A
round never fails: what went wrong is logged once, and retried by a later round.
"""

import dataclasses
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.claims import Claim
from trove_ceph.strategies.backup import claimed
from trove_ceph.strategies.guests.dependencies import KeeperDependencies
from trove_ceph.strategies.guests.pool_memory import PoolMemory
from trove_ceph.strategies.guests.pool_round import PoolRound
from trove_ceph.strategies.guests.pool_spec import PoolSpec

LOG = logging.getLogger(__name__)

_CLAIMING = 'claiming the pool'
_READING = 'reading the records of guests'


class Keeper:
    """Keeps the pools; one thread calls it.

    :param deps: of all pools
    """

    def __init__(self, deps: KeeperDependencies):
        self._deps = deps
        self._claims: dict[str, Claim] = {}
        self._memories: dict[str, PoolMemory] = {}
        self._own_memory = PoolMemory('Warm guests')

    def keep(self) -> None:
        """Run one round of each pool that this taskmanager keeps or can claim.

        Pools that are no longer configured are kept until their guests are gone. Without pools and
        guests, this is one query.
        """
        specs = {one.name: one for one in self._deps.pools}
        try:
            used = self._deps.store.pools()
            if specs:
                self._prune_requests()
        except exceptions.TroveCephError as error:
            self._own_memory.warn(_READING, error)
            return
        self._own_memory.succeed(_READING)
        for pool in sorted(used | specs.keys()):
            self._keep(pool, specs.get(pool))
        for pool in self._claims.keys() - used - specs.keys():
            self._release(pool)

    def _prune_requests(self) -> None:
        # Twice the window: nothing that is still counted is deleted.
        window = self._deps.settings.demand_window
        self._deps.store.prune_requests(self._deps.store.now() - 2 * window)

    def _keep(self, pool: str, spec: PoolSpec | None) -> None:
        try:
            claim = self._claim(pool)
            if claim is not None:
                memory = self._memory(pool)
                memory.succeed(_CLAIMING)
                self._run(PoolRound(guarded(self._deps, claim), pool, spec, memory), memory)
        except exceptions.ClaimLostError as error:
            LOG.info('%s', error)
            self._deps.heartbeat.drop(self._claims.pop(pool, None))
        except exceptions.TroveCephError as error:
            self._memory(pool).warn(_CLAIMING, error)

    def _run(self, one: PoolRound, memory: PoolMemory) -> None:
        """Run all steps of a round, also if some of them fail."""
        for step in one.steps():
            try:
                step.do()
            except exceptions.ClaimLostError:
                raise
            except Exception as error:
                is_known = isinstance(error, exceptions.TroveCephError)
                memory.warn(step.name, error if is_known else repr(error))
            else:
                memory.succeed(step.name)

    def _claim(self, pool: str) -> Claim | None:
        claim = self._claims.get(pool)
        if claim is not None:
            self._deps.heartbeat.check(claim)
            return claim
        store, worker = self._deps.store, self._deps.worker
        claim = self._deps.heartbeat.acquire(lambda: store.begin_keeping(pool, worker))
        if claim is not None:
            LOG.info('Pool %s: this taskmanager keeps it', pool)
            self._claims[pool] = claim
            # What was known when the pool was last kept here is outdated.
            self._memories.pop(pool, None)
        return claim

    def _release(self, pool: str) -> None:
        claim = self._claims.pop(pool)
        self._memories.pop(pool, None)
        self._deps.heartbeat.drop(claim)
        try:
            self._deps.store.claims.release(claim)
        except exceptions.TroveCephError as error:
            LOG.debug('Pool %s: its claim was not released, and expires: %s', pool, error)

    def _memory(self, pool: str) -> PoolMemory:
        return self._memories.setdefault(pool, PoolMemory(f'Pool {pool}'))


def guarded(deps: KeeperDependencies, claim: Claim) -> KeeperDependencies:
    """Return dependencies that raise ClaimLostError instead of a request once a claim is lost."""
    changes: dict[str, Any] = {
        name: claimed.Guarded(getattr(deps, name), deps.heartbeat, claim)
        for name in ('store', 'servers', 'agents', 'trove')
    }
    return dataclasses.replace(deps, **changes)
