# SPDX-License-Identifier: Apache-2.0

import dataclasses
import datetime

from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.claims import Claimant
from trove_ceph.db.replica_record import Cause, ReplicaState, Requester
from trove_ceph.strategies.replication.replication_types import ThreadState
from trove_ceph.strategies.replication.watch_dependencies import VolumeUsage
from trove_ceph.tests.unit.db.replacement_helpers import DELETING, MIGRATING
from trove_ceph.tests.unit.strategies.replication_watch_world import (
    OTHER_SERVER,
    World,
    executed,
)

STOPPED = {'sql_state': ThreadState.OFF, 'sql_error_number': 1062, 'sql_error': 'Duplicate'}
UNREACHABLE = exceptions.CephUnreachableError('no answer')


class WatcherTestCase(base.BaseTestCase):
    def start(self, count=1, **settings):
        """Create a world and the watcher of its only taskmanager."""
        self.world = World(count, **settings)
        self.watcher = self.world.watcher()

    def run_rounds(self, rounds=1):
        self.world.run(self.watcher, rounds)


class LookTest(WatcherTestCase):
    def test_what_was_seen_is_recorded(self):
        self.start(2)
        self.world.change('r-1', gtid_executed=executed(90), lag_sec=2.5)
        self.run_rounds()
        found = {one.instance_id: one for one in self.world.store.list()}
        self.assertEqual((True, 0.0, 0), self.figures(found['r-0']))
        self.assertEqual((True, 2.5, 10), self.figures(found['r-1']))
        self.assertEqual(self.world.now, found['r-0'].observed_at)
        self.assertEqual((units.Mi, 1), (found['r-0'].own_bytes, found['r-0'].clone_depth))

    def test_when_the_source_answered_last_is_recorded(self):
        self.start()
        self.run_rounds()
        seen_at = self.world.now
        self.assertEqual(seen_at, self.world.store.find('r-0').source_seen_at)
        self.world.statuses['s'] = None
        self.run_rounds()
        found = self.world.store.find('r-0')
        self.assertEqual((self.world.now, seen_at), (found.observed_at, found.source_seen_at))

    def test_a_look_that_ceph_delays_says_nothing_of_later(self):
        self.start()
        world, find_usage = self.world, self.world.find_usage
        asked_at = []

        def wait(*arguments):
            asked_at.append(world.now)
            world.now += datetime.timedelta(seconds=10)
            return find_usage(*arguments)

        world.find_usage = wait
        self.run_rounds()
        self.assertEqual(asked_at[0], world.store.find('r-0').source_seen_at)

    def test_a_replica_that_a_refused_ejection_has_stopped(self):
        self.start(2)
        world = self.world
        self.run_rounds()
        world.store.note_stopped('r-1')
        source, world.statuses['s'] = world.statuses['s'], None
        self.run_rounds()
        self.assertEqual([], world.resumed, 'the source does not answer')
        world.statuses['s'] = source
        self.run_rounds(2)
        self.assertEqual(['s', 's'], world.resumed)
        world.store.forget_stopped('r-1')
        self.run_rounds()
        self.assertEqual(['s', 's'], world.resumed)

    def test_a_stopped_replica_that_does_not_answer(self):
        self.start(2)
        self.world.store.note_stopped('r-1')
        self.world.statuses['r-1'] = None
        self.run_rounds()
        self.assertEqual([], self.world.resumed)

    def figures(self, record):
        return record.is_replicating, record.lag_sec, record.lag_transactions

    def test_replicas_are_asked_before_their_source(self):
        self.start(3)
        self.run_rounds()
        self.assertEqual(['r-0', 'r-1', 'r-2', 's'], self.world.asked)

    def test_own_space_is_measured_every_ten_minutes(self):
        self.start(2)
        self.run_rounds(20)
        self.assertEqual(['v-r-0', 'v-r-1'], self.world.measured)
        self.run_rounds(1)
        self.assertEqual(['v-r-0', 'v-r-1'] * 2, self.world.measured)

    def test_a_fresh_volume_is_measured_at_once(self):
        self.start()
        self.run_rounds()
        world = self.world
        world.usages['v-new'] = VolumeUsage(units.Gi, 1, 7)
        world.instances['r-0'] = world.instances['r-0'].__class__('r-0', 'p', 'v-new')
        self.run_rounds()
        self.assertEqual(['v-r-0', 'v-new'], world.measured)
        self.assertEqual(7, world.store.find('r-0').own_bytes)

    def test_without_replicas_nothing_is_asked(self):
        self.start(0)
        self.world.list_instances = lambda: self.fail('Trove was asked')
        self.run_rounds(2)
        self.assertEqual([], self.world.asked)

    def test_a_replica_without_a_row_is_registered_and_watched(self):
        self.start(0)
        world = self.world
        world.add_replica('r', 's')
        world.store.remove('r')
        self.run_rounds(2)
        found = world.store.find('r')
        self.assertEqual(
            ('p', 's', 'v-r', None, True),
            (
                found.project_id,
                found.source_id,
                found.volume_id,
                found.cloned_at,
                found.is_replicating,
            ),
        )
        world.change('r', **STOPPED)
        self.run_rounds(4)
        self.assertEqual({'r': Cause.BROKEN}, world.requested())

    def test_a_row_that_names_another_source_is_corrected(self):
        self.start()
        world = self.world
        world.add_source('t')
        world.follow('r-0', 't')
        self.run_rounds()
        self.assertEqual('t', world.store.find('r-0').source_id)
        self.assertEqual(['r-0', 't'], world.asked)

    def test_a_replica_of_a_lost_pool_is_registered(self):
        self.start(0)
        self.world.add_replica('r', 's')
        self.world.store.remove('r')
        self.world.usages['v-r'] = UNREACHABLE
        self.run_rounds()
        self.assertIsNotNone(self.world.store.find('r'))

    def test_a_replica_that_is_not_ours_is_not_registered(self):
        for instance_id, change in (
            ('r', {'has_our_guest_agent': False}),
            ('r', {'is_building': True}),
            ('r', {'is_deleting': True}),
            ('r', {'volume_id': None}),
            ('r', {'source_id': 'gone'}),
            ('s', {'has_our_guest_agent': False}),
        ):
            self.start(0)
            world = self.world
            world.add_replica('r', 's')
            world.store.remove('r')
            found = world.instances[instance_id]
            world.instances[instance_id] = dataclasses.replace(found, **change)
            self.run_rounds(2)
            self.assertEqual([], world.store.list(), change)

    def test_a_volume_on_no_tier_is_looked_up_once(self):
        self.start(0)
        world = self.world
        world.add_replica('r', 's')
        world.store.remove('r')
        looked_up = []
        world.find_usage = lambda volume_id, _own: looked_up.append(volume_id)
        self.run_rounds(3)
        self.assertEqual(([], ['v-r']), (world.store.list(), looked_up))

    def test_a_replica_whose_volume_is_gone_is_not_registered(self):
        self.start(0)
        self.world.add_replica('r', 's')
        self.world.store.remove('r')
        self.world.usages['v-r'] = exceptions.NotFoundError('gone')
        self.run_rounds()
        self.assertEqual([], self.world.store.list())

    def test_a_look_that_hangs_delays_only_its_own_source(self):
        self.start()
        world = self.world
        world.add_source('t')
        world.add_replica('z', 't')
        world.waiting = []
        self.run_rounds()
        slow, quick = world.waiting
        quick()
        self.run_rounds()
        # The slow one still runs, and the quick one was started again.
        self.assertEqual(3, len(world.waiting))
        self.assertIsNone(world.store.find('r-0').observed_at)
        self.assertIsNotNone(world.store.find('z').observed_at)
        slow()
        self.run_rounds()
        self.assertEqual(4, len(world.waiting))
        self.assertIsNotNone(world.store.find('r-0').observed_at)

    def test_sources_take_turns_if_threads_are_few(self):
        self.start()
        world = self.world
        for name in ('t', 'u'):
            world.add_source(name)
            world.add_replica(f'r-{name}', name)
        for expected in ({'s', 't'}, {'u'}, {'s'}):
            world.asked.clear()
            world.free_threads = 2 if expected == {'s', 't'} else 1
            self.run_rounds()
            self.assertEqual(expected, {one for one in world.asked if len(one) == 1})

    def test_an_error_of_the_database_ends_a_look_and_not_the_watch(self):
        self.start()
        observe = self.world.store.observe

        def fail(*_arguments):
            raise exceptions.ServiceUnavailableError('the database failed')

        self.world.store.observe = fail
        self.run_rounds()
        self.world.store.observe = observe
        self.run_rounds()
        self.assertIsNotNone(self.world.store.find('r-0').observed_at)


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
            for round_ in range(4):
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

    def test_a_lag_that_was_unknown_at_the_last_look_does_not_grow(self):
        self.start(looks=1)
        world = self.world
        world.change('r-0', io_state=ThreadState.CONNECTING)
        self.run_rounds(2)
        world.change('r-0', io_state=ThreadState.ON, lag_sec=5000.0)
        self.run_rounds(2)
        self.assertEqual({}, world.requested())
        world.change('r-0', lag_sec=5001.0)
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


class SemiSyncTest(WatcherTestCase):
    def setUp(self):
        super().setUp()
        self.start(2, semi_sync_timeout_ms=7)
        self.world.policies.set('s', semi_sync=True)

    def test_replicas_are_switched_on_before_the_source(self):
        self.run_rounds(3)
        self.assertEqual(
            [('r-0', False, True, 7), ('r-1', False, True, 7), ('s', True, False, 7)],
            self.world.switched,
        )

    def test_the_source_is_switched_off_first(self):
        self.run_rounds()
        self.world.switched.clear()
        self.world.policies.set('s', semi_sync=False)
        self.run_rounds(3)
        self.assertEqual(
            [('s', False, False, 7), ('r-0', False, False, 7), ('r-1', False, False, 7)],
            self.world.switched,
        )

    def test_the_source_does_not_wait_for_replicas_that_do_not_acknowledge(self):
        self.world.statuses['r-0'] = None
        self.world.refusing.add('r-1')
        self.run_rounds(2)
        self.assertEqual([], self.world.switched)
        self.world.refusing.clear()
        self.run_rounds()
        self.assertEqual(['r-1', 's'], [one[0] for one in self.world.switched])

    def test_a_source_without_replicas_does_not_wait(self):
        self.run_rounds()
        self.world.switched.clear()
        for instance_id in ('r-0', 'r-1'):
            self.world.store.remove(instance_id)
            self.world.follow(instance_id, None)
        self.run_rounds()
        self.assertEqual([('s', False, False, 7)], self.world.switched)

    def test_after_a_promotion(self):
        self.run_rounds()
        self.world.switched.clear()
        self.world.store.promote('s', 'r-0', keeps_source=True)
        for instance_id, source_id in (('r-0', None), ('r-1', 'r-0'), ('s', 'r-0')):
            self.world.follow(instance_id, source_id)
        self.run_rounds()
        self.assertEqual({('r-0', True, False, 7), ('s', False, True, 7)}, set(self.world.switched))


class OrphansTest(WatcherTestCase):
    def test_rows_of_deleted_instances_are_deleted(self):
        self.start(2)
        self.world.policies.set('s', semi_sync=True)
        del self.world.instances['r-0'], self.world.instances['s']
        self.run_rounds()
        self.assertEqual(['r-1'], [one.instance_id for one in self.world.store.list()])
        self.assertEqual([], self.world.policies.all())

    def test_a_reprovisioning_of_a_deleted_instance_is_left_to_its_worker(self):
        self.start()
        self.world.store.request('r-0', Requester.TENANT, 'why')
        del self.world.instances['r-0']
        self.run_rounds()
        self.assertIs(ReplicaState.REQUESTED, self.world.store.find('r-0').state)


class TaskmanagersTest(WatcherTestCase):
    def test_one_watches_and_another_resumes(self):
        self.start(looks=2)
        self.run_rounds()
        other = self.world.watcher(is_dead=lambda _name: False)
        asked = len(self.world.asked)
        other.watch()
        self.assertEqual(asked, len(self.world.asked))
        self.world.run(other, 3)
        self.assertGreater(len(self.world.asked), asked)
        # The first one notices that it was away for too long.
        asked = len(self.world.asked)
        self.watcher.watch()
        self.assertEqual(asked, len(self.world.asked))

    def test_a_watch_that_was_lost_sends_no_request(self):
        self.start(looks=1)
        world = self.world
        world.change('r-0', **STOPPED)
        world.waiting = []
        self.run_rounds()
        world.now += datetime.timedelta(hours=1)
        world.waiting.pop()()
        self.assertIsNone(world.store.find('r-0').observed_at)
        self.watcher.watch()
        self.assertEqual({}, world.requested())

    def test_looks_of_before_a_loss_do_not_count_after_it(self):
        self.start(looks=1)
        world = self.world
        world.change('r-0', **STOPPED)
        world.waiting = []
        self.run_rounds()
        world.waiting.pop()()
        world.now += datetime.timedelta(hours=1)
        # It notices the loss, and claims the watch again.
        for _round in range(2):
            self.watcher.watch()
        self.assertEqual(1, len(world.waiting))
        self.assertEqual({}, world.requested())
        world.waiting.pop()()
        self.run_rounds()
        self.assertEqual({'r-0': Cause.BROKEN}, world.requested())

    def test_a_round_that_fails_does_not_end_the_watch(self):
        self.start(looks=1)
        self.world.change('r-0', **STOPPED)
        listed = self.world.list_instances

        def fail():
            raise exceptions.ServiceUnavailableError('the database failed')

        self.world.list_instances = fail
        self.run_rounds(2)
        self.assertEqual({}, self.world.requested())
        self.world.list_instances = listed
        self.run_rounds()
        self.assertEqual({'r-0': Cause.BROKEN}, self.world.requested())
