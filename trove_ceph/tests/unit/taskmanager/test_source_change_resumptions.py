# SPDX-License-Identifier: Apache-2.0
"""Continue promotions and ejections of dead taskmanagers while something does not answer."""

import itertools

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.claims import Claimant
from trove_ceph.db.roles import Role
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.strategies.source_servers import gtids
from trove_ceph.tests.unit.strategies.source_world import SOURCE, World


def _kill_when(make_world, start, is_reached):
    """Return a world whose taskmanager died after the first request that reached a state."""
    for number in itertools.count():
        world, strike = make_world(), worlds.Strike(number, after=True)
        try:
            start(world.changes(strike)[0])
        except interruption.Kill:
            if is_reached(world):
                return world
        except exceptions.ReplicasLeftError:
            # No strike follows a request that fails itself, so that the operation has ended.
            continue
        if not strike.struck:
            raise AssertionError('the state is never reached')


def _has_new_writer(world):
    return bool(world.writers()) and world.writers() != [SOURCE]


def _silence(world, *names):
    for name, server in world.servers.items():
        server.is_silent = name in names


class ResumedPromotionTest(base.BaseTestCase):
    def kill_when(self, is_reached):
        return _kill_when(self.make_world, lambda changes: changes.promote('one'), is_reached)

    def make_world(self):
        world = World()
        world.request('PROMOTING')
        return world

    def test_cinder_is_down_past_the_point_of_no_return(self):
        world = self.kill_when(_has_new_writer)
        world.down.add('volumes')
        world.recover(2)
        self.assertEqual(['one'], world.writers())
        self.assertEqual({'PROMOTING'}, set(world.tasks.values()))
        world.down.clear()
        world.recover()
        world.check_source('one', [SOURCE, 'two'])

    def test_another_operation_works_on_the_source(self):
        world = self.kill_when(_has_new_writer)
        world.store.forget_workers()
        other = world.store.resume(Role.CHANGE_SOURCE, SOURCE, Claimant('other'))
        changes, operations = world.changes(worker='next')
        operations.recover(changes.resumptions, worlds.AtOnce())
        self.assertEqual(Role.PROMOTE_REPLICA, world.store.find_role('one'))
        self.assertEqual(['one'], world.writers())
        world.store.drop(other)
        world.recover()
        world.check_source('one', [SOURCE, 'two'])

    def test_no_server_answers(self):
        world = self.kill_when(_has_new_writer)
        _silence(world, *world.servers)
        world.recover(2)
        self.assertEqual(Role.PROMOTE_REPLICA, world.store.find_role('one'))
        _silence(world)
        world.recover()
        world.check_source('one', [SOURCE, 'two'])

    def test_no_server_answers_before_the_point_of_no_return(self):
        world = self.kill_when(lambda found: found.servers[SOURCE].is_read_only)
        _silence(world, *world.servers)
        world.recover(2)
        _silence(world)
        world.recover()
        world.check_source('one', [SOURCE, 'two'])

    def test_the_replica_does_not_answer_at_first_and_lags(self):
        """It is not made the source before it has all."""
        world = self.kill_when(lambda found: found.servers[SOURCE].is_read_only)
        more, one = gtids(SOURCE, 12, 14), world.servers['one']
        world.servers[SOURCE].executed |= more
        world.acknowledged |= more
        one.received |= more
        _silence(world, 'one')
        done = world.sleep

        def sleep(seconds):
            _silence(world)
            done(seconds)

        world.sleep = sleep
        world.recover(1)
        self.assertEqual(([], SOURCE), (world.writers(), one.source_id))
        world.recover()
        self.assertLessEqual(more, one.executed)
        world.check_source('one', [SOURCE, 'two'])


class ResumedDetachmentTest(base.BaseTestCase):
    def make_world(self):
        world = World()
        world.may_have_two_writers = True
        world.request('DETACHING', 'one')
        return world

    def test_the_replica_does_not_answer(self):
        """It accepts writes, and has the mark that protects them until it is detached again."""
        world = _kill_when(
            self.make_world,
            lambda changes: changes.detach('one'),
            lambda found: 'one' in found.writers(),
        )
        _silence(world, 'one')
        world.recover(3)
        self.assertEqual(({}, 'NONE'), (world.store.rows, world.tasks['one']))
        self.assertEqual({'one'}, world.with_surplus)
        _silence(world)
        world.request('DETACHING', 'one')
        world.changes(worker='again')[0].detach('one')
        self.assertEqual((None, set()), (world.sources['one'], world.with_surplus))

    def test_the_mark_is_there_before_the_replica_accepts_writes(self):
        world = _kill_when(
            self.make_world, lambda changes: changes.detach('one'), lambda found: found.with_surplus
        )
        self.assertNotIn('one', world.writers())


class ResumedEjectionTest(base.BaseTestCase):
    def kill_when(self, is_reached, make_world=None):
        return _kill_when(
            make_world or self.make_world, lambda changes: changes.eject(SOURCE), is_reached
        )

    def make_world(self):
        world = World()
        world.live()
        world.servers[SOURCE].is_down = True
        world.request('EJECTING')
        return world

    def make_world_with_living_source(self):
        world = World()
        world.request('EJECTING')
        return world

    def test_no_replica_answers(self):
        world = self.kill_when(_has_new_writer)
        new = world.writers()
        _silence(world, 'one', 'two')
        world.recover(3)
        self.assertEqual(Role.EJECT_SOURCE, world.store.find_role(SOURCE))
        _silence(world)
        world.recover()
        self.assertEqual(new, world.writers())
        world.check_source(new[0], ['two'])

    def test_the_chosen_replica_does_not_answer(self):
        """No other one is chosen."""
        world = self.kill_when(_has_new_writer)
        (new,) = world.writers()
        _silence(world, new)
        world.recover(3)
        self.assertEqual([new], world.writers())
        self.assertEqual({'EJECTING'}, set(world.tasks.values()))
        _silence(world)
        world.recover()
        world.check_source(new, ['two'])

    def test_a_choice_is_kept_until_the_replica_shows_that_it_refuses_writes(self):
        """Its ejection has ended."""
        world = self.kill_when(_has_new_writer)
        (new,) = world.writers()
        del world.store.rows[SOURCE]
        _silence(world, new)
        world.recover(2)
        self.assertEqual({new}, set(world.store.rows))
        _silence(world)
        world.recover(2)
        self.assertEqual({new}, set(world.store.rows))
        self.assertEqual({'NONE'}, set(world.tasks.values()))
        world.request('EJECTING')
        world.changes(worker='again')[0].eject(SOURCE)
        world.check_source(new, ['two'])

    def test_a_living_source_accepts_writes_again(self):
        """It was made read-only, and then no replica answers."""
        world = self.kill_when(
            lambda found: found.servers[SOURCE].is_read_only, self.make_world_with_living_source
        )
        _silence(world, 'one', 'two')
        world.recover(2)
        self.assertEqual([SOURCE], world.writers())
        self.assertEqual({}, world.store.rows)
        self.assertNotIn('EJECTING', world.tasks.values())

    def make_world_with_a_silent_replica(self):
        """Replica "two" has received more than "one", has stopped before it, and is silent."""
        world = self.make_world()
        two = world.servers['two']
        two.received |= gtids(SOURCE, 1, 14)
        world.acknowledged |= two.received
        two.sql_error, two.is_silent = 'no such table', True
        return world

    def kill_when_chosen(self):
        return self.kill_when(
            lambda found: 'one' in found.store.rows, self.make_world_with_a_silent_replica
        )

    def test_it_ends_if_a_replica_that_was_silent_has_stopped_before_the_last_copy(self):
        """The replica that was chosen refuses writes yet, and must not accept them now."""
        world = self.kill_when_chosen()
        self.assertEqual([], world.writers())
        two = world.servers['two']
        two.is_silent = False
        world.recover()
        self.assertEqual(([], {}), (world.writers(), world.store.rows))
        self.assertEqual({SOURCE: 'EJECTION_ERROR', 'one': 'NONE', 'two': 'NONE'}, world.tasks)
        (fault,) = world.faults[SOURCE]
        self.assertIn('replica two has stopped before 3 transactions', fault)
        self.assertIn('detach or delete it to give them up', fault)
        # Nothing is lost: once the replica is repaired, it has all.
        self.assertEqual(gtids(SOURCE, 12, 14), two.received - two.executed)
        two.sql_error = ''
        world.request('EJECTING')
        world.changes(worker='again')[0].eject(SOURCE)
        world.check_source('two', ['one'])

    def test_it_goes_on_if_the_chosen_replica_accepts_writes(self):
        world = self.kill_when(_has_new_writer, self.make_world_with_a_silent_replica)
        world.servers['two'].is_silent = False
        # They are on the replica alone, and the new source was chosen without it.
        world.acknowledged = world.acknowledged - gtids(SOURCE, 12, 14)
        world.recover()
        self.assertEqual((['one'], {}), (world.writers(), world.store.rows))
        self.assertEqual(({'two'}, 'NONE'), (world.with_surplus, world.tasks['two']))
        self.assertIn('3 transactions that the new source lacks', world.faults['two'][0])

    def test_it_goes_on_while_the_chosen_replica_does_not_answer(self):
        world = self.kill_when_chosen()
        world.servers['two'].is_silent, world.servers['one'].is_silent = False, True
        world.recover(3)
        self.assertEqual(Role.EJECT_SOURCE, world.store.find_role(SOURCE))
        self.assertEqual({'EJECTING'}, set(world.tasks.values()))

    def test_a_new_request_changes_nothing_while_a_chosen_replica_is_silent(self):
        world = World()
        world.request('EJECTING')
        world.store.begin(Role.PROMOTE_REPLICA, 'one', _Worker)
        _silence(world, 'one')
        error = self.assertRaises(
            exceptions.SourceNotChangedError, lambda: world.changes()[0].eject(SOURCE)
        )
        self.assertIn('may be the source already', str(error))
        self.assertFalse(world.servers[SOURCE].is_fenced)


class _Worker:
    name = 'other'
