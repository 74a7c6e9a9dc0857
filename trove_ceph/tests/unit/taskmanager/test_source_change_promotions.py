# SPDX-License-Identifier: Apache-2.0
"""Promote with bad luck; servers, agents and rows are in memory."""

import itertools

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.claims import Claimant
from trove_ceph.db.roles import Role
from trove_ceph.tests.unit.strategies.source_servers import gtids
from trove_ceph.tests.unit.strategies.source_world import SOURCE, World

REFUSED = exceptions.SourceNotChangedError


class PromotionTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = World()
        self.world.request('PROMOTING')

    def promote(self, name='one'):
        self.world.changes()[0].promote(name)

    def refuse(self, text, source=SOURCE):
        error = self.assertRaises(REFUSED, self.promote)
        self.assertIn(text, str(error))
        self.assertEqual({'NONE'}, set(self.world.tasks.values()))
        self.assertTrue(self.world.faults['one'])
        self.world.check_ended()
        self.assertEqual([source], self.world.writers())

    def test_swaps_the_source_and_its_replica(self):
        self.promote()
        self.world.check_source('one', [SOURCE, 'two'])
        self.assertEqual({SOURCE: 'one', 'two': 'one'}, self.world.table)
        self.assertEqual({'one'}, self.world.flattened)
        self.assertEqual({'NONE'}, set(self.world.tasks.values()))
        self.assertEqual({}, self.world.renewed)

    def test_tells_that_the_new_source_has_one_copy(self):
        self.world.on_one_copy = {'one'}
        self.promote()
        self.assertIn('one copy', self.world.faults['one'][-1])
        self.assertEqual(['one'], list(self.world.faults))

    def test_promotes_back(self):
        self.promote()
        self.world.request('PROMOTING')
        self.promote(SOURCE)
        self.world.check_source(SOURCE, ['one', 'two'])

    def test_the_only_replica(self):
        self.world = World(['one'])
        self.world.request('PROMOTING')
        self.promote()
        self.world.check_source('one', [SOURCE])

    def test_a_source_that_follows_an_external_server(self):
        """As during a migration; it would follow on while it is to refuse writes."""
        self.world.servers[SOURCE].source_id = 'two'
        error = self.assertRaises(REFUSED, self.promote)
        self.assertIn('follows another server; stop that first', str(error))
        self.assertFalse(self.world.servers[SOURCE].is_read_only)
        self.assertEqual({'NONE'}, set(self.world.tasks.values()))

    def test_a_replica_that_does_not_catch_up(self):
        self.world.servers['one'].is_stuck = True
        self.world.live()
        self.refuse('did not catch up with its source')
        self.world.check_source(SOURCE, ['two'])
        self.assertEqual(set(), self.world.flattened)

    def test_a_replica_that_falls_behind_while_the_source_is_read_only(self):
        source, replica = self.world.servers[SOURCE], self.world.servers['one']

        def commit_at_last():
            replica.is_stuck = source.is_read_only
            source.executed |= gtids(SOURCE, next(numbers))

        numbers = itertools.count(1000)
        for flattened in (set(), {'one'}):
            self.world.at_read_only = commit_at_last
            self.world.flattened = set(flattened)
            self.refuse('did not catch up with its source')
            self.world.check_source(SOURCE, ['one', 'two'])
            # As before, such as because an operator had requested it.
            self.assertEqual(flattened, self.world.flattened)
            self.world.request('PROMOTING')

    def test_a_replica_with_transactions_of_its_own(self):
        self.world.servers['one'].executed |= gtids('one', 1)
        self.refuse('has 1 transactions that its source lacks')

    def test_a_replica_with_transactions_that_its_source_has_lost(self):
        """A fresh clone would discard the only copy."""
        self.world.servers['one'].executed |= gtids(SOURCE, 50)
        self.refuse('its source has lost 1 transactions that it has; detach it to keep them')

    def test_a_replica_of_a_replica(self):
        self.world.sources[SOURCE] = 'two'
        self.refuse('is itself a replica')

    def test_a_replica_that_follows_another_server(self):
        self.world.servers['one'].source_id = 'two'
        self.refuse('does not follow its source')

    def test_another_replica_that_is_being_re_provisioned(self):
        """Trove's API has overwritten its task."""
        self.world.other_tasks['two'] = 'MIGRATING'
        error = self.assertRaises(REFUSED, self.promote)
        self.assertIn('has the task MIGRATING', str(error))
        self.assertEqual('MIGRATING', self.world.tasks['two'])
        self.assertEqual('NONE', self.world.tasks['one'])

    def block(self, name):
        self.world.blocked.add(name)
        self.world.other_tasks[name] = 'MIGRATING'
        self.world.servers[name].is_down = True

    def test_another_replica_whose_re_provisioning_is_blocked(self):
        """It is recorded as a replica of the new source, and goes on by itself."""
        world = self.world
        self.block('two')
        self.promote()
        world.check_source('one', [SOURCE])
        self.assertEqual(('one', 'one'), (world.sources['two'], world.table['two']))
        self.assertEqual('MIGRATING', world.tasks['two'])
        self.assertEqual({}, world.renewed)
        self.assertEqual({SOURCE, 'two'}, world.kept_users['one'])

    def test_a_promotion_of_a_blocked_replica(self):
        self.block('one')
        error = self.assertRaises(REFUSED, self.promote)
        self.assertIn('has the task MIGRATING', str(error))
        self.assertEqual('MIGRATING', self.world.tasks['one'])

    def test_a_replica_that_is_being_deleted(self):
        self.world.tasks['one'] = 'DELETING'
        error = self.assertRaises(REFUSED, self.promote)
        self.assertIn('is being deleted', str(error))
        self.assertEqual('DELETING', self.world.tasks['one'])

    def test_a_source_that_does_not_answer(self):
        self.world.servers[SOURCE].is_silent = True
        self.assertRaises(exceptions.GuestUnavailableError, self.promote)
        self.assertEqual({'NONE'}, set(self.world.tasks.values()))
        self.world.check_ended()

    def test_another_replica_that_does_not_answer(self):
        self.world.servers['two'].is_silent = True
        error = self.assertRaises(exceptions.ReplicasLeftError, self.promote)
        self.assertIn('two', str(error))
        self.world.check_source('one', [SOURCE])
        self.assertEqual(['two'], list(self.world.renewed))
        self.assertEqual('one', self.world.sources['two'])
        self.assertEqual('NONE', self.world.tasks['two'])

    def test_the_old_source_has_transactions_that_the_new_one_lacks(self):
        world = self.world
        done = world.check_always

        def write_past_the_lock():
            done()
            if world.servers['two'].source_id == 'one':
                world.servers[SOURCE].executed |= gtids('admin', 1)

        world.check_always = write_past_the_lock
        error = self.assertRaises(exceptions.ReplicasLeftError, self.promote)
        self.assertIn('detach it to keep them', str(error))
        self.assertEqual('one', world.sources[SOURCE])
        self.assertEqual('NONE', world.tasks[SOURCE])
        self.assertTrue(world.servers[SOURCE].is_read_only)
        self.assertIsNone(world.servers[SOURCE].source_id)
        # Its transactions are discarded only on request.
        self.assertEqual([], list(world.renewed))
        self.assertIn(SOURCE, world.with_surplus)
        world.check_source('one', ['two'])

    def test_the_agent_of_the_new_source_dies_at_the_point_of_no_return(self):
        """It is the source for Trove, so that it can be ejected."""
        world = self.world
        done = world.check_always

        def die():
            done()
            world.servers['one'].is_silent |= world.servers['one'].accepts_writes

        world.check_always = die
        error = self.assertRaises(exceptions.ReplicasLeftError, self.promote)
        self.assertIn('eject it', str(error))
        self.assertEqual({SOURCE: 'NONE', 'one': 'PROMOTION_ERROR', 'two': 'NONE'}, world.tasks)
        world.check_always = done
        world.servers['one'].is_silent, world.servers['one'].is_down = False, True
        world.writes = False
        world.request('EJECTING')
        world.changes()[0].eject('one')
        self.assertEqual([SOURCE], world.writers())

    def test_the_source_dies_while_it_is_read_only(self):
        """It accepts writes again as soon as it answers."""
        world = self.world
        source = world.servers[SOURCE]
        done = world.check_always

        def die():
            done()
            source.is_silent |= source.is_read_only

        world.check_always = die
        self.assertRaises(exceptions.GuestUnavailableError, self.promote)
        self.assertEqual({'NONE'}, set(world.tasks.values()))
        self.assertEqual({SOURCE}, set(world.store.rows))
        world.recover(1)
        self.assertEqual([], world.writers())
        world.check_always, source.is_silent = done, False
        world.recover(1)
        world.check_ended()
        self.assertEqual([SOURCE], world.writers())

    def test_another_operation_works_on_the_source(self):
        world = self.world
        claim = world.store.begin(Role.CHANGE_SOURCE, SOURCE, Claimant('other'))
        error = self.assertRaises(REFUSED, self.promote)
        self.assertIn('another operation works on it', str(error))
        self.assertEqual({'NONE'}, set(world.tasks.values()))
        world.store.finish(claim)
        world.check_ended()

    def test_a_request_that_comes_too_late(self):
        """Such as after an ejection, when the replica is the source already."""
        self.promote()
        self.world.request('PROMOTING')
        self.promote()
        self.assertEqual({'NONE'}, set(self.world.tasks.values()))
        self.world.check_source('one', [SOURCE, 'two'])

    def test_cinder_is_down(self):
        self.world.down.add('volumes')
        self.assertRaises(exceptions.ServiceUnavailableError, self.promote)
        self.world.check_source(SOURCE, ['one', 'two'])

    def test_the_database_is_down_at_the_end(self):
        world = self.world
        done = world.check_always

        def fail():
            done()
            if world.servers[SOURCE].source_id:
                world.down.add('rows')

        world.check_always = fail
        self.assertRaises(exceptions.OperationUnfinishedError, self.promote)
        world.check_always = done
        world.down.clear()
        world.recover()
        world.check_source('one', [SOURCE, 'two'])
