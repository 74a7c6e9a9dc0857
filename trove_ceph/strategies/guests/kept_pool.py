# SPDX-License-Identifier: Apache-2.0
"""One pool of warm guests, as one taskmanager keeps it."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Protocol

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


class Thread(Protocol):
    """A thread that does one thing at a time, as :class:`.queue_worker.WorkerThreads` can be."""

    def start(self, function: Callable[[], None]) -> bool:
        """Run a function in the thread; return False if the thread is busy."""


class KeptPool:
    """A pool, the claim on it, and what is remembered of it.

    :param thread: in which the rounds of this pool run, so that an agent that does not answer holds
        up no other pool
    """

    def __init__(self, deps: KeeperDependencies, pool: str, thread: Thread):
        self._deps = deps
        self._pool = pool
        self._thread = thread
        self._memory = self._new_memory()
        # Only the thread changes it.
        self._claim: Claim | None = None

    def keep(self, spec: PoolSpec | None) -> None:
        """Run one round, if this taskmanager keeps the pool or can claim it.

        Do nothing while the last round still runs.

        :param spec: None: no taskmanager has the pool in its configuration any more
        """
        self._thread.start(functools.partial(self._keep, spec))

    def release(self) -> None:
        """Leave the pool to other taskmanagers; do nothing while the last round still runs."""
        if self._claim is not None:
            self._thread.start(self._release)

    def _keep(self, spec: PoolSpec | None) -> None:
        try:
            claim = self._claimed()
            if claim is not None:
                self._memory.succeed(_CLAIMING)
                self._run(PoolRound(guarded(self._deps, claim), self._pool, spec, self._memory))
        except exceptions.ClaimLostError as error:
            LOG.info('%s', error)
            self._drop()
        except exceptions.TroveCephError as error:
            self._memory.warn(_CLAIMING, error)

    def _run(self, one: PoolRound) -> None:
        """Run all steps of a round, also if some of them fail."""
        for step in one.steps():
            try:
                step.do()
            except exceptions.ClaimLostError:
                raise
            except Exception as error:
                is_known = isinstance(error, exceptions.TroveCephError)
                self._memory.warn(step.name, error if is_known else repr(error))
            else:
                self._memory.succeed(step.name)

    def _claimed(self) -> Claim | None:
        if self._claim is not None:
            self._deps.heartbeat.check(self._claim)
            return self._claim
        store, worker = self._deps.store, self._deps.worker
        self._claim = self._deps.heartbeat.acquire(lambda: store.begin_keeping(self._pool, worker))
        if self._claim is not None:
            LOG.info('Pool %s: this taskmanager keeps it', self._pool)
            # What was known when the pool was last kept here is outdated.
            self._memory = self._new_memory()
        return self._claim

    def _release(self) -> None:
        try:
            if claim := self._drop():
                self._deps.store.claims.release(claim)
        except exceptions.TroveCephError as error:
            LOG.debug('Pool %s: its claim was not released, and expires: %s', self._pool, error)

    def _drop(self) -> Claim | None:
        claim, self._claim = self._claim, None
        self._deps.heartbeat.drop(claim)
        return claim

    def _new_memory(self) -> PoolMemory:
        return PoolMemory(f'Pool {self._pool}')


def guarded(deps: KeeperDependencies, claim: Claim) -> KeeperDependencies:
    """Return dependencies that raise ClaimLostError instead of a request once a claim is lost."""
    changes: dict[str, Any] = {
        name: claimed.Guarded(getattr(deps, name), deps.heartbeat, claim)
        for name in ('store', 'servers', 'agents', 'trove')
    }
    return dataclasses.replace(deps, hot=deps.hot.guarded(deps.heartbeat, claim), **changes)
