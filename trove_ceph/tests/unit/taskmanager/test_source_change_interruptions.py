# SPDX-License-Identifier: Apache-2.0
"""Interrupt promotions, ejections and detachments at each request; other taskmanagers continue.

After each request, at most one of the servers that share a history accepts writes. At the end no
acknowledged commit is lost, and no instance keeps its task.
"""

import contextlib
import itertools

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies.source_servers import gtids
from trove_ceph.tests.unit.strategies.source_world import SOURCE, World
from trove_ceph.tests.unit.strategies.take_over_world import TakeOverWorld
from trove_ceph.tests.unit.strategies.world import Strike


class _LostClaims(Strike):
    """Lets a taskmanager find, from one of its requests on, that others may have its claims."""

    def __init__(self, number):
        super().__init__(None)
        self._left = number

    def around(self, request, unavailable):
        if not self._left:
            raise exceptions.ClaimLostError('another worker continues it')
        self._left -= 1
        return super().around(request, unavailable)


class _Interruptions:
    def test_killed_before_each_request(self):
        self.strike_each(after=False)

    def test_killed_after_each_request(self):
        self.strike_each(after=True)

    def test_each_request_is_lost(self):
        self.strike_each(after=False, lost=True)

    def test_each_answer_is_lost(self):
        self.strike_each(after=True, lost=True)

    def test_killed_again_while_another_continues(self):
        self.strike_again(lambda number: Strike(number, after=True))

    def test_claims_are_lost_while_another_continues(self):
        self.strike_again(_LostClaims)

    def strike_again(self, make_second):
        for first, second in itertools.product(range(0, self.least, 3), repeat=2):
            world = self.make_world()
            with contextlib.suppress(interruption.Kill):
                self.start(world, world.changes(Strike(first, after=True))[0])
            with contextlib.suppress(interruption.Kill):
                world.recover(1, make_second(second))
            try:
                world.recover()
                self.check(world)
            except Exception as error:
                error.add_note(f'at requests {first} and {second}: {world.tasks}, {world.sources}')
                raise

    def strike_each(self, **how):
        for number in itertools.count():
            world = self.make_world()
            strike = Strike(number, **how)
            try:
                self.start(world, world.changes(strike)[0])
            except (interruption.Kill, exceptions.TroveCephError):
                self.assertTrue(strike.struck)
            try:
                world.recover()
                self.check(world)
            except Exception as error:
                error.add_note(f'{how} at request {number}: {world.tasks}, {world.sources}')
                raise
            if not strike.struck:
                self.assertGreater(number, self.least)
                return


class PromotionInterruptionTest(_Interruptions, base.BaseTestCase):
    least = 30

    def make_world(self):
        world = World()
        world.request('PROMOTING')
        return world

    def start(self, _world, changes):
        changes.promote('one')

    def check(self, world):
        if world.sources['one'] is None:
            others = [one for one in (SOURCE, 'two') if one not in world.renewed]
            world.check_source('one', others)
        else:
            world.check_source(SOURCE, ['one', 'two'])


class SemiSynchronousPromotionTest(PromotionInterruptionTest):
    """The new source has its commits wait before the first one, and the old one only receives."""

    unswitched = 0

    def make_world(self):
        world = super().make_world()
        world.servers[SOURCE].semi_sync = (True, False, 10000)
        for name in ('one', 'two'):
            world.servers[name].semi_sync = (False, True, 10000)
        return world

    def strike_each(self, **how):
        self.unswitched = 0
        super().strike_each(**how)
        # Two requests to switch a server, and a status before each, may be lost; the watch switches
        # those servers. A taskmanager that continues leaves nothing to it.
        self.assertLessEqual(self.unswitched, 4 if how.get('lost') else 0, how)

    def check(self, world):
        super().check(world)
        self.unswitched += any(
            server.semi_sync != (not world.sources[name], bool(world.sources[name]), 10000)
            for name, server in world.servers.items()
        )


class EjectionOfDeadSourceTest(_Interruptions, base.BaseTestCase):
    least = 30

    def make_world(self):
        world = World()
        world.live()
        world.servers[SOURCE].is_down = True
        world.request('EJECTING')
        return world

    def start(self, _world, changes):
        changes.eject(SOURCE)

    def check(self, world):
        if world.sources['one'] == world.sources['two'] == SOURCE:
            # It was refused, and nothing changed; the tenant requests it again.
            self.assertNotIn('EJECTING', world.tasks.values())
            world.request('EJECTING')
            world.changes(worker='again')[0].eject(SOURCE)
        followers = [one for one in ('one', 'two') if world.sources[one] is not None]
        left = [one for one in followers if one in world.paused]
        new = 'one' if followers == ['two'] else 'two'
        world.check_source(new, [one for one in followers if one not in left])
        self.assertTrue(world.servers[SOURCE].is_fenced)


class EjectionOfLivingSourceTest(EjectionOfDeadSourceTest):
    def make_world(self):
        world = World()
        world.request('EJECTING')
        return world


class EjectionWithSlowReplicaTest(EjectionOfDeadSourceTest):
    """One replica has received more than the other, and is still executing it."""

    ahead = 'two'

    def make_world(self):
        world = super().make_world()
        server = world.servers[self.ahead]
        server.received |= gtids(SOURCE, 12, 14)
        server.pace_sec = 50
        # The clients know of them: the new source must have them.
        world.acknowledged |= server.received
        return world

    def check(self, world):
        super().check(world)
        self.assertEqual([self.ahead], world.writers())


class EjectionWithSlowFirstReplicaTest(EjectionWithSlowReplicaTest):
    ahead = 'one'


class TakeOverInterruptionTest(_Interruptions, base.BaseTestCase):
    """The failover of a dead source prefers a replica; its volume moves if none takes over."""

    least = 30

    def make_world(self):
        return TakeOverWorld()

    def start(self, world, changes):
        world.take_over(changes)

    def check(self, world):
        self.assertTrue(world.has_taken_over or world.why_refused, 'it has not ended')
        if not world.has_taken_over:
            # Only an answer that was lost leads to this.
            self.assertEqual([], world.writers())
            world.move_source()
            world.check_source(SOURCE, ['one', 'two'])
            return
        (follower,) = {'one', 'two'} - {world.promoted}
        world.check_source(world.promoted, [follower])
        self.assertTrue(world.servers[SOURCE].is_fenced and world.is_noted_fenced)
        self.assertEqual('MIGRATING', world.tasks[SOURCE])


class TakeOverWithoutOneReplicaTest(TakeOverInterruptionTest):
    """The agent of a replica falls silent while the taskmanager is down."""

    def make_world(self):
        world = TakeOverWorld()
        world.at_recovery = lambda: setattr(world.servers['two'], 'is_silent', True)
        return world

    def check(self, world):
        world.servers['two'].is_silent = False
        if world.has_taken_over and 'two' in world.paused:
            world.check_source('one', [])
        else:
            super().check(world)


class DetachmentInterruptionTest(_Interruptions, base.BaseTestCase):
    least = 12

    def make_world(self):
        world = World()
        world.may_have_two_writers = True
        world.request('DETACHING', 'one')
        return world

    def start(self, _world, changes):
        changes.detach('one')

    def check(self, world):
        world.changes(worker='watch')[0].resume_replicas(SOURCE)
        world.writes = False
        world.live()
        self.assertEqual([], world.broken)
        self.assertEqual(set(), world.paused)
        self.assertEqual({'NONE'}, set(world.tasks.values()))
        self.assertEqual({}, world.store.rows)
        is_detached = world.sources['one'] is None
        self.assertEqual(is_detached, world.servers['one'].accepts_writes)
        self.assertEqual(not is_detached, 'one' in world.table)
        self.assertTrue(world.servers['one'].receives or is_detached)


class RefusedDetachmentTest(DetachmentInterruptionTest):
    """Its source is silent, and returns after the replica was found to execute nothing."""

    def make_world(self):
        world = super().make_world()
        world.writes = False
        world.servers[SOURCE].executed |= gtids(SOURCE, 11, 13)
        world.servers[SOURCE].is_silent = True
        one = world.servers['one']
        one.received |= gtids(SOURCE, 11, 13)
        one.is_stuck = True
        return world

    def start(self, _world, changes):
        # Refused, or the replica does not answer any more.
        with contextlib.suppress(exceptions.TroveCephError):
            changes.detach('one')

    def check(self, world):
        world.servers[SOURCE].is_silent = world.servers['one'].is_stuck = False
        world.recover()
        super().check(world)
        self.assertEqual(SOURCE, world.sources['one'])


class RefusedDetachmentOfSilentReplicaTest(RefusedDetachmentTest):
    """The agent of the replica does not answer either, as soon as the replica has stopped."""

    least = 11

    def make_world(self):
        world = super().make_world()
        one, sleep = world.servers['one'], world.sleep

        def fall_silent(seconds):
            one.is_silent = True
            sleep(seconds)

        world.sleep = fall_silent
        return world

    def check(self, world):
        del world.sleep
        world.servers['one'].is_silent = False
        super().check(world)


class DetachmentOfStoppedReplicaTest(DetachmentInterruptionTest):
    """It cannot execute what it has received, and the tenant is told before that is discarded."""

    def make_world(self):
        world = super().make_world()
        world.writes = False
        world.servers[SOURCE].executed |= gtids(SOURCE, 11, 13)
        one = world.servers['one']
        one.received |= gtids(SOURCE, 11, 13)
        one.sql_error = 'no such table'
        return world

    def check(self, world):
        if world.sources['one'] is not None:
            # It was refused, and keeps what it has received; an operator repairs it.
            self.assertLessEqual(gtids(SOURCE, 11, 13), world.servers['one'].received)
            world.servers['one'].sql_error = ''
        super().check(world)
        if world.sources['one'] is None:
            self.assertIn('not executed; its source has them', world.faults['one'][-1])
