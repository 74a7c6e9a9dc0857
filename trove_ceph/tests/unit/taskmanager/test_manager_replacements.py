# SPDX-License-Identifier: Apache-2.0
"""How the taskmanager resizes and deletes an instance whose server is, or can be, replaced."""

import contextlib
import dataclasses
import types

import fixtures
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import notification
from trove.instance.tasks import InstanceTasks

from trove_ceph import exceptions
from trove_ceph.db import failover_policies
from trove_ceph.db.policy_record import Scope
from trove_ceph.db.replacement_record import ReplacementState
from trove_ceph.db.replica_record import ReplicaState
from trove_ceph.taskmanager import manager
from trove_ceph.tests.unit.storage_service import bus
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.taskmanager import contexts
from trove_ceph.tests.unit.trove_adapter import test_replaced_instance

CONF = trove_cfg.CONF
SMALL, LARGE = {'id': 'small', 'ram': 1024}, {'id': 'large', 'ram': 2048}


class ManagerReplacementsTest(contexts.ContextMixin, base.BaseTestCase):
    """The test case acts as the replacements of this process.

    :ivar ended: the record of a replacement at its end
    """

    def setUp(self):
        super().setUp()
        self.world = worlds.World()
        self.calls, self.notifications = [], []
        notifier = types.SimpleNamespace(
            info=lambda context, event, payload: self.notifications.append((event, dict(payload)))
        )
        tell = 'trove_ceph.trove_adapter.instance_flavor.notify_changed'
        for name, value in (
            ('trove_ceph.taskmanager.factory.make_dependencies', lambda *_: self.world.deps()),
            ('trove_ceph.taskmanager.replacement_factory.make_dependencies', lambda *_: self),
            ('trove_ceph.taskmanager.replacement_factory.make_replacements', lambda *_: self),
            ('trove_ceph.taskmanager.warm_resize.request', self.request),
            ('trove_ceph.taskmanager.warm_resize.request_rebuild', self.request_rebuild),
            ('trove.rpc.get_notifier', lambda **_: notifier),
            ('trove.taskmanager.manager.Manager.rebuild', self.stock('rebuild')),
            ('trove.taskmanager.manager.Manager.resize_flavor', self.stock('resize_flavor')),
            ('trove.taskmanager.manager.Manager.delete_instance', self.stock('delete_instance')),
            (tell, lambda *_: self.calls.append('notify_changed')),
        ):
            self.useFixture(fixtures.MonkeyPatch(name, value))
        self.useFixture(bus.StorageTransport(CONF))
        self.manager = manager.Manager()
        self.manager._replacement_store = self
        for thread in (
            '_background',
            '_guest_background',
            '_replacement_background',
            '_replication_background',
            '_replication_watch',
        ):
            getattr(self.manager, thread).start = lambda: None
        self.manager._replica_store = types.SimpleNamespace(find=lambda _id: self.replica)
        self.manager._reprovisionings = lambda: self
        self.manager._replication._get_reprovisionings = lambda: self
        self.replica = None
        self.set_pools(['mysql/9.7:large'])
        self.record = test_replaced_instance.record(self.world.instance.id)
        self.ended = dataclasses.replace(self.record, state=ReplacementState.COMPLETED)
        self.open_one = None

    def set_pools(self, pools):
        CONF.set_override('pools', pools, 'trove_ceph_guests')
        self.addCleanup(CONF.clear_override, 'pools', 'trove_ceph_guests')

    def stock(self, verb):
        return lambda _manager, _context, *arguments: self.calls.append(f'stock {verb}')

    def request(self, deps, instance_id, flavor_id, ram_growth_mib):
        self.assertIs(self, deps)
        self.calls.append(f'request {flavor_id}')
        self.assertEqual(1024, ram_growth_mib)
        return self.record

    def request_rebuild(self, deps, instance_id, image_id):
        self.assertIs(self, deps)
        self.calls.append(f'request {image_id}')
        return self.record

    def start_due(self):
        self.calls.append('start_due')

    def wait(self, replacement_id, timeout_sec):
        self.calls.append(f'wait {timeout_sec}')
        if isinstance(self.ended, Exception):
            raise self.ended
        return self.ended

    def find_open(self, instance_id):
        return self.open_one

    def cancel(self, instance_id):
        self.calls.append('cancel')
        if isinstance(self.open_one, Exception):
            raise self.open_one

    def prune(self, keep):
        self.calls.append(f'prune {keep.days}')

    def resize(self):
        self.manager.resize_flavor(
            self.context(notification.DBaaSInstanceResizeInstance),
            self.world.instance.id,
            SMALL,
            LARGE,
        )

    def events(self):
        return [event.removeprefix('dbaas.') for event, _payload in self.notifications]

    def test_resizes_on_a_warm_guest(self):
        self.resize()
        self.assertEqual(['request large', 'wait 1800', 'notify_changed'], self.calls)
        self.assertEqual(['instance_resize_instance.end'], self.events())

    def test_reports_a_resize_that_failed(self):
        self.ended = dataclasses.replace(
            self.record, state=ReplacementState.FAILED, error='the guest agent did not stop MySQL'
        )
        error = self.assertRaises(exceptions.TroveCephError, self.resize)
        self.assertIn('the guest agent did not stop MySQL', str(error))
        self.assertEqual(['instance_resize_instance.error'], self.events())
        self.assertNotIn('notify_changed', self.calls)

    def test_reports_a_resize_that_goes_on(self):
        self.ended = exceptions.InProgressError('server 7 boots', 'the resize goes on by itself')
        error = self.assertRaises(exceptions.TroveCephError, self.resize)
        self.assertIn('the resize goes on by itself', str(error))
        self.assertNotIn('server 7', str(error))
        self.assertEqual(['instance_resize_instance.error'], self.events())

    def test_resize_of_an_instance_that_is_deleted_meanwhile(self):
        self.ended = dataclasses.replace(self.record, state=ReplacementState.CANCELED)
        self.resize()
        self.assertNotIn('notify_changed', self.calls)

    def test_trove_resizes_without_a_warm_guest(self):
        self.record = None
        self.resize()
        self.assertEqual(['request large', 'stock resize_flavor'], self.calls)

    def test_trove_resizes_without_pools(self):
        self.set_pools([])
        self.resize()
        self.assertEqual(['stock resize_flavor'], self.calls)

    def test_trove_resizes_what_is_not_ours(self):
        self.world.volume['host'] = worlds.OTHER
        self.resize()
        self.assertEqual(['stock resize_flavor'], self.calls)

    def test_trove_resizes_if_the_cloud_cannot_be_reached(self):
        def fail(*_arguments):
            raise exceptions.ServiceUnavailableError('Keystone is down')

        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.taskmanager.replacement_factory.make_dependencies', fail
            )
        )
        self.resize()
        self.assertEqual(['stock resize_flavor'], self.calls)

    def test_rebuilds_on_a_warm_guest(self):
        self.manager.rebuild(None, self.world.instance.id, 'image')
        self.assertEqual(['request image'], self.calls)

    def test_trove_rebuilds_what_no_warm_guest_can(self):
        self.record = None
        self.manager.rebuild(None, self.world.instance.id, 'image')
        self.assertEqual(['request image', 'stock rebuild'], self.calls)

    def test_trove_rebuilds_where_no_guests_wait(self):
        self.set_pools([])
        self.manager.rebuild(None, self.world.instance.id, 'image')
        self.assertEqual(['stock rebuild'], self.calls)

    # Deletion.

    def delete(self):
        self.world.volume['host'] = worlds.OTHER
        self.manager.delete_instance(
            self.context(notification.DBaaSInstanceDelete), self.world.instance.id
        )

    def test_deletion_cancels_a_replacement(self):
        self.open_one = self.record
        self.delete()
        self.assertEqual(['cancel', 'stock delete_instance'], self.calls)

    def test_deletion_that_cancels_is_resumed_by_another_taskmanager(self):
        self.open_one = self.record

        @contextlib.contextmanager
        def claimed(role, instance_id):
            self.calls.append(f'claim to {role} {instance_id}')
            yield
            self.calls.append('release')

        self.manager._claims = types.SimpleNamespace(claimed=claimed)
        self.delete()
        claim = f'claim to delete-instance {self.world.instance.id}'
        self.assertEqual([claim, 'cancel', 'release', 'stock delete_instance'], self.calls)

    def test_deletion_without_a_replacement_needs_none_of_its_clients(self):
        self.delete()
        self.assertEqual(['stock delete_instance'], self.calls)

    def test_deletion_that_cannot_cancel_deletes_nothing(self):
        self.open_one = exceptions.InProgressError('it did not end')
        self.assertRaises(exceptions.TroveCephError, self.delete)
        self.assertEqual(['cancel'], self.calls)
        self.assertEqual(['instance_delete.error'], self.events())

    def test_resumed_deletion_cancels_a_replacement(self):
        self.open_one = self.record
        self.world.instance.update(task_status=InstanceTasks.DELETING)
        deleted = 'trove_ceph.taskmanager.manager.Manager._delete_instance'
        self.useFixture(fixtures.MonkeyPatch(deleted, lambda *_: self.calls.append('delete')))
        self.manager._resume_deletion(types.SimpleNamespace(resource_id=self.world.instance.id))
        self.assertEqual(['cancel', 'delete'], self.calls)

    def test_deletion_ends_a_reprovisioning(self):
        for state, expected in (
            (ReplicaState.FOLLOWING, ['stock delete_instance']),
            (ReplicaState.EXCHANGING, ['cancel', 'stock delete_instance']),
        ):
            self.calls.clear()
            self.replica = types.SimpleNamespace(state=state)
            self.delete()
            self.assertEqual(expected, self.calls)

    # The threads.

    def test_reprovisions_at_once_when_notified(self):
        self.manager.reprovision_replicas(None)
        self.assertEqual(['start_due'], self.calls)

    def test_continues_reprovisionings_in_the_background(self):
        for function in self.manager._replication_background._functions:
            function()
        self.assertEqual(['start_due'], self.calls)

    def test_looks_at_once_when_notified(self):
        self.manager.replace_servers(None)
        self.assertEqual(['start_due'], self.calls)

    def test_continues_replacements_in_the_background(self):
        for function in self.manager._replacement_background._functions:
            function()
        self.assertEqual(['start_due'], self.calls)

    def test_prunes_old_records(self):
        self.manager.prune_records(None)
        self.assertEqual(['prune 90'], self.calls)

    def test_prunes_failover_policies_of_deleted_instances(self):
        store = failover_policies.FailoverPolicyStore()
        for target in (self.world.instance.id, 'deleted'):
            policy = store.add(Scope.INSTANCE, target, project_id='project')
            self.addCleanup(store.remove, policy.policy_id)
        of_datastore = store.add(Scope.DATASTORE, 'mysql')
        self.addCleanup(store.remove, of_datastore.policy_id)
        self.manager.prune_records(None)
        self.assertEqual({self.world.instance.id, 'mysql'}, {one.target for one in store.all()})
