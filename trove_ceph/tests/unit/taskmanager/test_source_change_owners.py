# SPDX-License-Identifier: Apache-2.0
"""A new request comes while the row of its source belongs to an operation of a dead taskmanager.

At each request of that operation: it is continued as if the new request had not come, or the new
one continues it, with one writer at any time.
"""

import contextlib
import itertools

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.claims import Claimant
from trove_ceph.db.roles import Role
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies.source_world import SOURCE, World
from trove_ceph.tests.unit.strategies.world import Strike


class OwnersTest(base.BaseTestCase):
    def make_world(self, task, is_dead=False):
        world = World()
        world.live()
        world.servers[SOURCE].is_down = is_dead
        world.request(task)
        return world

    def strike_each(self, make_world, start, ask, check):
        """Kill a taskmanager at each request, make a new request, and recover.

        :param ask: makes the request; its argument is the world
        :param check: gets the world, and the error of the new request, or None
        """
        for number in itertools.count():
            world, strike = make_world(), Strike(number, after=True)
            try:
                start(world.changes(strike)[0])
            except interruption.Kill:
                pass
            else:
                if not strike.struck:
                    self.assertGreater(number, 10)
                    return
                # A request that is refused cannot be killed after its answer.
                continue
            before = dict(world.store.rows)
            error = None
            try:
                ask(world)
            except exceptions.TroveCephError as failure:
                error = failure
            try:
                check(world, before, error)
            except Exception as failure:
                failure.add_note(f'at request {number}: {error}, {world.tasks}, {world.sources}')
                raise

    def check_new_source(self, world, least_followers):
        """Check that one replica is the source of at least so many others."""
        self.assertEqual(({}, []), (world.store.rows, world.broken))
        (writer,) = world.writers()
        followers = [name for name, source in world.sources.items() if source == writer]
        self.assertGreaterEqual(len(followers), least_followers)
        world.check_source(writer, followers)

    def test_a_promotion_waits_for_an_ejection(self):
        def ask(world):
            world.request('PROMOTING')
            world.changes(worker='new')[0].promote('two')

        def check(world, before, error):
            owner = before[SOURCE][0] if SOURCE in before else None
            if owner is Role.EJECT_SOURCE:
                self.assertIsInstance(error, exceptions.SourceNotChangedError)
                self.assertEqual(before[SOURCE], world.store.rows[SOURCE])
            world.recover()
            self.check_new_source(world, 1)

        self.strike_each(
            lambda: self.make_world('EJECTING', is_dead=True),
            lambda changes: changes.eject(SOURCE),
            ask,
            check,
        )

    def test_a_promotion_waits_for_another_one(self):
        def ask(world):
            world.request('PROMOTING')
            world.changes(worker='new')[0].promote('two')

        def check(world, before, error):
            owner = before[SOURCE][0] if SOURCE in before else None
            if owner is Role.CHANGE_SOURCE:
                self.assertIsInstance(error, exceptions.SourceNotChangedError)
                self.assertEqual(before, world.store.rows)
            world.recover()
            self.check_new_source(world, 2)

        self.strike_each(
            lambda: self.make_world('PROMOTING'), lambda changes: changes.promote('one'), ask, check
        )

    def test_an_ejection_continues_a_promotion(self):
        def ask(world):
            world.request('EJECTING')
            world.changes(worker='new')[0].eject(SOURCE)

        def check(world, _before, _error):
            world.recover()
            self.check_new_source(world, 1)

        self.strike_each(
            lambda: self.make_world('PROMOTING'), lambda changes: changes.promote('one'), ask, check
        )

    def test_an_ejection_that_is_refused_leaves_the_promotion(self):
        """Otherwise nothing would have the source accept writes again."""

        def ask(world):
            for name in ('one', 'two'):
                world.servers[name].is_silent = True
            world.request('EJECTING')
            world.changes(worker='new')[0].eject(SOURCE)

        def check(world, before, error):
            if world.sources['one'] == SOURCE:
                self.assertIsInstance(error, exceptions.SourceNotChangedError)
            self.assertEqual(
                {name: role for name, (role, _claim) in before.items()},
                {name: role for name, (role, _claim) in world.store.rows.items()},
            )
            for name in ('one', 'two'):
                world.servers[name].is_silent = False
            world.recover()
            self.check_new_source(world, 2)

        self.strike_each(
            lambda: self.make_world('PROMOTING'), lambda changes: changes.promote('one'), ask, check
        )

    def test_a_detachment_leaves_the_promotion(self):
        def make_world():
            world = self.make_world('PROMOTING')
            world.may_have_two_writers = True
            return world

        def ask(world):
            world.request('DETACHING', 'two')
            world.changes(worker='new')[0].detach('two')

        def check(world, _before, error):
            is_recorded = world.sources['one'] is None
            self.assertEqual(is_recorded, error is not None)
            self.assertIs(is_recorded, world.sources['two'] is not None)
            world.recover()
            if is_recorded:
                self.check_new_source(world, 2)
                return
            self.assertEqual(({}, []), (world.store.rows, world.broken))
            self.assertEqual({'NONE'}, set(world.tasks.values()))
            self.assertEqual(2, len(world.writers()))
            self.assertIn('two', world.writers())

        self.strike_each(make_world, lambda changes: changes.promote('one'), ask, check)

    def test_two_interrupted_promotions(self):
        """The second one had waited for the source; the first one goes on before it."""
        for number in itertools.count():
            world, strike = self.make_world('PROMOTING'), Strike(number, after=True)
            with contextlib.suppress(interruption.Kill):
                world.changes(strike)[0].promote('one')
            if not strike.struck:
                return
            if 'one' not in world.store.rows:
                continue
            claim = world.store.begin(Role.PROMOTE_REPLICA, 'two', _Worker)
            world.store.drop(claim)
            world.store.rows = {'two': world.store.rows['two'], **world.store.rows}
            try:
                world.recover(8)
                self.check_new_source(world, 2)
            except Exception as error:
                error.add_note(f'at request {number}: {world.tasks}, {world.sources}')
                raise


class _Worker:
    name = 'other'

    def hold(self, world, role, instance_id):
        """Have another live taskmanager work on an instance; return what ends that."""
        claim = world.store.begin(role, instance_id, Claimant('another'))
        self.assertIsNotNone(claim)
        return lambda: world.store.finish(claim)

    def test_a_promotion_whose_replica_is_being_detached_leaves_no_task(self):
        """The source and the others would be busy for ever."""
        world = self.make_world('PROMOTING')
        end = self.hold(world, Role.DETACH_REPLICA, 'one')
        error = self.assertRaises(
            exceptions.SourceNotChangedError, world.changes(worker='new')[0].promote, 'one'
        )
        self.assertIn('another operation works on it', str(error))
        # The detachment ends the task of its replica.
        expected = dict.fromkeys(world.tasks, 'NONE') | {'one': 'PROMOTING'}
        self.assertEqual(expected, world.tasks)
        end()

    def test_a_refused_promotion_does_not_end_the_task_of_a_detachment(self):
        world = self.make_world('PROMOTING')
        world.tasks['one'] = 'DETACHING'
        ends = [self.hold(world, Role.DETACH_REPLICA, 'one')]
        ends.append(self.hold(world, Role.CHANGE_SOURCE, SOURCE))
        self.assertRaises(
            exceptions.SourceNotChangedError, world.changes(worker='new')[0].promote, 'two'
        )
        self.assertEqual({SOURCE: 'NONE', 'one': 'DETACHING', 'two': 'NONE'}, world.tasks)
        for end in ends:
            end()
