# SPDX-License-Identifier: Apache-2.0
"""Replicas that still follow the server which was ejected while theirs was replaced."""

import contextlib

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.roles import Role
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.strategies.source_servers import gtids
from trove_ceph.tests.unit.strategies.source_world import SOURCE, World


def _make_world():
    """Return a world whose source was ejected while the server of "two" was replaced."""
    world = World(('one', 'two', 'three'))
    world.live()
    world.servers[SOURCE].is_down = True
    world.servers['two'].is_silent = True
    world.other_tasks['two'] = 'RESIZING'
    world.request('EJECTING')
    with contextlib.suppress(exceptions.ReplicasLeftError):
        world.changes()[0].eject(SOURCE)
    world.tasks = dict.fromkeys(world.tasks, 'NONE')
    world.servers['two'].is_silent = False
    world.other_tasks.clear()
    return world


class StrayTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = _make_world()
        (self.new,) = self.world.writers()
        self.stray = self.world.servers['two']
        self.world.renewed.clear()

    def watch(self):
        self.world.changes(worker='watch')[0].resume_replicas(self.new)

    def test_it_follows_the_new_source(self):
        # The ejection has left it out: Trove and our table show the new source.
        self.assertEqual((SOURCE, self.new), (self.stray.source_id, self.world.sources['two']))
        self.watch()
        self.assertEqual({}, self.world.renewed)
        self.world.check_source(self.new, {'one', 'two', 'three'} - {self.new})

    def test_its_tenant_reads_when_it_follows(self):
        self.assertIn(
            'it has the task RESIZING. It follows the new source as soon as it can',
            self.world.faults['two'][-1],
        )

    def test_it_follows_a_source_that_has_to_be_restarted(self):
        """Such as for a new option, until a maintenance window."""
        self.world.tasks[self.new] = 'RESTART_REQUIRED'
        self.watch()
        self.assertEqual(self.new, self.stray.source_id)

    def test_one_that_has_more_is_left_alone_whether_it_connects_or_was_stopped(self):
        self.stray.received |= gtids(SOURCE, 50)
        for self.stray.receives in (True, False):
            self.world.paused.add('two')
            self.watch()
            self.assertEqual((SOURCE, set()), (self.stray.source_id, self.world.paused))

    def test_one_that_is_being_replaced_is_left_alone(self):
        self.world.other_tasks['two'] = 'RESIZING'
        self.assertRaises(exceptions.ReplicasLeftError, self.watch)
        self.assertEqual(SOURCE, self.stray.source_id)

    def test_one_that_is_silent_is_left_alone(self):
        self.stray.is_silent = True
        self.assertRaises(exceptions.ReplicasLeftError, self.watch)
        self.assertEqual((SOURCE, {}), (self.stray.source_id, self.world.renewed))

    def test_one_that_the_ejection_has_stopped(self):
        """It did not answer afterwards."""
        self.stray.receives = False
        self.watch()
        self.world.check_source(self.new, {'one', 'two', 'three'} - {self.new})

    def test_one_that_somebody_has_stopped_is_left_alone(self):
        self.world.paused.clear()
        self.stray.receives = False
        self.watch()
        self.assertEqual(SOURCE, self.stray.source_id)

    def revive_source(self):
        self.world.servers[SOURCE].is_down = self.world.servers[SOURCE].is_fenced = False
        self.world.servers[SOURCE].is_read_only = True

    def test_one_that_receives_is_left_alone(self):
        self.revive_source()
        self.world.paused.clear()
        self.watch()
        self.assertEqual(SOURCE, self.stray.source_id)

    def test_one_that_receives_and_is_marked(self):
        """As after a promotion whose new source did not answer."""
        self.revive_source()
        self.watch()
        self.assertEqual((self.new, set()), (self.stray.source_id, self.world.paused))

    def test_one_that_has_what_the_new_source_lacks_is_left_alone(self):
        """It may be the last copy, and would be discarded."""
        self.stray.received |= gtids(SOURCE, 50)
        self.watch()
        self.assertEqual((SOURCE, {}), (self.stray.source_id, self.world.renewed))
        self.assertLessEqual(gtids(SOURCE, 50), self.stray.received | self.stray.executed)

    def test_one_that_is_silent_delays_no_stopped_one(self):
        name = 'three' if self.new == 'one' else 'one'
        self.world.servers[name].receives = False
        self.world.paused.add(name)
        self.stray.is_silent = True
        self.assertRaises(exceptions.ReplicasLeftError, self.watch)
        self.assertTrue(self.world.servers[name].receives)
        self.assertEqual({'two'}, self.world.paused)

    def test_a_promotion_goes_first(self):
        claim = self.world.store.begin(Role.CHANGE_SOURCE, self.new, _Worker)
        self.watch()
        self.assertEqual(SOURCE, self.stray.source_id)
        self.world.store.finish(claim)
        self.watch()
        self.assertEqual(self.new, self.stray.source_id)

    def test_a_promotion_that_begins_after_the_look(self):
        """It may have made its replica the source, and its worker have died."""
        follower = 'three' if self.new == 'one' else 'one'
        self.world.store.begin(Role.PROMOTE_REPLICA, follower, _Worker)
        changes = self.world.changes(worker='watch')[0]
        self.assertRaises(exceptions.OperationUnfinishedError, changes.follow_again, self.new)
        self.assertEqual(SOURCE, self.stray.source_id)

    def test_a_source_that_does_not_answer(self):
        self.world.servers[self.new].is_silent = True
        self.assertRaises(exceptions.TroveCephError, self.watch)
        self.assertEqual(SOURCE, self.stray.source_id)

    def test_killed_anywhere(self):
        def start(world, strike):
            (new,) = world.writers()
            world.changes(strike, worker='watch')[0].resume_replicas(new)

        for after in (False, True):
            for number in range(1000):
                world, strike = _make_world(), worlds.Strike(number, after=after)
                try:
                    start(world, strike)
                except interruption.Kill:
                    world.recover()
                    start(world, worlds.Strike(None))
                self.assertEqual(set(), world.paused)
                (new,) = world.writers()
                world.check_source(new, {'one', 'two', 'three'} - {new})
                if not strike.struck:
                    break
            self.assertGreater(number, 5)


class _Worker:
    name = 'other'
