# SPDX-License-Identifier: Apache-2.0
"""The private parts of Trove that the control plane relies on, a class for each module.

Trove promises none of them to other projects. The guest agent's are in ``test_guest_contract``.
"""

import importlib.metadata
import inspect
import tomllib
from pathlib import Path

import fixtures
import oslo_messaging as messaging
from packaging import requirements
from trove.backup import models as backup_models
from trove.backup.state import BackupState
from trove.common import (
    apischema,
    clients,
    clients_admin,
    crypto_utils,
    extensions,
    glance,
    notification,
    pagination,
    policy,
    server_group,
    timeutils,
    wsgi,
)
from trove.common import cfg as trove_cfg
from trove.common import context as trove_context
from trove.common import exception as trove_exceptions
from trove.common.rpc import service as rpc_service
from trove.datastore import models as datastore_models
from trove.guestagent import api as guest_api
from trove.instance import models as instance_models
from trove.instance import service as instance_service
from trove.instance import service_status
from trove.instance.tasks import InstanceTasks
from trove.quota import models as quota_models
from trove.quota import quota
from trove.taskmanager import api as taskmanager_api
from trove.taskmanager import manager as taskmanager_manager
from trove.taskmanager import models as taskmanager_models
from troveclient.osc.v1 import database_instances

import trove_ceph
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.trove_adapter import contract
from trove_ceph.trove_adapter import guest_rpcapi, instance_creation, instance_deletion
from trove_ceph.trove_compat import window

CONF = trove_cfg.CONF
CHECKOUT = Path(trove_ceph.__file__).parent.parent
#: The parameters of taskmanager.Manager.create_instance.
CREATE_INSTANCE = (
    'context, instance_id, name, flavor, image_id, databases, users, datastore_manager, packages, '
    'volume_size, backup_id, availability_zone, root_password, nics, overrides, slave_of_id, '
    'cluster_config, volume_type, modules, locality, access=None, ds_version=None'
)


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


class InstanceDeletionTest(contract.ContractTestCase):
    """Of ``instance_deletion``: where Trove's deletion looks for the volume."""

    def test_volumes_are_asked_of_the_replaced_client(self):
        self.assert_uses(
            instance_models.BaseInstance._delete_resources, 'volume_client', 'volumes', 'list'
        )
        for kind in (instance_deletion._Built, instance_deletion._Fresh):
            self.assertEqual([], kind.volume_client.volumes.list(search_opts={}))
            # Nothing in between overrides what was read.
            self.assertIs(instance_models.BaseInstance._delete_resources, kind._delete_resources)

    def test_signatures(self):
        self.assert_signatures(
            (taskmanager_models.BuiltInstanceTasks.load, 'context, id, needs_server=True'),
            (taskmanager_models.FreshInstanceTasks.load, 'context, id'),
            (taskmanager_models.BuiltInstanceTasks.delete_async, ''),
        )

    def test_built_instance_needs_a_server(self):
        self.assert_uses(instance_models.load_any_instance, 'UnprocessableEntity')


class InstanceCreationTest(contract.ContractTestCase):
    """Of ``instance_creation``: how Trove makes an instance and its volume."""

    def test_signatures(self):
        tasks = taskmanager_models.FreshInstanceTasks
        self.assert_signatures(
            (
                tasks._create_volume,
                'volume_size, volume_type, datastore_manager, availability_zone, snapshot_id=None',
            ),
            (tasks._build_volume, 'v_ref, datastore_manager'),
            (
                tasks.create_instance,
                'flavor, image_id, databases, users, datastore_manager, packages, volume_size, '
                'backup_id, availability_zone, root_password, nics, overrides, cluster_config, '
                'snapshot, volume_type, modules, scheduler_hints, access=None, ds_version=None',
            ),
            (tasks.wait_for_instance, 'timeout, flavor'),
            (tasks._service_is_active, ''),
            (
                server_group.ServerGroup.build_scheduler_hint,
                'context, locality, name_suffix',
            ),
        )

    def test_each_argument_is_passed_on(self):
        """Only what is made here differs between the manager and the instance."""
        asked = {name.partition('=')[0] for name in CREATE_INSTANCE.split(', ')}
        self.assertEqual(set(), set(instance_creation._ARGUMENTS) - asked)
        here = {'context', 'instance_id', 'name', 'slave_of_id', 'locality'}
        self.assertEqual(here, asked - set(instance_creation._ARGUMENTS))

    def test_volume_is_made_by_the_overridden_method(self):
        tasks = taskmanager_models.FreshInstanceTasks
        self.assert_uses(tasks._build_volume_info, '_create_volume')
        self.assert_uses(tasks._create_volume, '_build_volume')
        self.assert_signatures((tasks.update_db, '**values'))

    def test_volume_is_stored_between_its_request_and_the_wait(self):
        names = taskmanager_models.FreshInstanceTasks._create_volume.__code__.co_names
        used = [name for name in names if name in ('create', 'update_db', 'poll_until')]
        self.assertEqual(['create', 'update_db', 'poll_until'], used)

    def test_stock_creates_an_instance_that_is_no_replica_with_the_same_steps(self):
        stock = taskmanager_manager.Manager._create_instance
        self.assert_uses(
            stock, 'build_scheduler_hint', 'load', 'create_instance', 'wait_for_instance'
        )
        self.assert_uses(stock, 'restore_usage_timeout', 'usage_timeout')
        self.assert_options(restore_usage_timeout=3600)
        self.assertIn('usage_timeout', CONF)

    def test_wait_asks_the_overridden_method(self):
        tasks = taskmanager_models.FreshInstanceTasks
        self.assert_uses(tasks.wait_for_instance, '_service_is_active', 'poll_until', 'PollTimeOut')
        self.assert_uses(tasks._service_is_active, 'InstanceServiceStatus', 'find_by', 'get_status')


class ReplicaRequestTest(contract.ContractTestCase):
    """Of the pages on replicas: the requests that Trove's API refuses, and what it fills in."""

    def test_number_of_replicas(self):
        schema = apischema.instance['create']['properties']['instance']['properties']
        self.assertEqual({'type': 'integer', 'minimum': 1, 'maximum': 3}, schema['replica_count'])

    def test_client_takes_no_replicas_for_one(self):
        create = database_instances.CreateDatabaseInstance
        self.assertIn('replica_count = replica_count or 1', inspect.getsource(create.take_action))

    def test_volume_type(self):
        refusing = inspect.getsource(instance_service.InstanceController.create)
        self.assertIn('Cannot specify volume when creating replicas.', refusing)
        filling = inspect.getsource(instance_models.Instance.create)
        self.assertIn('volume_type = volume.volume_type', filling)

    def test_source(self):
        create = instance_models.Instance.create
        self.assert_uses(create, 'validate_can_perform_action')
        stopped = service_status.ServiceStatuses.SHUTDOWN
        self.assertTrue(stopped.action_is_allowed)
        self.assertFalse(service_status.ServiceStatuses.BUILDING.action_is_allowed)


class GuestServersTest(contract.ContractTestCase):
    """Of ``guest_servers`` and ``guest_config``: how Trove boots the server of an instance.

    ``test_guest_config`` compares the files.
    """

    def test_signatures(self):
        self.assert_signatures(
            (instance_models.BaseInstance.prepare_cloud_config, 'files'),
            (instance_models.BaseInstance.prepare_userdata, 'datastore_manager'),
            (instance_models.BaseInstance.combine_cloudinit_userdata, 'cloudinit, userdata'),
            (glance.get_image_id, 'client, image_id, image_tags'),
            (
                datastore_models.get_datastore_version,
                'type=None, version=None, return_inactive=False, version_number=None',
            ),
            (crypto_utils.encode_data, 'data'),
            (crypto_utils.decode_data, 'data'),
            (crypto_utils.encrypt_data, 'data, key, iv_byte_count=16'),
            (crypto_utils.decrypt_data, 'data, key, iv_byte_count=16'),
            (clients_admin.neutron_client_trove_admin, 'context, region_name=None'),
            (clients_admin.glance_client_trove_admin, 'context, region_name=None'),
        )

    def test_user_data_needs_no_instance(self):
        """These are called without one."""
        for method in ('prepare_cloud_config', 'prepare_userdata'):
            code = getattr(instance_models.BaseInstance, method).__code__
            self.assertNotIn('self', code.co_freevars + code.co_cellvars)
        self.assertEqual('', instance_models.BaseInstance.prepare_cloud_config(None, {}))
        self.assertIsNone(instance_models.BaseInstance.prepare_userdata(None, 'no such manager'))

    def test_properties_of_the_datastore_version(self):
        for name in ('datastore_registry_ext', 'datastore_repl_strategy'):
            found = vars(instance_models.BaseInstance)[name]
            self.assertIsInstance(found, property)
            self.assert_uses(found.fget, 'ds_version')
        for name in ('id', 'name', 'datastore_id', 'datastore_name', 'manager', 'version'):
            self.assertIsInstance(vars(datastore_models.DatastoreVersion)[name], property, name)

    def test_arguments_of_a_server(self):
        self.assert_uses(
            taskmanager_models.FreshInstanceTasks._create_server,
            *('use_nova_server_config_drive', 'nova_keypair', 'prepare_userdata'),
            *('prepare_cloud_config', 'combine_cloudinit_userdata'),
        )
        self.assert_uses(
            taskmanager_models.FreshInstanceTasks._prepare_networks_for_instance,
            *('management_networks', 'management_security_groups'),
        )
        self.assert_options(
            management_networks=[],
            management_security_groups=[],
            volume_rootdisk_support=False,
            nova_keypair=None,
            use_nova_server_config_drive=False,
            inst_rpc_key_encr_key='emYjgHFqfXNB1NGehAFIUeoyw4V4XwWHEaKP',
        )


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
            (stock.create_instance, CREATE_INSTANCE),
            (stock._create_instance, CREATE_INSTANCE),
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
