# SPDX-License-Identifier: Apache-2.0
import time

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import lock_store
from trove_ceph.storage.fake import cluster
from trove_ceph.storage.fake import lock_store as fake_ledger
from trove_ceph.storage_service import leases

A, B = lock_store.Lock('volumes', 'a'), lock_store.Lock('vault', 'b')
DURATION_SEC = 60


class LeasesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.cluster = cluster.Cluster({'volumes': 1, 'vault': 1}, lambda: self.now)
        self.one, self.other = self._leases('one'), self._leases('other')
        self.losses = []

    def _leases(self, name, entries=None):
        entries = entries or fake_ledger.FakeLockStore(self.cluster)
        return leases.Leases(entries, name, DURATION_SEC, lambda: self.now, self._sleep)

    def _sleep(self, seconds):
        self.now += seconds

    def _take(self, held, *locks):
        return held.take(locks, 'operation-1', 'copy it', lambda: self.losses.append(held.name))

    def _renew(self):
        for pool in self.cluster.capacities:
            self.one.renew(pool)

    def test_who_is_busy_is_named(self):
        lease = self._take(self.one, A)
        error = self.assertRaises(exceptions.BusyError, self._take, self.other, A)
        self.assertEqual('volumes/a: held by one for copy it, operation operation-1', str(error))
        self.one.release(lease)
        self._take(self.other, A)

    def test_all_or_none(self):
        self._take(self.one, B)
        self.assertRaises(exceptions.BusyError, self._take, self.other, A, B)
        self._take(self.one, A)

    def test_one_process_excludes_itself(self):
        self._take(self.one, A)
        self.assertRaises(exceptions.BusyError, self._take, self.one, A)

    def test_renewed_it_stays(self):
        lease = self._take(self.one, A, B)
        for _ in range(10):
            self.now += DURATION_SEC / 4
            self._renew()
        self.assertTrue(lease.is_good())
        self.assertRaises(exceptions.BusyError, self._take, self.other, B)
        self.assertEqual([], self.losses)

    def test_it_is_no_good_before_another_can_have_it(self):
        """As a process finds that was paused, before it writes anything."""
        lease = self._take(self.one, A)
        self.now += DURATION_SEC * 0.95
        self.assertFalse(lease.is_good())
        self.assertRaises(exceptions.BusyError, self._take, self.other, A)
        self.assertEqual(['one'], self.losses)
        # Once lost it stays so, even if nobody took it.
        self._renew()
        self.assertFalse(lease.is_good())
        self.assertEqual(['one'], self.losses)

    def test_each_pool_is_renewed_by_itself(self):
        """As when one of them does not answer: who needs both has neither."""
        near, far = self._take(self.one, B), self._take(self.one, A)
        both = self._take(self.one, lock_store.Lock('vault', 'c'), lock_store.Lock('volumes', 'd'))
        for _ in range(4):
            self.now += DURATION_SEC / 4
            self.one.renew('vault')
        self.assertTrue(near.is_good())
        for lease in (far, both):
            self.assertFalse(lease.is_good())

    def test_lost_in_the_cluster(self):
        lease = self._take(self.one, A, B)
        del self.cluster.locks[B]
        self._renew()
        self.assertFalse(lease.is_good())
        self.assertEqual(['one'], self.losses)
        self.one.release(lease)
        self.assertEqual({}, self.cluster.locks)

    def test_while_ceph_does_not_answer_it_is_good_for_a_while(self):
        class Deaf(fake_ledger.FakeLockStore):
            deaf = False

            def renew(self, lock, holder, duration_sec):
                if self.deaf:
                    raise exceptions.CephUnreachableError('renewing: timed out')
                super().renew(lock, holder, duration_sec)

        entries = Deaf(self.cluster)
        one = self._leases('one', entries)
        lease = self._take(one, A)
        entries.deaf = True
        self.now += 30
        one.renew('volumes')
        self.assertTrue(lease.is_good())
        entries.deaf = False
        one.renew('volumes')
        entries.deaf = True
        self.now += 50
        one.renew('volumes')
        self.assertTrue(lease.is_good())
        self.now += 5
        one.renew('volumes')
        self.assertEqual(['one'], self.losses)

    def test_time_for_which_the_machine_was_suspended_counts(self):
        """Which a monotonic clock leaves out, and that of the cluster does not."""
        suspended = [0.0]
        real = time.clock_gettime

        def clock_gettime(which):
            return real(which) + (suspended[0] if which == time.CLOCK_BOOTTIME else 0.0)

        self.useFixture(fixtures.MonkeyPatch('time.clock_gettime', clock_gettime))
        entries = fake_ledger.FakeLockStore(self.cluster)
        held = leases.Leases(entries, 'one', DURATION_SEC, sleep=self._sleep)
        lease = self._take(held, A)
        self.assertTrue(lease.is_good())
        suspended[0] = DURATION_SEC
        self.assertFalse(lease.is_good())
        self.assertEqual(['one'], self.losses)

    def test_nothing_is_held_once_nobody_renews_it(self):
        lease = self._take(self.one, A, B)
        self.one.fail('thread leases-vault has ended: OSError: no more threads')
        self.assertFalse(lease.is_good())
        self.assertEqual(['one'], self.losses)
        error = self.assertRaises(
            exceptions.ServiceUnavailableError, self._take, self.one, lock_store.Lock('vault', 'c')
        )
        self.assertIn('one: thread leases-vault has ended', str(error))
        # Another copy of the service takes over.
        self.one.release(lease)
        self._take(self.other, A, B)

    def test_renewing_ends_while_a_lease_is_taken(self):
        class Failing(fake_ledger.FakeLockStore):
            def take(inner, *arguments):
                one.fail('it has ended')
                return super().take(*arguments)

        one = self._leases('one', Failing(self.cluster))
        self.assertRaises(exceptions.ServiceUnavailableError, self._take, one, A)
        self.assertEqual({}, self.cluster.locks)

    def test_short_verbs_wait_for_each_other(self):
        self._take(self.one, A)
        del self.cluster.locks[A]
        lease = self._take(self.one, A)
        error = self.assertRaises(exceptions.BusyError, self._held, 3)
        self.assertIn('operation-1', str(error))
        self.assertGreaterEqual(self.now, 3)
        self.one.release(lease)
        began = self.now
        self._held(3)
        self.assertEqual(began, self.now)
        self.assertEqual({}, self.cluster.locks)

    def _held(self, wait_sec):
        with self.other.held([A], 'trash', wait_sec) as lease:
            self.assertTrue(lease.is_good())

    def test_given_back_when_the_verb_fails(self):
        def fail():
            with self.one.held([A, B], 'trash', 0):
                raise exceptions.NotFoundError('nothing')

        self.assertRaises(exceptions.NotFoundError, fail)
        self.assertEqual({}, self.cluster.locks)
