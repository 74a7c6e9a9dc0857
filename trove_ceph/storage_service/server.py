# SPDX-License-Identifier: Apache-2.0
"""Create the service from its configuration, start it and stop it."""

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

from trove_ceph import exceptions, message_auth
from trove_ceph.golden import build
from trove_ceph.storage import backend, lock_store, tasks
from trove_ceph.storage_service import (
    endpoint,
    executors,
    job_manager,
    job_store,
    jobs,
    leases,
    permissions,
    pools,
    receiver,
    rpcapi,
    silent_owners,
    transport,
    trash_records,
    watched_thread,
)
from trove_ceph.tiers import tiers_file
from trove_ceph.verification import inspection

LOG = logging.getLogger(__name__)

#: Interval between writes of progress, and between checks for cancel requests.
_HEARTBEAT_SEC = 2.0
_EXPIRY_INTERVAL_SEC = 600.0
#: How many fences run at the same time in each pool, such as those of all instances of a lost
#: host. A fence waits for each placement group of its pool.
_FENCES = 16
#: How often locks are renewed within their duration.
_RENEWALS = 4
# librados takes more than ten seconds to find a restarted OSD at its new address.
_MIN_LOCK_REQUEST_SEC = 11


def lock_store_timeout_sec(lock_duration_sec: int) -> int:
    """Return the timeout of a lock store request, which may have to wait for a restarted OSD.

    It is as long as possible, since a failed request loses the locks: a new connection is another
    client, and the locks belong to the old client.
    """
    usable = leases.SAFE_FRACTION - 1 / _RENEWALS
    return max(_MIN_LOCK_REQUEST_SEC, int(lock_duration_sec * usable))


def time_to_next(interval_sec: float, passed_sec: float) -> float:
    """Return the seconds until the next whole number of intervals has passed."""
    return interval_sec - passed_sec % interval_sec


def find_pools(options: cfg.ConfigOpts.GroupAttr) -> pools.Pools:
    """Return the pools that the service is configured for.

    :raises InvalidTiersError: the tiers file is invalid, or has no entry for the user
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

    :param storage: executes the tasks
    :param entries: the lock store, with clients of its own
    :param own_pools: the pools that the service may read and change
    :param name: of this copy; default host name and pid
    :param inspector: None if this copy runs no inspections
    :param builder: of golden volumes; None if this copy builds none
    """

    def __init__(
        self,
        storage: backend.Backend,
        entries: lock_store.LockStore,
        own_pools: pools.Pools,
        options: cfg.ConfigOpts.GroupAttr,
        name: str | None = None,
        inspector: inspection.Inspector | None = None,
        builder: build.Builder | None = None,
    ):
        self.name = name or f'{socket.gethostname()}:{os.getpid()}'
        self._lock_store = entries
        self._inspector = inspector
        self._builder = builder
        self._stop_timeout_sec = options.stop_timeout_sec
        self._renew_sec = options.lock_duration_sec / _RENEWALS
        self._leases = leases.Leases(entries, self.name, options.lock_duration_sec)
        threads = concurrent.futures.ThreadPoolExecutor(options.job_threads, 'job')
        urgent = {
            pool: concurrent.futures.ThreadPoolExecutor(_FENCES, f'fence-{pool}')
            for pool in own_pools.images
        }
        self._executors = (threads, *urgent.values())
        limits = executors.Limits(
            options.copy_in_flight_mib * units.Mi,
            options.copy_mib_per_sec * units.Mi or None,
        )
        owners = silent_owners.SilentOwners(storage)
        deps = executors.ExecutorDependencies(
            storage, own_pools, limits, owners, inspector, self.name, builder
        )
        store = job_store.JobStore(entries, own_pools.images)
        self._manager = job_manager.JobManager(
            deps, store, self._leases, threads, urgent.__getitem__
        )
        self._jobs = jobs.Jobs(
            *(deps, store, self._leases, self._manager, options.job_retention_hours * 3600),
            max_deaths=options.max_inspection_deaths,
        )
        records = trash_records.TrashRecords(storage, entries)
        self.endpoint = endpoint.Endpoint(
            storage, own_pools, self._leases, self._jobs, owners, records
        )
        self.evidence = permissions.Evidence(storage, own_pools, records)
        self._stopping = threading.Event()
        #: Called with the reason after a thread of this copy has died, so that locks cannot be
        #: renewed. The copy then executes nothing any more, and should be restarted.
        self.on_failure: Callable[[str], None] = lambda reason: None
        self._created_at = time.monotonic()
        # Separate threads for each pool, so that a pool that does not answer delays no other.
        self._heartbeats = [
            watched_thread.WatchedThread(
                f'{name}-{pool}',
                functools.partial(function, pool),
                self._stopping.is_set,
                self._fail,
            )
            for pool in own_pools.images
            for name, function in (('leases', self._renew_leases), ('jobs', self._update_jobs))
        ]

    def survey_jobs(self) -> tuple[list[tasks.Job], list[str]]:
        """Return the jobs of all copies, latest first, and the pools that do not answer."""
        return self._jobs.survey()

    def start(self) -> None:
        """Start the heartbeat threads; do not wait for Ceph."""
        for thread in self._heartbeats:
            thread.start()
        if self._inspector:
            self._executors[0].submit(self._inspector.clear_killed)
        if self._builder:
            self._executors[0].submit(self._builder.clear_killed)

    def stop(self) -> bool:
        """Stop jobs so that they can be resumed; return whether all stopped in time."""
        ended = self._manager.stop(self._stop_timeout_sec)
        self._stopping.set()
        for thread in self._heartbeats:
            thread.join()
        for executor in self._executors:
            executor.shutdown(wait=False)
        return ended

    def _fail(self, reason: str) -> None:
        LOG.critical('%s: stops all its jobs and needs a restart: %s', self.name, reason)
        self._leases.fail(reason)
        self.on_failure(reason)

    def _renew_leases(self, pool: str) -> None:
        # At the same times for all pools: the locks of a dead copy then expire together, and a
        # process that takes one of them can take the others too.
        while True:
            passed_sec = time.monotonic() - self._created_at
            if self._stopping.wait(time_to_next(self._renew_sec, passed_sec)):
                return
            self._leases.renew(pool)

    def _update_jobs(self, pool: str) -> None:
        is_prepared = False
        expire_at = time.monotonic()
        while True:
            try:
                # First, since it detects whether the pool answers.
                self._manager.heartbeat(pool)
                if not is_prepared:
                    self._lock_store.prepare(pool)
                    is_prepared = True
                if time.monotonic() >= expire_at:
                    expire_at = time.monotonic() + _EXPIRY_INTERVAL_SEC
                    self._jobs.delete_expired(pool)
            except exceptions.StorageError as error:
                LOG.warning('Cannot update the jobs of pool %s, will retry: %s', pool, error)
            if self._stopping.wait(_HEARTBEAT_SEC):
                return


class Server:
    """A copy of the service on the bus; it answers only signed requests."""

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
        """Start answering."""
        self._service.start()
        self._server.start()
        LOG.info('%s answers on topic %s', self._service.name, rpcapi.TOPIC)

    def stop(self) -> bool:
        """Answer pending requests and stop; return whether all jobs stopped in time."""
        self._server.stop()
        ended = self._service.stop()
        self._server.wait()
        LOG.info('%s has stopped%s', self._service.name, '' if ended else ' and abandoned jobs')
        return ended
