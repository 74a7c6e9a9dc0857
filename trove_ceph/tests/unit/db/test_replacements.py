# SPDX-License-Identifier: Apache-2.0
"""The store of replacements: one open one for each instance, with the task of the instance."""

import dataclasses

from trove_ceph import exceptions
from trove_ceph.db import claims, replacements
from trove_ceph.db.replacement_record import ReplacementKind, ReplacementState, RequestedBy
from trove_ceph.db.replacement_states import Event
from trove_ceph.db.transactions import Transactions
from trove_ceph.tests.unit.db import database, replacement_helpers
from trove_ceph.tests.unit.db.replacement_helpers import (
    BUILDING,
    CLAIMANT,
    DELETING,
    EJECTION_ERROR,
    MIGRATING,
    NONE,
    RESIZING,
    RESTART_REQUIRED,
    SECOND,
    record,
)

REFUSED = exceptions.ReplacementRefusedError


class RequestTest(replacement_helpers.ReplacementStoreTestCase):
    def test_request_sets_the_task(self):
        requested = record('r', self.now - SECOND, reason='broken', port_ids=('one', 'two'))
        self.trove.add('i-r')
        made = self.store.request(requested)
        self.assertEqual(
            dataclasses.replace(requested, created_at=self.now, updated_at=self.now), made
        )
        self.assertEqual(made, self.store.find('r'))
        self.assertEqual(made, self.store.find_open('i-r'))
        row = self.trove.find('i-r')
        self.assertEqual(
            (MIGRATING, 'Migrating the instance.', self.now),
            (row.task_id, row.task_description, row.updated),
        )

    def test_instance_with_another_task_is_refused(self):
        for task in (RESIZING, MIGRATING, RESTART_REQUIRED, DELETING):
            self.trove.add(f'i-{task}', task)
            error = self.assertRaises(REFUSED, self.store.request, record(f'{task}', self.now))
            self.assertIn(f'instance i-{task}', str(error))
            is_deleting = task == DELETING
            why = 'it is being deleted' if is_deleting else f'it has a task: Task {task}. Repeat'
            self.assertIn(why, str(error))
            self.assertEqual(is_deleting, 'Repeat' not in str(error))
            self.assertEqual(task, self.trove.task(f'i-{task}'))
            self.assertIsNone(self.store.find(f'{task}'))

    def test_deleted_instance_is_refused(self):
        self.trove.add('i-r')
        self.trove.set('i-r', deleted=True)
        for name in ('r', 'unknown'):
            error = self.assertRaises(REFUSED, self.store.request, record(name, self.now))
            self.assertIn('it is deleted', str(error))
        self.assertEqual(NONE, self.trove.task('i-r'))

    def test_second_request_is_refused(self):
        self.request('r')
        second = record('s', self.now, instance_id='i-r')
        error = self.assertRaises(REFUSED, self.store.request, second)
        self.assertIn('being replaced already', str(error))

    def test_interleaved_requests(self):
        """The second one is made after the first one has begun, and before it writes."""
        self.trove.add('i')
        made = []

        def clock():
            if not made:
                made.append('second')
                self.connect().request(record('second', self.now, instance_id='i'))
            return self.now

        first = record('first', self.now, instance_id='i')
        self.assertRaises(REFUSED, self.connect(clock).request, first)
        self.assertEqual(['second'], [one.replacement_id for one in self.store.list()])

    def test_open_replacement_excludes_another_one_whatever_the_task_is(self):
        """As after an operator has reset the task of the instance."""
        self.request('r')
        self.trove.set('i-r', task_id=NONE)
        self.assertRaises(REFUSED, self.store.request, record('s', self.now, instance_id='i-r'))
        self.assertEqual(NONE, self.trove.task('i-r'))

    def test_resize_has_its_task_already(self):
        self.trove.add('i-r', RESIZING)
        resize = record('r', self.now, ReplacementKind.RESIZE)
        self.assertRaises(REFUSED, self.store.request, resize)
        self.store.request(resize, 'RESIZING')
        self.assertEqual(RESIZING, self.trove.task('i-r'))
        self.store.fail(self.store.claim('r', CLAIMANT), 'no guest')
        self.assertEqual(NONE, self.trove.task('i-r'))

    def test_rebuild_replaces_its_task(self):
        """Trove's API deletes no instance with the task BUILDING."""
        rebuild = record('r', self.now, ReplacementKind.REBUILD)
        self.trove.add('i-r', BUILDING)
        self.store.request(rebuild, 'BUILDING')
        self.assertEqual(MIGRATING, self.trove.task('i-r'))
        self.store.fail(self.store.claim('r', CLAIMANT), 'no guest')
        self.assertEqual(NONE, self.trove.task('i-r'))

    def test_only_a_requested_one_is_added(self):
        moving = record('r', self.now, state=ReplacementState.MOVING)
        self.assertRaises(exceptions.InvalidTransitionError, self.store.request, moving)


class EndTest(replacement_helpers.ReplacementStoreTestCase):
    def test_rebuild_of_an_earlier_release(self):
        """It has the task with which Trove's API has requested it."""
        _record, claim = self.make('r', ReplacementState.STARTING, kind=ReplacementKind.REBUILD)
        self.trove.set('i-r', task_id=BUILDING)
        self.store.complete(claim)
        self.assertEqual(NONE, self.trove.task('i-r'))

    def test_completed(self):
        before, claim = self.make('r', ReplacementState.STARTING)
        self.store.note(claim, error='it took long', step='starting MySQL')
        self.now += SECOND
        done = self.store.complete(claim)
        self.assertEqual(
            (ReplacementState.COMPLETED, self.now, None, None, None),
            (done.state, done.ended_at, done.error, done.step, done.claimed_by),
        )
        self.assertEqual(NONE, self.trove.task(before.instance_id))
        self.assertIsNone(self.store.find_open(before.instance_id))
        self.assertRaises(exceptions.ClaimLostError, self.store.note, claim, step='another')
        # The instance can have another one.
        self.store.request(record('s', self.now, instance_id=before.instance_id))
        self.assertEqual('s', self.store.find_open(before.instance_id).replacement_id)

    def test_an_instance_that_is_given_up_keeps_a_task(self):
        before, claim = self.make('r', ReplacementState.TAKING_OVER)
        self.store.note(claim, promoted_id='replica')
        done = self.store.complete(claim)
        self.assertEqual((ReplacementState.COMPLETED, 'replica'), (done.state, done.promoted_id))
        self.assertEqual(EJECTION_ERROR, self.trove.task(before.instance_id))

    def test_task_before_returns_if_nothing_was_changed(self):
        for name, events, expected in (
            ('early', (), RESTART_REQUIRED),
            ('late', (Event.FENCE, Event.MOVE, Event.SHOW), NONE),
        ):
            self.trove.add(f'i-{name}', RESTART_REQUIRED)
            self.store.request(record(name, self.now), 'RESTART_REQUIRED')
            claim = self.store.claim(name, CLAIMANT)
            for event in events:
                self.store.advance(claim, event)
            failed = self.store.fail(claim, 'it cannot')
            self.assertEqual('it cannot', failed.error)
            self.assertEqual(expected, self.trove.task(f'i-{name}'))

    def test_canceled_one_leaves_the_task(self):
        for state in (ReplacementState.REQUESTED, ReplacementState.STARTING):
            found, claim = self.make(f'{state}', state)
            self.trove.set(found.instance_id, task_id=DELETING)
            self.assertIs(ReplacementState.CANCELED, self.store.cancel(claim).state)
            self.assertEqual(DELETING, self.trove.task(found.instance_id))

    def test_task_of_another_operation_stays(self):
        found, claim = self.make('r', ReplacementState.STARTING)
        self.trove.set(found.instance_id, task_id=DELETING)
        self.store.complete(claim)
        self.assertEqual(DELETING, self.trove.task(found.instance_id))


class MemoryEndTest(replacement_helpers.InMemory, EndTest):
    """The store on which the tests of the strategies run behaves as the real one."""


class QuotaTest(replacement_helpers.ReplacementStoreTestCase):
    """A resize that did not change the flavor gives back the memory that it has reserved."""

    def assert_used(self, expected, state, flavor_id, verb, **values):
        self.trove.set_used_ram(f'p-{flavor_id}-{verb}', 3072)
        facts = {'former_flavor_id': 'small', 'ram_growth_mib': 1024}
        found, claim = self.make(
            f'{flavor_id}-{verb}',
            state,
            project_id=f'p-{flavor_id}-{verb}',
            **facts | values,
        )
        self.trove.set(found.instance_id, flavor_id=flavor_id)
        getattr(self.store, verb)(claim, *(['why'] if verb == 'fail' else []))
        self.assertEqual(expected, self.trove.used_ram(found.project_id))

    def test_resize_that_succeeds(self):
        self.assert_used(3072, ReplacementState.STARTING, 'large', 'complete')

    def test_resize_that_fails_before_the_fence(self):
        self.assert_used(2048, ReplacementState.REQUESTED, 'small', 'fail')

    def test_resize_that_returns(self):
        self.assert_used(2048, ReplacementState.STARTING, 'small', 'fail')

    def test_resize_to_a_smaller_flavor_that_returns(self):
        self.assert_used(4096, ReplacementState.STARTING, 'small', 'fail', ram_growth_mib=-1024)

    def test_resize_that_fails_with_the_new_flavor(self):
        self.assert_used(3072, ReplacementState.STARTING, 'large', 'fail')

    def test_deletion_of_the_instance(self):
        """It subtracts what the flavor has that Trove shows."""
        self.assert_used(2048, ReplacementState.MOVING, 'small', 'cancel')
        self.assert_used(3072, ReplacementState.STARTING, 'large', 'cancel')

    def test_failover(self):
        self.assert_used(
            3072,
            ReplacementState.STARTING,
            'small',
            'fail',
            ram_growth_mib=0,
            former_flavor_id=None,
        )


class GiveUpTest(replacement_helpers.ReplacementStoreTestCase):
    def test_given_up_by_an_operator(self):
        found, _claim = self.make('r', ReplacementState.STARTING)
        self.store.give_up('r', 'it never starts')
        given_up = self.store.find('r')
        self.assertEqual(
            (ReplacementState.STARTING, 'it never starts', found.claimed_by),
            (given_up.state, given_up.given_up_because, given_up.claimed_by),
        )

    def test_only_a_starting_one_can_be_given_up(self):
        for state in set(ReplacementState) - {ReplacementState.STARTING}:
            before, _claim = self.make(f'{state}', state)
            error = self.assertRaises(
                exceptions.InvalidTransitionError, self.store.give_up, f'{state}', 'why'
            )
            self.assertIn(f'not in "{state}"', str(error))
            self.assertEqual(before, self.store.find(f'{state}'))
        unknown = exceptions.RecordNotFoundError
        self.assertRaises(unknown, self.store.give_up, 'unknown', 'why')


class ClaimTest(replacement_helpers.ReplacementStoreTestCase):
    def test_one_worker_continues_it(self):
        self.request('r')
        claim = self.store.claim('r', CLAIMANT)
        self.assertEqual([], self.store.list_claimable(claims.Claimant('two')))
        self.assertIsNone(self.store.claim('r', claims.Claimant('two')))
        self.assertEqual({claim}, self.store.claims.heartbeat_all([claim]))
        self.now += claims.DEFAULT_EXPIRY + SECOND
        found = self.store.list_claimable(claims.Claimant('two'))
        self.assertEqual(['r'], [one.replacement_id for one in found])
        self.assertIsNotNone(self.store.claim('r', claims.Claimant('two')))
        for verb in (
            lambda: self.store.note(claim, step='late'),
            lambda: self.store.advance(claim, Event.FENCE),
            lambda: self.store.fail(claim, 'late'),
            lambda: self.store.cancel(claim),
        ):
            error = self.assertRaises(exceptions.ClaimLostError, verb)
            self.assertIn('replacement r', str(error))
        self.assertIs(ReplacementState.REQUESTED, self.store.find('r').state)
        self.assertEqual(MIGRATING, self.trove.task('i-r'))

    def test_released_one_can_be_claimed_at_once(self):
        self.request('r')
        self.store.claims.release(self.store.claim('r', CLAIMANT))
        self.assertEqual(1, len(self.store.list_claimable(claims.Claimant('two'))))

    def test_failed_one_waits_for_its_next_attempt(self):
        self.request('r')
        claim = self.store.claim('r', CLAIMANT)
        self.store.note(claim, attempts=1, retry_at=self.now + 5 * SECOND)
        self.store.claims.release(claim)
        self.now += 4 * SECOND
        self.assertEqual([], self.store.list_claimable(claims.Claimant('two')))
        self.now += SECOND
        self.assertEqual(1, len(self.store.list_claimable(claims.Claimant('two'))))
        # The clock of the database is set back.
        self.now -= 7200 * SECOND
        self.assertEqual(1, len(self.store.list_claimable(claims.Claimant('two'))))
        self.store.cancel(self.store.claim('r', CLAIMANT))
        self.assertIsNone(self.store.find('r').retry_at)

    def test_ended_one_cannot_be_claimed(self):
        for state in (one for one in ReplacementState if not one.is_open):
            self.make(f'{state}', state)
            self.assertIsNone(self.store.claim(f'{state}', CLAIMANT))
        self.assertEqual([], self.store.list_claimable(CLAIMANT))
        self.assertIsNone(self.store.claim('unknown', CLAIMANT))

    def test_notes(self):
        self.request('r')
        claim = self.store.claim('r', CLAIMANT)
        self.now += SECOND
        noted = self.store.note(
            claim, port_ids=('one', 'two'), old_management_port_ids=('three',), attempts=2
        )
        self.assertEqual(noted, self.store.find('r'))
        self.assertEqual(
            (('one', 'two'), ('three',), 2, self.now),
            (noted.port_ids, noted.old_management_port_ids, noted.attempts, noted.updated_at),
        )


class ListTest(replacement_helpers.ReplacementStoreTestCase):
    def names(self, *arguments, **named):
        return [one.replacement_id for one in self.store.list(*arguments, **named)]

    def test_filters(self):
        self.make('a', ReplacementState.COMPLETED)
        self.now += SECOND
        self.request('b', project_id='other')
        self.now += SECOND
        self.request('c')
        self.assertEqual(['c', 'b', 'a'], self.names())
        self.assertEqual(['c', 'b'], self.names(limit=2))
        self.assertEqual(['c', 'a'], self.names(project_id='p'))
        self.assertEqual(['a'], self.names(instance_id='i-a'))
        self.assertEqual(['c', 'b'], self.names(is_open=True))
        self.assertEqual(['a'], self.names(is_open=False))
        found = self.store.list_claimable(claims.Claimant('two'))
        self.assertEqual(['b', 'c'], [one.replacement_id for one in found])

    def test_ended_since(self):
        begun = self.now
        self.make('a', ReplacementState.COMPLETED)
        self.now += SECOND
        self.request('b', requested_by=RequestedBy.AUTOMATIC)
        self.store.fail(self.store.claim('b', CLAIMANT), 'why')
        self.request('open')

        def names(*arguments):
            return [one.replacement_id for one in self.store.ended_since(*arguments)]

        self.assertEqual(['b', 'a'], names(begun))
        self.assertEqual(['b'], names(self.now))
        self.assertEqual(['b'], names(begun, RequestedBy.AUTOMATIC))
        self.assertEqual([], names(begun, RequestedBy.OPERATOR))

    def test_database_without_the_tables(self):
        store = replacements.ReplacementStore(Transactions(database.facade(':memory:')))
        for verb in (store.list, lambda: store.find('r'), lambda: store.claim('r', CLAIMANT)):
            error = self.assertRaises(exceptions.ServiceUnavailableError, verb)
            self.assertIn('db sync', str(error))
