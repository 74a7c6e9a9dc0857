# SPDX-License-Identifier: Apache-2.0
"""Copies of the storage service on a fake cluster; tests control the time and kill copies."""

import concurrent.futures
import datetime
import functools

from oslo_utils import units

from trove_ceph.storage import image_types
from trove_ceph.storage.fake import backend, cluster, lock_store
from trove_ceph.storage_service import (
    endpoint,
    executors,
    job_manager,
    job_store,
    jobs,
    leases,
    permissions,
    pools,
    silent_owners,
    trash_records,
)
from trove_ceph.tests import interruption

MIB = units.Mi
DURATION_SEC = 60
RETENTION_SEC = 3600
POOLS = pools.Pools(
    ('volumes', 'vault'),
    ('vault-data',),
    {'vault': 'vault-data'},
    {'slow': ('vault', 'vault-data')},
)


@functools.cache
def _object_of(letter):
    """Return a whole object of one letter; worlds share it, so that many of them need little."""
    return bytes([letter]) * 4 * MIB


class World:
    """A cluster with an image of four objects, and any number of copies of the service.

    :param image: name of the image
    :param vault: name of the vault image, which does not exist yet
    """

    def __init__(self, image='image', vault='copy'):
        self.now = 1000.0
        #: The addresses of live clients other than the service.
        self.alive = set()
        capacities = dict.fromkeys((*POOLS.images, *POOLS.data), 1024 * MIB)
        self.cluster = cluster.Cluster(capacities, lambda: self.now)
        self.storage = backend.FakeBackend(self.cluster)
        self.image = image_types.ImageRef('volumes', image)
        self.vault = image_types.ImageRef('vault', vault)
        self.storage.create_image(self.image, 16 * MIB, image_types.ImageOptions())
        self.write(b'1234')
        self.storage.create_snapshot(self.image.snapshot('s'))

    def write(self, letters):
        with self.storage.open_writer(self.image) as writer:
            for number, letter in enumerate(letters):
                writer.write(number * 4 * MIB, _object_of(letter)).result()

    def content(self, snapshot):
        with self.storage.open_reader(snapshot) as reader:
            return reader.read(0, reader.size_bytes).result()

    def service(self, name='one', life=None, threads=None, inspector=None, builder=None):
        """Return a copy of the service that runs jobs in the calling thread.

        :param life: how many requests to the cluster it makes before it is killed
        :param inspector: called with the copy's back end; returns its inspector
        :param builder: likewise, of golden volumes
        """
        life = life or Life(None)
        storage = KillableClient(backend.FakeBackend(self.cluster), life)
        entries = KillableClient(lock_store.FakeLockStore(self.cluster), life)
        return Service(
            *(self, name, storage, entries, threads),
            inspector and inspector(storage),
            builder and builder(storage),
        )

    def sleep(self, seconds):
        self.now += seconds

    def expire_dead_clients(self):
        """Remove the watches of dead clients and let their locks expire."""
        for image in self.cluster.images:
            image.watchers &= self.alive
            if image.lock_owner not in self.alive:
                image.lock_owner = None
        self.now += DURATION_SEC + 1

    def held_locks(self):
        locks = self.cluster.locks
        return [lock for lock, entry in locks.items() if entry.expires_at > self.now]


class Service:
    """The parts of a copy of the service, without threads and bus."""

    def __init__(self, world, name, storage, entries, threads, inspector=None, builder=None):
        self.storage = storage
        self.lock_store = entries
        self.leases = leases.Leases(entries, name, DURATION_SEC, lambda: world.now, world.sleep)
        self.store = job_store.JobStore(entries, POOLS.images, lambda: world.now)
        self.owners = silent_owners.SilentOwners(
            storage, clock=lambda: world.now, sleep=world.sleep
        )
        deps = executors.ExecutorDependencies(
            storage, POOLS, executors.Limits(8 * MIB), self.owners, inspector, name, builder
        )
        times = (
            lambda: world.now,
            world.sleep,
            lambda: datetime.datetime.fromtimestamp(world.now, datetime.UTC),
        )
        shared = (deps, self.store, self.leases)
        self.manager = job_manager.JobManager(
            *shared, threads or InlineExecutor(), lambda _pool: InlineExecutor(), *times
        )
        self.jobs = jobs.Jobs(*shared, self.manager, RETENTION_SEC, *times)
        self.trash_records = trash_records.TrashRecords(storage, entries, lambda: world.now)
        self.endpoint = endpoint.Endpoint(
            storage, POOLS, self.leases, self.jobs, self.owners, self.trash_records
        )
        self.evidence = permissions.Evidence(storage, POOLS, self.trash_records)


class InlineExecutor(concurrent.futures.Executor):
    """Runs each function in the calling thread."""

    def submit(self, function, *arguments):
        future = concurrent.futures.Future()
        future.set_result(function(*arguments))
        return future


class DeferredExecutor(concurrent.futures.Executor):
    """Runs each function when the test calls ``run_next``."""

    def __init__(self):
        self.waiting = []

    def submit(self, function, *arguments):
        future = concurrent.futures.Future()
        self.waiting.append((future, function, arguments))
        return future

    def run_next(self):
        future, function, arguments = self.waiting.pop(0)
        future.set_result(function(*arguments))


class Life:
    """The number of requests to the cluster that a process makes before it is killed."""

    def __init__(self, requests):
        self.left = requests

    def spend(self):
        if self.left == 0:
            raise interruption.Kill
        if self.left is not None:
            self.left -= 1


class KillableClient:
    """A client object of the cluster whose process may be killed at any request."""

    def __init__(self, inner, life):
        self._inner = inner
        self._life = life

    def __getattr__(self, name):
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def called(*arguments, **options):
            self._life.spend()
            answer = found(*arguments, **options)
            is_opened = name in ('open_reader', 'open_writer')
            return KillableClient(answer, self._life) if is_opened else answer

        return called

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()
