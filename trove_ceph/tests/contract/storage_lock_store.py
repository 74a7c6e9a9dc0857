# SPDX-License-Identifier: Apache-2.0
"""Locks and entries that several clients share.

The test case sets ``locks`` and ``other_locks``, the lock stores of two clients, and has the method
``let_expire(sec)``, which returns after that time has passed in the cluster.
"""

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import lock_store
from trove_ceph.tests.contract import storage

MIB = units.Mi
DURATION_SEC = 60
#: A request takes seconds on a busy machine.
SHORT_SEC = 10


class LockStoreContract(storage.StorageContract):
    def setUp(self):
        super().setUp()
        self.lock = lock_store.Lock(self.pool, f'{self.prefix}-image')
        self.mine = lock_store.Holder('operation/1', 'one for flattening, operation 1')
        self.theirs = lock_store.Holder('operation/2', 'another, operation 2')
        self.addCleanup(self._clean)

    def _clean(self):
        for each in (self.locks, self.other_locks):
            for holder in (self.mine, self.theirs):
                each.release(self.lock, holder)
        written = self.locks.read(self.pool, self.prefix)
        self.locks.write(self.pool, dict.fromkeys(written))

    def take(self, duration_sec=DURATION_SEC):
        self.assertIsNone(self.locks.take(self.lock, self.mine, duration_sec))

    def test_a_lock_has_one_holder(self):
        self.assertIsNone(self.locks.find_holder(self.lock))
        self.take()
        self.assertEqual(self.mine, self.locks.take(self.lock, self.theirs, DURATION_SEC))
        self.assertEqual(self.mine, self.other_locks.take(self.lock, self.theirs, DURATION_SEC))
        self.assertEqual(self.mine, self.other_locks.find_holder(self.lock))
        self.locks.release(self.lock, self.mine)
        self.assertIsNone(self.other_locks.find_holder(self.lock))
        self.assertIsNone(self.other_locks.take(self.lock, self.theirs, DURATION_SEC))

    def test_locks_with_other_names_are_independent(self):
        self.take()
        # The names of a volume and of a backup have 100 characters together.
        long = f'{self.lock.name}-{36 * "0"}@trove_ceph.backup.{36 * "0"}'
        endings = ('@s', '/limits', 'ä')
        for name in (*(self.lock.name + ending for ending in endings), long, f'{long}/limits'):
            lock = lock_store.Lock(self.pool, name)
            self.assertIsNone(self.other_locks.take(lock, self.theirs, DURATION_SEC))
            self.assertEqual(self.theirs, self.locks.find_holder(lock))
            self.other_locks.release(lock, self.theirs)
        elsewhere = lock_store.Lock(self.second_pool, self.lock.name)
        self.assertIsNone(self.locks.find_holder(elsewhere))

    def test_taking_an_own_lock_again_succeeds(self):
        """The answer to the first attempt may have been lost."""
        self.take()
        self.take()
        self.locks.release(self.lock, self.mine)
        self.assertIsNone(self.locks.find_holder(self.lock))

    def test_the_same_cookie_of_another_client_is_another_holder(self):
        self.take()
        self.assertEqual(self.mine, self.other_locks.take(self.lock, self.mine, DURATION_SEC))
        self.other_locks.release(self.lock, self.mine)
        self.assertEqual(self.mine, self.locks.find_holder(self.lock))

    def test_a_lock_expires_unless_it_is_renewed(self):
        # Connect now, before the time is measured.
        self.assertIsNone(self.other_locks.find_holder(self.lock))
        self.take(SHORT_SEC)
        self.let_expire(SHORT_SEC * 0.6)
        self.locks.renew(self.lock, self.mine, SHORT_SEC)
        self.let_expire(SHORT_SEC * 0.6)
        self.assertEqual(self.mine, self.other_locks.find_holder(self.lock))
        self.let_expire(SHORT_SEC * 0.6)
        self.assertIsNone(self.other_locks.find_holder(self.lock))
        self.assertIsNone(self.other_locks.take(self.lock, self.theirs, DURATION_SEC))
        error = self.assertRaises(
            exceptions.LockLostError, self.locks.renew, self.lock, self.mine, SHORT_SEC
        )
        self.assert_message(error, self.lock)
        # Releasing a lost lock does not affect its new holder.
        self.locks.release(self.lock, self.mine)
        self.assertEqual(self.theirs, self.locks.find_holder(self.lock))

    def test_a_lock_that_was_not_taken_cannot_be_renewed(self):
        self.assertRaises(
            exceptions.LockLostError, self.locks.renew, self.lock, self.mine, DURATION_SEC
        )

    def test_entries(self):
        first, second = f'{self.prefix}/a', f'{self.prefix}/b'
        self.locks.write(self.pool, {first: 'ä' * 5000, second: '{}'})
        expected = {first: 'ä' * 5000, second: '{}'}
        self.assertEqual(expected, self.other_locks.read(self.pool, f'{self.prefix}/'))
        self.assertEqual({second: '{}'}, self.other_locks.read(self.pool, second))
        self.assertEqual({}, self.other_locks.read(self.second_pool, self.prefix))
        self.other_locks.write(self.pool, {first: None, second: 'new', f'{self.prefix}/c': None})
        self.assertEqual({second: 'new'}, self.locks.read(self.pool, f'{self.prefix}/'))

    def test_more_entries_than_fit_into_one_answer(self):
        entries = {f'{self.prefix}/{number:04}': str(number) for number in range(2500)}
        self.locks.write(self.pool, entries)
        self.assertEqual(entries, self.locks.read(self.pool, f'{self.prefix}/'))

    def test_a_write_guarded_by_a_lock(self):
        key = f'{self.prefix}/guarded'
        self.take(SHORT_SEC)
        self.locks.write(self.pool, {key: 'mine'}, (self.lock, self.mine))
        for client, holder in ((self.locks, self.theirs), (self.other_locks, self.mine)):
            self.assertRaises(
                exceptions.LockLostError,
                client.write,
                self.pool,
                {key: 'theirs', f'{key}-2': 'theirs'},
                (self.lock, holder),
            )
        self.let_expire(SHORT_SEC + 1)
        self.assertRaises(
            exceptions.LockLostError,
            self.locks.write,
            self.pool,
            {key: None},
            (self.lock, self.mine),
        )
        self.assertEqual({key: 'mine'}, self.locks.read(self.pool, key))

    def test_a_missing_pool(self):
        nowhere = lock_store.Lock('no-such-pool', 'x')
        for verb, arguments in (
            ('prepare', ('no-such-pool',)),
            ('take', (nowhere, self.mine, 4)),
            ('renew', (nowhere, self.mine, 4)),
            ('find_holder', (nowhere,)),
            ('write', ('no-such-pool', {'a': 'b'})),
            ('read', ('no-such-pool', '')),
        ):
            error = self.assertRaises(
                exceptions.NotFoundError, getattr(self.locks, verb), *arguments
            )
            self.assert_message(error, 'no-such-pool')

    def test_a_full_pool(self):
        """Jobs that free space need locks there, and errors must be recorded."""
        self.locks.prepare(self.pool)
        self.fill(self.pool)
        try:
            self.take()
            self.locks.write(self.pool, {f'{self.prefix}/x': 'y'}, (self.lock, self.mine))
            self.locks.renew(self.lock, self.mine, DURATION_SEC)
            self.locks.release(self.lock, self.mine)
        finally:
            self.empty(self.pool)
        self.assertEqual({f'{self.prefix}/x': 'y'}, self.locks.read(self.pool, self.prefix))
