# SPDX-License-Identifier: Apache-2.0
"""Which replicas take over from a dead source at its failover, and what hinders them."""

import datetime

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.claims import Claimant
from trove_ceph.db.roles import Role
from trove_ceph.strategies.replication import fitness
from trove_ceph.tests.unit.strategies.source_servers import gtids
from trove_ceph.tests.unit.strategies.source_world import SOURCE, World
from trove_ceph.tests.unit.strategies.take_over_world import SEEN_AT, TakeOverWorld

REFUSED = exceptions.SourceNotChangedError


class TakeOverTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = TakeOverWorld()
        self.one, self.two = self.world.servers['one'], self.world.servers['two']

    def refuse(self, text):
        """Check that no replica takes over, and that nothing was changed."""
        world = self.world
        error = self.assertRaises(REFUSED, world.take_over)
        self.assertIn(text, str(error))
        world.check_ended()
        self.assertEqual([], world.writers())
        self.assertIsNone(world.promoted)
        self.assertFalse(world.servers[SOURCE].is_fenced)
        self.assertEqual({'one': SOURCE, 'two': SOURCE}, world.table)
        self.assertEqual({}, dict(world.faults))

    def test_a_replica_that_has_everything(self):
        world = self.world
        world.take_over()
        world.check_source('one', ['two'])
        self.assertEqual(('one', True), (world.promoted, world.is_noted_fenced))
        self.assertTrue(world.servers[SOURCE].is_fenced)
        self.assertEqual(['vm-source'], world.stopped)
        self.assertEqual({'two': 'one'}, world.table)
        self.assertEqual(('NONE', 'NONE'), (world.tasks['one'], world.tasks['two']))
        # The failover, which has set it, ends it.
        self.assertEqual('MIGRATING', world.tasks[SOURCE])
        for name in (SOURCE, 'one'):
            self.assertIn('No transaction is known to be missing', world.faults[name][-1])

    def test_the_one_that_has_received_more_than_the_last_look_has_seen(self):
        self.two.executed |= gtids(SOURCE, 12, 15)
        self.world.take_over()
        self.world.check_source('two', ['one'])

    def test_the_only_replica(self):
        self.world = TakeOverWorld(['one'])
        self.world.take_over()
        self.world.check_source('one', [])

    def test_what_the_source_had_is_not_known(self):
        for changes in (
            {'last_known': gtids(SOURCE, 1) - gtids(SOURCE, 1)},
            {'source_seen_at': None},
            {'served_until': None},
        ):
            self.world = TakeOverWorld()
            vars(self.world).update(changes)
            self.refuse('no look has found out what the source had')

    def test_what_the_source_had_is_known_of_long_ago_only(self):
        later = fitness.MOST_UNKNOWN + datetime.timedelta(seconds=1)
        self.world.served_until = SEEN_AT + later
        self.refuse(
            'last answered a look at 2026-01-01T00:00:00Z; 120 s are allowed between the two'
        )

    def test_a_replica_that_lacks_what_the_source_had(self):
        self.world.last_known |= gtids(SOURCE, 12, 13)
        self.refuse('has not executed 2 transactions that are known')

    def test_a_replica_that_has_not_executed_what_it_has_received(self):
        self.one.received |= gtids(SOURCE, 12)
        self.one.pace_sec, self.one.next_at = 50, 50
        self.refuse('has not executed 1 transactions that are known')

    def test_a_replica_that_has_stopped(self):
        self.two.sql_error = 'no such table'
        self.refuse('replica two has stopped: no such table')

    def test_a_replica_that_did_not_receive(self):
        self.two.receives = False
        self.refuse('replica two did not receive')

    def test_a_replica_that_follows_no_source(self):
        self.two.source_id = None
        self.two.is_read_only = True
        self.refuse('replica two did not receive')

    def test_a_replica_that_has_started_since_the_last_look(self):
        """It may have discarded a commit that was acknowledged because it had received it."""
        self.world.now = 90
        self.one.uptime_sec, self.two.uptime_sec = 1000, 80
        self.refuse('replica two started 80 s ago, after its source had last answered (90 s ago)')

    def test_a_replica_that_has_started_before_the_last_look(self):
        self.world.now = 90
        self.one.uptime_sec, self.two.uptime_sec = 1000, 91
        self.world.take_over()
        self.world.check_source('one', ['two'])

    def test_a_replica_that_does_not_answer(self):
        self.two.is_silent = True
        self.refuse('replica two may have what others lack, and does not answer')

    def test_a_replica_with_transactions_of_its_own(self):
        for server in (self.one, self.two):
            server.executed |= gtids('one', 1)
        self.refuse('has 1 transactions that its source never had')

    def test_a_replica_that_has_a_task(self):
        self.world.tasks['two'] = 'RESTART_REQUIRED'
        self.refuse('a replica has a task of its own')
        self.assertEqual('RESTART_REQUIRED', self.world.tasks['two'])

    def test_a_replica_that_fails_over_as_well(self):
        self.world.other_tasks['two'] = 'MIGRATING'
        error = self.assertRaises(REFUSED, self.world.take_over)
        self.assertIn('has the task MIGRATING', str(error))
        self.assertEqual([], self.world.writers())

    def test_a_replica_on_one_copy_is_not_chosen(self):
        self.world.on_one_copy = {'one'}
        self.world.take_over()
        self.world.check_source('two', ['one'])

    def test_all_replicas_are_on_one_copy(self):
        self.world.on_one_copy = {'one', 'two'}
        self.refuse('keeps one copy of its data')

    def test_how_many_copies_the_storage_keeps_is_not_known(self):
        self.world.on_no_tier = {'one'}
        self.world.take_over()
        self.world.check_source('two', ['one'])
        self.assertEqual(1, len(self.world.faults['two']))

    def test_without_replicas(self):
        self.world = TakeOverWorld([])
        error = self.assertRaises(REFUSED, self.world.take_over)
        self.assertIn('it has no replica', str(error))
        self.assertEqual({}, self.world.store.rows)

    def test_without_proof_that_the_source_cannot_write(self):
        self.world.down.add('ceph')
        error = self.assertRaises(REFUSED, self.world.take_over)
        self.assertIn('does not prove that it cannot write', str(error))
        # It may be read-only if it is alive after all.
        self.assertIs(Role.CHANGE_SOURCE, self.world.store.find_role(SOURCE))
        self.assertFalse(self.world.is_noted_fenced)
        self.world.down.clear()
        self.world.move_source()
        self.world.check_source(SOURCE, ['one', 'two'])

    def test_a_source_that_is_alive_loses_nothing(self):
        """What it has committed since the last look is waited for before it is fenced."""
        self.world.servers[SOURCE].is_down = False
        self.world.take_over()
        self.world.check_source('one', ['two'])

    def test_a_replica_that_disappears_after_the_fence(self):
        world = self.world
        world.at_fenced = lambda: setattr(self.two, 'is_silent', True)
        self.assertRaises(REFUSED, world.take_over)
        self.assertEqual([], world.writers())
        self.two.is_silent = False
        world.move_source()
        world.check_source(SOURCE, ['one', 'two'])

    def refuse_after_fence(self):
        """Have a take-over be refused that has stopped both replicas; one executes nothing."""
        world, source = self.world, self.world.servers[SOURCE]

        def receive_more():
            source.written += 1
            source.executed |= gtids(SOURCE, source.written)
            self.two.received, self.two.is_stuck = source.executed, True

        world.at_fenced = receive_more
        self.assertRaises(REFUSED, world.take_over)
        self.two.is_stuck = False
        self.assertEqual((False, False), (self.one.receives, self.two.receives))

    def test_a_replica_that_answers_again_long_after_the_move(self):
        world = self.world
        self.refuse_after_fence()
        self.two.is_silent = True
        self.assertRaises(exceptions.ReplicasLeftError, world.move_source)
        self.assertEqual((True, {'two'}), (self.one.receives, world.paused))
        self.assertRaises(exceptions.ReplicasLeftError, world.watch)
        self.two.is_silent = False
        world.watch()
        world.check_source(SOURCE, ['one', 'two'])
        self.assertEqual((set(), {}), (world.paused, world.renewed))

    def test_a_source_that_its_tenant_repairs_after_the_failover(self):
        """MySQL did not start on the new server, so that the failover failed."""
        world = self.world
        self.refuse_after_fence()
        world.serve_source()
        world.watch()
        self.assertEqual({'one', 'two'}, world.paused, 'the failover is open')
        world.end_failover()
        world.watch()
        world.check_source(SOURCE, ['one', 'two'])

    def test_the_watch_leaves_an_ejected_source_alone(self):
        world = self.world
        self.refuse_after_fence()
        world.serve_source()
        world.end_failover()
        world.tasks[SOURCE] = 'EJECTION_ERROR'
        world.watch()
        self.assertFalse(self.one.receives)

    def test_a_replica_that_the_watch_does_not_know(self):
        del self.world.table['two']
        error = self.assertRaises(REFUSED, self.world.take_over)
        self.assertIn('replica two is not watched yet', str(error))

    def test_a_replica_that_disappears_when_it_is_to_accept_writes(self):
        world = self.world
        changes, _operations = world.changes()
        note = changes._deps.choices.note

        def disappear(replica_id):
            note(replica_id)
            self.one.is_silent = True

        changes._deps.choices.note = disappear
        self.assertRaises(exceptions.NewSourceSilentError, world.take_over, changes)
        # The next attempt finds it, too, if the taskmanager dies before it ends the failover.
        self.assertRaises(exceptions.NewSourceSilentError, world.take_over)
        self.assertEqual([], world.writers())
        self.assertEqual((None, 'one'), (world.sources['one'], world.sources['two']))
        self.assertEqual('EJECTION_ERROR', world.tasks['one'])

    def test_an_ejection_that_is_requested_meanwhile(self):
        """The failover gets its task back, although it has fenced the source."""
        world = self.world

        def fail():
            # Trove's API checks no task.
            world.request('EJECTING')
            self.two.is_silent = True

        world.at_fenced = fail
        self.assertRaises(REFUSED, world.take_over)
        self.assertEqual('MIGRATING', world.tasks[SOURCE])
        self.assertEqual('NONE', world.tasks['one'])

    def test_a_choice_that_does_not_accept_writes_is_not_noted(self):
        """Otherwise a later attempt could take it for the source, if no replica is left."""
        world = self.world
        changes, _operations = world.changes()

        def fail(_replica_id):
            raise exceptions.ServiceUnavailableError('the database does not answer')

        changes._deps.choices.note = fail
        self.assertRaises(exceptions.ServiceUnavailableError, world.take_over, changes)
        self.assertIsNone(world.promoted)
        self.assertEqual([], world.writers())

    def test_the_new_source_could_not_be_noted(self):
        world = self.world
        changes, _operations = world.changes()
        note_promoted = world._note_promoted

        def fail(_replica_id):
            raise exceptions.ServiceUnavailableError('the database does not answer')

        world._note_promoted = fail
        self.assertRaises(exceptions.OperationUnfinishedError, world.take_over, changes)
        self.assertEqual((SOURCE, ['one']), (world.sources['one'], world.writers()))
        world._note_promoted = note_promoted
        world.take_over(changes)
        self.assertEqual('one', world.promoted)
        world.check_source('one', ['two'])

    def test_another_worker_has_moved_the_volume_meanwhile(self):
        """A late fence would cut the new server off."""

        def lose():
            raise exceptions.ClaimLostError('another worker continues the failover')

        self.world.at_confirmation = lose
        self.assertRaises(exceptions.ClaimLostError, self.world.take_over)
        self.assertFalse(self.world.servers[SOURCE].is_fenced)

    def test_another_worker_may_still_work_on_it(self):
        store = self.world.store
        self.assertTrue(store.begin(Role.TAKE_OVER, SOURCE, Claimant('other')))
        self.assertRaises(exceptions.OperationUnfinishedError, self.world.take_over)
        self.assertEqual(SOURCE, self.world.sources['one'])

    def test_another_operation_works_on_the_source(self):
        store = self.world.store
        self.assertTrue(store.begin(Role.CHANGE_SOURCE, SOURCE, Claimant('other')))
        self.assertRaises(REFUSED, self.world.take_over)

    def test_nothing_is_done_again(self):
        self.world.take_over()
        self.world.take_over()
        self.world.check_source('one', ['two'])

    def test_the_row_of_an_attempt_whose_end_was_not_recorded(self):
        """It would refuse all later operations on the source."""
        world = self.world
        self.assertTrue(world.store.begin(Role.TAKE_OVER, SOURCE, Claimant('dead')))
        world.store.forget_workers()
        world.move_source()
        world.check_source(SOURCE, ['one', 'two'])

    def test_the_row_of_a_take_over_whose_failover_has_ended(self):
        """It would refuse the promotions of its replicas, their ejections and failovers."""
        world = self.world
        self.assertTrue(world.store.begin(Role.TAKE_OVER, SOURCE, Claimant('dead')))
        world.request('EJECTING', 'one', 'two')
        World.recover(world)
        self.assertIs(Role.TAKE_OVER, world.store.find_role(SOURCE), 'the failover is open')
        world.end_failover()
        World.recover(world)
        self.assertIsNone(world.store.find_role(SOURCE))
        self.assertEqual({'NONE'}, set(world.tasks.values()))
        self.assertEqual({'one': SOURCE, 'two': SOURCE}, world.table)

    def test_replicas_that_were_not_stopped_are_left_alone(self):
        world = self.world
        self.two.sql_error = 'no such table'
        world.servers[SOURCE].is_fenced = True
        world.move_source()
        self.assertEqual(['no such table'], [self.two.sql_error])
        self.assertEqual({}, world.renewed)
        world.check_source(SOURCE, ['one'])
