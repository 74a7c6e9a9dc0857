# SPDX-License-Identifier: Apache-2.0
"""Replicas that take over, in Trove's tables and ours; agents, Ceph and Nova are in memory."""

import datetime
import types
import uuid

from oslotest import base
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions
from trove_ceph.db import (
    claims,
    failover_policies,
    heartbeat,
    instance_operations,
    replacements,
    replicas,
    source_marks,
    transactions,
)
from trove_ceph.db.policy_record import Scope
from trove_ceph.db.replacement_record import FailoverCause, RequestedBy
from trove_ceph.db.replacement_states import Event
from trove_ceph.db.replica_record import Observation
from trove_ceph.db.roles import Role
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.replacement import requests
from trove_ceph.strategies.replication.replication_types import ReplicationStatus, ThreadState
from trove_ceph.strategies.replication.source_dependencies import RowChange, SourceDependencies
from trove_ceph.taskmanager import (
    changed_replicas,
    choices,
    source_changes,
    source_changes_factory,
    source_work,
    successors,
)
from trove_ceph.taskmanager import instance_operations as operations_module
from trove_ceph.tests.unit.taskmanager import test_replaced_members, trove_database
from trove_ceph.trove_adapter import replaced_instance, replication_rows

SOURCE_UUID = '11111111-1111-1111-1111-111111111111'
EXECUTED = GtidSet.parse(f'{SOURCE_UUID}:1-9')


class _Agents:
    """The agent of the source is silent; the replica has all that the source had."""

    def __init__(self, replica_id):
        self._replica_id = replica_id
        self.is_replica = self.is_read_only = True

    def status(self, instance_id):
        if instance_id != self._replica_id:
            raise exceptions.GuestSilentError('no answer')
        return ReplicationStatus(
            server_uuid=str(uuid.UUID(int=2)),
            gtid_executed=EXECUTED,
            is_replica=self.is_replica,
            source_uuid=SOURCE_UUID,
            io_state=ThreadState.CONNECTING,
            sql_state=ThreadState.ON,
            is_read_only=self.is_read_only,
        )

    def stop_receiving(self, instance_id):
        pass

    def detach(self, instance_id, for_failover):
        self.is_replica = False

    def enable_as_source(self, instance_id):
        self.is_read_only = False

    def drop_replication_users(self, instance_id, keep_replica_ids):
        pass


class SuccessorsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        trove_database.path()
        self.addCleanup(test_replaced_members.remove_operations)
        project = f'project-{uuid.uuid4()}'
        self.source = trove_database.add_instance(project, 'volume')
        self.replica = trove_database.add_instance(project, 'volume-2', slave_of_id=self.source.id)
        self.store, self.replicas = replacements.ReplacementStore(), replicas.ReplicaStore()
        self.replicas.register(self.replica.id, project, self.source.id, 'volume-2', None)
        self.fenced, self.notes = [], []
        self.successors = successors.Successors(self.make_changes)

    def see(self):
        """Have the watch look at the source."""
        found = Observation(source_executed=str(EXECUTED))
        before = self.replicas.find(self.replica.id)
        self.replicas.observe(before, found, self.replicas.now())

    def make_changes(self):
        worker = claims.Claimant('one')
        store = instance_operations.InstanceOperationStore()
        beating = heartbeat.Heartbeat(claims.Claims(transactions.Transactions()), 5, 45)
        trove = types.SimpleNamespace(is_deleting=lambda _instance_id: False)
        operations = operations_module.InstanceOperations(store, trove, worker, beating)
        tasks = changed_replicas.OtherTasks(store, self.store, self.replicas)
        deps = SourceDependencies(
            rows=replication_rows.ReplicationRows(find_task=tasks.find),
            agents=_Agents(self.replica.id),
            replicas=changed_replicas.ChangedReplicas(self.replicas),
            volumes=types.SimpleNamespace(
                fence=self.fence,
                has_one_copy=lambda _volume_id: False,
                flatten=lambda _volume_id: None,
            ),
            choices=choices.Choices(store, worker, operations.finish),
            marks=source_marks.SourceMarkStore(),
            find_task=tasks.find,
            is_blocked=tasks.is_blocked,
            is_reprovisioning=tasks.is_reprovisioning,
            disable_failover=source_changes_factory.disable_failover,
            stop_server=lambda _server_id: None,
            is_server_off=lambda _server_id: True,
            has_host_down=lambda _server_id: False,
            find_ram_mib=lambda _flavor_id: 0,
        )
        return source_changes.SourceChanges(
            source_work.SourceWork(deps, operations, store, beating)
        )

    def fence(self, volume_id, confirm):
        confirm()
        self.fenced.append(volume_id)

    def confirm_claim(self):
        self.notes.append('confirmed')

    def note_fenced(self):
        self.notes.append('fenced')

    def note_promoted(self, replica_id):
        self.notes.append(replica_id)

    def request(self):
        """Request the failover of the source; return its record and the claim on it."""
        facts = replaced_instance.find_facts(self.source.id)
        record = requests.new_failover(
            *(facts, RequestedBy.AUTOMATIC, '', True, FailoverCause.HOST_DOWN, self.store.now()),
            prefers_replica=True,
        )
        record = self.store.request(record, facts.task)
        claim = self.store.claim(record.replacement_id, claims.Claimant('one'))
        return self.store.advance(claim, Event.TAKE_OVER), claim

    def shown(self, instance):
        row = trove_database.instance(instance.id)
        return row.slave_of_id, row.task_status

    def test_a_replica_takes_over(self):
        self.see()
        record, claim = self.request()
        self.assertTrue(self.successors.has_replicas(self.source.id))
        self.successors.take_over(record, self.store.now(), self)
        self.assertEqual(['volume'], self.fenced)
        self.assertEqual(['confirmed', 'fenced', 'confirmed', self.replica.id], self.notes)
        self.assertEqual((None, InstanceTasks.NONE), self.shown(self.replica))
        self.assertEqual((None, InstanceTasks.MIGRATING), self.shown(self.source))
        self.assertFalse(self.successors.has_replicas(self.source.id))
        self.store.complete(claim)
        self.assertEqual((None, InstanceTasks.EJECTION_ERROR), self.shown(self.source))
        store = instance_operations.InstanceOperationStore()
        self.assertEqual({}, store.find_roles([self.source.id, self.replica.id]))

    def test_the_failover_policy_of_an_ejected_source_is_disabled(self):
        """Its volume must not get another server when its task is reset."""
        self.see()
        store, ids = failover_policies.FailoverPolicyStore(), (self.source.id, self.replica.id)
        one, two = (store.add(Scope.INSTANCE, each, enabled=True) for each in ids)
        record, _claim = self.request()
        self.successors.take_over(record, self.store.now(), self)
        self.assertFalse(store.find(one.policy_id).enabled)
        self.assertTrue(store.find(two.policy_id).enabled)

    def test_an_ejected_source_without_a_failover_policy_gets_a_disabled_one(self):
        """That of its datastore does not apply to it then."""
        self.see()
        record, _claim = self.request()
        self.successors.take_over(record, self.store.now(), self)
        (policy,) = (
            one
            for one in failover_policies.FailoverPolicyStore().all()
            if one.target == self.source.id
        )
        self.assertEqual(
            (Scope.INSTANCE, False, self.source.tenant_id),
            (policy.scope, policy.enabled, policy.project_id),
        )

    def test_the_new_source_follows_another_one_meanwhile(self):
        """The volume must not move: two databases would accept writes."""
        self.see()
        record, claim = self.request()
        self.successors.take_over(record, self.store.now(), self)
        record = self.store.note(claim, promoted_id=self.replica.id)
        other = trove_database.add_instance(self.replica.tenant_id, 'volume-3')
        rows = replication_rows.ReplicationRows()
        rows.record([RowChange(self.replica.id, other.id)])
        self.successors.take_over(record, self.store.now(), self)
        self.assertEqual(['volume'], self.fenced)

    def test_an_interrupted_take_over_is_left_to_its_open_failover(self):
        store, dead = instance_operations.InstanceOperationStore(), claims.Claimant('dead')
        other = claims.Claimant('other', is_dead=lambda _name: True)
        _record, claim = self.request()
        self.assertTrue(store.begin(Role.TAKE_OVER, self.source.id, dead))
        self.assertTrue(self.successors.is_taking_over(self.source.id))
        taken_over = (Role.TAKE_OVER, self.source.id)
        self.assertNotIn(taken_over, store.list_interrupted(other))
        self.store.complete(claim)
        self.assertIn(taken_over, store.list_interrupted(other))

    def test_no_replica_is_fit(self):
        self.see()
        record, _claim = self.request()
        late = self.store.now() + datetime.timedelta(hours=1)
        self.assertRaises(
            exceptions.SourceNotChangedError, self.successors.take_over, record, late, self
        )
        self.assertEqual(([], []), (self.fenced, self.notes))
        self.assertEqual((self.source.id, InstanceTasks.NONE), self.shown(self.replica))
        self.assertEqual((None, InstanceTasks.MIGRATING), self.shown(self.source))
