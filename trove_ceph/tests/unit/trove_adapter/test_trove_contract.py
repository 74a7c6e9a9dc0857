# SPDX-License-Identifier: Apache-2.0
"""The private parts of Trove that the control plane relies on, a class for each module.

Trove promises none of them to other projects. The guest agent's are in ``test_guest_contract``,
those of instances in ``test_instance_contract`` and ``test_replacement_contract``.
"""

import importlib.metadata
import tomllib
from pathlib import Path

import fixtures
import oslo_messaging as messaging
from packaging import requirements
from trove.backup import models as backup_models
from trove.backup.state import BackupState
from trove.common import cfg as trove_cfg
from trove.common import (
    clients,
    clients_admin,
    extensions,
    notification,
    pagination,
    policy,
    timeutils,
    wsgi,
)
from trove.common import context as trove_context
from trove.common import exception as trove_exceptions
from trove.common.rpc import service as rpc_service
from trove.datastore import models as datastore_models
from trove.guestagent import api as guest_api
from trove.instance import models as instance_models
from trove.instance.tasks import InstanceTasks
from trove.quota import models as quota_models
from trove.quota import quota
from trove.taskmanager import api as taskmanager_api
from trove.taskmanager import manager as taskmanager_manager

import trove_ceph
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.trove_adapter import contract
from trove_ceph.trove_adapter import guest_rpcapi
from trove_ceph.trove_compat import window

CONF = trove_cfg.CONF
CHECKOUT = Path(trove_ceph.__file__).parent.parent


class VersionTest(contract.ContractTestCase):
    """The versions of Trove that may be installed."""

    def test_requirements_name_the_supported_versions(self):
        project = tomllib.loads((CHECKOUT / 'pyproject.toml').read_text())['project']
        listed = map(requirements.Requirement, project['optional-dependencies']['server'])
        (found,) = [each for each in listed if each.name == 'trove']
        self.assertEqual(requirements.Requirement(window.REQUIREMENT), found)
        self.assertIn(importlib.metadata.version('trove'), found.specifier)


class TroveDatabaseTest(contract.ContractTestCase):
    """Of ``trove_db`` and ``backup_api``: tables, columns, states."""

    def setUp(self):
        super().setUp()
        trove_database.path()

    def test_columns(self):
        self.assert_columns(
            backup_models.DBBackup,
            *('id', 'tenant_id', 'instance_id', 'name', 'description', 'parent_id', 'state'),
            *('size', 'location', 'checksum', 'storage_driver', 'datastore_version_id'),
            *('created', 'deleted', 'deleted_at'),
        )
        self.assert_columns(
            instance_models.DBInstance,
            *('id', 'tenant_id', 'volume_id', 'compute_instance_id', 'task_id', 'deleted'),
            'datastore_version_id',
        )
        self.assert_columns(
            datastore_models.DBDatastoreVersion, 'id', 'datastore_id', 'name', 'registry_ext'
        )
        self.assert_columns(datastore_models.DBDatastore, 'id', 'name')
        self.assert_columns(quota_models.QuotaUsage, 'tenant_id', 'resource', 'in_use')

    def test_states(self):
        self.assertEqual(
            ('NEW', 'BUILDING', 'COMPLETED', 'FAILED', 'DELETE_FAILED'),
            (BackupState.NEW, BackupState.BUILDING, BackupState.COMPLETED)
            + (BackupState.FAILED, BackupState.DELETE_FAILED),
        )
        # Trove refuses to delete the parent of a backup that is in one of these.
        self.assertIn(BackupState.BUILDING, BackupState.RUNNING_STATES)
        self.assertNotIn(BackupState.COMPLETED, BackupState.RUNNING_STATES)

    def test_task_status_is_written_by_its_code(self):
        instance = trove_database.add_instance('project', 'volume')
        for status in (InstanceTasks.BUILDING_ERROR_VOLUME, InstanceTasks.DELETING):
            instance.update(task_status=status)
            row = instance_models.DBInstance.find_by(id=instance.id)
            self.assertEqual((status, status.code), (row.task_status, row.task_id))

    def test_snapshot_is_told_by_its_location(self):
        instance = trove_database.add_instance('project', 'volume')
        facts = {'state': BackupState.COMPLETED, 'location': 'cinder://snapshot'}
        self.assertTrue(trove_database.add_backup(instance, **facts).is_snapshot)
        facts['location'] = 'https://swift/object'
        self.assertFalse(trove_database.add_backup(instance, **facts).is_snapshot)

    def test_missing_row(self):
        for model in (backup_models.DBBackup, instance_models.DBInstance):
            self.assertRaises(trove_exceptions.ModelNotFoundError, model.find_by, id='missing')
            self.assertEqual([], list(model.find_all(id='missing', deleted=False)))

    def test_signatures(self):
        self.assert_signatures(
            (datastore_models.Datastore.load, 'id_or_name'),
            (datastore_models.DatastoreVersion.load, 'datastore, id_or_name, version=None'),
            (datastore_models.DatastoreVersion.load_by_uuid, 'uuid'),
            (quota.QUOTAS.get_quota_by_tenant, 'tenant_id, resource'),
            (quota.QUOTAS.get_quota_usage, 'quota'),
            (timeutils.utcnow, ''),
        )
        self.assertIsNone(timeutils.utcnow().tzinfo)


class BackupApiTest(contract.ContractTestCase):
    """Of ``backup_api``: requests that the API makes, and their notifications."""

    def test_signatures(self):
        self.assert_signatures(
            (
                backup_models.Backup.create,
                'context, instance, name, description=None, parent_id=None, incremental=False, '
                'swift_container=None, restore_from=None, storage_driver=None',
            ),
            (backup_models.Backup.delete, 'context, backup_id'),
            (notification.StartNotification, 'context, **kwargs'),
            (notification.EndNotification, 'context, **kwargs'),
        )

    def test_notifications(self):
        facts = {name: name for name in ('request_id', 'tenant_id', 'client_ip', 'server_ip')} | {
            'server_type': 'taskmanager'
        }
        told = []
        notifier = fixtures.MonkeyPatch(
            'trove.rpc.get_notifier', lambda **_: type('Notifier', (), {'info': told_by(told)})
        )
        self.useFixture(notifier)
        context = trove_context.TroveContext(project_id='project', is_admin=False)
        for kind, event, arguments in (
            (
                notification.DBaaSBackupCreate,
                'dbaas.backup_create.start',
                {'name': 'n', 'instance_id': 'i', 'description': None, 'parent_id': None},
            ),
            (notification.DBaaSBackupDelete, 'dbaas.backup_delete.start', {'backup_id': 'b'}),
        ):
            context.notification = kind(context, **facts)
            context.notification.needs_end_notification = False
            # What Trove does not know travels with the payload to the taskmanager.
            with notification.StartNotification(context, trove_ceph={'x': 1}, **arguments):
                pass
            self.assertEqual(event, told.pop())
            self.assertEqual({'x': 1}, context.notification.payload['trove_ceph'])

    def test_notification_travels_with_the_context(self):
        context = trove_context.TroveContext(project_id='project', is_admin=False)
        context.notification = notification.DBaaSBackupCreate(
            context,
            **dict.fromkeys(('request_id', 'tenant_id', 'client_ip', 'server_ip'), 'x'),
            server_type='taskmanager',
        )
        context.notification.payload['trove_ceph'] = {'x': 1}
        received = trove_context.TroveContext.from_dict(context.to_dict())
        self.assertEqual({'x': 1}, received.notification.payload['trove_ceph'])


def told_by(told):
    """Return a notifier's method that notes the event."""
    return staticmethod(lambda _context, event, _payload: told.append(event))


class CinderClientTest(contract.ContractTestCase):
    """Of ``cinder_client``: where Trove looks for a snapshot before it restores a backup."""

    def test_the_client_is_an_option(self):
        self.assert_options(
            remote_cinder_client='trove.common.clients_admin.cinder_client_trove_admin'
        )
        self.assert_signatures(
            (clients_admin.cinder_client_trove_admin, 'context, region_name=None')
        )

    def test_location_is_checked_by_the_snapshot(self):
        self.assert_uses(backup_models.DBBackup.check_location_exist, 'check_volume_snapshot_exist')
        self.assert_uses(
            backup_models.DBBackup.check_volume_snapshot_exist, 'volume_snapshots', 'get'
        )


class LimitedClientsTest(contract.ContractTestCase):
    """Of ``limited_clients``: the clients with which Trove creates instances."""

    def test_the_clients_are_options(self):
        self.assert_options(
            remote_nova_client='trove.common.clients_admin.nova_client_trove_admin',
            remote_neutron_client='trove.common.clients_admin.neutron_client_trove_admin',
        )
        self.assert_signatures(
            (clients_admin.nova_client_trove_admin, 'context, region_name=None, password=None'),
            (clients_admin.neutron_client_trove_admin, 'context, region_name=None'),
        )


class GuestRpcapiTest(contract.ContractTestCase):
    """Of ``guest_rpcapi``: how a guest agent is called."""

    def test_signatures(self):
        self.assert_signatures(
            (guest_api.API.__init__, 'context, id'),
            (guest_api.API._call, 'method_name, timeout_sec, version, **kwargs'),
            (guest_api.API._cast, 'method_name, version, **kwargs'),
        )
        self.assertTrue(issubclass(guest_rpcapi.GuestAPI, guest_api.API))

    def test_versions(self):
        self.assertEqual('1.0', guest_api.API.API_BASE_VERSION)
        # Our calls are of the base version, so both are right.
        latest = '1.2' if contract.IS_TROVE_25 else '1.3'
        self.assertEqual(latest, guest_api.API.API_LATEST_VERSION)

    def test_timeouts(self):
        self.assert_options(agent_call_low_timeout=15, agent_call_high_timeout=180)
        self.assert_uses(
            guest_api.API.__init__, 'agent_call_low_timeout', 'agent_call_high_timeout'
        )

    def test_errors(self):
        """An error of the agent, and an agent that does not answer, become Trove's errors."""

        class Client:
            error = None

            def prepare(self, **_options):
                return self

            def call(self, *_arguments, **_options):
                raise self.error

        api = guest_api.API.__new__(guest_api.API)
        api.context, api.id, api.client = 'context', 'id', Client()
        silent = (
            trove_exceptions.GuestError if contract.IS_TROVE_25 else trove_exceptions.GuestTimeout
        )
        for error, expected in (
            (messaging.RemoteError('Error', 'reason'), trove_exceptions.GuestError),
            (messaging.MessagingTimeout(), silent),
        ):
            api.client.error = error
            self.assertRaises(expected, api._call, 'method', 1, version='1.0')


class NotifyTest(contract.ContractTestCase):
    """Of ``notify``: how a taskmanager is called."""

    def test_api(self):
        self.assert_signatures((taskmanager_api.API.__init__, 'context'))
        self.assertEqual('1.0', taskmanager_api.API.API_BASE_VERSION)
        self.assert_uses(taskmanager_api.API.__init__, 'taskmanager_queue', 'client')


class TaskmanagerTest(contract.ContractTestCase):
    """Of ``taskmanager``: the overridden manager, and the options that clients are made with."""

    def test_signatures(self):
        stock = taskmanager_manager.Manager
        self.assert_signatures(
            (stock.__init__, ''),
            (stock.create_instance, contract.CREATE_INSTANCE),
            (stock._create_instance, contract.CREATE_INSTANCE),
            (stock.create_backup, 'context, backup_info, instance_id'),
            (stock.delete_backup, 'context, backup_id'),
            (stock.delete_instance, 'context, instance_id'),
            (stock.run_periodic_tasks, 'context, raise_on_error=False'),
            (clients_admin.get_keystone_session, ''),
            (clients.normalize_url, 'url'),
        )

    def test_periodic_tasks_run_in_one_loop(self):
        self.assert_uses(rpc_service.RpcService.start, 'run_periodic_tasks', 'report_interval')
        self.assert_options(report_interval=30)

    def test_options(self):
        self.assert_options(
            taskmanager_manager='trove.taskmanager.manager.Manager',
            cinder_volume_type=None,
            cinder_service_type='volumev3',
            cinder_endpoint_type='publicURL',
            cinder_url=None,
            nova_compute_service_type='compute',
            nova_compute_endpoint_type='publicURL',
            nova_compute_url=None,
        )
        for name in ('region_name', 'project_id'):
            self.assertIn(name, CONF.service_credentials)


class ApiTest(contract.ContractTestCase):
    """Of ``api``: the framework of Trove's API."""

    def test_signatures(self):
        self.assert_signatures(
            (policy.authorize_on_target, 'context, rule, target'),
            (policy.authorize_on_tenant, 'context, rule'),
            (policy.get_enforcer, ''),
            (
                extensions.ResourceExtension.__init__,
                'collection, controller, parent=None, collection_actions=None, '
                'member_actions=None, deserializer=None, serializer=None',
            ),
            (pagination.SimplePaginatedDataView.__init__, 'url, name, view, marker'),
            (wsgi.Result.__init__, 'data, status=200'),
        )
        self.assertEqual('trove.context', wsgi.CONTEXT_KEY)

    def test_options(self):
        self.assert_options(backups_page_size=20)


class CollectorTest(contract.ContractTestCase):
    """Of ``configuration``: Trove's configuration and database, read outside of its services."""

    def test_signatures(self):
        self.assert_signatures((trove_cfg.parse_args, 'argv, default_config_files=None'))
