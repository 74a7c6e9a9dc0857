# SPDX-License-Identifier: Apache-2.0
"""Copies of the storage service on a cluster in memory, whose time and death tests decide."""

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

    :param image: its name
    :param vault: the name of a copy that is not there yet
    """

    def __init__(self, image='image', vault='copy'):
        self.now = 1000.0
        #: The addresses of clients that are not the service's.
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

    def service(self, name='one', life=None, threads=None, inspector=None):
        """A copy of the service that works in the thread that asks it.

        :param life: how many requests it makes of the cluster before it is killed
        :param inspector: called with what the copy has of the cluster in its hands
        """
        life = life or Life(None)
        storage = Mortal(backend.FakeBackend(self.cluster), life)
        entries = Mortal(lock_store.FakeLockStore(self.cluster), life)
        return Service(self, name, storage, entries, threads, inspector and inspector(storage))

    def sleep(self, seconds):
        self.now += seconds

    def bury(self):
        """Forget what the dead hold of images, and let their locks end."""
        for image in self.cluster.images:
            image.watchers &= self.alive
            if image.lock_owner not in self.alive:
                image.lock_owner = None
        self.now += DURATION_SEC + 1

    def held_locks(self):
        return [lock for lock, held in self.cluster.locks.items() if held.expires_at > self.now]


class Service:
    """What a copy of the service consists of, without threads and bus."""

    def __init__(self, world, name, storage, entries, threads, inspector=None):
        self.storage = storage
        self.ledger = entries
        self.leases = leases.Leases(entries, name, DURATION_SEC, lambda: world.now, world.sleep)
        self.records = job_store.JobStore(entries, POOLS.images, lambda: world.now)
        tools = executors.ExecutorDependencies(
            storage, POOLS, executors.Limits(8 * MIB), inspector, name
        )
        times = (
            lambda: world.now,
            world.sleep,
            lambda: datetime.datetime.fromtimestamp(world.now, datetime.UTC),
        )
        shared = (tools, self.records, self.leases)
        self.keeper = job_manager.JobManager(*shared, threads or AtOnce(), AtOnce(), *times)
        self.jobs = jobs.Jobs(*shared, self.keeper, RETENTION_SEC, *times)
        self.endpoint = endpoint.Endpoint(storage, POOLS, self.leases, self.jobs)
        self.evidence = permissions.Evidence(storage, POOLS, entries, lambda: world.now)


class AtOnce(concurrent.futures.Executor):
    """Runs what it is given in the thread that gives it."""

    def submit(self, function, *arguments):
        future = concurrent.futures.Future()
        future.set_result(function(*arguments))
        return future


class Later(concurrent.futures.Executor):
    """Runs what it is given when it is told to."""

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
    """How much longer a process lives, in requests to the cluster; once dead it stays so."""

    def __init__(self, requests):
        self.left = requests

    def spend(self):
        if self.left == 0:
            raise interruption.Kill
        if self.left is not None:
            self.left -= 1


class Mortal:
    """Whatever a process has in its hands of the cluster."""

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
            return Mortal(answer, self._life) if is_opened else answer

        return called

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()
