# SPDX-License-Identifier: Apache-2.0
"""What the watch over replicas looks at, and what it does besides re-provisionings."""

import dataclasses
import datetime

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.db.replica_record import Cause, ReplicaState, Requester
from trove_ceph.strategies.replication.replication_types import ThreadState
from trove_ceph.strategies.replication.watch_dependencies import VolumeUsage
from trove_ceph.tests.unit.strategies.replication_watch_world import (
    STOPPED,
    UNREACHABLE,
    WatcherTestCase,
    executed,
)

#: The server that was the source before.
OTHER_SOURCE = 'bbbbbbbb-71ca-11e1-9e33-c80aa9429562'


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

    def test_the_clock_of_the_database_is_read_once_a_round(self):
        self.start(2)
        world, now = self.world, self.world.store.now
        world.add_source('t')
        world.add_replica('z', 't')
        read_at = []

        def note():
            read_at.append(world.now)
            return now()

        world.store.now = note
        self.run_rounds(2)
        self.assertEqual(sorted(set(read_at)), read_at)

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

    def test_a_replica_that_connects_to_another_server_in_vain(self):
        self.start(2)
        world = self.world
        stray = {'source_uuid': OTHER_SOURCE, 'io_state': ThreadState.CONNECTING}
        world.change('r-1', **stray)
        self.run_rounds()
        self.assertEqual(['s'], world.resumed)
        self.assertEqual(
            'it follows another server than its source', world.store.find('r-1').replication_error
        )
        world.change('r-1', io_state=ThreadState.OFF, io_error='no such host')
        self.run_rounds()
        self.assertEqual(['s', 's'], world.resumed)

    def test_a_replica_that_its_source_refuses(self):
        """As if it got its old volume back, with a former password, while its source was silent."""
        refused = {
            'io_state': ThreadState.CONNECTING,
            'io_error_number': 1045,
            'io_error': 'denied',
        }
        self.start(2)
        self.world.change('r-1', **refused)
        self.run_rounds()
        self.assertEqual(['s'], self.world.resumed)
        for facts in (
            {'io_error_number': 2003},
            {'gtid_executed': executed(1, f'{OTHER_SOURCE}:7')},
        ):
            self.start()
            self.world.change('r-0', **refused | facts)
            self.run_rounds()
            self.assertEqual([], self.world.resumed, facts)

    def test_a_replica_of_another_server_that_is_no_stray(self):
        for facts in (
            {'io_state': ThreadState.ON},
            {'io_state': ThreadState.OFF},
            {'gtid_received': executed(1, f'{OTHER_SOURCE}:7')},
            {'is_replica': False},
        ):
            self.start()
            stray = {'source_uuid': OTHER_SOURCE, 'io_state': ThreadState.CONNECTING}
            self.world.change('r-0', **stray | facts)
            self.run_rounds()
            self.assertEqual([], self.world.resumed, facts)

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

    def test_the_source_does_not_begin_to_wait_for_a_replica_that_is_about_to_stop(self):
        self.world.statuses['r-1'] = None
        self.world.store.request('r-0', Requester.TENANT, 'why')
        self.run_rounds(2)
        self.assertEqual(['r-0'], [one[0] for one in self.world.switched])

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
