# SPDX-License-Identifier: Apache-2.0
"""The private parts of Trove on which the creation and the deletion of instances rely."""

import inspect

from trove.common import apischema, crypto_utils, glance, server_group
from trove.common import cfg as trove_cfg
from trove.datastore import models as datastore_models
from trove.instance import models as instance_models
from trove.instance import service as instance_service
from trove.instance import service_status
from trove.taskmanager import manager as taskmanager_manager
from trove.taskmanager import models as taskmanager_models
from troveclient.osc.v1 import database_instances

from trove_ceph.tests.unit.trove_adapter import contract
from trove_ceph.trove_adapter import instance_creation, instance_deletion

CONF = trove_cfg.CONF


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
        asked = {name.partition('=')[0] for name in contract.CREATE_INSTANCE.split(', ')}
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
            neutron_service_type='network',
            neutron_endpoint_type='publicURL',
            neutron_url=None,
            glance_client_version='2',
            glance_service_type='image',
            glance_endpoint_type='publicURL',
            management_networks=[],
            management_security_groups=[],
            volume_rootdisk_support=False,
            nova_keypair=None,
            use_nova_server_config_drive=False,
            inst_rpc_key_encr_key='emYjgHFqfXNB1NGehAFIUeoyw4V4XwWHEaKP',
        )
