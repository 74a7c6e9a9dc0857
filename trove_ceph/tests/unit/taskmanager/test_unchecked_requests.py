# SPDX-License-Identifier: Apache-2.0
"""What Trove's API requests without a look at the task of the instance, and our tables."""

from trove.instance.tasks import InstanceTasks

from trove_ceph.db import (
    claims,
    replicas,
    source_marks,
)
from trove_ceph.db.replacement_record import ReplacementKind
from trove_ceph.db.replacement_states import Event
from trove_ceph.db.roles import Role
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.taskmanager.unchecked_world import WORKER, UncheckedTestCase

ACCESS = {'is_public': True}


class UncheckedRequestsTest(UncheckedTestCase):
    def request_access(self):
        """Do what Trove's API does, and what the taskmanager does then."""
        self.set_task(InstanceTasks.UPDATING)
        self.manager.update_access(None, self.instance.id, ACCESS)

    def test_changes_the_rules(self):
        self.request_access()
        self.assertEqual(([ACCESS], InstanceTasks.NONE), (self.calls, self.task()))
        self.assertIsNone(self.fault())

    def test_a_failure_ends_the_task(self):
        """Trove's own handler of errors raises AttributeError."""
        self.error = RuntimeError('Neutron does not answer')
        self.request_access()
        self.assertEqual(([ACCESS], InstanceTasks.NONE), (self.calls, self.task()))
        self.assertIn('changing the access rules failed', self.fault())

    def test_an_error_task_is_ended(self):
        """As if Trove's own handler of errors worked."""
        self.update_access = lambda _access: self.set_task(InstanceTasks.UPDATING_ERROR_ACCESS)
        self.request_access()
        self.assertEqual(InstanceTasks.NONE, self.task())
        self.assertIn('changing the access rules failed', self.fault())

    def test_a_failure_ends_no_other_task(self):
        def fail(_access):
            self.set_task(InstanceTasks.DELETING)
            raise RuntimeError('its ports are gone')

        self.update_access = fail
        self.request_access()
        self.assertEqual(InstanceTasks.DELETING, self.task())
        self.assertIsNone(self.fault())

    def test_an_instance_that_is_deleted_meanwhile(self):
        def delete(_access):
            trove_database.instance(self.instance.id).update(deleted=True)
            raise RuntimeError('its ports are gone')

        self.update_access = delete
        self.request_access()
        self.assertIsNone(self.fault())

    def test_refused_in_each_state_of_a_replacement(self):
        for kind in ReplacementKind:
            claim = self.replace(kind)
            for event in (None, Event.FENCE, Event.MOVE, Event.SHOW):
                if event is not None:
                    self.store.advance(claim, event)
                self.request_access()
                self.assertEqual(kind.task, self.task().action)
                self.assertIn('the change of the access rules was refused', self.fault())
                self.assertIn('is getting another server', self.fault())
            self.store.complete(claim)
            self.assertEqual(InstanceTasks.NONE, self.task())
        self.assertEqual([], self.calls)
        self.request_access()
        self.assertEqual([ACCESS], self.calls)

    def test_refused_if_the_change_of_a_source_has_left_something_to_do(self):
        """Otherwise an ejected source would have no task any more, and could be failed over."""
        marks = source_marks.SourceMarkStore()
        self.addCleanup(marks.remove, self.instance.id)
        for mark, task, why in (
            (SourceMark.EJECTED, InstanceTasks.EJECTION_ERROR, 'was ejected'),
            (SourceMark.UNFINISHED_EJECTION, InstanceTasks.EJECTION_ERROR, 'does not answer'),
            (SourceMark.UNFINISHED_PROMOTION, InstanceTasks.PROMOTION_ERROR, 'does not answer'),
        ):
            marks.set(self.instance.id, mark)
            self.request_access()
            self.assertEqual(([], task), (self.calls, self.task()))
            self.assertIn(why, self.fault())

    def test_an_instance_that_is_ejected_meanwhile(self):
        """Trove ends the change without a task."""
        marks = source_marks.SourceMarkStore()
        self.addCleanup(marks.remove, self.instance.id)

        def change(_access):
            marks.set(self.instance.id, SourceMark.EJECTED)
            self.set_task(InstanceTasks.NONE)

        self.update_access = change
        self.request_access()
        self.assertEqual(InstanceTasks.EJECTION_ERROR, self.task())
        self.assertIsNone(self.fault())

    def test_refused_while_a_replica_takes_over(self):
        self.store.advance(self.replace(), Event.TAKE_OVER)
        self.request_access()
        self.assertEqual(([], InstanceTasks.MIGRATING), (self.calls, self.task()))

    def test_a_replacement_that_began_after_another_change_has_ended(self):
        """Trove ends the second change without a task."""

        def change(_access):
            self.set_task(InstanceTasks.NONE)
            self.replace()
            self.set_task(InstanceTasks.NONE)

        self.update_access = change
        self.request_access()
        self.assertEqual(InstanceTasks.MIGRATING, self.task())
        self.assertIsNone(self.fault())

    def test_refused_while_it_is_created_or_deleted(self):
        for role, task, reason in (
            (Role.CREATE_INSTANCE, InstanceTasks.BUILDING, 'is being created'),
            (Role.DELETE_INSTANCE, InstanceTasks.DELETING, 'is being deleted'),
        ):
            claim = self.operations.begin(role, self.instance.id, WORKER)
            self.request_access()
            self.operations.finish(claim)
            self.assertEqual(([], task), (self.calls, self.task()))
            self.assertIn(reason, self.fault())

    def test_the_task_of_a_creation_that_was_given_back_ends_with_its_claim(self):
        """Otherwise the instance could not even be deleted."""
        claim = self.operations.begin(Role.CREATE_INSTANCE, self.instance.id, WORKER)
        self.request_access()
        self.assertEqual(InstanceTasks.BUILDING, self.task())
        requests = self.manager._unchecked_requests
        requests.end_creation(lambda _instance_id: None, self.instance.id)
        self.assertEqual(InstanceTasks.BUILDING, self.task())
        requests.end_creation(lambda _instance_id: self.operations.finish(claim), self.instance.id)
        self.assertEqual(InstanceTasks.NONE, self.task())
        # That of another operation stays.
        self.set_task(InstanceTasks.DELETING)
        requests.end_creation(lambda _instance_id: None, self.instance.id)
        self.assertEqual(InstanceTasks.DELETING, self.task())

    def promote_a_replica(self):
        """Have a replica of the instance promoted; return the claim on it."""
        replica = trove_database.add_instance(
            'project', 'volume-of-replica', slave_of_id=self.instance.id
        )
        claim = self.operations.begin(Role.PROMOTE_REPLICA, replica.id, WORKER)
        self.addCleanup(self.operations.finish, claim)
        return claim

    def rebuild(self, sleep=lambda: None):
        """Request a rebuild, as Trove's API does.

        :param sleep: is called with each pause
        """
        self.at_pause = sleep
        self.have_waits()
        self.set_task(InstanceTasks.BUILDING)
        self.manager.rebuild(None, self.instance.id, 'image')

    def test_rebuild_waits_for_the_end_of_a_promotion(self):
        """The new server could accept writes beside the new source."""
        claim = self.promote_a_replica()

        def end():
            self.assertEqual([], self.calls)
            self.operations.finish(claim)

        self.rebuild(end)
        self.assertEqual((['rebuild'], InstanceTasks.BUILDING), (self.calls, self.task()))
        self.assertIsNone(self.fault())

    def test_rebuild_is_refused_if_a_promotion_does_not_end(self):
        self.promote_a_replica()
        self.rebuild()
        self.assertEqual(([], InstanceTasks.PROMOTING), (self.calls, self.task()))
        self.assertIn('the rebuild was refused, since its replica', self.fault())
        self.assertLess(299, self.now)

    def test_rebuild_of_what_is_ejected_meanwhile(self):
        marks = source_marks.SourceMarkStore()
        self.addCleanup(marks.remove, self.instance.id)
        trove_database.add_instance('project', 'volume-of-replica', slave_of_id=self.instance.id)
        claim = self.operations.begin(Role.EJECT_SOURCE, self.instance.id, WORKER)
        self.addCleanup(self.operations.finish, claim)

        def end():
            self.operations.finish(claim)
            marks.set(self.instance.id, SourceMark.EJECTED)

        self.rebuild(end)
        self.assertEqual(([], InstanceTasks.EJECTION_ERROR), (self.calls, self.task()))
        self.assertIn('was ejected', self.fault())

    def test_rebuild_is_refused_during_a_replacement(self):
        """Trove would rebuild a server that is being deleted."""
        self.replace()
        self.set_task(InstanceTasks.BUILDING)
        self.manager.rebuild(None, self.instance.id, 'image')
        self.assertEqual(([], InstanceTasks.MIGRATING), (self.calls, self.task()))
        self.assertIn('the rebuild was refused', self.fault())

    def test_no_change_of_the_source_begins_during_a_rebuild(self):
        """The new server could not be told from a source."""
        source_id = self.instance.id

        def begin(role):
            return self.operations.begin(role, source_id, WORKER, {Role.CHANGE_SOURCE})

        def rebuild():
            self.calls += [begin(Role.CHANGE_SOURCE), begin(Role.EJECT_SOURCE)]
            self.calls.append(self.manager._unchecked_requests._find_task(source_id))

        self.rebuild_in_nova = rebuild
        self.rebuild()
        self.assertEqual([None, None, 'BUILDING'], self.calls)
        # A worker that resumes this has it accept writes; a change of the source goes over it.
        self.assert_left_to_a_resumption()
        claim = begin(Role.EJECT_SOURCE)
        self.assertIsNotNone(claim)
        self.operations.finish(claim)

    def assert_left_to_a_resumption(self):
        left = self.operations.list_interrupted(self.worker)
        self.assertIn((Role.CHANGE_SOURCE, self.instance.id), left)

    def test_a_source_whose_rebuild_has_failed_is_to_accept_writes_nevertheless(self):
        """Such as one whose recovery took longer than Trove waits."""

        def rebuild():
            raise RuntimeError('Nova does not answer')

        self.rebuild_in_nova = rebuild
        self.assertRaises(RuntimeError, self.rebuild)
        self.assert_left_to_a_resumption()

    def test_a_replica_that_trove_could_not_attach_again_has_its_source(self):
        """Otherwise it would be opened as a database of its own."""
        source_id = self.make_replica()
        table = replicas.ReplicaStore()
        table.register(self.instance.id, 'project', source_id, 'volume', None)
        self.addCleanup(table.remove, self.instance.id)

        def rebuild():
            trove_database.instance(self.instance.id).update(slave_of_id=None)
            raise RuntimeError('the source does not answer')

        self.rebuild_in_nova = rebuild
        self.assertRaises(RuntimeError, self.rebuild)
        self.assertEqual(source_id, trove_database.instance(self.instance.id).slave_of_id)
        # So does one whose taskmanager dies in the middle.
        self.end_operations()
        trove_database.instance(self.instance.id).update(slave_of_id=None)
        self.operations.begin(Role.REBUILD_SERVER, self.instance.id, claims.Claimant('dead'))
        self.manager._recover_instances()
        self.assertEqual(source_id, trove_database.instance(self.instance.id).slave_of_id)
        # The watch has it follow.
        self.assertIsNotNone(table.find(self.instance.id).stopped_at)
        # One that was none before the rebuild stays so, whatever our table has.
        trove_database.instance(self.instance.id).update(slave_of_id=None)
        self.assertRaises(RuntimeError, self.rebuild)
        self.assertIsNone(trove_database.instance(self.instance.id).slave_of_id)

    def test_rebuild_of_a_replica_whose_source_does_not_accept_writes_yet(self):
        marks = source_marks.SourceMarkStore()
        source_id = self.make_replica()
        marks.set(source_id, SourceMark.UNFINISHED_PROMOTION)
        self.addCleanup(marks.remove, source_id)
        self.rebuild()
        self.assertEqual(([], InstanceTasks.NONE), (self.calls, self.task()))
        self.assertIn(f'since its source {source_id} has become the source', self.fault())

    def test_rebuild_of_an_instance_with_another_agent(self):
        self.instance = trove_database.add_instance(
            'project', 'volume', version_id=trove_database.foreign_version()
        )
        self.rebuild()
        self.assertEqual(['rebuild'], self.calls)
        self.assertIsNone(self.operations.find_role(self.instance.id))

    def test_a_second_rebuild_is_refused_during_the_first(self):
        def rebuild():
            self.calls.append('rebuild')
            self.manager.rebuild(None, self.instance.id, 'image')

        self.rebuild_in_nova = rebuild
        self.rebuild()
        self.assertEqual((['rebuild'], InstanceTasks.BUILDING), (self.calls, self.task()))
        self.assertIn('is being created or rebuilt', self.fault())

    def test_rebuild_is_refused_while_the_replicas_are_changed(self):
        """Such as by a promotion that has not shown its choice yet."""
        claim = self.operations.begin(Role.CHANGE_SOURCE, self.instance.id, WORKER)
        self.addCleanup(self.operations.finish, claim)
        self.rebuild()
        self.assertEqual(([], InstanceTasks.NONE), (self.calls, self.task()))
        self.assertIn('its replicas are being changed', self.fault())
        self.assertLess(299, self.now)

    def test_rebuild_of_a_source_that_is_silent_for_ever(self):
        """An interrupted promotion may have left it read-only."""
        dead = claims.Claimant('dead')
        self.operations.begin(Role.CHANGE_SOURCE, self.instance.id, dead)
        self.rebuild()
        self.assertEqual(['rebuild'], self.calls)
        self.assert_left_to_a_resumption()

    def test_a_rebuild_whose_taskmanager_died(self):
        self.operations.begin(Role.REBUILD_SERVER, self.instance.id, claims.Claimant('dead'))
        self.set_task(InstanceTasks.BUILDING)
        self.manager._recover_instances()
        self.assertEqual(InstanceTasks.NONE, self.task())
        self.assertIn('stopped while it rebuilt this instance', self.fault())
        self.assert_left_to_a_resumption()
