# SPDX-License-Identifier: Apache-2.0
"""What Trove's own code does with what trove_ceph leaves, when it is removed."""

import types
import uuid

import fixtures
from oslotest import base
from trove.backup import models as backup_models
from trove.backup.state import BackupState
from trove.common import context as trove_context
from trove.common import exception as trove_exceptions
from trove.instance import models as instance_models
from trove.taskmanager import models as trove_models

from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import trove_db


class Cinder:
    """The client of Cinder that Trove's code uses, with one snapshot and one volume."""

    def __init__(self, snapshot_id, volume_name):
        self.volume_snapshots = types.SimpleNamespace(get=self._get, delete=self._delete)
        self.volumes = types.SimpleNamespace(create=self._create, list=self._list)
        self.snapshots, self.requests = {snapshot_id}, []
        self.volume_names = [volume_name]

    def _get(self, snapshot_id):
        if snapshot_id not in self.snapshots:
            raise LookupError(snapshot_id)

    def _delete(self, snapshot_id):
        self.snapshots.remove(snapshot_id)

    def _create(self, **request):
        self.requests.append(request)
        raise ConnectionError('enough of the creation')

    def _list(self, search_opts):
        return [
            types.SimpleNamespace(
                id=name, status='available', delete=lambda name=name: self.volume_names.remove(name)
            )
            for name in list(self.volume_names)
            if name == search_opts['name']
        ]


class BackToStockTest(base.BaseTestCase):
    """Only Trove's own classes read and delete here; trove_ceph has written the rows."""

    def setUp(self):
        super().setUp()
        trove_database.path()
        self.project = f'project-{uuid.uuid4()}'
        self.instance = trove_database.add_instance(self.project, 'volume')
        self.context = trove_context.TroveContext(project_id=self.project, user_id='user')
        self.snapshot_id = str(uuid.uuid4())
        self.cinder = Cinder(self.snapshot_id, f'trove-{self.instance.id}')
        for name in (
            'trove.common.clients.create_cinder_client',
            'trove.taskmanager.models.create_cinder_client',
        ):
            self.useFixture(fixtures.MonkeyPatch(name, lambda *_, **__: self.cinder))
        tables = trove_db.TroveDatabase()
        row = trove_database.add_backup(self.instance)
        tables.begin_backup(row.id)
        tables.complete_backup(row.id, self.snapshot_id, 1)
        self.backup_id = row.id

    def backup(self):
        return backup_models.Backup.get_by_id(self.context, self.backup_id)

    def test_backup_is_listed_and_found(self):
        listed, _marker = backup_models.Backup.list(self.context)
        self.assertEqual([self.backup_id], [one.id for one in listed])
        backup = self.backup()
        self.assertEqual(
            (BackupState.COMPLETED, 'cinder', True),
            (backup.state, backup.storage_driver, backup.is_snapshot),
        )
        self.assertTrue(backup.check_location_exist(self.context))
        self.cinder.snapshots.clear()
        self.assertFalse(backup.check_location_exist(self.context))

    def test_backup_is_restored(self):
        created = trove_database.add_instance(self.project, None, server_id=None)
        tasks = trove_models.FreshInstanceTasks(self.context, created, None, None)
        for name in ('_prepare_networks_for_instance', 'get_injected_files'):
            self.useFixture(
                fixtures.MonkeyPatch(
                    f'trove.taskmanager.models.FreshInstanceTasks.{name}', lambda *_, **__: []
                )
            )
        self.assertRaises(
            trove_exceptions.TroveError,
            tasks.create_instance,
            *({'id': '1', 'ram': 1024}, 'image', [], [], 'mysql', '', 2, self.backup_id),
            *(None, None, [], None, None, None, 'nvme', [], {}),
        )
        (request,) = self.cinder.requests
        self.assertEqual(
            (self.snapshot_id, 2, f'trove-{created.id}'),
            (request['snapshot_id'], request['size'], request['name']),
        )

    def test_backup_is_deleted(self):
        trove_models.BackupTasks.delete_backup(self.context, self.backup_id)
        self.assertEqual(set(), self.cinder.snapshots)
        self.assertTrue(trove_database.backup(self.backup_id).deleted)

    def test_volume_of_a_replaced_server_is_deleted_with_its_instance(self):
        """It outlives its server in Nova, and Trove finds it by its name."""
        loaded = trove_models.BuiltInstanceTasks(
            self.context, trove_database.instance(self.instance.id), None, None
        )
        loaded._volume_client = self.cinder
        gone = types.SimpleNamespace(get=self._gone)
        loaded._nova_client = types.SimpleNamespace(servers=gone)
        neutron = types.SimpleNamespace(
            list_ports=lambda **_: {'ports': []},
            list_security_groups=lambda **_: {'security_groups': []},
            list_floatingips=lambda **_: {'floatingips': []},
        )
        loaded._neutron_client = neutron
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.instance.models.notification.TroveInstanceDelete',
                lambda **_: types.SimpleNamespace(notify=lambda: None),
            )
        )
        loaded._delete_resources(instance_models.timeutils.utcnow())
        self.assertEqual([], self.cinder.volume_names)

    @staticmethod
    def _gone(server_id):
        raise LookupError(server_id)
