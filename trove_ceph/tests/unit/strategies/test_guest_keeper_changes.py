# SPDX-License-Identifier: Apache-2.0
"""Several taskmanagers keep the pools, also while their configuration is changed one by one."""

from trove_ceph.db import claims
from trove_ceph.db.guest_record import GuestState
from trove_ceph.strategies.guests import keeper
from trove_ceph.tests.unit.strategies import guest_world, keeper_case
from trove_ceph.tests.unit.strategies.guest_world import POOL

OTHER = 'mysql/9.7:small'
FORGET_SEC = keeper.FORGET_AFTER.total_seconds()


class TwoTaskmanagersTest(keeper_case.KeeperTestCase):
    def test_only_one_keeps_the_pool(self):
        self.make()
        rival = claims.Claimant('rival')
        self.run_rounds(20)
        self.assertIsNone(self.world.store.begin_keeping(POOL, rival))

    def test_successor_resumes(self):
        self.make()
        first = self.keeper
        self.keeper = self.world.keeper()
        self.run_rounds()
        # The first one was only suspended.
        requests = len(self.world.requests)
        self.claim()
        self.world.pass_time(100)
        first.keep()
        self.assertEqual(requests, len(self.world.requests))
        first.keep()
        self.assertIn('is lost; the worker stops', self.log.output)
        self.run_rounds(2)
        self.assertEqual(['claimed', 'ready'], self.world.states())

    def test_pool_whose_agents_do_not_answer_holds_up_no_other(self):
        threads = []

        class Thread(guest_world.Thread):
            """The one of the first pool is busy for ever after its first round."""

            def __init__(self):
                threads.append(self)
                self.starts = 0

            def start(self, function):
                self.starts += 1
                if self is threads[0] and self.starts > 1:
                    return False
                return super().start(function)

        self.world = guest_world.World(pools=(POOL, OTHER))
        self.keeper = self.world.keeper(make_thread=Thread)
        self.run_rounds(3)
        found = {one.pool: one.state for one in self.world.guests()}
        self.assertEqual({POOL: GuestState.BOOTING, OTHER: GuestState.READY}, found)
        self.assertEqual([3, 3], [one.starts for one in threads])


class RollingChangeTest(keeper_case.KeeperTestCase):
    """Two taskmanagers, of which one does not have the pool in its configuration."""

    def setUp(self):
        super().setUp()
        self.make()
        self.new, self.heartbeat_of_new = self.keeper, self.world.heartbeat
        self.old = self.world.keeper(pools=())

    def run_both(self, seconds):
        for _ in range(int(seconds / 20)):
            self.heartbeat_of_new.beat()
            self.world.run(self.old)
            self.world.run(self.new)

    def test_old_taskmanager_spares_a_new_pool(self):
        before = self.one()
        # Longer than the claim of the new one is valid: it restarts.
        self.world.run(self.old, 20)
        self.assertEqual(before, self.one())
        # It has not taken the pool either.
        self.assertIsNotNone(self.world.store.begin_keeping(POOL, claims.Claimant('third')))

    def test_old_taskmanager_spares_it_as_long_as_a_new_one_runs(self):
        before = self.one()
        self.run_both(2 * FORGET_SEC)
        self.assertEqual(before.guest_id, self.one().guest_id)

    def test_pool_that_no_taskmanager_has_any_more(self):
        self.world.run(self.old, 3, FORGET_SEC)
        self.assertEqual([], self.world.guests())
        self.assertEqual(([], []), self.world.names())

    def test_pool_comes_back(self):
        """A taskmanager has resumed it to delete its guests, and has still one to watch."""
        bound = self.claim(is_building=False)
        self.world.store.mark_bound(bound.guest_id, 'instance')
        self.world.run(self.old, 2, FORGET_SEC)
        self.assertEqual(['bound'], self.world.states())
        self.new, self.heartbeat_of_new = self.world.keeper(), self.world.heartbeat
        self.run_both(100)
        self.assertEqual(['bound', 'ready'], self.world.states())
