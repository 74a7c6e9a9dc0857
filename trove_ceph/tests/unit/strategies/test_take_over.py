# SPDX-License-Identifier: Apache-2.0
"""A failover in which a replica takes over; :mod:`test_take_overs` has what the replicas do."""

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import ReplacementState
from trove_ceph.strategies.replacement import rules
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.db import replacement_helpers
from trove_ceph.tests.unit.strategies import replacement_world
from trove_ceph.tests.unit.strategies.replacement_cloud import INSTANCE, OLD


class TakeOverTest(base.BaseTestCase):
    def make_world(self, **named):
        named = {'guest_hosts': ('host-2',), 'prefers_replica': True} | named
        self.world = replacement_world.World(**named)
        return self.world

    def test_a_replica_takes_over(self):
        world = self.make_world(has_database=True)
        requested = world.now
        record, error = world.finish()
        world.check_taken_over()
        self.assertIsNone(error)
        self.assertEqual(
            (requested, requested, requested, None, ''),
            (
                *(record.take_over_at, record.fenced_at, record.ended_at),
                *(record.new_server_id, record.reason),
            ),
        )
        self.assertEqual(0, world.record().attempts)

    def test_a_new_source_that_does_not_answer_any_more(self):
        """The volume does not move: the new source may accept writes, or do so later."""
        world = self.make_world(has_database=True)
        world.is_successor_silent = True
        record, error = world.finish()
        self.assertIsNone(error)
        self.assertEqual(
            (ReplacementState.FAILED, 'replica', 'replica: is the source now, and is silent'),
            (record.state, record.promoted_id, record.error),
        )
        self.assertEqual(replacement_helpers.EJECTION_ERROR, world.trove.task(INSTANCE))
        self.assertEqual(set(), world.ceph.writers())

    def test_an_instance_without_replicas(self):
        world = self.make_world()
        world.has_replicas = False
        record, _error = world.finish()
        world.check_completed()
        self.assertEqual(('', None), (record.reason, record.take_over_at))
        self.assertFalse(world.has_followed_again)

    def test_without_a_policy_that_prefers_it(self):
        world = self.make_world(prefers_replica=False)
        record, _error = world.finish()
        world.check_completed()
        self.assertIsNone(record.take_over_at)

    def test_no_replica_is_fit(self):
        world = self.make_world(has_database=True)
        world.is_replica_fit = False
        record, error = world.finish()
        world.check_completed()
        self.assertIsNone(error)
        self.assertEqual('no replica took over: source: no replica is fit', record.reason)
        self.assertIsNone(record.promoted_id)
        self.assertTrue(world.has_followed_again)

    def test_replicas_that_do_not_follow_again(self):
        """The watch shows them; the source serves."""
        world = self.make_world()
        world.is_replica_fit = False
        world.down.add('successors')
        attempt = world.attempt()
        self.assertRaises(exceptions.ServiceUnavailableError, attempt.run)
        world.down.clear()
        attempt = world.attempt()
        attempt._take_over._attempt.deps.successors._client._client.follow_again = _silent
        attempt.run()
        world.check_completed()

    def test_what_a_move_needs_is_checked_before(self):
        world = self.make_world()
        world.needs_error = 'the flavor does not exist'
        record, _error = world.finish()
        self.assertIs(ReplacementState.FAILED, record.state)
        self.assertFalse(world.has_taken_over)
        world.check_serves(OLD)

    def test_it_goes_on_for_as_long_as_it_takes(self):
        world = self.make_world()
        world.is_unfinished = True
        attempts = rules.MOST_ATTEMPTS + 5
        for _number in range(attempts):
            # The replica accepts writes, and then its agent does not answer.
            attempt = world.attempt()
            world.has_taken_over = False
            self.assertRaises(exceptions.OperationUnfinishedError, attempt.run)
            world.pass_time(60)
        record = world.record()
        self.assertEqual(
            (ReplacementState.TAKING_OVER, attempts, 'having a replica take over'),
            (record.state, record.attempts, record.step),
        )
        world.is_unfinished = False
        world.finish()
        world.check_taken_over()

    def delete_at_accept_writes(self, **found):
        """Delete the instance while its replica is to accept writes, kill the worker, and go on.

        :param found: what the next attempt finds
        :returns: the world and the record
        """
        world = self.make_world()

        def kill(_place):
            world.trove.set(INSTANCE, task_id=world.DELETING)
            for name, value in found.items():
                setattr(world, name, value)
            raise interruption.Kill

        world.at = lambda place: kill(place) if 'accept writes' in place else None
        self.assertRaises(interruption.Kill, world.attempt().run)
        world.at = lambda _place: None
        record, _error = world.finish()
        return world, record

    def test_the_instance_is_deleted_when_a_replica_has_taken_over(self):
        world, record = self.delete_at_accept_writes(has_taken_over=True)
        self.assertIs(ReplacementState.CANCELED, record.state)
        self.assertTrue(world.is_given_up)
        self.assertEqual(replacement_helpers.DELETING, world.trove.task(INSTANCE))

    def test_the_instance_is_deleted_before_a_replica_has_taken_over(self):
        world, record = self.delete_at_accept_writes(is_replica_fit=False)
        self.assertIs(ReplacementState.CANCELED, record.state)
        self.assertFalse(world.has_taken_over)

    def test_the_instance_is_deleted_between_two_attempts(self):
        """The deletion has the claim on the source; nothing waits for that."""
        world = self.make_world()
        world.is_unfinished = True
        self.assertRaises(exceptions.OperationUnfinishedError, world.attempt().run)
        world.is_taking_over = False
        world.is_given_up = False
        world.trove.set(INSTANCE, task_id=world.DELETING)
        record, _error = world.finish()
        self.assertIs(ReplacementState.CANCELED, record.state)
        self.assertFalse(world.is_given_up)

    def test_a_worker_that_is_suspended_while_the_volume_moves(self):
        """Its late fence does not cut the new server off, and no replica accepts writes."""
        for place in ('listed the clients of the source', 'is about to fence'):
            world = self.make_world()

            def suspend(found, world=world, place=place):
                if found == place:
                    world.at = lambda _place: None
                    world.is_replica_fit = False
                    world.finish()
                    world.is_replica_fit = True

            world.at = suspend
            self.assertRaises(exceptions.ClaimLostError, world.attempt().run)
            world.check_completed()
            self.assertFalse(world.has_taken_over)

    def test_a_worker_that_lost_its_claim_chooses_none(self):
        world = self.make_world()
        suspended = world.attempt()
        world.is_replica_fit = False
        # Another one goes on meanwhile, and moves the volume.
        world.finish()
        world.is_replica_fit = True
        self.assertRaises(exceptions.ClaimLostError, suspended._take_over.confirm_claim)
        self.assertFalse(world.has_taken_over)


def _silent(_instance_id):
    raise exceptions.ReplicasLeftError('replica: does not answer')
