# SPDX-License-Identifier: Apache-2.0
"""The replacement of a server: what is refused, what goes wrong, and what is waited for."""

import datetime

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.guest_record import GuestState
from trove_ceph.db.replacement_record import FailoverCause, ReplacementKind, ReplacementState
from trove_ceph.strategies.replacement import rules
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.db import replacement_helpers
from trove_ceph.tests.unit.strategies import replacement_cloud, replacement_world
from trove_ceph.tests.unit.strategies.replacement_cloud import INSTANCE, OLD

RESIZE = ReplacementKind.RESIZE
OTHER_HOST = ('host-2',)


class ReplacementTestCase(base.BaseTestCase):
    def make_world(self, *arguments, **named):
        self.world = replacement_world.World(*arguments, **named)
        return self.world

    def finish_failed(self):
        """Return why the replacement failed, having changed nothing."""
        record, _error = self.world.finish()
        self.assertIs(ReplacementState.FAILED, record.state)
        self.world.check_serves(OLD)
        self.assertEqual(replacement_helpers.NONE, self.world.trove.task(INSTANCE))
        return record.error


class MoveTest(ReplacementTestCase):
    """A failover for the maintenance of a host."""

    def make_move(self, is_healthy=True):
        return self.make_world(
            guest_hosts=OTHER_HOST, cause=FailoverCause.MAINTENANCE, is_healthy=is_healthy
        )

    def test_mysql_stops_before_the_fence(self):
        record, _error = self.make_move().finish()
        self.world.check_completed()
        self.assertFalse(self.world.is_crashed)
        self.assertIsNotNone(record.stop_requested_at)
        # Its agent has answered, so that it works.
        self.assertIsNone(self.world.reported_since)

    def test_another_failover_does_not_wait_for_mysql(self):
        for cause in set(FailoverCause) - {FailoverCause.MAINTENANCE}:
            record, _error = self.make_world(cause=cause, is_healthy=True).finish()
            self.world.check_completed()
            self.assertTrue(self.world.is_crashed)
            self.assertIsNone(record.stop_requested_at)
            self.assertEqual(record.created_at, self.world.reported_since)

    def test_a_database_that_does_not_serve_is_not_asked(self):
        world = self.make_move(is_healthy=False)
        world.stop_error = AssertionError('its agent may be silent for ever')
        record, _error = world.finish()
        world.check_completed()
        self.assertIsNone(record.stop_requested_at)

    def test_mysql_that_does_not_stop_is_fenced(self):
        world = self.make_move()
        world.stop_error = exceptions.GuestSilentError('no answer in 600 s')
        record, error = world.finish()
        world.check_completed()
        self.assertEqual((True, None, 0), (world.is_crashed, error, record.attempts))
        self.assertEqual(record.created_at, world.reported_since)

    def test_a_replica_whose_source_does_not_serve(self):
        """MySQL would discard its relay log, which may have what the source has lost."""
        world = self.make_world(
            guest_hosts=OTHER_HOST,
            cause=FailoverCause.MAINTENANCE,
            is_healthy=True,
            source_id='a-source',
        )
        world.source_serves = False
        self.assertIn('its source a-source does not serve', self.finish_failed())

    def test_mysql_is_started_again_if_the_move_is_refused(self):
        """Another attempt finds what has changed since the stop."""
        world = self.make_move()

        def kill(*_arguments):
            world.is_being_backed_up = True
            raise interruption.Kill

        attempt = world.attempt()
        attempt._old.fence = kill
        self.assertRaises(interruption.Kill, attempt.run)
        self.assertEqual(set(), world.serving)
        self.assertIn('is being backed up', self.finish_failed())
        self.assertIsNone(world.record().stop_requested_at)


class FailoverTest(ReplacementTestCase):
    def test_guest_on_another_host_becomes_the_server(self):
        world = self.make_world(guest_hosts=('host-1', 'host-2'), has_database=True)
        requested = world.now
        record, error = world.finish()
        world.check_completed()
        self.assertIsNone(error)
        self.assertEqual(
            ('host-1', 'host-2', 'zone', 'image', None, None),
            (
                record.old_host,
                record.new_host,
                record.availability_zone,
                record.image_id,
                record.error,
                record.step,
            ),
        )
        self.assertEqual(('port-instance',), record.port_ids)
        self.assertEqual(('port-management',), record.old_management_port_ids)
        self.assertEqual(record.new_server_id, world.guests[record.guest_id].server_id)
        self.assertEqual([requested] * 3, [record.fenced_at, record.moved_at, record.ended_at])

    def test_nova_boots_a_server_if_no_guest_fits(self):
        for hosts in ((), ('host-1',)):
            world = self.make_world(guest_hosts=hosts)
            record, _error = world.finish()
            world.check_completed()
            self.assertEqual((None, 'host-3'), (record.guest_id, record.new_host))
            self.assertIsNotNone(record.new_management_port_id)

    def test_one_attempt_waits_until_the_host_of_the_old_server_reports(self):
        world, places = self.make_world(guest_hosts=OTHER_HOST), []
        world.host_looks, world.at = 12, places.append
        _record, error = world.finish()
        world.check_completed()
        self.assertIsNone(error)
        # Before the deletion, and after it.
        self.assertEqual(2, places.count('is about to fence'))

    def test_a_host_that_does_not_report_for_long(self):
        world = self.make_world(guest_hosts=OTHER_HOST)
        world.host_looks = 100
        error = self.assertRaises(exceptions.InProgressError, world.attempt().run)
        self.assertIn('has not reported yet', str(error))
        self.assertLess(world.host_looks, 100 - 12)
        world.finish()
        world.check_completed()

    def test_server_that_does_not_run(self):
        self.make_world(is_running=False).finish()
        self.world.check_completed()

    def test_server_that_nova_has_no_more(self):
        world = self.make_world()
        world.servers[OLD].deletes_volume = False
        del world.servers[OLD]
        world.serving.clear()
        record, _error = world.finish()
        world.check_completed()
        self.assertIsNone(record.old_host)

    def test_old_server_that_was_a_guest_is_retired(self):
        world = self.make_world(guest_hosts=OTHER_HOST)
        old = replacement_cloud.ready_guest('old', world.now, 'host-1')
        world.guests['old'] = old
        world.set_guest(old, state=GuestState.BOUND, server_id=OLD)
        world.finish()
        world.check_completed()
        self.assertNotIn('old', world.guests)

    def test_steps_are_shown(self):
        world = self.make_world()
        shown = []
        note = world.store.note

        def noted(claim, **values):
            shown.append(values.get('step'))
            return note(claim, **values)

        world.store.note = noted
        world.finish()
        self.assertEqual(
            [
                'checking the instance',
                'noting what the new server needs',
                'keeping the volume',
                'stopping MySQL',
                'fencing the volume',
                'cutting off the old server',
                'deleting the old server',
                'providing the new server',
                'showing the new server',
                'starting MySQL',
                'tidying up',
            ],
            [one for one in shown if one is not None],
        )


class ResizeTest(ReplacementTestCase):
    def test_guest_of_the_new_flavor_becomes_the_server(self):
        world = self.make_world(RESIZE, guest_hosts=('host-1',))
        world.service_status, world.agent_seen_at = 'HEALTHY', world.now
        record, _error = world.finish()
        world.check_completed()
        self.assertEqual(('large', 'host-1'), (world.flavor, record.new_host))

    def test_guest_of_the_present_image_becomes_the_server(self):
        world = self.make_world(ReplacementKind.REBUILD, guest_hosts=OTHER_HOST)
        world.finish()
        world.check_completed()
        self.assertEqual('small', world.flavor)

    def test_without_a_guest_nothing_is_stopped(self):
        world = self.make_world(RESIZE)
        self.assertIn('no warm guest of flavor large', self.finish_failed())
        self.assertEqual({OLD}, world.serving)

    def test_mysql_that_does_not_stop_is_started_again(self):
        world = self.make_world(RESIZE, guest_hosts=OTHER_HOST)
        world.ports['port-management'].is_up = False
        self.assertRaises(exceptions.GuestUnavailableError, world.attempt().run)
        self.assertEqual(1, world.record().attempts)
        world.ports['port-management'].is_up = True
        self.assertEqual({OLD}, world.serving)
        # The guest was not retired, because MySQL might have been stopped.
        world.finish()
        world.check_completed()

    def test_resize_that_is_refused_after_a_kill_starts_mysql_again(self):
        world = self.make_world(RESIZE, guest_hosts=OTHER_HOST)
        operation = world.attempt().steps()
        for step in operation[:4]:
            step.do()
        self.assertEqual(set(), world.serving)
        world.is_being_backed_up = True
        self.assertIn('being backed up', self.finish_failed())

    def test_guest_that_is_retired_before_the_fence_is_replaced_by_a_booted_server(self):
        world = self.make_world(RESIZE, guest_hosts=OTHER_HOST)
        for step in world.attempt().steps()[:7]:
            step.do()
        (guest,) = world.guests.values()
        world.set_guest(guest, state=GuestState.RETIRED)
        record, _error = world.finish()
        world.check_completed()
        self.assertIsNone(record.guest_id)


class RefusalTest(ReplacementTestCase):
    def test_healthy_instance(self):
        world = self.make_world()
        world.service_status, world.agent_seen_at = 'HEALTHY', world.now
        self.assertIn('is healthy', self.finish_failed())

    def test_volume_or_needs_that_do_not_exist(self):
        self.make_world().is_on_tier = False
        self.assertIn('is on no tier', self.finish_failed())
        self.make_world().needs_error = 'flavor small does not exist'
        self.assertEqual('flavor small does not exist', self.finish_failed())

    def test_server_without_a_port_of_the_instance(self):
        world = self.make_world()
        world.ports['port-instance'].kind = 'other'
        record, _error = world.finish()
        self.assertIs(ReplacementState.FAILED, record.state)
        self.assertIn('no port', record.error)

    def test_server_that_changed_after_the_request(self):
        world = self.make_world()
        world.shown = 'another'
        record, _error = world.finish()
        self.assertIn('got another server', record.error)
        world.shown = OLD
        world.check_serves(OLD)

    def test_rebuild_whose_task_an_earlier_release_has_left(self):
        world = self.make_world(ReplacementKind.REBUILD, guest_hosts=OTHER_HOST)
        world.trove.set(INSTANCE, task_id=replacement_helpers.BUILDING)
        record, _error = world.finish()
        self.assertIs(ReplacementState.COMPLETED, record.state)
        self.assertEqual(replacement_helpers.NONE, world.trove.task(INSTANCE))

    def test_task_that_an_operator_has_reset(self):
        self.make_world().trove.set(INSTANCE, task_id=replacement_helpers.NONE)
        self.assertIn('has the task NONE', self.finish_failed())

    def test_source_that_is_being_changed(self):
        self.make_world().source_change = 'its replica r is being promoted'
        self.assertIn('its replica r is being promoted', self.finish_failed())

    def test_source_that_is_changed_after_the_fence(self):
        """The change finds the record of the replacement, and is refused."""
        world = self.make_world(guest_hosts=OTHER_HOST)
        for step in world.attempt().steps()[:5]:
            step.do()
        self.assertIs(ReplacementState.FENCING, world.record().state)
        world.source_change = 'is being ejected'
        world.finish()
        world.check_completed()

    def test_task_of_another_request_that_is_not_given_back(self):
        for name, task in (
            ('PROMOTING', replacement_world.PROMOTING),
            ('UPDATING', replacement_world.UPDATING),
            ('BUILDING', replacement_helpers.BUILDING),
        ):
            self.make_world().trove.set(INSTANCE, task_id=task)
            record, _error = self.world.finish()
            self.assertIn(f'has the task {name}', record.error)
            self.assertEqual(0, record.attempts)
            self.assertGreaterEqual(record.ended_at - record.created_at, rules.OVERWRITTEN_TIMEOUT)
            self.world.check_serves(OLD)

    def test_attempts_before_the_fence_are_limited(self):
        for kind in ReplacementKind:
            world = self.make_world(kind, guest_hosts=OTHER_HOST)
            world.down = {'servers'}
            error = self.finish_failed()
            self.assertIn('a service that it needs did not answer', error)
            self.assertEqual(rules.MOST_ATTEMPTS, world.record().attempts)
            self.assertEqual({OLD}, world.serving)


class FenceTest(ReplacementTestCase):
    def test_nothing_moves_without_a_proof(self):
        world = self.make_world(guest_hosts=OTHER_HOST)
        world.unproved = 3
        for attempts in range(1, 4):
            self.assertRaises(exceptions.NotFencedError, world.attempt().run)
            record = world.record()
            self.assertEqual((ReplacementState.FENCING, attempts), (record.state, record.attempts))
            self.assertIn(OLD, world.servers)
            self.assertEqual({OLD}, world.attached)
            pause = datetime.timedelta(seconds=rules.retry_sec(attempts))
            self.assertEqual(record.updated_at + pause, record.retry_at)
        world.finish()
        world.check_completed()
        self.assertEqual((0, None), (world.record().attempts, world.record().retry_at))

    def test_server_that_its_host_starts_again_after_the_fence(self):
        for hosts in ((), OTHER_HOST):
            world = self.make_world(guest_hosts=hosts, is_host_down=True)
            world.restarts_once = True
            world.finish()
            world.check_completed()

    def test_deletion_that_takes_long(self):
        world = self.make_world(guest_hosts=OTHER_HOST)
        world.deletion_looks = 100
        error = self.assertRaises(exceptions.InProgressError, world.attempt().run)
        self.assertIn('still deletes', str(error))
        record = world.record()
        self.assertEqual((ReplacementState.FENCING, 0), (record.state, record.attempts))
        # Tenants read it, who do not see the servers.
        self.assertEqual('waits until a server is deleted', record.error)
        world.finish()
        world.check_completed()
        self.assertIsNone(world.record().error)

    def test_volume_that_nova_detaches_late(self):
        world = self.make_world(guest_hosts=OTHER_HOST)
        world.attached.add('another')
        self.assertRaises(exceptions.InProgressError, world.attempt().run)
        self.assertIs(ReplacementState.FENCING, world.record().state)
        world.attached.discard('another')
        world.finish()
        world.check_completed()
