# SPDX-License-Identifier: Apache-2.0
"""The fake fulfils the contract of storage."""

from oslo_utils import units
from oslotest import base

from trove_ceph.storage.fake import backend, cluster, lock_store
from trove_ceph.tests.contract import (
    storage_clones,
    storage_copies,
    storage_fencing,
    storage_images,
    storage_lock_store,
)


class FakeStorageTestCase(base.BaseTestCase):
    pool, second_pool, data_pool = 'volumes', 'vault', 'vault-data'

    def setUp(self):
        super().setUp()
        pools = (self.pool, self.second_pool, self.data_pool)
        self.now = 0.0
        self.cluster = cluster.Cluster(dict.fromkeys(pools, 1024 * units.Mi), lambda: self.now)
        self.storage, self.other, self.third = (backend.FakeBackend(self.cluster) for _ in range(3))

    def await_dead_clients(self, error):
        raise error

    def fill(self, pool):
        self.cluster.capacities[pool] = self.storage.usage(pool).stored_bytes

    def empty(self, pool):
        self.cluster.capacities[pool] = 1024 * units.Mi


class ImagesTest(storage_images.ImagesContract, FakeStorageTestCase):
    pass


class ClonesTest(storage_clones.ClonesContract, FakeStorageTestCase):
    pass


class CopiesTest(storage_copies.CopiesContract, FakeStorageTestCase):
    pass


class FencingTest(storage_fencing.FencingContract, FakeStorageTestCase):
    pass


class LockStoreTest(storage_lock_store.LockStoreContract, FakeStorageTestCase):
    def setUp(self):
        super().setUp()
        self.locks, self.other_locks = (lock_store.FakeLockStore(self.cluster) for _ in range(2))

    def let_expire(self, seconds):
        self.now += seconds
