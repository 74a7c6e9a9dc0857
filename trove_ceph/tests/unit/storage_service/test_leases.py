# SPDX-License-Identifier: Apache-2.0
import time

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.storage import lock_store
from trove_ceph.storage.fake import cluster
from trove_ceph.storage.fake import lock_store as fake_lock_store
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
        entries = entries or fake_lock_store.FakeLockStore(self.cluster)
        return leases.Leases(entries, name, DURATION_SEC, lambda: self.now, self._sleep)

    def _sleep(self, seconds):
        self.now += seconds

    def _take(self, taker, *locks):
        return taker.take(locks, 'operation-1', 'copy it', lambda _: self.losses.append(taker.name))

    def _renew(self):
        for pool in self.cluster.capacities:
            self.one.renew(pool)

    def test_the_error_names_the_holder(self):
        lease = self._take(self.one, A)
        error = self.assertRaises(exceptions.BusyError, self._take, self.other, A)
        self.assertEqual('volumes/a: held by one for copy it, operation operation-1', str(error))
        self.one.release(lease)
        self._take(self.other, A)

    def test_all_or_none(self):
        self._take(self.one, B)
        self.assertRaises(exceptions.BusyError, self._take, self.other, A, B)
        self._take(self.one, A)

    def test_a_process_cannot_take_a_lock_twice(self):
        self._take(self.one, A)
        self.assertRaises(exceptions.BusyError, self._take, self.one, A)

    def test_a_renewed_lease_stays_valid(self):
        lease = self._take(self.one, A, B)
        for _ in range(10):
            self.now += DURATION_SEC / 4
            self._renew()
        self.assertTrue(lease.is_valid())
        self.assertRaises(exceptions.BusyError, self._take, self.other, B)
        self.assertEqual([], self.losses)

    def test_a_lease_is_invalid_before_another_process_can_take_it(self):
        """So a process that was paused detects the loss before it writes."""
        lease = self._take(self.one, A)
        self.now += DURATION_SEC * 0.95
        self.assertFalse(lease.is_valid())
        self.assertRaises(exceptions.BusyError, self._take, self.other, A)
        self.assertEqual(['one'], self.losses)
        # Once lost, a lease stays lost, even if no other process took its locks.
        self._renew()
        self.assertFalse(lease.is_valid())
        self.assertEqual(['one'], self.losses)

    def test_each_pool_is_renewed_separately(self):
        """If one pool does not answer, leases with locks in it are lost."""
        near, far = self._take(self.one, B), self._take(self.one, A)
        both = self._take(self.one, lock_store.Lock('vault', 'c'), lock_store.Lock('volumes', 'd'))
        for _ in range(4):
            self.now += DURATION_SEC / 4
            self.one.renew('vault')
        self.assertTrue(near.is_valid())
        for lease in (far, both):
            self.assertFalse(lease.is_valid())

    def test_a_lock_that_is_gone_from_the_cluster_is_lost(self):
        lease = self._take(self.one, A, B)
        del self.cluster.locks[B]
        self._renew()
        self.assertFalse(lease.is_valid())
        self.assertEqual(['one'], self.losses)
        self.one.release(lease)
        self.assertEqual({}, self.cluster.locks)

    def test_a_lease_survives_a_short_outage_of_ceph(self):
        class SilentLockStore(fake_lock_store.FakeLockStore):
            is_silent = False

            def renew(self, lock, holder, duration_sec):
                if self.is_silent:
                    raise exceptions.CephUnreachableError('renewing: timed out')
                super().renew(lock, holder, duration_sec)

        entries = SilentLockStore(self.cluster)
        one = self._leases('one', entries)
        lease = self._take(one, A)
        entries.is_silent = True
        self.now += 30
        one.renew('volumes')
        self.assertTrue(lease.is_valid())
        entries.is_silent = False
        one.renew('volumes')
        entries.is_silent = True
        self.now += 50
        one.renew('volumes')
        self.assertTrue(lease.is_valid())
        self.now += 5
        one.renew('volumes')
        self.assertEqual(['one'], self.losses)

    def test_suspended_time_counts(self):
        """The monotonic clock does not count it, but the cluster's clock does."""
        suspended = [0.0]
        real = time.clock_gettime

        def clock_gettime(which):
            return real(which) + (suspended[0] if which == time.CLOCK_BOOTTIME else 0.0)

        self.useFixture(fixtures.MonkeyPatch('time.clock_gettime', clock_gettime))
        entries = fake_lock_store.FakeLockStore(self.cluster)
        suspendable = leases.Leases(entries, 'one', DURATION_SEC, sleep=self._sleep)
        lease = self._take(suspendable, A)
        self.assertTrue(lease.is_valid())
        suspended[0] = DURATION_SEC
        self.assertFalse(lease.is_valid())
        self.assertEqual(['one'], self.losses)

    def test_all_leases_are_lost_when_the_renewing_thread_dies(self):
        lease = self._take(self.one, A, B)
        self.one.fail('thread leases-vault has ended: OSError: no more threads')
        self.assertFalse(lease.is_valid())
        self.assertEqual(['one'], self.losses)
        error = self.assertRaises(
            exceptions.ServiceUnavailableError, self._take, self.one, lock_store.Lock('vault', 'c')
        )
        self.assertIn('one: thread leases-vault has ended', str(error))
        # Another copy of the service resumes its work.
        self.one.release(lease)
        self._take(self.other, A, B)

    def test_the_renewing_thread_dies_while_a_lease_is_taken(self):
        class Failing(fake_lock_store.FakeLockStore):
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
        error = self.assertRaises(exceptions.BusyError, self._hold, 3)
        self.assertIn('operation-1', str(error))
        self.assertGreaterEqual(self.now, 3)
        self.one.release(lease)
        began = self.now
        self._hold(3)
        self.assertEqual(began, self.now)
        self.assertEqual({}, self.cluster.locks)

    def _hold(self, wait_sec):
        with self.other.hold([A], 'trash', wait_sec) as lease:
            self.assertTrue(lease.is_valid())

    def test_locks_are_released_when_the_verb_fails(self):
        def fail():
            with self.one.hold([A, B], 'trash', 0):
                raise exceptions.NotFoundError('nothing')

        self.assertRaises(exceptions.NotFoundError, fail)
        self.assertEqual({}, self.cluster.locks)
