# SPDX-License-Identifier: Apache-2.0
"""What the watch over replicas takes for drift, and which re-provisionings it requests."""

import datetime

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.db.claims import Claimant
from trove_ceph.db.replica_record import Cause, Requester
from trove_ceph.strategies.replication.replication_types import ThreadState
from trove_ceph.strategies.replication.watch_dependencies import VolumeUsage
from trove_ceph.tests.unit.db.replacement_helpers import DELETING, MIGRATING
from trove_ceph.tests.unit.strategies.replication_watch_world import (
    OTHER_SERVER,
    STOPPED,
    UNREACHABLE,
    WatcherTestCase,
    executed,
    replica_status,
)

#: A server whose transactions the source has lost.
LOST_SERVER = 'cccccccc-71ca-11e1-9e33-c80aa9429562'


class DriftTest(WatcherTestCase):
    def test_a_replica_that_works_is_left_alone(self):
        self.start(2)
        self.run_rounds(10)
        self.assertEqual({}, self.world.requested())

    def test_a_broken_replica_gets_a_fresh_clone_after_enough_looks(self):
        self.start(2, looks=3)
        self.run_rounds(2)
        self.world.change('r-1', **STOPPED)
        self.run_rounds(2)
        self.assertEqual({}, self.world.requested())
        self.run_rounds()
        self.assertEqual({'r-1': Cause.BROKEN}, self.world.requested())
        record = self.world.store.find('r-1')
        self.assertEqual(
            (Requester.POLICY, 'its replication stopped: Duplicate'),
            (record.requested_by, record.reason),
        )
        self.assertEqual(MIGRATING, self.world.trove.task('r-1'))

    def test_looks_that_disagree_begin_the_count_again(self):
        self.start(looks=2)
        self.world.change('r-0', **STOPPED)
        self.run_rounds()
        # Another cause, and none.
        self.world.change('r-0', io_state=ThreadState.OFF, io_error_number=1236)
        self.run_rounds()
        self.world.change('r-0', io_error_number=0, sql_error_number=0)
        self.run_rounds()
        self.world.change('r-0', **STOPPED)
        self.run_rounds()
        self.assertEqual({}, self.world.requested())
        self.run_rounds()
        self.assertEqual({'r-0': Cause.BROKEN}, self.world.requested())

    def test_each_cause(self):
        hour = datetime.timedelta(hours=1)
        for cause in set(Cause) - {Cause.REQUEST}:
            self.start(looks=2, reprovision_every_hours=48, max_own_percent=50)
            world = self.world
            if cause is Cause.AGE:
                world.now += 49 * hour
            elif cause is Cause.GROWTH:
                world.now += 25 * hour
                world.usages['v-r-0'] = VolumeUsage(units.Gi, 1, units.Gi)
            elif cause is Cause.DEPTH:
                world.usages['v-r-0'] = VolumeUsage(units.Gi, 9, units.Mi)
            elif cause is Cause.BROKEN:
                world.change('r-0', **STOPPED)
            elif cause is Cause.PURGED:
                world.change('r-0', io_error_number=1236, io_state=ThreadState.OFF)
            elif cause is Cause.ERRANT:
                world.change('r-0', gtid_executed=executed(100, f'{OTHER_SERVER}:1'))
            elif cause is Cause.VOLUME:
                world.statuses['r-0'] = None
                world.usages['v-r-0'] = exceptions.NotFoundError('gone')
            for round_ in range(8):
                if cause is Cause.LAG:
                    world.change('r-0', lag_sec=5000.0 + round_)
                self.run_rounds()
            self.assertEqual({'r-0': cause}, world.requested())

    def test_a_deep_clone_of_a_source_that_is_as_deep_is_kept(self):
        for usage in (VolumeUsage(units.Gi, 8), exceptions.ServiceUnavailableError('no'), None):
            self.start(looks=1)
            self.world.usages |= {'v-r-0': VolumeUsage(units.Gi, 9, units.Mi), 'v-s': usage}
            self.run_rounds(3)
            self.assertEqual({}, self.world.requested())

    def test_a_lag_is_followed_from_when_it_is_known(self):
        self.start(looks=1)
        world = self.world
        for lag_sec in (5000.0, 5001.0, 5002.0):
            world.change('r-0', lag_sec=lag_sec)
            self.run_rounds()
        world.change('r-0', io_state=ThreadState.CONNECTING)
        self.run_rounds(2)
        world.change('r-0', io_state=ThreadState.ON)
        for lag_sec in (5003.0, 5005.0, 5004.0, 5006.0, 5005.0):
            world.change('r-0', lag_sec=lag_sec)
            self.run_rounds()
        self.assertEqual({}, world.requested())
        world.change('r-0', lag_sec=5008.0)
        self.run_rounds(2)
        self.assertEqual({'r-0': Cause.LAG}, world.requested())

    def test_a_pool_that_does_not_answer_although_the_one_of_the_source_does(self):
        self.start()
        self.world.statuses['r-0'] = None
        self.world.usages['v-r-0'] = UNREACHABLE
        self.world.usages['v-s'] = UNREACHABLE
        self.run_rounds(10)
        self.assertEqual({}, self.world.requested())
        self.world.usages['v-s'] = VolumeUsage(units.Gi, 0)
        self.run_rounds(3)
        self.assertEqual({'r-0': Cause.VOLUME}, self.world.requested())

    def test_a_service_that_does_not_answer_proves_nothing(self):
        self.start()
        self.world.statuses['r-0'] = None
        self.world.usages['v-r-0'] = exceptions.ServiceUnavailableError('no answer')
        self.run_rounds(10)
        self.assertEqual({}, self.world.requested())

    def test_a_replica_that_progresses_is_kept_whatever_ceph_says(self):
        self.start()
        for number, error in enumerate((UNREACHABLE, exceptions.NotFoundError('gone'))):
            self.world.usages['v-r-0'] = error
            for round_ in range(10):
                self.world.change('r-0', gtid_executed=executed(10 * number + round_ + 1))
                self.run_rounds()
        self.assertEqual({}, self.world.requested())

    def test_a_replica_that_hangs_with_its_volume_may_say_that_it_replicates(self):
        self.start(looks=3)
        self.run_rounds()
        self.world.usages['v-r-0'] = UNREACHABLE
        self.run_rounds(2)
        self.assertEqual({}, self.world.requested())
        self.run_rounds()
        self.assertEqual({'r-0': Cause.VOLUME}, self.world.requested())

    def test_a_mysql_that_does_not_start_for_longer_than_the_longest_lag(self):
        self.start(looks=3, max_lag_sec=300)
        self.world.statuses['r-0'] = 'MySQL does not run'
        self.run_rounds(12)
        self.assertEqual({}, self.world.requested())
        record = self.world.store.find('r-0')
        self.assertEqual(
            (False, 'MySQL does not run'), (record.is_replicating, record.replication_error)
        )
        self.run_rounds(2)
        self.assertEqual({'r-0': Cause.BROKEN}, self.world.requested())

    def test_a_silent_agent_proves_nothing(self):
        self.start(max_lag_sec=60)
        self.world.statuses['r-0'] = None
        self.run_rounds(20)
        self.assertEqual({}, self.world.requested())

    def test_without_its_source_nothing_is_requested(self):
        self.start()
        self.world.change('r-0', **STOPPED)
        self.world.statuses['s'] = None
        self.run_rounds(10)
        self.assertEqual({}, self.world.requested())
        self.assertEqual('error 1062: Duplicate', self.world.store.find('r-0').replication_error)

    def test_the_last_known_transactions_of_a_source_are_kept(self):
        self.start()
        self.run_rounds()
        self.world.statuses['s'] = None
        self.run_rounds()
        self.assertEqual(str(executed(100)), self.world.store.find('r-0').source_executed)

    def test_one_at_a_time_and_a_pause_after_it(self):
        self.start(2, looks=1, pause=datetime.timedelta(hours=1))
        for instance_id in ('r-0', 'r-1'):
            self.world.change(instance_id, **STOPPED)
        self.run_rounds(5)
        self.assertEqual({'r-0': Cause.BROKEN}, self.world.requested())
        store = self.world.store
        store.fail(store.claim('r-0', Claimant('x')), 'no space')
        self.run_rounds(5)
        self.assertEqual({'r-1': Cause.BROKEN}, self.world.requested())
        store.fail(store.claim('r-1', Claimant('x')), 'no space')
        self.run_rounds(5)
        self.assertEqual({}, self.world.requested())
        self.world.now += datetime.timedelta(hours=2)
        self.run_rounds(1)
        self.assertEqual({'r-0': Cause.BROKEN}, self.world.requested())

    def test_a_replica_that_had_what_its_source_lacks_and_fails_is_left_alone(self):
        self.start(max_lag_sec=60)
        world = self.world
        world.change('r-0', gtid_executed=executed(100, f'{LOST_SERVER}:1-5'))
        self.run_rounds()
        self.assertTrue(world.store.find('r-0').has_surplus)
        world.statuses['r-0'] = 'no space left on device'
        world.usages['v-r-0'] = UNREACHABLE
        self.run_rounds(20)
        self.assertEqual({}, world.requested())
        found = world.store.find('r-0')
        self.assertTrue(found.has_surplus)
        self.assertIn('it may have transactions that its source lacks', found.replication_error)
        # One that had none gets a fresh clone.
        world.statuses['r-0'] = replica_status()
        self.run_rounds()
        self.assertIs(False, world.store.find('r-0').has_surplus)
        world.statuses['r-0'] = 'no space left on device'
        self.run_rounds(20)
        self.assertEqual(['r-0'], [*world.requested()])

    def test_an_instance_with_a_task_is_asked_for_again(self):
        self.start(looks=1)
        self.world.change('r-0', **STOPPED)
        self.world.trove.set('r-0', task_id=DELETING)
        self.run_rounds(3)
        self.assertEqual({}, self.world.requested())
        self.world.trove.set('r-0', task_id=1)
        self.run_rounds()
        self.assertEqual({'r-0': Cause.BROKEN}, self.world.requested())

    def test_a_policy_of_the_source(self):
        self.start(looks=1)
        self.world.policies.set('s', reprovision_every_hours=2)
        self.run_rounds()
        self.assertEqual({}, self.world.requested())
        self.world.now += datetime.timedelta(hours=2)
        self.run_rounds()
        self.assertEqual({'r-0': Cause.AGE}, self.world.requested())
