# SPDX-License-Identifier: Apache-2.0
"""Locks and entries that several clients share.

The test case sets ``ledger`` and ``other_ledger``, of two clients, and offers ``let_expire(sec)``,
which returns when so many seconds have passed in the cluster.
"""

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import lock_store
from trove_ceph.tests.contract import storage

MIB = units.Mi
DURATION_SEC = 60
#: A busy machine needs seconds for a request.
SHORT_SEC = 10


class LedgerContract(storage.StorageContract):
    def setUp(self):
        super().setUp()
        self.lock = lock_store.Lock(self.pool, f'{self.prefix}-image')
        self.mine = lock_store.Holder('operation/1', 'one for flattening, operation 1')
        self.theirs = lock_store.Holder('operation/2', 'another, operation 2')
        self.addCleanup(self._clean)

    def _clean(self):
        for each in (self.ledger, self.other_ledger):
            for holder in (self.mine, self.theirs):
                each.release(self.lock, holder)
        written = self.ledger.read(self.pool, self.prefix)
        self.ledger.write(self.pool, dict.fromkeys(written))

    def take(self, duration_sec=DURATION_SEC):
        self.assertIsNone(self.ledger.take(self.lock, self.mine, duration_sec))

    def test_one_at_a_time(self):
        self.assertIsNone(self.ledger.find_holder(self.lock))
        self.take()
        self.assertEqual(self.mine, self.ledger.take(self.lock, self.theirs, DURATION_SEC))
        self.assertEqual(self.mine, self.other_ledger.take(self.lock, self.theirs, DURATION_SEC))
        self.assertEqual(self.mine, self.other_ledger.find_holder(self.lock))
        self.ledger.release(self.lock, self.mine)
        self.assertIsNone(self.other_ledger.find_holder(self.lock))
        self.assertIsNone(self.other_ledger.take(self.lock, self.theirs, DURATION_SEC))

    def test_locks_of_other_names_are_other_locks(self):
        self.take()
        # An instance's volume and a backup have 100 characters together.
        long = f'{self.lock.name}-{36 * "0"}@trove_ceph.backup.{36 * "0"}'
        endings = ('@s', '/limits', 'ä')
        for name in (*(self.lock.name + ending for ending in endings), long, f'{long}/limits'):
            lock = lock_store.Lock(self.pool, name)
            self.assertIsNone(self.other_ledger.take(lock, self.theirs, DURATION_SEC))
            self.assertEqual(self.theirs, self.ledger.find_holder(lock))
            self.other_ledger.release(lock, self.theirs)
        elsewhere = lock_store.Lock(self.second_pool, self.lock.name)
        self.assertIsNone(self.ledger.find_holder(elsewhere))

    def test_taking_again_what_is_ours(self):
        """The answer of the first attempt may have been lost."""
        self.take()
        self.take()
        self.ledger.release(self.lock, self.mine)
        self.assertIsNone(self.ledger.find_holder(self.lock))

    def test_the_same_cookie_of_another_client_is_another(self):
        self.take()
        self.assertEqual(self.mine, self.other_ledger.take(self.lock, self.mine, DURATION_SEC))
        self.other_ledger.release(self.lock, self.mine)
        self.assertEqual(self.mine, self.ledger.find_holder(self.lock))

    def test_it_ends_unless_it_is_renewed(self):
        # It connects now, and not when every second counts.
        self.assertIsNone(self.other_ledger.find_holder(self.lock))
        self.take(SHORT_SEC)
        self.let_expire(SHORT_SEC * 0.6)
        self.ledger.renew(self.lock, self.mine, SHORT_SEC)
        self.let_expire(SHORT_SEC * 0.6)
        self.assertEqual(self.mine, self.other_ledger.find_holder(self.lock))
        self.let_expire(SHORT_SEC * 0.6)
        self.assertIsNone(self.other_ledger.find_holder(self.lock))
        self.assertIsNone(self.other_ledger.take(self.lock, self.theirs, DURATION_SEC))
        error = self.assertRaises(
            exceptions.LockLostError, self.ledger.renew, self.lock, self.mine, SHORT_SEC
        )
        self.assert_message(error, self.lock)
        # Giving back what was lost takes nothing from whoever has it now.
        self.ledger.release(self.lock, self.mine)
        self.assertEqual(self.theirs, self.ledger.find_holder(self.lock))

    def test_what_was_not_held_cannot_be_renewed(self):
        self.assertRaises(
            exceptions.LockLostError, self.ledger.renew, self.lock, self.mine, DURATION_SEC
        )

    def test_entries(self):
        first, second = f'{self.prefix}/a', f'{self.prefix}/b'
        self.ledger.write(self.pool, {first: 'ä' * 5000, second: '{}'})
        expected = {first: 'ä' * 5000, second: '{}'}
        self.assertEqual(expected, self.other_ledger.read(self.pool, f'{self.prefix}/'))
        self.assertEqual({second: '{}'}, self.other_ledger.read(self.pool, second))
        self.assertEqual({}, self.other_ledger.read(self.second_pool, self.prefix))
        self.other_ledger.write(self.pool, {first: None, second: 'new', f'{self.prefix}/c': None})
        self.assertEqual({second: 'new'}, self.ledger.read(self.pool, f'{self.prefix}/'))

    def test_more_entries_than_fit_an_answer(self):
        entries = {f'{self.prefix}/{number:04}': str(number) for number in range(2500)}
        self.ledger.write(self.pool, entries)
        self.assertEqual(entries, self.ledger.read(self.pool, f'{self.prefix}/'))

    def test_guarded_by_a_lock(self):
        key = f'{self.prefix}/guarded'
        self.take(SHORT_SEC)
        self.ledger.write(self.pool, {key: 'mine'}, (self.lock, self.mine))
        for client, holder in ((self.ledger, self.theirs), (self.other_ledger, self.mine)):
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
            self.ledger.write,
            self.pool,
            {key: None},
            (self.lock, self.mine),
        )
        self.assertEqual({key: 'mine'}, self.ledger.read(self.pool, key))

    def test_a_pool_that_is_not_there(self):
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
                exceptions.NotFoundError, getattr(self.ledger, verb), *arguments
            )
            self.assert_message(error, 'no-such-pool')

    def test_a_full_pool(self):
        """What frees space must be possible there, and what went wrong be written down."""
        self.ledger.prepare(self.pool)
        self.fill(self.pool)
        try:
            self.take()
            self.ledger.write(self.pool, {f'{self.prefix}/x': 'y'}, (self.lock, self.mine))
            self.ledger.renew(self.lock, self.mine, DURATION_SEC)
            self.ledger.release(self.lock, self.mine)
        finally:
            self.empty(self.pool)
        self.assertEqual({f'{self.prefix}/x': 'y'}, self.ledger.read(self.pool, self.prefix))
