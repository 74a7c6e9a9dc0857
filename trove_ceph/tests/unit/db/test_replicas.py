# SPDX-License-Identifier: Apache-2.0

import dataclasses
import datetime

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import claims, replication_watch, tables
from trove_ceph.db.replacements import ReplacementStore
from trove_ceph.db.replica_record import Cause, Observation, ReplicaState, Requester
from trove_ceph.db.replica_states import Event
from trove_ceph.tests.unit.db import replacement_helpers, replica_helpers
from trove_ceph.tests.unit.db.replacement_helpers import (
    DELETING,
    MIGRATING,
    NONE,
    RESIZING,
    RESTART_REQUIRED,
    SECOND,
)
from trove_ceph.tests.unit.db.replica_helpers import CLAIMANT

HOUR = datetime.timedelta(hours=1)
OTHER = claims.Claimant('two')


class ReplicasTest(replica_helpers.ReplicaStoreTestCase):
    def test_a_registered_replica_follows(self):
        found = self.add('r')
        self.assertIs(ReplicaState.FOLLOWING, found.state)
        self.assertEqual(
            ('r', 'p', 'source'), (found.instance_id, found.project_id, found.source_id)
        )
        self.assertEqual(('v-r', self.now), (found.volume_id, found.cloned_at))
        self.assertIsNone(found.is_replicating)
        self.assertEqual(NONE, self.trove.task('r'))
        self.assertEqual('replica r of instance source', str(found))
        self.assertEqual(found, self.store.find('r'))
        self.assertIsNone(self.store.find('source'))

    def test_a_repeated_registration_changes_nothing(self):
        found = self.add('r')
        self.now += HOUR
        self.assertEqual(found, self.store.register('r', 'p', 'source', 'other', self.now))
        error = self.assertRaises(
            exceptions.RecordExistsError, self.store.register, 'r', 'p', 'other', 'v', None
        )
        self.assertIn('detach it first', str(error))

    def test_lists(self):
        for instance_id, source_id in (('b', 'one'), ('a', 'one'), ('c', 'two')):
            self.add(instance_id, source_id)
        self.store.request('a', Requester.TENANT, 'why')

        def ids(**conditions):
            return [one.instance_id for one in self.store.list(**conditions)]

        self.assertEqual(['a', 'b', 'c'], ids())
        self.assertEqual(['a', 'b'], ids(source_id='one'))
        self.assertEqual([], ids(project_id='q'))
        self.assertEqual(['a'], ids(is_reprovisioning=True))
        self.assertEqual(['b'], ids(project_id='p', source_id='one', is_reprovisioning=False))

    def test_an_observation_is_kept(self):
        self.add('r')
        found = Observation(True, 1.5, 7, '', 'u:1-9', None, 2**40, 3)
        self.now += HOUR
        self.store.observe(self.store.find('r'), found)
        record = self.store.find('r')
        self.assertEqual(self.now, record.observed_at)
        for field in dataclasses.fields(Observation):
            self.assertEqual(getattr(found, field.name), getattr(record, field.name), field.name)
        self.store.observe(dataclasses.replace(record, instance_id='gone'), found)
        self.assertIsNone(self.store.find('gone'))

    def test_when_a_source_was_seen_last_is_kept(self):
        self.add('r')
        seen_at = self.now
        self.store.observe(self.store.find('r'), Observation(), seen_at)
        self.now += HOUR
        self.store.observe(self.store.find('r'), Observation())
        self.assertEqual(seen_at, self.store.find('r').source_seen_at)

    def test_when_a_new_source_was_seen_last_is_not_known(self):
        for replica_id in ('r', 's'):
            self.add(replica_id)
            self.store.observe(self.store.find(replica_id), Observation(), self.now)
        self.store.promote(self.store.find('r').source_id, 'r', keeps_source=False)
        self.assertIsNone(self.store.find('s').source_seen_at)

    def test_a_replica_that_was_stopped(self):
        for replica_id in ('r', 's'):
            self.add(replica_id)
            self.store.note_stopped(replica_id)
        self.assertEqual(self.now, self.store.find('r').stopped_at)
        self.store.forget_stopped('r')
        self.assertIsNone(self.store.find('r').stopped_at)
        self.store.promote(self.store.find('r').source_id, 'r', keeps_source=False)
        self.assertIsNone(self.store.find('s').stopped_at)

    def test_an_observation_does_not_disturb_a_reprovisioning(self):
        _record, claim = self.make('r', ReplicaState.CLONING)
        self.store.observe(self.store.find('r'), Observation(False))
        self.assertIs(ReplicaState.EXCHANGING, self.store.advance(claim, Event.EXCHANGE).state)

    def test_removal_is_idempotent(self):
        self.add('r')
        self.store.remove('r')
        self.store.remove('r')
        self.assertEqual([], self.store.list())


class ReprovisioningTest(replica_helpers.ReplicaStoreTestCase):
    def test_request_and_task_are_one(self):
        self.add('r')
        found = self.store.request('r', Requester.POLICY, 'it is old', Cause.AGE)
        self.assertIs(ReplicaState.REQUESTED, found.state)
        self.assertEqual(
            (Requester.POLICY, 'it is old', Cause.AGE, self.now),
            (found.requested_by, found.reason, found.cause, found.requested_at),
        )
        self.assertEqual(MIGRATING, self.trove.task('r'))

    def test_surplus_is_noted_until_the_next_look(self):
        self.add('r')
        self.store.note_surplus('r')
        self.assertIs(True, self.store.find('r').has_surplus)
        self.store.observe(self.store.find('r'), Observation(has_surplus=False))
        self.assertIs(False, self.store.find('r').has_surplus)

    def test_a_look_does_not_overwrite_what_was_noted_meanwhile(self):
        for seen in (None, False):
            name = f'r-{seen}'
            before = self.add(name)
            self.store.note_surplus(name)
            self.store.observe(before, Observation(own_bytes=7, has_surplus=seen))
            found = self.store.find(name)
            self.assertEqual((True, 7), (found.has_surplus, found.own_bytes))
            # The next look knows of it.
            self.store.observe(found, Observation(has_surplus=seen))
            self.assertIs(seen, self.store.find(name).has_surplus)

    def test_a_look_at_another_source_is_not_written(self):
        before = self.add('r')
        self.store.promote(before.source_id, 'another', keeps_source=False)
        observation = Observation(own_bytes=7, source_executed='u:1-9')
        self.store.observe(before, observation, self.now)
        found = self.store.find('r')
        self.assertEqual(
            ('another', None, None), (found.source_id, found.own_bytes, found.source_seen_at)
        )

    def test_each_request_has_an_id_of_its_own(self):
        self.add('r')
        ids = set()
        for _request in range(2):
            ids.add(self.store.request('r', Requester.TENANT, 'why').request_id)
            self.store.fail(self.store.claim('r', CLAIMANT), 'why')
        self.assertEqual(2, len(ids))

    def test_refused_while_its_server_is_replaced(self):
        """The task of that may be overwritten by a change of a configuration group."""
        self.add('r')
        replacements = ReplacementStore(self.transactions())
        replacements.request(replacement_helpers.record('one', self.now, instance_id='r'))
        self.trove.set('r', task_id=NONE)
        error = self.assertRaises(
            *(exceptions.ReprovisioningRefusedError, self.store.request),
            *('r', Requester.TENANT, 'why'),
        )
        self.assertIn('its server is being replaced', str(error))

    def test_a_replacement_is_refused_meanwhile(self):
        self.add('r')
        self.store.request('r', Requester.TENANT, 'why')
        self.trove.set('r', task_id=NONE)
        replacements = ReplacementStore(self.transactions())
        error = self.assertRaises(
            *(exceptions.ReplacementRefusedError, replacements.request),
            replacement_helpers.record('one', self.now, instance_id='r'),
        )
        self.assertIn('it is being re-provisioned', str(error))
        self.assertEqual(NONE, self.trove.task('r'))

    def test_refused_requests_write_nothing(self):
        self.add('busy')
        self.trove.set('busy', task_id=RESIZING)
        self.add('deleting')
        self.trove.set('deleting', task_id=DELETING)
        self.add('deleted')
        self.trove.set('deleted', deleted=True)
        for instance_id, reason in (
            ('busy', 'it has a task'),
            ('deleting', 'it is being deleted'),
            ('deleted', 'it is deleted'),
        ):
            before = self.store.find(instance_id)
            error = self.assertRaises(
                exceptions.ReprovisioningRefusedError,
                self.store.request,
                instance_id,
                Requester.TENANT,
                'why',
            )
            self.assertIn(reason, str(error))
            self.assertEqual(before, self.store.find(instance_id))
        self.assertRaises(
            exceptions.RecordNotFoundError, self.store.request, 'x', Requester.TENANT, 'why'
        )

    def test_completed(self):
        _record, claim = self.make('r', ReplicaState.CATCHING_UP)
        self.store.note(claim, step='x', attempts=3, new_volume_id='n', old_volume_id='o')
        self.now += HOUR
        found = self.store.complete(claim)
        self.assertIs(ReplicaState.FOLLOWING, found.state)
        self.assertEqual((self.now, self.now), (found.ended_at, found.reprovisioned_at))
        self.assertEqual(('why', Cause.REQUEST), (found.last_reason, found.last_cause))
        self.assertEqual(
            (None, 0, None, None, None),
            (
                found.step,
                found.attempts,
                found.new_volume_id,
                found.old_volume_id,
                found.claimed_by,
            ),
        )
        self.assertEqual(NONE, self.trove.task('r'))

    def test_failed_before_a_change_returns_to_the_task_before(self):
        self.add('r')
        self.trove.set('r', task_id=RESTART_REQUIRED)
        self.store.request('r', Requester.TENANT, 'why')
        found = self.store.fail(self.store.claim('r', CLAIMANT), 'no space')
        self.assertEqual(('no space', 1, None), (found.error, found.failures, found.last_reason))
        self.assertEqual(RESTART_REQUIRED, self.trove.task('r'))

    def test_failed_ones_count_until_one_is_completed(self):
        self.add('r')
        for expected in (1, 2):
            self.store.request('r', Requester.TENANT, 'why')
            claim = self.store.claim('r', CLAIMANT)
            self.assertEqual(expected, self.store.fail(claim, 'no').failures)
        self.store.request('r', Requester.TENANT, 'why')
        claim = self.store.claim('r', CLAIMANT)
        for event in (Event.CLONE, Event.EXCHANGE, Event.EXCHANGED):
            self.store.advance(claim, event)
        found = self.store.complete(claim)
        self.assertEqual((0, None), (found.failures, found.error))

    def test_given_up(self):
        _record, claim = self.make('r', ReplicaState.CATCHING_UP)
        self.store.note(claim, former_own_bytes=2, fresh_own_bytes=1, old_volume_id='o')
        found = self.store.give_up(claim, 'it lacks transactions that were purged')
        self.assertIs(ReplicaState.FOLLOWING, found.state)
        self.assertEqual('it lacks transactions that were purged', found.error)
        self.assertEqual((1, None), (found.failures, found.reprovisioned_at))
        self.assertEqual(
            (None, None, None),
            (found.former_own_bytes, found.fresh_own_bytes, found.old_volume_id),
        )
        self.assertEqual(NONE, self.trove.task('r'))

    def test_returned_keeps_the_error(self):
        _record, claim = self.make('r', ReplicaState.CATCHING_UP)
        self.store.note(claim, former_own_bytes=2, fresh_own_bytes=1)
        self.store.advance(claim, Event.GIVE_BACK, error='the pool is full')
        found = self.store.finish_return(claim)
        self.assertIs(ReplicaState.FOLLOWING, found.state)
        self.assertEqual(('the pool is full', 1), (found.error, found.failures))
        self.assertIsNone(found.reprovisioned_at)
        self.assertEqual((None, None), (found.former_own_bytes, found.fresh_own_bytes))
        self.assertEqual(NONE, self.trove.task('r'))

    def test_a_task_that_an_operator_has_reset_stays(self):
        _record, claim = self.make('r', ReplicaState.REQUESTED)
        self.trove.set('r', task_id=DELETING)
        self.store.fail(claim, 'why')
        self.assertEqual(DELETING, self.trove.task('r'))

    def test_a_canceled_one_leaves_the_task_of_the_deletion(self):
        _record, claim = self.make('r', ReplicaState.EXCHANGING)
        self.trove.set('r', task_id=DELETING)
        self.store.cancel(claim)
        self.assertIsNone(self.store.find('r'))
        self.assertEqual(DELETING, self.trove.task('r'))


class WorkersTest(replica_helpers.ReplicaStoreTestCase):
    def test_failed_one_waits_for_its_next_attempt(self):
        self.add('r')
        self.store.request('r', Requester.TENANT, 'why')
        claim = self.store.claim('r', CLAIMANT)
        self.store.note(claim, attempts=1, retry_at=self.now + 5 * SECOND)
        self.store.claims.release(claim)
        self.now += 4 * SECOND
        self.assertEqual([], self.store.list_claimable(OTHER))
        self.now += SECOND
        self.assertEqual(1, len(self.store.list_claimable(OTHER)))
        self.store.fail(self.store.claim('r', CLAIMANT), 'why')
        self.assertIsNone(self.store.find('r').retry_at)

    def test_one_worker_at_a_time(self):
        self.add('r')
        self.assertIsNone(self.store.claim('r', CLAIMANT))
        self.store.request('r', Requester.TENANT, 'why')
        self.assertEqual(['r'], [one.instance_id for one in self.store.list_claimable(OTHER)])
        claim = self.store.claim('r', CLAIMANT)
        self.assertIsNone(self.connect().claim('r', OTHER))
        self.assertEqual([], self.store.list_claimable(OTHER))
        self.now += 2 * claims.DEFAULT_EXPIRY
        other = self.connect().claim('r', OTHER)
        self.assertIsNotNone(other)
        for write in (
            lambda: self.store.note(claim, step='x'),
            lambda: self.store.advance(claim, Event.CLONE),
            lambda: self.store.fail(claim, 'why'),
            lambda: self.store.cancel(claim),
        ):
            self.assertRaises(exceptions.ClaimLostError, write)
        self.assertEqual('two', self.store.find('r').claimed_by)

    def test_a_claim_ends_with_the_reprovisioning(self):
        _record, claim = self.make('r', ReplicaState.REQUESTED)
        self.store.fail(claim, 'why')
        self.assertRaises(exceptions.ClaimLostError, self.store.note, claim, step='x')
        self.store.request('r', Requester.TENANT, 'again')
        self.assertRaises(exceptions.ClaimLostError, self.store.advance, claim, Event.CLONE)


class PromotionTest(replica_helpers.ReplicaStoreTestCase):
    def setUp(self):
        super().setUp()
        for instance_id in ('a', 'b', 'c'):
            self.add(instance_id)
        self.add('foreign', 'another')
        self.policies.set('source', semi_sync=True, replica_volume_type='gold')

    def sources(self):
        return {one.instance_id: one.source_id for one in self.store.list()}

    def test_all_others_follow_the_candidate(self):
        self.now += HOUR
        for _time in range(2):
            self.store.promote('source', 'a', keeps_source=True, source_volume_id='v-source')
            self.assertEqual(
                {'b': 'a', 'c': 'a', 'source': 'a', 'foreign': 'another'}, self.sources()
            )
        source = self.store.find('source')
        self.assertEqual(
            (ReplicaState.FOLLOWING, None, 'v-source'),
            (source.state, source.cloned_at, source.volume_id),
        )
        policy = self.policies.find('a')
        self.assertEqual((True, 'gold'), (policy.semi_sync, policy.replica_volume_type))
        self.assertIsNone(self.policies.find('source'))

    def test_the_source_is_given_up(self):
        for _time in range(2):
            self.store.promote('source', 'a', keeps_source=False)
            self.assertEqual({'b': 'a', 'c': 'a', 'foreign': 'another'}, self.sources())

    def test_the_only_replica(self):
        for instance_id in ('b', 'c'):
            self.store.remove(instance_id)
        for _time in range(2):
            self.store.promote('source', 'a', keeps_source=False)
            self.assertEqual({'foreign': 'another'}, self.sources())

    def test_a_replica_of_another_source(self):
        before = self.sources()
        self.assertRaises(
            exceptions.RecordNotFoundError, self.store.promote, 'source', 'foreign', True
        )
        self.assertEqual(before, self.sources())

    def test_a_candidate_without_a_row(self):
        for _time in range(2):
            self.store.promote('source', 'unknown', keeps_source=True)
            self.assertEqual(
                {
                    'a': 'unknown',
                    'b': 'unknown',
                    'c': 'unknown',
                    'source': 'unknown',
                    'foreign': 'another',
                },
                self.sources(),
            )
        self.assertTrue(self.policies.find('unknown').semi_sync)
        self.assertEqual('p', self.store.find('source').project_id)

    def test_no_replica_of_the_source_has_a_row(self):
        for instance_id in ('a', 'b', 'c'):
            self.store.remove(instance_id)
        for _time in range(2):
            self.store.promote('source', 'unknown', keeps_source=True)
            self.assertEqual({'foreign': 'another'}, self.sources())
        self.assertTrue(self.policies.find('unknown').semi_sync)

    def test_a_candidate_that_is_being_reprovisioned(self):
        self.store.request('a', Requester.TENANT, 'why')
        before = self.sources()
        self.assertRaises(
            exceptions.InvalidTransitionError, self.store.promote, 'source', 'a', True
        )
        self.assertEqual(before, self.sources())

    def test_another_replica_that_is_being_reprovisioned_goes_on(self):
        self.store.request('b', Requester.TENANT, 'why')
        claim = self.store.claim('b', CLAIMANT)
        self.store.promote('source', 'a', keeps_source=True)
        self.assertEqual('a', self.store.advance(claim, Event.CLONE).source_id)


class PoliciesTest(replica_helpers.ReplicaStoreTestCase):
    def test_set_changes_what_is_given(self):
        self.assertIsNone(self.policies.find('s'))
        added = self.policies.set('s', max_lag_sec=60)
        self.assertEqual(
            (False, None, None, 60),
            (
                added.semi_sync,
                added.reprovision_every_hours,
                added.max_own_percent,
                added.max_lag_sec,
            ),
        )
        self.now += HOUR
        changed = self.policies.set('s', semi_sync=True, max_lag_sec=None)
        self.assertEqual(
            (True, None, added.created_at, self.now),
            (changed.semi_sync, changed.max_lag_sec, changed.created_at, changed.updated_at),
        )
        self.assertEqual([changed], self.policies.all())
        self.assertEqual('replication policy of instance s', str(changed))

    def test_volume_type_of_replicas(self):
        self.assertIsNone(self.policies.set('s').replica_volume_type)
        self.policies.set('s', replica_volume_type='gold')
        self.assertEqual('gold', self.policies.set('s', max_lag_sec=1).replica_volume_type)
        self.assertIsNone(self.policies.set('s', replica_volume_type=None).replica_volume_type)

    def test_removal_is_idempotent(self):
        self.policies.set('s')
        self.policies.remove('s')
        self.policies.remove('s')
        self.assertIsNone(self.policies.find('s'))


class WatchTest(replica_helpers.ReplicaStoreTestCase):
    def test_one_taskmanager_keeps_the_watch(self):
        watch = replication_watch.ReplicationWatchStore(self.transactions())
        claim = watch.begin_watching(CLAIMANT)
        self.assertEqual('one', claim.worker)
        self.assertIsNone(watch.begin_watching(OTHER))
        self.now += 2 * claims.DEFAULT_EXPIRY
        self.assertEqual('two', watch.begin_watching(OTHER).worker)


class RoleColumnTest(base.BaseTestCase):
    def test_the_tables_have_room_for_each_role(self):
        length = tables.ReplicaRow.__table__.c.claim_role.type.length
        for role in claims.Role:
            self.assertLessEqual(len(role), length, role)
