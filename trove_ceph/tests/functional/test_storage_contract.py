# SPDX-License-Identifier: Apache-2.0
"""A real Ceph fulfils the contract of storage."""

import json
import time

import fixtures

from trove_ceph import exceptions
from trove_ceph.storage.ceph import lock_store
from trove_ceph.tests.contract import (
    storage_clones,
    storage_copies,
    storage_fencing,
    storage_images,
    storage_lock_store,
)
from trove_ceph.tests.functional import storage

DURATION_SEC = 60
# A shorter time is never enough to find an OSD at its new address.
REQUEST_SEC = 11
TIMEOUT_SEC = 120


class ImagesTest(storage_images.ImagesContract, storage.CephStorageTestCase):
    def test_only_images_of_the_pool_are_among_the_busiest(self):
        if self.cluster.lacks_manager_modules():
            self.assertRaises(exceptions.StorageError, self.storage.busiest_images, self.pool)
        else:
            super().test_only_images_of_the_pool_are_among_the_busiest()

    def test_a_pool_is_full_before_its_statistics_say_so(self):
        link = storage.link(self, self.cluster)
        ask = link.mon_command

        def answer(prefix, **arguments):
            found = ask(prefix, **arguments)
            if prefix == 'osd pool ls':
                for pool in found:
                    pool['flags_names'] += ',full'
            return found

        self.useFixture(fixtures.MockPatchObject(link, 'mon_command', answer))
        usage = link.usage(self.pool)
        self.assertEqual((True, 1, 0), (usage.full, usage.fill, usage.available_bytes))


class ClonesTest(storage_clones.ClonesContract, storage.CephStorageTestCase):
    pass


class CopiesTest(storage_copies.CopiesContract, storage.CephStorageTestCase):
    pass


class FencingTest(storage_fencing.FencingContract, storage.CephStorageTestCase):
    pass


class LockStoreTest(storage_lock_store.LockStoreContract, storage.CephStorageTestCase):
    def setUp(self):
        super().setUp()
        self.locks, self.other_locks = (self._connect_lock_store() for _ in range(2))

    def _connect_lock_store(self, **options):
        return lock_store.CephLockStore(lambda: storage.link(self, self.cluster, **options))

    def let_expire(self, seconds):
        time.sleep(seconds)

    def test_silent_pool_does_not_affect_locks_of_another(self):
        entries = self._connect_lock_store(operation_timeout_sec=REQUEST_SEC)
        self.assertIsNone(entries.take(self.lock, self.mine, DURATION_SEC))
        self._silence(self.second_pool)
        self._await_answer(False)
        self.assertRaises(exceptions.CephUnreachableError, entries.read, self.second_pool, '')
        # Only the client that holds the lock may do this.
        entries.renew(self.lock, self.mine, DURATION_SEC)
        entries.write(self.pool, {}, (self.lock, self.mine))
        entries.release(self.lock, self.mine)

    def _silence(self, pool):
        """Configure more replicas for a pool than there are OSDs."""
        (found,) = [
            one
            for one in self.cluster.mon_command('osd pool ls', detail='detail')
            if one['pool_name'] == pool
        ]
        self.addCleanup(self._await_answer, True)
        self.addCleanup(self._set, pool, size=found['size'], min_size=found['min_size'])
        self._set(pool, size=4, min_size=4)

    def _set(self, pool, **values):
        with self.cluster.connection() as handle:
            for name, value in values.items():
                request = {'prefix': 'osd pool set', 'pool': pool, 'var': name, 'val': str(value)}
                code, _, message = handle.mon_command(json.dumps(request), b'')
                self.assertEqual(0, code, message)

    def _await_answer(self, expected):
        deadline = time.monotonic() + TIMEOUT_SEC
        client = self._connect_lock_store(operation_timeout_sec=REQUEST_SEC)
        while True:
            try:
                client.read(self.second_pool, '')
                answers = True
            except exceptions.CephUnreachableError:
                answers = False
            if answers is expected:
                return
            self.assertLess(time.monotonic(), deadline, f'{self.second_pool}: {answers=}')
