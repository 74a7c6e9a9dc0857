# SPDX-License-Identifier: Apache-2.0
"""The creation of replicas, from the call of Trove's API to the report of the guest."""

import datetime
import types
import uuid

import fixtures
import oslo_db.exception
from oslotest import base
from trove.common import context as trove_context
from trove.common import notification
from trove.extensions.common import models as root_models
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions
from trove_ceph.db.replica_record import ReplicaState
from trove_ceph.storage import names
from trove_ceph.storage_service import rpcapi
from trove_ceph.strategies.replication import clones
from trove_ceph.taskmanager import manager
from trove_ceph.tests.unit.strategies import replication_world
from trove_ceph.tests.unit.taskmanager import replica_creation, trove_database
from trove_ceph.tests.unit.trove_adapter import stock_creation
from trove_ceph.trove_adapter import service_context


class ReplicationTest(replica_creation.ReplicaCreation, base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.set_up(replication_world.ReplicationWorld(2))
        #: The replicas on which others may work.
        self.created = []

    def create(self, **facts):
        context = self.context(notification.DBaaSInstanceCreate)
        self.manager._create(context, *self.replica_request(**facts), self.created.append)

    def prepared(self):
        """Return what the guests were given, by the names of Trove."""
        names = ('backup_info', 'config', 'root_password', 'overrides', 'cluster', 'snapshot')
        return [
            dict(zip(names, arguments[5:], strict=False))
            for verb, arguments, _ in self.built
            if verb == '_guest_prepare'
        ]

    def test_creates_replicas(self):
        self.create()
        self.assertEqual([InstanceTasks.NONE] * 2, self.tasks())
        self.assertEqual([], self.stock)
        self.assertEqual([], self.cinder.created)
        volumes = [
            arguments[3][0]['uuid'] for verb, arguments, _ in self.built if verb == '_create_server'
        ]
        own = [trove_database.instance(one).volume_id for one in self.world.replicas]
        self.assertEqual(own, volumes)
        self.assertEqual(
            [('dbaas.instance_create.end', one) for one in self.world.replicas],
            [(event, payload['instance_id']) for event, payload in self.notifications],
        )

    def test_gives_each_guest_the_data_and_a_source(self):
        self.create()
        for replica_id, given in zip(self.world.replicas, self.prepared(), strict=True):
            self.assertEqual('cinder', given['backup_info']['storage_driver'])
            replication = given['snapshot']
            self.assertEqual({'host': '192.0.2.7', 'port': 3306}, replication['master'])
            self.assertEqual('[mysqld]\nread_only = ON', replication['config'])
            user = replication['replica_conf']['replication_user']['name']
            self.assertEqual(f'slave_{replica_id[:8]}', user)

    def test_records_replicas_that_follow(self):
        self.silent.add(self.world.replicas[1])
        self.create()
        first, second = map(self.world.store.find, self.world.replicas)
        self.assertIsNone(second)
        self.assertEqual(
            (self.world.instance.id, ReplicaState.FOLLOWING), (first.source_id, first.state)
        )
        self.assertEqual(trove_database.instance(first.instance_id).volume_id, first.volume_id)
        self.assertIsNotNone(first.cloned_at)
        self.assertEqual({first.instance_id}, self.world.accounts)

    def test_lets_others_work_on_each_replica_that_follows(self):
        """However long the others take."""
        self.silent.add(self.world.replicas[1])
        self.create()
        self.assertEqual(self.world.replicas[:1], self.created)

    def test_a_replica_that_has_another_task_at_once_follows(self):
        def wait(tasks, _timeout_sec, _flavor):
            tasks.update_db(task_status=InstanceTasks.PROMOTING)

        self.wait = wait
        self.create()
        self.assertEqual(self.world.replicas, self.created)
        self.assertEqual(set(self.world.replicas), self.world.accounts)

    def test_records_that_root_is_enabled_as_on_the_source(self):
        root_models.RootHistory.create(trove_context.TroveContext(), self.world.instance.id)
        self.create()
        for one in self.world.replicas:
            self.assertIsNotNone(root_models.RootHistory.load(None, one))

    def test_keeps_the_accounts_of_replicas_that_are_not_recorded(self):
        self.world.accounts.add(self.world.add_replica())
        before = set(self.world.accounts)
        self.silent.add(self.world.replicas[1])
        self.create()
        self.assertEqual(before | set(self.world.replicas), self.world.accounts)

    def test_shows_why_a_request_was_refused(self):
        self.world.guest.is_down = True
        self.create()
        self.assertEqual([InstanceTasks.BUILDING_ERROR_REPLICA] * 2, self.tasks())
        for replica_id in self.world.replicas:
            # Trove breaks the lines of a fault.
            fault = ' '.join(self.fault(replica_id).split())
            self.assertIn('does not serve; restart it, and create the replica again', fault)
            self.assertIn('guest agent: no answer', fault)
        self.assertEqual(
            [('dbaas.instance_create.error', one) for one in self.world.replicas],
            [(event, payload['instance_id']) for event, payload in self.notifications],
        )
        self.assertEqual([self.world.volume], list(self.world.cinder.volumes.values()))
        self.assertEqual([], self.built)

    def test_looks_at_the_source_when_its_promotion_has_ended(self):
        """Otherwise it would become the replica of a replica."""
        source = self.world.instance.id
        waits = []

        def wait(source_id):
            waits.append(source_id)
            trove_database.instance(source).update(slave_of_id='new-source')

        self.manager._operations().await_changes = wait
        self.create()
        self.assertEqual([source], waits)
        self.assertEqual([InstanceTasks.BUILDING_ERROR_REPLICA] * 2, self.tasks())
        fault = ' '.join(self.fault(self.world.replicas[0]).split())
        self.assertIn('create a replica of its source new-source', fault)
        self.assertEqual(([], []), (self.built, self.world.snapshots()))

    def test_shows_that_the_tier_of_the_policy_is_gone(self):
        """Trove fills in the volume type of the source."""
        self.world.policies.set(self.world.instance.id, replica_volume_type='tape')
        self.create(volume_type='nvme')
        for replica_id in self.world.replicas:
            fault = ' '.join(self.fault(replica_id).split())
            self.assertTrue(fault.endswith('set another one, or default'), fault)
        self.assertEqual([self.world.volume], list(self.world.cinder.volumes.values()))
        self.assertEqual(([], []), (self.built, self.world.snapshots()))

    def test_reveals_nothing_of_the_storage(self):
        self.world.cluster.capacities['volumes'] = 0
        self.create()
        text = self.fault(self.world.replicas[0])
        self.assertIn('the storage has no room for it', text)
        self.assertNotIn('pool', text)

    def test_shows_the_failure_of_one_replica(self):
        first, _ = self.world.replicas
        self.world.refused.add(first)
        self.create()
        self.assertEqual([InstanceTasks.BUILDING_ERROR_REPLICA, InstanceTasks.NONE], self.tasks())
        self.assertIn('guest agent', self.fault(first))
        self.assertEqual(
            ['dbaas.instance_create.error', 'dbaas.instance_create.end'],
            [event for event, _ in self.notifications],
        )

    def test_a_failed_replica_can_be_deleted_with_its_volume(self):
        first, _ = self.world.replicas
        self.world.refused.add(first)
        self.create()
        self.assertIsNotNone(trove_database.instance(first).volume_id)
        deleted = []

        def delete(_context, instance_id):
            deleted.append(instance_id)
            trove_database.instance(instance_id).update(deleted=True)

        self.patch('trove_ceph.trove_adapter.instance_deletion.delete_but_volume', delete)
        self.manager.delete_instance(self.context(notification.DBaaSInstanceDelete), first)
        self.world.cinder.work()
        self.assertEqual([first], deleted)
        self.assertEqual(2, len(self.world.cinder.volumes))
        self.assertEqual([], self.world.trash())

    def delete(self, instance_id):
        """Delete an instance that has no volume."""
        self.manager.delete_instance(self.context(notification.DBaaSInstanceDelete), instance_id)
        self.assertEqual('delete_instance', self.stock.pop()[0])
        trove_database.instance(instance_id).update(deleted=True)

    def test_deletion_removes_the_snapshot_of_a_killed_creation(self):
        """The periodic task does not look at a source without replicas."""
        for first, *others in (self.world.replicas, self.world.replicas[::-1]):
            for one in self.world.replicas:
                trove_database.instance(one).update(deleted=False)
            self.take_snapshot()
            self.delete(first)
            # The creation of the other ones may need it.
            self.assertEqual(1, len(self.world.snapshots()))
            for one in others:
                self.delete(one)
            self.assertEqual([], self.world.snapshots())

    def test_deletion_of_all_replicas_at_once_removes_the_snapshot(self):
        first, second = self.world.replicas
        self.take_snapshot()
        trove_database.instance(second).update(task_status=InstanceTasks.DELETING)
        self.delete(first)
        self.assertEqual([], self.world.snapshots())

    def test_deletion_leaves_the_snapshot_of_a_later_request_alone(self):
        """Its replica is recorded, and its snapshot taken, while the last replica is deleted."""
        first, second = self.world.replicas
        trove_database.instance(second).update(deleted=True)
        describe, taken = rpcapi.StorageAPI.describe, []

        def describe_later(client, image, *arguments, **options):
            if image == self.world.volume_image and not taken:
                taken.append(second)
                trove_database.instance(second).update(deleted=False)
                self.take_snapshot(second)
            return describe(client, image, *arguments, **options)

        self.patch('trove_ceph.storage_service.rpcapi.StorageAPI.describe', describe_later)
        self.delete(first)
        self.assertEqual([second], taken)
        self.assertEqual(1, len(self.world.snapshots()))

    def test_a_replica_outlasts_the_deletion_of_another_one_of_its_request(self):
        """As after a forced deletion, while the volumes are cloned."""
        first, second = self.world.replicas
        begin = self.world.begin

        def delete_before_the_second(request):
            if getattr(request, 'args', ()) == (second,):
                trove_database.instance(first).update(
                    task_status=InstanceTasks.DELETING, volume_id=None
                )
                self.delete(first)
            return begin(request)

        self.world.begin = delete_before_the_second
        self.create()
        self.assertEqual(InstanceTasks.NONE, self.tasks()[1])
        self.assertEqual([], self.world.snapshots())

    def take_snapshot(self, replica_id=None):
        """Take the snapshot of a request for replicas."""
        first = replica_id or self.world.replicas[0]
        clones.SharedSnapshot(self.world.deps(), self.world.volume_image, first).ensure()

    def test_deletion_outlasts_a_source_whose_snapshots_cannot_be_removed(self):
        asked = []

        def fail(_deps, source_id, _are_needed):
            asked.append(source_id)
            raise exceptions.ServiceUnavailableError('the storage service is down')

        self.patch(f'{clones.__name__}.remove_snapshots', fail)
        first, second = self.world.replicas
        self.delete(first)
        # It has not waited for Ceph.
        self.assertEqual([], asked)
        self.delete(second)
        self.assertEqual([self.world.instance.id], asked)

    def test_deletion_of_the_last_replica_drops_the_accounts_of_all(self):
        first, second = self.world.replicas
        self.world.accounts.add(first)
        trove_database.instance(first).update(deleted=True)
        self.delete(second)
        self.assertEqual(set(), self.world.accounts)

    def test_fails_if_the_cloud_cannot_be_reached(self):
        def fail(*_arguments):
            raise exceptions.ServiceUnavailableError('Keystone is down')

        self.patch('trove_ceph.taskmanager.replication_factory.make_dependencies', fail)
        self.manager = manager.Manager()
        self.create()
        self.assertEqual([InstanceTasks.BUILDING_ERROR_REPLICA] * 2, self.tasks())
        self.assertNotIn('Keystone', self.fault(self.world.replicas[0]))

    def test_a_single_replica(self):
        self.world.replicas = self.world.replicas[:1]
        self.create()
        self.assertEqual([InstanceTasks.NONE], self.tasks())

    def test_places_servers_in_the_group_of_the_source(self):
        group = types.SimpleNamespace(
            name=f'locality_{self.world.instance.id}', id='the group', members=[]
        )
        nova = types.SimpleNamespace(server_groups=types.SimpleNamespace(list=lambda **_: [group]))
        for module in ('clients', 'server_group'):
            self.patch(f'trove.common.{module}.create_nova_client', lambda *_, **__: nova)
        self.create()
        hints = [arguments[-1] for verb, arguments, _ in self.built if verb == '_create_server']
        self.assertEqual([{'group': 'the group'}] * 2, hints)

    def test_works_on_all_replicas_at_the_same_time(self):
        begun, begun_before_waits = [], []

        def begin(request):
            begun.append(request)

            def wait():
                begun_before_waits.append(len(begun))
                return request()

            return wait

        self.world.begin = begin
        self.create()
        # First the volumes, of all replicas, and then the servers.
        self.assertEqual([2, 2, 4, 4], begun_before_waits)
        self.assertEqual([InstanceTasks.NONE] * 2, self.tasks())

    def test_outlasts_a_database_that_fails(self):
        def fail(*_arguments):
            raise oslo_db.exception.DBConnectionError

        self.patch('trove_ceph.trove_adapter.trove_db.TroveDatabase.fail_replica', fail)
        self.world.refused.add(self.world.replicas[0])
        self.create()
        self.assertEqual([InstanceTasks.BUILDING, InstanceTasks.NONE], self.tasks())

    def test_removes_old_snapshots_of_sources_and_of_deleted_instances(self):
        expiry = 'trove_ceph.strategies.replication.clones.SNAPSHOT_EXPIRY'
        self.patch(expiry, datetime.timedelta(minutes=-1))
        kept = self.world.cinder.add_volume('service', self.world.volume['host'])
        self.world.records.keep_volume(kept['id'], str(uuid.uuid4()), self.world.project)
        images = [self.world.volume_image, self.world.cinder.image(kept)]
        for image in images:
            name = names.snapshot_name('replica', self.world.replicas[0])
            self.world.storage.create_snapshot(image.snapshot(name))
        self.assertIn(
            'remove_old_replica_snapshots', {name for name, _ in manager.Manager._periodic_tasks}
        )
        self.manager.remove_old_replica_snapshots(None)
        self.assertEqual([[], []], [self.world.snapshots(image) for image in images])


class ContextTest(base.BaseTestCase):
    def test_a_copy_shares_nothing_that_trove_changes(self):
        self.useFixture(fixtures.MonkeyPatch('trove.rpc.get_notifier', lambda **_: None))
        world = types.SimpleNamespace(project='a project')
        case = stock_creation.StockCreation()
        case.world = world
        context = case.context(notification.DBaaSInstanceCreate)
        own = service_context.copy_for(context, 'a replica')
        with notification.NotificationCastWrapper(own, 'guest'):
            self.assertEqual('guest', own.notification.server_type)
            self.assertEqual('taskmanager', context.notification.server_type)
        self.assertTrue(context.notification.needs_end_notification)
        self.assertEqual('a replica', own.notification.payload['instance_id'])
        self.assertNotIn('instance_id', context.notification.payload)
        self.assertEqual(
            (context.project_id, context.user_id, context.is_admin),
            (own.project_id, own.user_id, own.is_admin),
        )
