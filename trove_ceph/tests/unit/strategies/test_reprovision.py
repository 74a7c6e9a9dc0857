# SPDX-License-Identifier: Apache-2.0
"""What a re-provisioning does, and what it does when something goes wrong."""

import fixtures

from trove_ceph import exceptions
from trove_ceph.db.replica_record import Observation, ReplicaState
from trove_ceph.strategies.replacement.dependencies import StartProgress, StartState
from trove_ceph.strategies.replication import reprovision_rules as rules
from trove_ceph.tests.unit.strategies import reprovision_world
from trove_ceph.tests.unit.strategies.reprovision_cloud import OLD, REPLICA

FAILED = StartProgress(StartState.FAILED, 'InnoDB: page corrupt')


class ReprovisionTest(reprovision_world.ReprovisionCase):
    # What it does.

    def test_gets_a_fresh_clone(self):
        self.world.attempt().run()
        self.world.check_completed()
        self.assertEqual('it grew', self.world.record().last_reason)
        self.assertNotIn(OLD, self.world.volumes)

    def test_records_the_own_space_before_and_after(self):
        self.world.store.observe(self.world.record(), Observation(own_bytes=900))
        self.world.attempt().run()
        record = self.world.record()
        self.assertEqual((900, 50), (record.former_own_bytes, record.fresh_own_bytes))

    def test_own_space_that_cannot_be_measured_is_unknown(self):
        self.world.store.observe(self.world.record(), Observation(own_bytes=900))
        self.reach(ReplicaState.CATCHING_UP)
        self.world.own_bytes = None
        self.world.attempt().run()
        record = self.world.record()
        self.assertEqual((900, None), (record.former_own_bytes, record.fresh_own_bytes))

    def test_own_space_of_an_exchange_that_was_undone_is_forgotten(self):
        self.world.store.observe(self.world.record(), Observation(own_bytes=900))
        self.world.start_answers = [FAILED] * rules.MOST_STARTS
        self.world.finish()
        record = self.world.record()
        self.assertEqual((None, None), (record.former_own_bytes, record.fresh_own_bytes))

    def test_serves_while_the_clone_is_made(self):
        self.reach(ReplicaState.EXCHANGING)
        self.assertEqual(OLD, self.world.shown)
        world = reprovision_world.World()
        for step in world.attempt().steps()[:3]:
            step.do()
        self.assertEqual((OLD, OLD), (world.running, world.shown))
        self.assertEqual(3, len(world.volumes))

    def test_no_commit_waits_for_the_only_replica_that_acknowledges(self):
        self.world.acknowledging = 1
        self.world.finish()
        self.world.check_completed()
        self.assertEqual((0, 0), (self.world.acknowledging, self.world.waits))

    def test_commits_wait_for_another_replica(self):
        self.world.acknowledging = 2
        self.world.finish()
        self.world.check_completed()
        self.assertEqual(2, self.world.acknowledging)

    def test_a_replica_that_does_not_receive_is_not_waited_for(self):
        self.world.acknowledging, self.world.io_error = 1, 'purged'
        for step in self.world.attempt().steps()[:4]:
            step.do()
        self.assertEqual(1, self.world.acknowledging)

    def test_takes_its_time(self):
        self.world.attach_looks = self.world.detach_looks = 40
        self.world.start_duration = 40
        self.world.finish()
        self.world.check_completed()

    def test_keeps_the_old_volume_until_it_has_caught_up(self):
        self.world.speed = 0
        self.reach(ReplicaState.CATCHING_UP)
        clone = self.world.volumes[self.world.shown]
        clone.executed -= 10
        for _ in range(30):
            self.assertRaises(exceptions.InProgressError, self.world.attempt().run)
        self.world.reclaim()
        self.assertIn(OLD, self.world.volumes)
        self.world.speed = 1000
        self.world.finish()
        self.world.check_completed()

    def test_waits_for_a_source_that_is_cut_off_meanwhile(self):
        self.reach(ReplicaState.CATCHING_UP)
        self.world.is_source_up = False
        for _ in range(3):
            self.assertRaises(exceptions.InProgressError, self.world.attempt().run)
        self.world.is_source_up = True
        self.world.finish()
        self.world.check_completed()

    def test_new_source_that_lacks_what_the_old_one_had(self):
        self.reach(ReplicaState.CATCHING_UP)
        self.world.volumes[self.world.shown].executed = self.world.position = 90
        self.world.requested_position = 90
        self.world.finish()
        self.world.check_completed()

    def test_source_that_is_replaced_meanwhile(self):
        self.reach(ReplicaState.CATCHING_UP)
        attempt = self.world.attempt()
        self.world.follow('source-2')
        attempt.run()
        self.assertEqual('source-2', self.world.record().source_id)
        self.world.check_completed()

    # A guest that does not release its volume.

    def test_server_is_switched_off_if_the_guest_hangs(self):
        self.world.hangs = True
        self.reach_hanging()
        self.assertEqual('ACTIVE', self.world.server_status)
        self.world.pass_time(reprovision_world.TIMEOUT_SEC)
        self.assertRaises(exceptions.InProgressError, self.world.attempt().run)
        # MySQL was started on the clone by itself, and its guest hangs no more.
        self.world.hangs = False
        self.world.boot_looks = 5
        self.world.finish()
        self.world.check_completed()

    def reach_hanging(self):
        self.assertRaises(exceptions.InProgressError, self.world.attempt().run)
        self.assertIs(ReplicaState.EXCHANGING, self.world.record().state)
        self.assertEqual(OLD, self.world.mounted)

    def test_pool_of_the_old_volume_is_lost(self):
        world = reprovision_world.World(is_lost=True)
        world.boot_looks = 3
        world.finish()
        world.check_completed()
        self.assertEqual({OLD}, world.discarded)
        world.volumes[OLD].is_lost = False
        world.check_completed()
        self.assertNotIn(OLD, world.volumes)

    def test_no_way_back_to_a_lost_pool(self):
        world = reprovision_world.World(is_lost=True)
        world.start_answers = [FAILED] * 7
        world.finish()
        world.check_completed()

    def test_mysql_that_docker_has_started_on_the_clone(self):
        """It has the UUID of the source, and counts as no replica."""
        self.reach(ReplicaState.CATCHING_UP)
        self.world.running = self.world.mounted = self.world.shown
        self.world.volumes[self.world.shown].password = self.world.password
        self.world.finish()
        self.world.check_completed()

    # Refusals.

    def test_refused(self):
        for text, name, value in (
            ('on no tier', 'refusal', 'on no tier'),
            ('being backed up', 'is_being_backed_up', True),
            ('is deleted', 'is_source_deleted', True),
            ('follows another', 'follows', 'another'),
            ('follows no instance', 'follows', None),
        ):
            self.world = reprovision_world.World()
            setattr(self.world, name, value)
            self.world.attempt().run()
            self.assertIn(text, self.world.record().error)
            self.world.check_as_before()

    def test_refused_with_a_foreign_volume_on_the_server(self):
        self.world.volumes['foreign'] = type(self.world.volumes[OLD])(1, servers={'server'})
        del self.world.volumes[OLD]
        self.world.volumes[OLD] = type(self.world.volumes['foreign'])(50)
        self.world.attempt().run()
        self.assertIn('its server has another volume', self.world.record().error)
        self.assertNotIn('foreign', self.world.record().error)

    def test_task_that_an_operator_has_reset(self):
        self.world.trove.set(REPLICA, task_id=1)
        self.world.attempt().run()
        self.assertIn('has the task NONE', self.world.record().error)

    def test_refused_with_a_server_that_an_operator_has_to_repair(self):
        self.world.server_status = 'PAUSED'
        self.world.attempt().run()
        self.assertIn(
            'its server is PAUSED; your operator has to unpause it', self.world.record().error
        )
        self.assertIs(ReplicaState.FOLLOWING, self.world.record().state)
        self.assertEqual(OLD, self.world.running)

    # Failures before the exchange.

    def test_gives_up_before_the_exchange(self):
        self.world.clone_errors = 1000
        self.assert_ends('the storage did not answer')
        self.world.check_as_before()
        self.assertIs(1, self.world.record().failures)

    def test_source_that_does_not_answer(self):
        self.world.is_source_up = False
        self.world.password = 1
        self.assert_ends('does not answer')
        self.world.check_as_before()

    def test_clone_that_cannot_be_removed(self):
        self.world.clone_errors = 1000
        self.world.down = {'clones'}
        self.world.finish()
        self.world.check_as_before()

    # An exchange that does not end.

    def reach_blocked(self):
        """Make attempts until an operator is needed; return what the tenant reads."""
        for _ in range(500):
            if self.world.is_blocked():
                return self.world.record().error
            self.assertRaises(exceptions.TroveCephError, self.world.attempt().run)
            self.world.pass_time(5)
            self.world.check_always()
        self.fail(f'not blocked: {self.world.record()}')

    def test_server_that_an_operator_has_to_repair(self):
        for status, repair in (
            ('PAUSED', 'unpause it'),
            ('RESCUE', 'unrescue it'),
            ('SHELVED', 'unshelve it'),
            ('SHELVED_OFFLOADED', 'unshelve it'),
            ('SOFT_DELETED', 'restore it'),
            ('SUSPENDED', 'resume it'),
            ('VERIFY_RESIZE', 'confirm or revert'),
        ):
            self.world = reprovision_world.World()
            self.world.becomes = status
            log = self.useFixture(fixtures.FakeLogger())
            error = self.reach_blocked()
            self.assertIn(f'its server is {status}, expected ACTIVE or SHUTOFF', error)
            self.assertIn(repair, error)
            # Operators read the rest in the log.
            self.assertNotIn('host-7', error)
            self.assertRegex(
                log.output, f'needs an operator: .*server server is {status}.*a fault of host-7'
            )
            self.assertEqual(('FAILED', error), (self.world.service_status, self.world.fault))
            self.assertRaises(exceptions.OperatorNeededError, self.world.attempt().run)
            self.world.server_status = 'ACTIVE'
            self.assert_ends('waited for an operator')
            self.assertEqual('HEALTHY', self.world.service_status)
            self.world.check_as_before()

    def test_server_that_is_paused_while_it_returns(self):
        self.reach(ReplicaState.CATCHING_UP)
        self.world.server_status, self.world.is_source_deleted = 'PAUSED', True
        self.assertIn('unpause it', self.reach_blocked())
        self.world.server_status, self.world.is_source_deleted = 'ACTIVE', False
        self.world.finish()
        self.world.check_as_before()

    def test_server_that_is_paused_and_no_way_back(self):
        self.world = reprovision_world.World(is_lost=True)
        self.world.becomes = 'PAUSED'
        self.assertIn('unpause it', self.reach_blocked())
        self.world.server_status = 'ACTIVE'
        self.world.finish()
        self.world.check_completed()

    def test_agent_that_is_silent_after_the_exchange_and_no_way_back(self):
        self.world = reprovision_world.World(is_lost=True)
        self.world.boot_looks = 10**6
        self.assertIn('its guest has not released its volume', self.reach_blocked())
        for _ in range(20):
            self.assertRaises(exceptions.OperatorNeededError, self.world.attempt().run)
            self.world.pass_time(5)
            self.assertTrue(self.world.is_blocked())
        self.world.agent_looks = 0
        self.world.finish()
        self.world.check_completed()

    def test_server_that_failed_is_switched_off_and_started(self):
        self.world.becomes = 'ERROR'
        error = self.assertRaises(exceptions.OperatorNeededError, self.world.attempt().run)
        self.assertIn('see its fault', str(error))
        self.assertIn('see its fault', self.world.record().error)
        self.world.finish()
        self.world.check_completed()

    def test_server_that_never_stops_keeps_its_volume(self):
        self.world.hangs = self.world.is_host_down = True
        self.reach_hanging()
        self.world.pass_time(reprovision_world.TIMEOUT_SEC)
        error = self.reach_blocked()
        self.assertEqual('Nova still changes the state of its server', error)
        # The guest may still write to it.
        self.assertEqual('in-use', self.world.volumes[OLD].status)
        self.world.is_host_down, self.world.server_task, self.world.hangs = False, '', False
        self.world.finish()
        self.world.check_as_before()

    def test_volume_is_kept_while_a_stop_is_under_way(self):
        for step in self.world.attempt().steps()[:3]:
            step.do()
        self.world.server_task = 'powering-off'
        self.assertRaises(exceptions.InProgressError, self.world.attempt().run)
        self.assertEqual('in-use', self.world.volumes[OLD].status)
        self.world.server_task = ''
        self.world.finish()
        self.world.check_completed()

    def test_detachment_that_nova_does_not_continue(self):
        for state in (ReplicaState.REQUESTED, ReplicaState.CATCHING_UP):
            self.world = reprovision_world.World()
            self.reach(state)
            volume = self.world.volumes[self.world.shown]
            volume.status, volume.is_forgotten = 'detaching', True
            if state is ReplicaState.CATCHING_UP:
                self.world.start_answers = [FAILED] * rules.MOST_STARTS
                self.world.finish()
                self.world.check_as_before()
            else:
                self.world.finish()
                self.world.check_completed()

    def test_detachment_that_is_not_continued_when_the_old_volume_is_kept(self):
        volume = self.world.volumes[OLD]
        for step in self.world.attempt().steps()[:3]:
            step.do()
        self.world.store._set(
            REPLICA, state=ReplicaState.EXCHANGING, exchange_began_at=self.world.now
        )
        volume.status, volume.is_forgotten = 'detaching', True
        self.world.is_source_deleted = True
        self.assertRaises(exceptions.InProgressError, self.world.attempt().run)
        self.assertIs(ReplicaState.RETURNING, self.world.record().state)
        self.world.is_source_deleted = False
        self.world.finish()
        self.world.check_as_before()

    def test_another_replica_is_promoted_while_it_is_blocked(self):
        self.world.becomes = 'PAUSED'
        self.reach_blocked()
        self.world.follow('source-2')
        self.world.becomes, self.world.server_status = None, 'ACTIVE'
        self.world.finish()
        self.assertEqual('source-2', self.world.record().source_id)
        self.world.check_as_before()

    def test_deleted_while_it_is_blocked(self):
        self.world.becomes = 'PAUSED'
        self.reach_blocked()
        self.world.trove.set(REPLICA, task_id=self.world.DELETING)
        self.world.finish()
        self.assertIsNone(self.world.record())
        self.world.delete_instance()
        self.world.check_deleted()

    # Nova.

    def test_server_that_nova_does_not_have(self):
        self.world.has_server = False
        error = self.assertRaises(exceptions.ServiceUnavailableError, self.world.attempt().run)
        self.assertIn('Nova has no server', str(error))
        self.assertIn('its server does not exist any more', self.world.record().error)

    def test_volume_on_another_server(self):
        for step in self.world.attempt().steps()[:3]:
            step.do()
        clone = self.world.volumes[self.world.record().new_volume_id]
        clone.servers, clone.status = {'other'}, 'in-use'
        error = self.assertRaises(exceptions.ServiceUnavailableError, self.world.attempt().run)
        self.assertIn('is attached to server other', str(error))
        self.assertEqual(error.shown, self.world.record().error)
        self.assertNotIn('server other', error.shown)
