# SPDX-License-Identifier: Apache-2.0
"""A new source whose agent falls silent before it accepts writes, and answers later."""

import contextlib

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.claims import Claimant
from trove_ceph.db.roles import Role
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.strategies.source_servers import gtids
from trove_ceph.tests.unit.strategies.source_world import SOURCE, World


def _silence_when(world, is_reached):
    """Have the agent of the replica "one" fall silent when a state is reached."""
    done = world.check_always

    def check_always():
        done()
        world.servers['one'].is_silent |= is_reached()

    world.check_always = check_always
    return done


def _make_promotion(strike=None):
    """Return a world in which "one" was promoted, and refuses writes."""
    world = World()
    world.live()
    world.request('PROMOTING')
    done = _silence_when(world, lambda: world.servers['one'].source_id is None)
    with contextlib.suppress(exceptions.NewSourceSilentError, interruption.Kill):
        world.changes(strike)[0].promote('one')
    world.check_always = done
    return world


def _make_ejection(replicas=('one', 'two'), strike=None):
    """Return a world in which "one" replaces an ejected source, and refuses writes."""
    world = World(replicas)
    world.live()
    world.servers[SOURCE].is_down = True
    world.request('EJECTING')
    done = _silence_when(world, lambda: world.store.find_role('one') is Role.PROMOTE_REPLICA)
    with contextlib.suppress(exceptions.NewSourceSilentError, interruption.Kill):
        world.changes(strike)[0].eject(SOURCE)
    world.check_always = done
    return world


class UnfinishedSourceTest(base.BaseTestCase):
    def answer(self, world, rounds=5):
        world.servers['one'].is_silent = False
        world.recover(rounds)

    def check_silent(self, world, task):
        """Check that nothing accepts writes, and that only the new source is in error."""
        self.assertEqual([], world.writers())
        self.assertIsNone(world.sources['one'])
        self.assertEqual(
            task == 'EJECTION_ERROR', world.marks['one'] is SourceMark.UNFINISHED_EJECTION
        )
        others = {name: each for name, each in world.tasks.items() if name not in ('one', SOURCE)}
        self.assertEqual(task, world.tasks['one'])
        self.assertLessEqual(set(others.values()), {'NONE'})

    def test_it_accepts_writes_when_it_answers_after_a_promotion(self):
        world = _make_promotion()
        self.check_silent(world, 'PROMOTION_ERROR')
        world.recover(2)
        self.check_silent(world, 'PROMOTION_ERROR')
        self.answer(world)
        world.check_source('one', [SOURCE, 'two'])
        self.assertEqual(({'NONE'}, set()), (set(world.tasks.values()), world.paused))

    def test_it_accepts_writes_when_it_answers_after_an_ejection(self):
        world = _make_ejection()
        self.check_silent(world, 'EJECTION_ERROR')
        self.assertIn('accepts writes as soon as it answers', world.faults['one'][-1])
        self.answer(world)
        world.check_source('one', ['two'])
        self.assertEqual(('NONE', set()), (world.tasks['one'], world.paused))
        self.assertEqual('EJECTION_ERROR', world.tasks[SOURCE])

    def test_it_is_the_only_replica(self):
        """Nothing else shows that it is the source, and no ejection of it is possible."""
        world = _make_ejection(('one',))
        self.check_silent(world, 'EJECTION_ERROR')
        self.answer(world)
        world.check_source('one', [])

    def test_a_replica_that_does_not_answer_then(self):
        """The watch has it follow later."""
        for make_world in (_make_promotion, _make_ejection):
            world = make_world()
            world.servers['two'].is_silent = True
            self.answer(world)
            self.assertEqual((['one'], 'NONE'), (world.writers(), world.tasks['one']))
            self.assertEqual(({'two'}, {}), (world.paused, world.store.rows))
            world.servers['two'].is_silent = False
            world.changes(worker='watch')[0].resume_replicas('one')
            world.check_source('one', ['two'])

    def test_a_replica_accepts_writes_meanwhile(self):
        """An administrator has had it do so: there is one writer at a time."""
        world = _make_promotion()
        world.servers[SOURCE].is_read_only = False
        self.answer(world)
        self.assertEqual([SOURCE], world.writers())
        self.assertTrue(world.marks['one'].is_unfinished)

    def test_it_is_failed_over(self):
        """Its agent is asked when its new server is in service."""
        world = _make_ejection()
        world.other_tasks['one'] = 'MIGRATING'
        self.answer(world, 2)
        self.assertEqual([], world.writers())
        world.other_tasks.clear()
        self.answer(world)
        world.check_source('one', ['two'])

    def test_it_is_ejected(self):
        world = _make_ejection()
        world.servers['one'].is_silent, world.servers['one'].is_down = False, True
        world.request('EJECTING', 'one', 'two')
        world.changes(worker='next')[0].eject('one')
        world.check_source('two', [])
        self.assertEqual('EJECTION_ERROR', world.tasks['one'])

    def test_its_ejection_is_refused(self):
        world = _make_ejection()
        world.servers['two'].is_silent = True
        world.request('EJECTING', 'one', 'two')
        self.assertRaises(
            exceptions.SourceNotChangedError, world.changes(worker='next')[0].eject, 'one'
        )
        self.assertTrue(world.marks['one'].is_unfinished)
        world.servers['two'].is_silent = False
        self.answer(world)
        world.check_source('one', ['two'])

    def test_its_replica_is_detached(self):
        world = _make_ejection()
        world.may_have_two_writers = True
        world.request('DETACHING', 'two')
        world.changes(worker='next')[0].detach('two')
        self.assertEqual(['two'], world.writers())
        self.answer(world)
        self.assertEqual(({}, None), (world.store.rows, world.sources['two']))
        self.assertEqual(['one', 'two'], sorted(world.writers()))

    def test_it_is_deleted(self):
        world = _make_ejection(('one',))
        world.tasks['one'] = 'DELETING'
        self.answer(world)
        self.assertEqual(([], {}), (world.writers(), world.store.rows))

    def make_lagging_promotion(self, answers_at_end=False):
        """Return a world whose resumed promotion took the silent "one" for the new source.

        Its first worker died when the source was read-only. So "one" may lack commits.

        :param answers_at_end: it answers again when it was given up
        """
        for number in range(1000):
            world, strike = World(), worlds.Strike(number, after=True)
            world.live()
            world.request('PROMOTING')
            with contextlib.suppress(interruption.Kill):
                world.changes(strike)[0].promote('one')
            if world.servers[SOURCE].is_read_only:
                break
        more = gtids(SOURCE, 50, 52)
        for server in (world.servers[SOURCE], world.servers['two']):
            server.executed |= more
        world.servers['one'].is_stuck = world.servers['one'].is_silent = True
        world.acknowledged |= more
        if answers_at_end:
            done = world.check_always

            def check_always():
                done()
                world.servers['one'].is_silent = world.now < 120

            world.check_always = check_always
        world.recover(1)
        if not answers_at_end:
            self.check_silent(world, 'PROMOTION_ERROR')
        self.assertEqual(SOURCE, world.servers['one'].source_id)
        return world

    def test_it_still_lacks_what_its_former_source_has(self):
        world = self.make_lagging_promotion()
        self.answer(world, 2)
        self.assertEqual([], world.writers())
        world.servers['one'].is_stuck = False
        world.recover()
        world.check_source('one', [SOURCE, 'two'])

    def test_it_waits_for_a_former_source_that_is_silent(self):
        world = self.make_lagging_promotion()
        world.servers['one'].is_stuck, world.servers[SOURCE].is_silent = False, True
        for task in ('PROMOTION_ERROR', 'NONE'):
            # An operator has reset it.
            world.tasks['one'] = task
            self.answer(world, 2)
            self.assertEqual([], world.writers())
        world.servers[SOURCE].is_silent = False
        world.recover()
        world.check_source('one', [SOURCE, 'two'])

    def test_it_answers_when_the_old_source_is_to_follow_it(self):
        """What it lacks must still be known when it is to accept writes."""
        world = self.make_lagging_promotion(answers_at_end=True)
        # The request of its agent that comes next takes its time.
        self.assertEqual('one', world.sources[SOURCE])
        self.answer(world, 2)
        self.assertEqual([], world.writers())
        world.servers['one'].is_stuck = False
        world.recover()
        world.changes(worker='watch')[0].resume_replicas('one')
        world.check_source('one', [SOURCE, 'two'])

    def test_an_ejection_of_a_promoted_one_is_refused(self):
        """Its task is that of an ejection then."""
        world = _make_promotion()
        world.tasks['one'] = 'EJECTION_ERROR'
        self.answer(world)
        world.check_source('one', [SOURCE, 'two'])
        self.assertEqual({'NONE'}, set(world.tasks.values()))

    def test_a_promotion_of_its_replica_is_refused(self):
        for is_silent in (True, False):
            world = _make_ejection()
            world.servers['one'].is_silent = is_silent
            world.request('PROMOTING', 'one', 'two')
            self.assertRaises(
                exceptions.TroveCephError, world.changes(worker='next')[0].promote, 'two'
            )
            self.assertEqual([], world.writers())
            self.assertEqual('EJECTION_ERROR', world.tasks['one'])
            self.answer(world)
            world.check_source('one', ['two'])

    def test_a_promotion_of_its_replica_that_was_never_begun(self):
        """Its row must not pass for one that has come to the point of no return."""
        world = _make_ejection()
        world.store.begin(Role.PROMOTE_REPLICA, 'two', Claimant('dead'))
        world.store.begin(Role.CHANGE_SOURCE, 'one', Claimant('dead'))
        world.servers['two'].is_silent = True
        self.answer(world, 2)
        self.assertEqual('one', world.sources['two'])
        world.servers['two'].is_silent = False
        world.recover()
        world.changes(worker='watch')[0].resume_replicas('one')
        world.check_source('one', ['two'])

    def test_its_former_source_is_deleted(self):
        world = self.make_lagging_promotion()
        world.end_deletion(SOURCE)
        world.servers['one'].is_stuck = False
        self.answer(world)
        self.assertEqual(['one'], world.writers())
        world.check_nothing_left()

    def test_killed_anywhere(self):
        for make_world, others in ((_make_promotion, [SOURCE, 'two']), (_make_ejection, ['two'])):
            for after in (False, True):
                for number in range(1000):
                    world, strike = make_world(), worlds.Strike(number, after=after)
                    world.servers['one'].is_silent = False
                    with contextlib.suppress(interruption.Kill):
                        world.recover(1, strike)
                    world.recover()
                    # The watch has those follow that are left behind.
                    world.changes(worker='watch')[0].resume_replicas('one')
                    world.check_source('one', others)
                    self.assertEqual(set(), world.paused)
                    if not strike.struck:
                        break
                self.assertGreater(number, 8)

    def test_the_taskmanager_dies_at_any_time(self):
        """Whatever the next one does, there is one writer in the end, and no task or mark left."""
        for make_world in (_make_promotion, _make_ejection):
            for number in range(1000):
                strike = worlds.Strike(number, after=True)
                world = make_world(strike=strike)
                world.recover(2)
                self.answer(world)
                (new,) = {one for one, source in world.sources.items() if source is None} - (
                    {SOURCE} if world.servers[SOURCE].is_fenced else set()
                )
                world.changes(worker='watch')[0].resume_replicas(new)
                others = {one for one, source in world.sources.items() if source is not None}
                world.check_source(new, others)
                left = {world.tasks[one] for one in (new, *others)}
                self.assertEqual({'NONE'}, left, number)
                if not strike.struck:
                    break
            self.assertGreater(number, 20)

    def test_the_taskmanager_dies_when_it_is_recorded(self):
        """The next one finds that it may not accept writes, from its mark."""
        for make_world, task in (
            (_make_promotion, 'PROMOTION_ERROR'),
            (_make_ejection, 'EJECTION_ERROR'),
        ):
            reached = 0
            for number in range(1000):
                strike = worlds.Strike(number, after=True)
                world = make_world(strike=strike)
                if world.sources['one'] is not None:
                    continue
                reached += 1
                world.recover(2)
                self.check_silent(world, task)
                if not strike.struck:
                    break
            self.assertGreater(reached, 1)
