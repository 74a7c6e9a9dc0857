# SPDX-License-Identifier: Apache-2.0
"""The service as a whole: made from its configuration, started and stopped."""

import concurrent.futures
import functools
import os
import socket
import threading
import time
from collections.abc import Callable

import oslo_messaging as messaging
from oslo_config import cfg
from oslo_log import log as logging
from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import backend, lock_store
from trove_ceph.storage_service import (
    endpoint,
    executors,
    job_manager,
    job_store,
    jobs,
    leases,
    message_auth,
    permissions,
    pools,
    receiver,
    rpcapi,
    transport,
    watched_thread,
)
from trove_ceph.tiers import tiers_file
from trove_ceph.verification import inspection

LOG = logging.getLogger(__name__)

#: Progress is written down, and word to cancel looked for, as often.
_BEAT_SEC = 2.0
_FORGET_EVERY_SEC = 600.0
#: Of all instances of a host that was lost, at once.
_FENCES = 16
#: How often locks are renewed within their duration.
_RENEWALS = 4
# librados needs more than ten seconds to look for a restarted OSD at its new address.
_LEAST_LEDGER_SEC = 11


def ledger_timeout_sec(lock_duration_sec: int) -> int:
    """Return how long a request of the ledger may wait for an OSD to come back.

    As long as it may, because one that fails costs the locks: whoever connects anew is another
    client, and locks belong to the old one.
    """
    usable = leases.SAFE_PART - 1 / _RENEWALS
    return max(_LEAST_LEDGER_SEC, int(lock_duration_sec * usable))


def time_to_next(interval_sec: float, passed_sec: float) -> float:
    """Return the seconds until a whole number of intervals will have passed."""
    return interval_sec - passed_sec % interval_sec


def find_pools(options: cfg.ConfigOpts.GroupAttr) -> pools.Pools:
    """Return the pools that the configuration lets the service work on.

    :raises InvalidTiersError: the tiers file is wrong, or gives the user nothing
    """
    if options.pools:
        return pools.Pools(tuple(options.pools), tuple(options.data_pools))
    content = tiers_file.load(options.tiers_file)
    user = content.users.get(options.ceph_user)
    if user is None:
        raise exceptions.InvalidTiersError(
            f'{options.tiers_file}: has no user {options.ceph_user}; list it under users with the '
            'role storage, or set pools'
        )
    tiers = [content.tiers[name] for name in user.tiers]
    return pools.Pools(
        images=tuple(tier.pool for tier in tiers),
        data=tuple(tier.erasure.pool for tier in tiers if tier.erasure),
        data_pools={tier.pool: tier.erasure.pool for tier in tiers if tier.erasure},
        tiers={tier.name: tier.pools for tier in tiers},
    )


class Service:
    """One copy of the service, without the bus.

    :param storage: does the work
    :param entries: clients of their own
    :param inspector: None where nothing is inspected
    """

    def __init__(
        self,
        storage: backend.Backend,
        entries: lock_store.LockStore,
        ours: pools.Pools,
        options: cfg.ConfigOpts.GroupAttr,
        name: str | None = None,
        inspector: inspection.Inspector | None = None,
    ):
        self.name = name or f'{socket.gethostname()}:{os.getpid()}'
        self._ledger = entries
        self._inspector = inspector
        self._stop_timeout_sec = options.stop_timeout_sec
        self._renew_sec = options.lock_duration_sec / _RENEWALS
        self._leases = leases.Leases(entries, self.name, options.lock_duration_sec)
        threads = concurrent.futures.ThreadPoolExecutor(options.job_threads, 'job')
        urgent = concurrent.futures.ThreadPoolExecutor(_FENCES, 'fence')
        self._executors = (threads, urgent)
        limits = executors.Limits(
            options.copy_in_flight_mib * units.Mi,
            options.copy_mib_per_sec * units.Mi or None,
        )
        tools = executors.ExecutorDependencies(storage, ours, limits, inspector, self.name)
        kept = job_store.JobStore(entries, ours.images)
        self._keeper = job_manager.JobManager(tools, kept, self._leases, threads, urgent)
        self._jobs = jobs.Jobs(
            tools, kept, self._leases, self._keeper, options.job_retention_hours * 3600
        )
        self.endpoint = endpoint.Endpoint(storage, ours, self._leases, self._jobs)
        self.evidence = permissions.Evidence(storage, ours, entries)
        self._ending = threading.Event()
        #: Called with the reason once locks cannot be renewed here any more, as a thread of this
        #: copy has died: it does nothing from then on, and should be started anew.
        self.on_failure: Callable[[str], None] = lambda reason: None
        self._made_at = time.monotonic()
        # Of each pool its own, so that one that does not answer holds up no other.
        self._keeping = [
            watched_thread.WatchedThread(
                f'{name}-{pool}',
                functools.partial(keep, pool),
                self._ending.is_set,
                self._fail,
            )
            for pool in ours.images
            for name, keep in (('leases', self._keep_leases), ('jobs', self._keep_jobs))
        ]

    def start(self) -> None:
        """Begin to keep what is held; needs no answer of Ceph yet."""
        for thread in self._keeping:
            thread.start()
        if self._inspector:
            self._executors[0].submit(self._inspector.clear_killed)

    def stop(self) -> bool:
        """Have jobs stop where they can be taken up again; return whether all did in time."""
        ended = self._keeper.stop(self._stop_timeout_sec)
        self._ending.set()
        for thread in self._keeping:
            thread.join()
        for executor in self._executors:
            executor.shutdown(wait=False)
        return ended

    def _fail(self, reason: str) -> None:
        LOG.critical('%s: all work here is broken off, since %s', self.name, reason)
        self._leases.fail(reason)
        self.on_failure(reason)

    def _keep_leases(self, pool: str) -> None:
        # All pools at the same instants: of one that died, all locks end together, and whoever sees
        # one of them end can take the others too.
        while True:
            passed_sec = time.monotonic() - self._made_at
            if self._ending.wait(time_to_next(self._renew_sec, passed_sec)):
                return
            self._leases.renew(pool)

    def _keep_jobs(self, pool: str) -> None:
        is_prepared = False
        forget_at = time.monotonic()
        while True:
            try:
                # First, as it notices whether the pool answers.
                self._keeper.beat(pool)
                if not is_prepared:
                    self._ledger.prepare(pool)
                    is_prepared = True
                if time.monotonic() >= forget_at:
                    forget_at = time.monotonic() + _FORGET_EVERY_SEC
                    self._jobs.forget_old(pool)
            except exceptions.StorageError as error:
                LOG.warning('Will try again: %s', error)
            if self._ending.wait(_BEAT_SEC):
                return


class Server:
    """A copy of the service on the bus, where it answers signed requests alone."""

    def __init__(self, service: Service, connection: transport.Connection):
        self._service = service
        verifier = message_auth.Verifier(connection.keys, service.name, connection.skew_sec)
        self._server = messaging.get_rpc_server(
            connection.transport,
            messaging.Target(exchange=rpcapi.EXCHANGE, topic=rpcapi.TOPIC, server=service.name),
            [receiver.Receiver(service.endpoint, service.evidence, verifier)],
            access_policy=messaging.ExplicitRPCAccessPolicy,
        )

    def start(self) -> None:
        """Begin to answer."""
        self._service.start()
        self._server.start()
        LOG.info('%s answers on topic %s', self._service.name, rpcapi.TOPIC)

    def stop(self) -> bool:
        """Answer what was asked, and stop; return whether all jobs stopped in time."""
        self._server.stop()
        ended = self._service.stop()
        self._server.wait()
        LOG.info('%s has stopped%s', self._service.name, '' if ended else ', abandoning jobs')
        return ended
