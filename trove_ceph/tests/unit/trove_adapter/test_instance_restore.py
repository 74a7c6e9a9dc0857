# SPDX-License-Identifier: Apache-2.0
"""Restores, from the call of Trove's API to the server with its volume."""

import inspect
import types

import fixtures
from oslotest import base
from trove.common import cfg as trove_cfg
from trove.common import notification
from trove.instance.tasks import InstanceTasks
from trove.taskmanager import api as trove_api
from trove.taskmanager import manager as trove_manager
from trove.taskmanager import models as trove_models

from trove_ceph import exceptions
from trove_ceph.db import tables
from trove_ceph.strategies.restore import clone_volume, planning
from trove_ceph.taskmanager import manager
from trove_ceph.tests.unit.storage_service import bus
from trove_ceph.tests.unit.strategies.test_restore_clone_volume import make_world, restore_request
from trove_ceph.tests.unit.taskmanager import contexts, trove_database
from trove_ceph.trove_adapter import instance_restore

CONF = trove_cfg.CONF


class StockCinder:
    """The Cinder client of Trove."""

    def __init__(self, world):
        self._world = world
        self.volumes = self
        self.created = []

    def create(self, **request):
        self.created.append(request)
        return types.SimpleNamespace(id='made-by-cinder', size=request['size'], status='available')

    def get(self, volume_id):
        shown = self._world.cinder.volumes.get(volume_id, {'size': 5, 'status': 'available'})
        return types.SimpleNamespace(id=volume_id, **{k: shown[k] for k in ('size', 'status')})


class RestoredInstanceTest(contexts.ContextMixin, base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = make_world()
        self.patch('trove_ceph.taskmanager.factory.make_dependencies', lambda *_: self.world.deps())
        self.notifications, self.stock, self.built = [], [], []
        notifier = types.SimpleNamespace(
            info=lambda context, event, payload: self.notifications.append((event, dict(payload)))
        )
        self.patch('trove.rpc.get_notifier', lambda **_: notifier)
        for verb in ('create_instance', '_create_instance', 'delete_instance'):
            self.patch(f'trove.taskmanager.manager.Manager.{verb}', self.record(self.stock, verb))
        self.cinder = StockCinder(self.world)
        self.patch('trove.taskmanager.models.create_cinder_client', lambda *_: self.cinder)
        neutron = types.SimpleNamespace(list_ports=lambda **_: {'ports': []})
        nova = types.SimpleNamespace(server_groups=types.SimpleNamespace(list=lambda **_: []))
        self.patch('trove.common.clients.create_neutron_client', lambda *_, **__: neutron)
        self.patch('trove.common.clients.create_nova_client', lambda *_, **__: nova)
        tasks = 'trove.taskmanager.models.FreshInstanceTasks'
        self.patch(f'{tasks}.volume_client', self.cinder)
        for verb in (
            *('_prepare_networks_for_instance', 'get_injected_files', '_render_config'),
            *('_guest_prepare', '_create_dns_entry', 'wait_for_instance'),
        ):
            self.patch(f'{tasks}.{verb}', self.record(self.built, verb))
        self.patch(f'{tasks}._create_server', self.record(self.built, '_create_server'))
        self.useFixture(bus.StorageTransport(CONF))
        self.manager = manager.Manager()

    def patch(self, name, value):
        self.useFixture(fixtures.MonkeyPatch(name, value))

    def record(self, where, verb):
        def called(_self, *arguments, **options):
            where.append((verb, arguments, options))
            return types.SimpleNamespace(id='a server', config_contents='[mysqld]')

        return called

    def option(self, name, value):
        CONF.set_override(name, value, 'trove_ceph_backup')
        self.addCleanup(CONF.clear_override, name, 'trove_ceph_backup')

    def create(self, **facts):
        request = dict.fromkeys(
            name
            for name in inspect.signature(
                trove_models.FreshInstanceTasks.create_instance
            ).parameters
            if name not in ('self', 'snapshot', 'scheduler_hints')
        )
        request |= {'name': 'db2', 'flavor': {'id': '1', 'ram': 1024}, 'datastore_manager': 'mysql'}
        request |= {'volume_size': 1, 'volume_type': 'nvme', 'backup_id': self.world.backup}
        request |= {'locality': None, 'slave_of_id': None}
        self.manager.create_instance(
            self.context(notification.DBaaSInstanceCreate),
            self.world.restored.id,
            **request | facts,
        )

    def row(self):
        return trove_database.instance(self.world.restored.id)

    def server_volume(self):
        """Return the volume of the server."""
        (devices,) = [arguments[3] for verb, arguments, _ in self.built if verb == '_create_server']
        return devices[0]['uuid']

    def test_restores_from_the_vault(self):
        self.option('restore_from', 'vault')
        self.create(volume_size=2)
        volume = self.world.cinder.volumes[self.server_volume()]
        self.assertEqual((volume['id'], 2), (self.row().volume_id, volume['size']))
        self.assertEqual([], self.cinder.created)
        (prepared,) = [options for verb, _, options in self.built if verb == '_guest_prepare']
        (backup_info,) = [
            one
            for verb, arguments, _ in self.built
            if verb == '_guest_prepare'
            for one in arguments
            if isinstance(one, dict) and one.get('id') == self.world.backup
        ]
        self.assertEqual('cinder', backup_info['storage_driver'])
        self.assertEqual({'ds_version': None}, prepared)
        self.assertEqual(['dbaas.instance_create.end'], [event for event, _ in self.notifications])
        # Flattening runs in the background; here it ends at once.
        self.assertIsNone(self.world.storage.describe(self.world.cinder.image(volume)).parent)
        self.assertEqual([], self.stock)

    def test_restores_within_its_pool_as_trove_does(self):
        self.create(volume_size=5)
        ((request),) = self.cinder.created
        record = self.world.records.get(self.world.backup)
        self.assertEqual(record.cinder_snapshot_id, request['snapshot_id'])
        self.assertEqual((5, 'nvme'), (request['size'], request['volume_type']))
        self.assertEqual(('made-by-cinder',) * 2, (self.server_volume(), self.row().volume_id))
        self.assertEqual([self.world.volume], list(self.world.cinder.volumes.values()))

    def test_waits_as_long_as_a_restore_may_take(self):
        self.create()
        (waited,) = [arguments for verb, arguments, _ in self.built if verb == 'wait_for_instance']
        self.assertEqual(CONF.restore_usage_timeout, waited[0])

    def test_refuses_before_anything_is_created(self):
        with self.world.records._transactions.writing() as session:
            row = session.get(tables.BackupRow, self.world.backup)
            row.state, row.verify_error = 'damaged', 'table shop.t: corrupt'
        error = self.assertRaises(exceptions.TroveCephError, self.create)
        self.assertIn('table shop.t: corrupt', str(error))
        self.assertEqual(InstanceTasks.BUILDING_ERROR_VOLUME, self.row().task_status)
        ((event, payload),) = self.notifications
        self.assertEqual('dbaas.instance_create.error', event)
        self.assertIn('table shop.t: corrupt', payload['message'])
        self.assertEqual(([], [], []), (self.built, self.cinder.created, self.stock))

    def test_fails_if_the_cloud_cannot_be_reached(self):
        def fail(*_arguments):
            raise exceptions.ServiceUnavailableError('Keystone is down')

        self.patch('trove_ceph.taskmanager.factory.make_dependencies', fail)
        self.manager = manager.Manager()
        error = self.assertRaises(exceptions.TroveCephError, self.create)
        self.assertNotIn('Keystone', str(error))
        self.assertEqual(InstanceTasks.BUILDING_ERROR_VOLUME, self.row().task_status)

    def test_sends_the_rate_to_every_new_guest(self):
        sent_to = []
        self.manager._tier_settings = lambda: types.SimpleNamespace(
            send=lambda instance: sent_to.append(instance.id)
        )
        for facts in ({}, {'backup_id': None}, {'slave_of_id': 'another'}, {'backup_id': 'Swift'}):
            self.create(**facts)
        self.assertEqual([self.world.restored.id] * 4, sent_to)

    def test_leaves_other_backups_to_trove(self):
        self.create(backup_id=None)
        self.create(slave_of_id='another instance')
        self.create(backup_id='of Swift')
        self.assertEqual(
            ['create_instance', 'create_instance', '_create_instance'],
            [verb for verb, _, _ in self.stock],
        )
        self.assertEqual([], self.built)

    def test_deletes_the_leftovers_of_an_interrupted_restore(self):
        request = restore_request(self.world)
        plan = planning.plan(self.world.deps(), request, prefer_copy=True)
        for step in clone_volume.VolumeClone(self.world.deps(), request, plan).steps()[:2]:
            step.do()
        self.assertTrue(any('.restore.' in name for name in self.world.images()))
        self.manager.delete_instance(
            self.context(notification.DBaaSInstanceDelete), self.world.restored.id
        )
        self.assertFalse(any('.restore.' in name for name in self.world.images()))
        self.assertEqual(['delete_instance'], [verb for verb, _, _ in self.stock])

    def test_periodic_task(self):
        self.assertIn('flatten_volumes', {name for name, _ in manager.Manager._periodic_tasks})


class TroveTest(base.BaseTestCase):
    """The private parts of Trove that a later version may change."""

    def test_create_instance_has_these_arguments(self):
        request = set(inspect.signature(trove_models.FreshInstanceTasks.create_instance).parameters)
        self.assertEqual(
            request, {*instance_restore._ARGUMENTS, 'self', 'snapshot', 'scheduler_hints'}
        )

    def test_the_api_passes_all_arguments_by_name(self):
        sent = set(inspect.signature(trove_api.API.create_instance).parameters) - {'self'}
        served = inspect.signature(trove_manager.Manager.create_instance).parameters
        self.assertTrue(sent <= set(served), sent - set(served))
        private = inspect.signature(trove_manager.Manager._create_instance).parameters
        self.assertEqual(set(served), set(private))

    def test_create_volume_is_called_for_the_volume(self):
        code = trove_models.FreshInstanceTasks._build_volume_info.__code__
        self.assertIn('_create_volume', code.co_names)
