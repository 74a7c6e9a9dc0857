# SPDX-License-Identifier: Apache-2.0
"""A creation by our manager and Trove's code, with a cloud in memory."""

import inspect
import types

import fixtures
from trove.common import cfg as trove_cfg
from trove.taskmanager import models as trove_models

from trove_ceph.taskmanager import manager
from trove_ceph.tests.unit.storage_service import bus
from trove_ceph.tests.unit.taskmanager import contexts

CONF = trove_cfg.CONF


class StockCinder:
    """The Cinder client of Trove."""

    def __init__(self, world):
        self._world = world
        self.volumes = self
        self.created = []
        self.looks = self.creating_looks = 0

    def create(self, **request):
        self.created.append(request)
        return types.SimpleNamespace(id='made-by-cinder', size=request['size'], status='available')

    def get(self, volume_id):
        self.looks += 1
        if self.looks <= self.creating_looks:
            return types.SimpleNamespace(id=volume_id, size=1, status='creating')
        shown = self._world.cinder.volumes.get(volume_id, {'size': 5, 'status': 'available'})
        return types.SimpleNamespace(id=volume_id, **{k: shown[k] for k in ('size', 'status')})


class StockCreation(contexts.ContextMixin):
    """For test cases: our manager, with Trove's code for creations in a cloud in memory.

    :ivar stock: the calls of Trove's own manager
    :ivar built: what Trove's code for creations has called
    """

    def set_up(self, world):
        self.use(world)
        self.patch('trove_ceph.taskmanager.factory.make_dependencies', lambda *_: self.world.deps())
        self.notifications, self.stock, self.built = [], [], []
        notifier = types.SimpleNamespace(
            info=lambda context, event, payload: self.notifications.append((event, dict(payload)))
        )
        self.patch('trove.rpc.get_notifier', lambda **_: notifier)
        for verb in ('create_instance', 'delete_instance'):
            self.patch(f'trove.taskmanager.manager.Manager.{verb}', self.record(self.stock, verb))
        self.patch('trove.taskmanager.models.create_cinder_client', lambda *_: self.cinder)
        neutron = types.SimpleNamespace(list_ports=lambda **_: {'ports': []})
        nova = types.SimpleNamespace(server_groups=types.SimpleNamespace(list=lambda **_: []))
        self.patch('trove.common.clients.create_neutron_client', lambda *_, **__: neutron)
        self.patch('trove.common.clients.create_nova_client', lambda *_, **__: nova)
        tasks = 'trove.taskmanager.models.FreshInstanceTasks'
        self.patch(f'{tasks}.volume_client', property(lambda _tasks: self.cinder))
        for verb in (
            *('_prepare_networks_for_instance', 'get_injected_files', '_render_config'),
            *('_guest_prepare', '_create_dns_entry', 'wait_for_instance'),
        ):
            self.patch(f'{tasks}.{verb}', self.record(self.built, verb))
        self.patch(f'{tasks}._create_server', self.record(self.built, '_create_server'))
        self.useFixture(bus.StorageTransport(CONF))
        self.manager = manager.Manager()

    def use(self, world):
        """Replace the cloud."""
        self.world = world
        self.cinder = StockCinder(world)

    def let_backups_be_restored(self):
        """Let any backup exist, and the restore of its volume do nothing."""
        self.patch('trove_ceph.taskmanager.restored_volume.restore', lambda *_: None)
        self.patch(
            'trove.taskmanager.models.Backup.get_by_id',
            lambda *_: types.SimpleNamespace(
                instance_id='x',
                location='http://swift',
                backup_type='full',
                checksum='x',
                storage_driver='local',
            ),
        )

    def patch(self, name, value):
        self.useFixture(fixtures.MonkeyPatch(name, value))

    def record(self, where, verb):
        def called(_self, *arguments, **options):
            where.append((verb, arguments, options))
            return types.SimpleNamespace(id='a server', config_contents='[mysqld]')

        return called

    def request(self, **facts):
        """Return the arguments of the call of Trove's API."""
        request = dict.fromkeys(
            name
            for name in inspect.signature(
                trove_models.FreshInstanceTasks.create_instance
            ).parameters
            if name not in ('self', 'snapshot', 'scheduler_hints')
        )
        request |= {'name': 'db2', 'flavor': {'id': '1', 'ram': 1024}, 'datastore_manager': 'mysql'}
        request |= {'volume_size': 1, 'volume_type': 'nvme', 'nics': []}
        return request | {'locality': None, 'slave_of_id': None} | facts
