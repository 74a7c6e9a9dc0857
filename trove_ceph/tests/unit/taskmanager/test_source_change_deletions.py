# SPDX-License-Identifier: Apache-2.0
"""A replica is deleted after a taskmanager died in an operation on it, at each of its requests."""

import contextlib
import itertools
import math

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.claims import Claimant
from trove_ceph.db.roles import Role
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies.source_world import SOURCE, World
from trove_ceph.tests.unit.strategies.take_over_world import TakeOverWorld
from trove_ceph.tests.unit.strategies.world import Strike


class DeletionTest(base.BaseTestCase):
    """The operation is one on replica ``one``."""

    def at_each_request(self, make_world, start, least, check, recovers_first):
        """Kill a taskmanager at each request, delete the replica, and have others continue.

        :param recovers_first: others continue while the deletion has only begun
        """
        for number in itertools.count():
            world, strike = make_world(), Strike(number, after=True)
            with contextlib.suppress(interruption.Kill):
                start(world.changes(strike)[0])
            if not strike.struck:
                self.assertGreater(number, least)
                return
            try:
                self.delete(world, 'one', recovers_first)
                world.recover()
                check(world)
            except Exception as error:
                error.add_note(f'at request {number}: {world.tasks}, {world.sources}')
                raise

    def delete(self, world, name, recovers_first, strike=None):
        if name in world.deleted:
            return
        world.tasks[name] = 'DELETING'
        if recovers_first:
            world.recover()
        changes, operations = world.changes(strike, worker='deletion')
        try:
            with operations.deleting(name):
                changes.forget(name)
                world.end_deletion(name)
        except exceptions.DeletionRefusedError as error:
            world.refused.append(str(error))

    def check_rest(self, world):
        """Check that the others work as before, and that nothing is left of the replica."""
        self.assertEqual([], world.broken)
        self.assertEqual({}, world.store.rows)
        self.assertNotIn('one', world.table)
        self.assertEqual({'NONE'}, set(world.tasks.values()))
        self.assertEqual([SOURCE], world.writers())
        self.assertEqual((None, SOURCE), (world.sources[SOURCE], world.sources['two']))
        self.assertEqual({'two': SOURCE}, world.table)
        if 'two' not in world.renewed:
            world.live()
            self.assertEqual(SOURCE, world.servers['two'].source_id)

    def make_promotion(self):
        world = World()
        world.request('PROMOTING')
        return world

    def check_promotion(self, world):
        if 'one' in world.deleted:
            self.check_rest(world)
            return
        # It is the source, which is not deleted while it has replicas.
        self.assertEqual({'NONE'}, set(world.tasks.values()))
        self.assertTrue(world.faults['one'])
        world.check_source('one', [SOURCE, 'two'])

    def test_promotion(self):
        for recovers_first in (False, True):
            self.at_each_request(
                self.make_promotion,
                lambda changes: changes.promote('one'),
                30,
                self.check_promotion,
                recovers_first,
            )

    def test_a_deletion_whose_taskmanager_dies_is_resumed(self):
        """The promotion is continued, before the deletion dies at each of its requests or after."""
        for recovers_first, first in itertools.product((False, True), range(0, 30, 3)):
            for second in itertools.count():
                world, strike = self.make_promotion(), Strike(second, after=True)
                with contextlib.suppress(interruption.Kill):
                    world.changes(Strike(first, after=True))[0].promote('one')
                world.tasks['one'] = 'DELETING'
                if recovers_first:
                    world.recover()
                with contextlib.suppress(interruption.Kill):
                    self.delete(world, 'one', recovers_first=False, strike=strike)
                if not strike.struck:
                    break
                try:
                    world.recover()
                    self.check_promotion(world)
                except Exception as error:
                    error.add_note(f'at requests {first} and {second}: {world.tasks}')
                    raise

    def test_a_deletion_that_dies_while_it_waits_for_a_promotion(self):
        world = self.make_promotion()
        with contextlib.suppress(interruption.Kill):
            world.changes(Strike(3, after=True))[0].promote('one')
        world.tasks['one'] = 'DELETING'
        # Nothing else shows it.
        world.recover()
        self.check_rest(world)
        self.assertEqual({'one'}, world.deleted)

    def promote_until_it_accepts_writes(self):
        """Return a world whose taskmanager died when the promoted replica accepted writes."""
        for number in itertools.count():
            world, strike = self.make_promotion(), Strike(number, after=True)
            with contextlib.suppress(interruption.Kill):
                world.changes(strike)[0].promote('one')
            self.assertTrue(strike.struck)
            if world.writers() == ['one']:
                return world

    def test_a_replica_that_accepts_writes_is_kept(self):
        """No taskmanager ends the promotion while the deletion waits."""
        world = self.promote_until_it_accepts_writes()
        self.delete(world, 'one', recovers_first=False)
        self.assertEqual('PROMOTING', world.tasks['one'])
        self.assertIn('repeat the deletion', world.refused[0])
        self.assertEqual([2048], world.counted_mib)
        self.assertEqual(['one'], world.writers())
        self.assertIs(Role.PROMOTE_REPLICA, world.store.find_role('one'))
        world.recover()
        self.check_promotion(world)

    def test_a_deletion_that_gets_no_answer(self):
        """To each of its requests; the promotion has not reached its point of no return."""
        for first, number in ((first, number) for first in (3, 9) for number in range(40)):
            world, strike = self.make_promotion(), Strike(number, after=True, lost=True)
            with contextlib.suppress(interruption.Kill):
                world.changes(Strike(first, after=True))[0].promote('one')
            with contextlib.suppress(exceptions.TroveCephError):
                self.delete(world, 'one', recovers_first=False, strike=strike)
            try:
                for _ in range(3):
                    world.recover()
                if not world.refused and 'one' not in world.deleted:
                    # The tenant repeats it.
                    self.delete(world, 'one', recovers_first=False)
                    world.recover()
                self.check_promotion(world)
            except Exception as error:
                error.add_note(f'at requests {first} and {number}: {world.tasks}')
                raise

    def test_nothing_is_deleted_while_the_database_does_not_tell_the_source(self):
        world = self.promote_until_it_accepts_writes()
        changes, _operations = world.changes(worker='deletion')

        def fail(_instance_id):
            raise exceptions.ServiceUnavailableError('the database is down')

        world.store.find_role = fail
        error = self.assertRaises(exceptions.OperationUnfinishedError, changes.forget, 'one')
        self.assertIn('goes on later: the database is down', str(error))
        self.assertEqual(['one'], world.writers())

    def test_nova_does_not_tell_the_memory_of_a_replica_that_is_kept(self):
        world = self.promote_until_it_accepts_writes()
        world.down.add('nova')
        self.delete(world, 'one', recovers_first=False)
        self.assertIn('repeat the deletion', world.refused[0])
        self.assertEqual(([0], 'PROMOTING'), (world.counted_mib, world.tasks['one']))

    def test_a_new_source_is_kept_while_it_has_replicas(self):
        world = self.promote_until_it_accepts_writes()
        self.delete(world, 'one', recovers_first=True)
        self.assertIn('is the source of', world.refused[0])
        self.check_promotion(world)

    def test_a_promotion_that_another_worker_continues(self):
        world = self.promote_until_it_accepts_writes()
        world.store.forget_workers()
        for role, name in ((Role.PROMOTE_REPLICA, 'one'), (Role.CHANGE_SOURCE, SOURCE)):
            world.store.resume(role, name, Claimant('other'))
        self.delete(world, 'one', recovers_first=False)
        self.assertEqual('PROMOTING', world.tasks['one'])
        self.assertEqual(['one'], world.writers())

    def delete_silent(self, stop_takes_sec=0, down=()):
        """Delete a replica that accepts writes, and whose agent is silent."""
        world = self.promote_until_it_accepts_writes()
        world.servers['one'].is_silent = True
        world.stop_takes_sec = stop_takes_sec
        world.down.update(down)
        self.delete(world, 'one', recovers_first=False)
        return world

    def test_the_source_waits_until_a_silent_replica_is_switched_off(self):
        world = self.delete_silent(stop_takes_sec=60)
        self.assertEqual(([], ['vm-one']), (world.refused, world.stopped))
        self.assertFalse(world.servers['one'].is_fenced)
        self.assertEqual([SOURCE], world.writers())
        self.assertEqual([], world.broken)

    def test_a_silent_replica_that_nova_does_not_switch_off_is_fenced(self):
        for stop_takes_sec, down in ((math.inf, ()), (0, ('nova',))):
            world = self.delete_silent(stop_takes_sec, down)
            self.assertTrue(world.servers['one'].is_fenced)
            self.assertEqual(([], [SOURCE]), (world.refused, world.writers()))
            self.assertEqual([], world.broken)

    def test_a_silent_replica_is_kept_while_it_may_write(self):
        world = self.delete_silent(math.inf, ['ceph'])
        self.assertIn('repeat the deletion', world.refused[0])
        self.assertEqual(['one'], world.writers())
        self.assertTrue(world.servers[SOURCE].is_read_only)
        world.down.clear()
        self.delete(world, 'one', recovers_first=False)
        self.assertEqual([SOURCE], world.writers())

    def test_source_that_does_not_answer_does_not_delay_the_deletion(self):
        def delete(number):
            world, strike = self.make_promotion(), Strike(number, after=True)
            with contextlib.suppress(interruption.Kill):
                world.changes(strike)[0].promote('one')
            world.servers[SOURCE].is_silent = True
            self.delete(world, 'one', recovers_first=False)
            world.servers[SOURCE].is_silent = False
            world.recover()
            return world

        for number in range(30):
            world = delete(number)
            self.assertEqual(({}, {'NONE'}), (world.store.rows, set(world.tasks.values())))

    def make_detachment(self):
        world = World()
        world.may_have_two_writers = True
        world.request('DETACHING', 'one')
        return world

    def test_detachment(self):
        for recovers_first in (False, True):
            self.at_each_request(
                self.make_detachment,
                lambda changes: changes.detach('one'),
                12,
                self.check_rest,
                recovers_first,
            )

    def make_ejection(self):
        world = World()
        world.live()
        world.servers[SOURCE].is_down = True
        world.request('EJECTING')
        return world

    def check_ejection(self, world):
        self.assertEqual([], world.broken)
        self.assertEqual({}, world.store.rows)
        self.assertFalse({'EJECTING', 'PROMOTING'} & set(world.tasks.values()))
        if world.sources['two'] == SOURCE:
            # The tenant requests it again.
            world.request('EJECTING', SOURCE, 'two')
            world.changes(worker='again')[0].eject(SOURCE)
        if world.sources['one'] is not None:
            self.assertEqual((['two'], None), (world.writers(), world.sources['two']))

    def test_ejection(self):
        for recovers_first in (False, True):
            self.at_each_request(
                self.make_ejection,
                lambda changes: changes.eject(SOURCE),
                30,
                self.check_ejection,
                recovers_first,
            )

    def make_take_over(self):
        self.dead = TakeOverWorld()
        return self.dead

    def check_take_over(self, world):
        self.assertEqual([], world.broken)
        self.assertEqual({}, world.store.rows)
        self.assertFalse({'EJECTING', 'PROMOTING'} & set(world.tasks.values()))
        if world.has_taken_over:
            self.assertEqual([world.promoted], world.writers())
            self.assertNotIn(world.promoted, world.deleted)
            return
        self.assertTrue(world.why_refused)
        self.assertEqual([], world.writers())
        world.move_source()
        self.assertEqual([SOURCE], world.writers())
        self.assertEqual(SOURCE, world.servers['two'].source_id)

    def test_take_over(self):
        for recovers_first in (False, True):
            self.at_each_request(
                self.make_take_over,
                lambda changes: self.dead.take_over(changes),
                30,
                self.check_take_over,
                recovers_first,
            )
