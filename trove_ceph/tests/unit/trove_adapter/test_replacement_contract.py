# SPDX-License-Identifier: Apache-2.0
"""The private parts of Trove on which the replacement of a server relies."""

import inspect

from trove.common import exception as trove_exceptions
from trove.common import glance, notification, timeutils
from trove.conductor import manager as conductor_manager
from trove.conductor import models as conductor_models
from trove.configuration import models as configuration_models
from trove.guestagent import api as guest_api
from trove.instance import models as instance_models
from trove.instance.service_status import ServiceStatus, ServiceStatuses
from trove.instance.tasks import InstanceTask, InstanceTasks
from trove.taskmanager import manager as taskmanager_manager
from trove.taskmanager import models as taskmanager_models

from trove_ceph.db.replacement_record import ReplacementKind
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.trove_adapter import contract
from trove_ceph.trove_adapter import replaced_instance


class ReplacedInstanceTest(contract.ContractTestCase):
    """Of ``replaced_instance`` and ``service_context``."""

    def setUp(self):
        super().setUp()
        trove_database.path()

    def test_columns(self):
        for table, model in (
            (replaced_instance._INSTANCES, instance_models.DBInstance),
            (replaced_instance._STATUSES, instance_models.InstanceServiceStatus),
            (replaced_instance._LAST_SEEN, conductor_models.LastSeen),
        ):
            self.assertEqual(model._table_name, table.name)
            self.assert_columns(model, *(column.name for column in table.columns))
        self.assert_columns(
            instance_models.DBInstance,
            *('tenant_id', 'volume_id', 'slave_of_id', 'cluster_id', 'configuration_id'),
        )

    def test_instance_is_modelled_without_nova(self):
        self.assert_signatures(
            (
                taskmanager_models.FreshInstanceTasks.__init__,
                'context, db_info, server, datastore_status',
            ),
            (
                instance_models.BaseInstance.get_injected_files,
                'datastore_manager, datastore_version, '
                + ('**kwargs' if contract.IS_TROVE_25 else 'networks=None'),
            ),
        )

    def test_states(self):
        self.assertIsInstance(InstanceTasks.DELETING, InstanceTask)
        self.assertEqual('DELETING', InstanceTasks.DELETING.action)
        for status in (ServiceStatuses.BUILDING, ServiceStatuses.HEALTHY, ServiceStatuses.SHUTDOWN):
            self.assertIsInstance(status, ServiceStatus)
            self.assertEqual(status, ServiceStatus.from_code(status.code))
        # A tenant can repair an instance whose MySQL does not start.
        self.assertTrue(ServiceStatuses.SHUTDOWN.action_is_allowed)

    def test_conductor_drops_reports_that_are_older_than_the_last_one(self):
        conductor = conductor_manager.Manager
        self.assert_uses(conductor._message_too_old, 'LastSeen', 'load', 'sent')
        self.assert_uses(conductor.heartbeat, '_message_too_old')

    def test_fault(self):
        self.assert_signatures(
            (
                instance_models.save_instance_fault,
                'instance_id, message, details, skip_delta=None',
            )
        )


class UncheckedRequestsTest(contract.ContractTestCase):
    """Of ``taskmanager.unchecked_requests``."""

    def test_signatures(self):
        self.assert_signatures(
            (taskmanager_manager.Manager.update_access, 'context, instance_id, access'),
            (taskmanager_manager.Manager.rebuild, 'context, instance_id, image_id'),
            (taskmanager_manager.Manager.resize_volume, 'context, instance_id, new_size'),
        )

    def test_tasks(self):
        self.assert_uses(instance_models.Instance.update_access, 'UPDATING')
        self.assert_uses(instance_models.Instance.rebuild, 'BUILDING')
        for resize in (
            instance_models.Instance.resize_flavor,
            instance_models.Instance.resize_volume,
        ):
            self.assert_uses(resize, 'validate_can_perform_action', 'run_with_quotas')
        self.assert_uses(taskmanager_manager.Manager.update_access, 'UPDATING_ERROR_ACCESS')
        self.assert_uses(taskmanager_models.BuiltInstanceTasks.update_access, 'NONE')

    def test_deletion(self):
        """It is refused with the task BUILDING, and not with those of a replacement."""
        (refuse,) = [
            one
            for one in instance_models.BaseInstance.delete.__code__.co_consts
            if inspect.iscode(one)
        ]
        self.assertIn('is_building', refuse.co_names)
        trove_database.path()
        for task in ('BUILDING', *(kind.task for kind in ReplacementKind)):
            row = trove_database.add_instance(
                'project', 'volume', task_status=getattr(InstanceTasks, task)
            )
            row.server_status = 'ACTIVE'
            status = instance_models.InstanceServiceStatus.find_by(instance_id=row.id)
            shown = instance_models.SimpleInstance(None, row, status)
            self.assertEqual(task == 'BUILDING', shown.is_building)


class ReplacementServersTest(contract.ContractTestCase):
    """Of ``replacement_servers``, ``replacement_ports`` and ``server_description``."""

    def test_boot(self):
        self.assert_uses(
            taskmanager_models.FreshInstanceTasks._build_volume, 'block_device_mapping'
        )
        self.assert_options(block_device_mapping='vdb')
        for name in ('manager', 'version', 'name', 'image_id', 'image_tags'):
            self.assertTrue(hasattr(instance_models.datastore_models.DatastoreVersion, name), name)

    def test_image_that_does_not_exist(self):
        self.assert_uses(glance.get_image_id, 'ImageNotFound', 'ImageNotFoundByTags')
        self.assertTrue(issubclass(trove_exceptions.ImageNotFound, trove_exceptions.TroveError))

    def test_ports_of_an_instance_are_deleted_by_their_name(self):
        code = instance_models.BaseInstance._delete_resources.__code__
        self.assertIn('trove-%s', code.co_consts)


class ReplacedAgentsTest(contract.ContractTestCase):
    """Of ``replaced_agents`` and ``agent_queues``."""

    def test_configuration(self):
        rebuild = taskmanager_models.RebuildAction._assert_processes_are_ok
        self.assert_uses(rebuild, '_render_config', 'get_configuration_overrides', 'version')
        self.assert_signatures(
            (taskmanager_models.ConfigurationMixin._render_config, 'flavor'),
            (configuration_models.Configuration.__init__, 'context, configuration_id'),
            (configuration_models.Configuration.get_configuration_overrides, ''),
        )

    def test_names_of_the_queues_of_an_agent(self):
        agent = guest_api.API.__new__(guest_api.API)
        agent.id = 'instance'
        self.assertEqual('guestagent.instance', agent._get_routing_key())
        # The server of the topic has the id of the instance.
        self.assert_uses(guest_api.API._create_guest_queue, '_get_routing_key', 'id')


class ResizeTest(contract.ContractTestCase):
    """Of ``instance_flavor`` and ``Manager.resize_flavor``."""

    def test_signatures(self):
        self.assert_signatures(
            (
                taskmanager_manager.Manager.resize_flavor,
                'context, instance_id, old_flavor, new_flavor',
            ),
            (timeutils.isotime, 'tm=None, subsecond=False'),
        )

    def test_notification(self):
        record = taskmanager_models.ResizeAction._record_action_success
        self.assert_uses(record, 'TroveInstanceModifyFlavor', 'isotime', 'notify')
        self.assertTrue(callable(notification.TroveInstanceModifyFlavor))
        self.assert_uses(taskmanager_manager.Manager.resize_flavor, 'EndNotification')
