# SPDX-License-Identifier: Apache-2.0
"""What Trove's API requests without a look at the task of the instance, and our tables."""

import datetime
import types
import uuid

import fixtures
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.instance import models as instance_models
from trove.instance.tasks import InstanceTasks
from trove.quota.quota import QUOTAS

from trove_ceph import waiting
from trove_ceph.db import (
    claims,
    heartbeat,
    instance_operations,
    replacements,
    replicas,
    source_marks,
    transactions,
)
from trove_ceph.db.replacement_record import ReplacementKind
from trove_ceph.db.replacement_states import Event
from trove_ceph.db.roles import Role
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.taskmanager import manager
from trove_ceph.tests.unit.db import replacement_helpers
from trove_ceph.tests.unit.storage_service import bus
from trove_ceph.tests.unit.taskmanager import trove_database

CONF = trove_cfg.CONF
ACCESS = {'is_public': True}
WORKER = claims.Claimant('worker')


class UncheckedRequestsTest(base.BaseTestCase):
    """The test case acts as Trove's own change of the rules.

    :ivar error: with which it fails; None: it does not
    """

    def setUp(self):
        super().setUp()
        self.instance = trove_database.add_instance('project', 'volume')
        self.calls, self.error = [], None
        for name, value in (
            ('trove.taskmanager.models.BuiltInstanceTasks.load', lambda *_: self),
            ('trove.taskmanager.manager.Manager.rebuild', lambda *_: self.rebuild_in_nova()),
            ('trove.taskmanager.manager.Manager.resize_flavor', self.resize_by_trove),
            ('trove.taskmanager.manager.Manager.resize_volume', self.resize_by_trove),
            ('trove_ceph.taskmanager.factory.make_dependencies', lambda *_: self),
        ):
            self.useFixture(fixtures.MonkeyPatch(name, value))
        self.useFixture(bus.StorageTransport(CONF))
        self.manager = manager.Manager()
        self.manager._recovery_threads = types.SimpleNamespace(start=lambda work: work())
        self.manager._source_requests = types.SimpleNamespace(
            resumptions={}, handle_marks=lambda _threads: None
        )
        self.store = replacements.ReplacementStore()
        self.operations = instance_operations.InstanceOperationStore()
        self.worker = claims.Claimant('this taskmanager', is_dead=lambda name: name == 'dead')
        self.addCleanup(self.end_operations)
        self.heartbeat = heartbeat.Heartbeat(claims.Claims(transactions.Transactions()), 5, 45)

    def end_operations(self):
        """Leave nothing to the tests that share the database."""
        for role, instance_id in self.operations.list_interrupted(self.worker):
            claim = self.operations.resume(role, instance_id, self.worker)
            self.operations.finish(claim)

    def rebuild_in_nova(self):
        self.calls.append('rebuild')

    def resize_by_trove(self, _manager, _context, _instance_id, *sizes):
        self.calls.append(sizes)

    def update_access(self, access):
        self.calls.append(access)
        if self.error is not None:
            raise self.error
        self.set_task(InstanceTasks.NONE)

    def set_task(self, task):
        trove_database.instance(self.instance.id).update(task_status=task)

    def task(self):
        return trove_database.instance(self.instance.id).task_status

    def fault(self):
        faults = instance_models.DBInstanceFault.find_all(instance_id=self.instance.id)
        return next((one.message for one in faults), None)

    def request_access(self):
        """Do what Trove's API does, and what the taskmanager does then."""
        self.set_task(InstanceTasks.UPDATING)
        self.manager.update_access(None, self.instance.id, ACCESS)

    def replace(self, kind=ReplacementKind.FAILOVER):
        """Request a replacement of the server; return the claim on it."""
        self.set_task(getattr(InstanceTasks, kind.requested_task or 'NONE'))
        record = replacement_helpers.record(
            str(uuid.uuid4()), datetime.datetime(2026, 1, 1), kind, instance_id=self.instance.id
        )
        self.store.request(record, kind.requested_task or 'NONE')
        claim = self.store.claim(record.replacement_id, WORKER)
        self.addCleanup(self.end, claim)
        return claim

    def end(self, claim):
        if self.store.find(claim.resource_id).state.is_open:
            self.store.cancel(claim)

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

    def used(self):
        """Return the memory and the volumes that the project uses."""
        return [
            QUOTAS.get_quota_usage(QUOTAS.get_quota_by_tenant('project', one)).in_use
            for one in ('ram', 'volumes')
        ]

    def request_flavor(self):
        """Do what the taskmanager does after Trove's API."""
        self.set_task(InstanceTasks.RESIZING)
        self.manager.resize_flavor(
            None, self.instance.id, {'id': 'small', 'ram': 1024}, {'id': 'large', 'ram': 3072}
        )

    def request_size(self):
        self.set_task(InstanceTasks.RESIZING)
        self.manager.resize_volume(None, self.instance.id, '4')

    def test_resizes(self):
        before = self.used()
        self.request_flavor()
        self.request_size()
        flavors = ({'id': 'small', 'ram': 1024}, {'id': 'large', 'ram': 3072})
        self.assertEqual([flavors, ('4',)], self.calls)
        self.assertEqual((before, InstanceTasks.RESIZING), (self.used(), self.task()))
        self.assertIsNone(self.fault())

    def test_a_resize_is_refused_if_a_replacement_began_after_the_look_of_the_api(self):
        """Trove would resize a server that is being deleted, and end the task of the failover."""
        for kind in ReplacementKind:
            claim = self.replace(kind)
            ram, volumes = self.used()
            self.request_flavor()
            self.assertEqual([ram - 2048, volumes], self.used())
            self.assertEqual(kind.task, self.task().action)
            self.assertIn('the change of the flavor was refused', self.fault())
            self.request_size()
            # The instance keeps 1 GiB.
            self.assertEqual([ram - 2048, volumes - 3], self.used())
            self.assertEqual(kind.task, self.task().action)
            self.assertIn('the resize of the volume was refused', self.fault())
            self.store.cancel(claim)
        self.assertEqual([], self.calls)

    def test_a_refused_resize_of_an_instance_that_is_deleted_meanwhile(self):
        """The API has given back what it used before."""
        self.replace()
        ram, _volumes = self.used()
        self.set_task(InstanceTasks.DELETING)
        self.manager.resize_flavor(None, self.instance.id, {'ram': 1024}, {'ram': 3072})
        self.assertEqual(ram - 2048, self.used()[0])
        self.assertEqual(([], InstanceTasks.DELETING), (self.calls, self.task()))

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

        :param sleep: is called instead of each pause, with its seconds
        """
        self.now = 0.0

        def pause(seconds):
            self.now += seconds
            sleep()

        self.manager._unchecked_requests._start_wait = lambda seconds: waiting.Deadline(
            seconds, lambda: self.now, pause
        )
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

    def make_replica(self):
        """Have the instance be a replica; return the id of its source."""
        source = trove_database.add_instance('project', 'volume-of-source')
        trove_database.instance(self.instance.id).update(slave_of_id=source.id)
        return source.id

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
