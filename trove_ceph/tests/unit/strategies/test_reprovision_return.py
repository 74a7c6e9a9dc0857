# SPDX-License-Identifier: Apache-2.0
"""When a replica gets its old volume back."""

import datetime

import fixtures

from trove_ceph import exceptions
from trove_ceph.db.replacement_record import ReplacementKind
from trove_ceph.db.replica_record import ReplicaState, Requester
from trove_ceph.strategies.replacement.dependencies import StartProgress, StartState
from trove_ceph.strategies.replication import reprovision_rules as rules
from trove_ceph.tests.unit.strategies import reprovision_cloud, reprovision_world
from trove_ceph.tests.unit.strategies.reprovision_cloud import OLD, REPLICA, REPLICA_UUID

FAILED = StartProgress(StartState.FAILED, 'InnoDB: page corrupt')


class ReturnTest(reprovision_world.ReprovisionCase):
    def test_gets_its_old_volume_back_if_nova_does_not_attach_the_new_one(self):
        self.world.attach_errors = rules.MOST_ATTEMPTS
        self.assert_ends('a service that it needs did not answer')
        self.world.check_as_before()

    def test_gets_its_old_volume_back_if_mysql_does_not_start(self):
        self.world.start_answers = [FAILED] * rules.MOST_STARTS
        self.assert_ends('page corrupt')
        self.world.check_as_before()

    def test_gets_its_old_volume_back_if_it_does_not_follow(self):
        for name in ('io_error', 'sql_error'):
            self.world = reprovision_world.World()
            self.reach(ReplicaState.CATCHING_UP)
            setattr(self.world, name, 'error 1236')
            for _ in range(rules.MOST_ATTEMPTS):
                self.assertRaises(exceptions.GuestUnavailableError, self.world.attempt().run)
            self.assertIs(ReplicaState.RETURNING, self.world.record().state)
            setattr(self.world, name, '')
            self.assert_ends('error 1236')
            self.world.check_as_before()

    def test_gets_its_old_volume_back_if_it_cannot_connect(self):
        """The network between the two is cut, which MySQL reports as an error without an end."""
        self.reach(ReplicaState.CATCHING_UP)
        self.world.speed, self.world.volumes[self.world.shown].executed = 0, 90
        self.assertRaises(exceptions.InProgressError, self.world.attempt().run)

        def attach(agents, instance_id, replica_context):
            raise exceptions.GuestUnavailableError('error 2003: it does not reach its source')

        cut = fixtures.MonkeyPatch(f'{reprovision_cloud.__name__}.Agents.attach', attach)
        with cut:
            # Of its replication user, since another attempt started it.
            self.world.password += 1
            for _ in range(rules.MOST_ATTEMPTS):
                self.assertRaises(exceptions.GuestUnavailableError, self.world.attempt().run)
        self.assertIs(ReplicaState.RETURNING, self.world.record().state)
        self.assert_ends('error 2003')
        self.world.check_as_before()

    def test_gets_its_old_volume_back_if_mysql_ends_after_its_start(self):
        """The agent, which lives on, says that it has started the server."""
        self.reach(ReplicaState.CATCHING_UP)

        def status(agents, instance_id):
            if instance_id == REPLICA:
                raise exceptions.GuestUnavailableError('MySQL does not run')
            return found(agents, instance_id)

        found = reprovision_cloud.Agents.status
        self.world.start_answers = [StartProgress(StartState.SERVING)] * 10**4
        with fixtures.MonkeyPatch(f'{reprovision_cloud.__name__}.Agents.status', status):
            for _ in range(rules.MOST_ATTEMPTS):
                self.assertRaises(exceptions.GuestUnavailableError, self.world.attempt().run)
        self.world.start_answers = []
        self.assertIs(ReplicaState.RETURNING, self.world.record().state)
        self.assert_ends('MySQL ended after its start')
        self.world.check_as_before()

    def test_gets_its_old_volume_back_if_the_agent_is_silent(self):
        self.reach(ReplicaState.CATCHING_UP)
        self.world.agent_looks = 10**6
        self.assertRaises(exceptions.InProgressError, self.world.attempt().run)
        self.world.now += rules.ANSWER_TIMEOUT
        self.assertRaises(exceptions.InProgressError, self.world.attempt().run)
        self.assertIs(ReplicaState.RETURNING, self.world.record().state)
        self.world.agent_looks = 0
        self.assert_ends('does not answer')
        self.world.check_as_before()

    def test_gets_its_old_volume_back_if_the_source_is_silent(self):
        self.reach(ReplicaState.CATCHING_UP)
        self.world.is_source_up = False
        self.assertRaises(exceptions.InProgressError, self.world.attempt().run)
        self.world.now += rules.SOURCE_TIMEOUT
        self.world.finish()
        self.assertIn('its source does not answer', self.world.record().error)
        # Its data serve an ejection of the source.
        self.assertEqual(OLD, self.world.running)

    def test_waits_for_a_source_that_gets_another_server(self):
        for kind in ReplacementKind:
            world = self.world = reprovision_world.World()
            self.reach(ReplicaState.CATCHING_UP)
            world.is_source_up, world.source_task = False, kind.task
            self.assertRaises(exceptions.InProgressError, world.attempt().run)
            world.now += rules.SOURCE_TIMEOUT
            self.assertRaises(exceptions.InProgressError, world.attempt().run)
            self.assertIs(ReplicaState.CATCHING_UP, world.record().state)
            world.is_source_up, world.source_task = True, 'NONE'
            world.finish()
            world.check_completed()

    def test_gets_its_old_volume_back_if_the_exchange_takes_too_long(self):
        self.world.attach_looks = 10**6
        self.assertRaises(exceptions.InProgressError, self.world.attempt().run)
        self.world.now += rules.EXCHANGE_TIMEOUT + datetime.timedelta(seconds=1)
        self.world.attach_looks = 0
        self.assert_ends('not be exchanged in time')
        self.world.check_as_before()

    def test_gets_its_old_volume_back_if_the_source_is_deleted(self):
        for state in (ReplicaState.EXCHANGING, ReplicaState.CATCHING_UP):
            self.world = reprovision_world.World()
            if state is ReplicaState.CATCHING_UP:
                self.reach(state)
            else:
                self.world.detach_looks = 10**6
                self.assertRaises(exceptions.InProgressError, self.world.attempt().run)
                self.world.detach_looks = 0
            self.world.is_source_deleted = True
            self.assert_ends('is deleted')
            self.world.check_as_before()

    def test_source_that_does_not_answer_after_the_return(self):
        self.reach(ReplicaState.CATCHING_UP)
        self.world.is_source_up, self.world.is_source_deleted = False, True
        self.world.finish()
        # It follows when the watch of replicas attaches it again.
        self.assertEqual(OLD, self.world.running)
        self.assertEqual(REPLICA_UUID, self.world.volumes[OLD].uuid)

    def test_mysql_starts_on_neither_volume(self):
        self.world.start_answers = [FAILED] * 2 * rules.MOST_STARTS
        self.assert_ends('page corrupt')
        self.assertEqual('FAILED', self.world.service_status)
        self.assertEqual(OLD, self.world.shown)
        self.assertIs(ReplicaState.FOLLOWING, self.world.record().state)

    def make_lost_world(self, requester=Requester.POLICY):
        """Have the new volume not follow, and the pool of the old one not answer."""
        self.world = reprovision_world.World(requester=requester)
        self.reach(ReplicaState.CATCHING_UP)
        self.world.volumes[OLD].is_lost = True
        self.world.io_error = 'error 1236: the source has purged what it needs'

    def test_follows_on_neither_volume(self):
        """Nothing is left to wait for; the watch or the tenant has it re-provisioned again."""
        for requester in Requester:
            self.make_lost_world(requester)
            for _ in range(rules.MOST_ATTEMPTS - 1):
                self.assertRaises(exceptions.GuestUnavailableError, self.world.attempt().run)
            self.assertNotIn(OLD, self.world.discarded)
            self.world.attempt().run()
            record = self.world.record()
            self.assertIs(ReplicaState.FOLLOWING, record.state)
            self.assertEqual((1, 'FAILED'), (record.failures, self.world.service_status))
            self.assertIn('error 1236', record.error)
            self.assertEqual((self.world.shown, {OLD}), (record.volume_id, self.world.discarded))
            self.assertIsNotNone(record.cloned_at)
            self.world.check_always()
            again = self.world.store.request(REPLICA, requester, 'it is broken')
            self.assertIs(ReplicaState.REQUESTED, again.state)

    def test_old_pool_answers_again_before_it_is_given_up(self):
        self.make_lost_world()
        for _ in range(rules.MOST_ATTEMPTS - 1):
            self.assertRaises(exceptions.GuestUnavailableError, self.world.attempt().run)
        self.world.volumes[OLD].is_lost = False
        self.assertRaises(exceptions.GuestUnavailableError, self.world.attempt().run)
        self.assertIs(ReplicaState.RETURNING, self.world.record().state)
        self.world.io_error = ''
        self.assert_ends('error 1236')
        self.world.check_as_before()

    def test_old_volume_that_is_given_up_is_not_given_back(self):
        self.reach(ReplicaState.CATCHING_UP)
        self.world.attempt().run()
        self.world.check_completed()
        world = reprovision_world.World()
        steps = world.attempt().steps()
        for step in steps[:7]:
            step.do()
        world.discarded.add(OLD)
        world.start_answers = [FAILED] * rules.MOST_STARTS
        world.is_source_deleted = True
        world.finish()
        world.check_completed()
