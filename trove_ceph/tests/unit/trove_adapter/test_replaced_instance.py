# SPDX-License-Identifier: Apache-2.0
"""The instance whose server is replaced, in Trove's own tables."""

import datetime
import types
import uuid

import fixtures
import oslo_db.exception
from oslotest import base
from trove.backup.state import BackupState
from trove.common import cfg as trove_cfg
from trove.common import context as trove_context
from trove.conductor import manager as conductor_manager
from trove.instance import models as instance_models
from trove.instance.service_status import ServiceStatuses
from trove.instance.tasks import InstanceTasks
from trove.quota.quota import QUOTAS

from trove_ceph import exceptions
from trove_ceph.db import claims, instance_operations, source_marks
from trove_ceph.db.replacement_record import (
    ReplacementKind,
    ReplacementRecord,
    ReplacementState,
    RequestedBy,
)
from trove_ceph.db.roles import Role
from trove_ceph.db.source_marks import SourceMark
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import replaced_instance

CONF = trove_cfg.CONF
NOW = datetime.datetime(2026, 1, 1)


def record(instance_id='instance', **values):
    """Return a failover that has moved to a new server."""
    facts = {
        'replacement_id': 'replacement',
        'instance_id': instance_id,
        'project_id': 'project',
        'kind': ReplacementKind.FAILOVER,
        'state': ReplacementState.MOVING,
        'requested_by': RequestedBy.TENANT,
        'created_at': NOW,
        'updated_at': NOW,
        'flavor_id': '2',
        'version_id': 'version',
        'volume_id': 'volume',
        'old_server_id': 'old-server',
        'new_server_id': 'new-server',
        'port_ids': ('port',),
        'old_management_port_ids': ('old-management',),
        'image_id': 'image',
    }
    return ReplacementRecord(**facts | values)


class ReplacedInstanceTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        trove_database.path()
        self.isolate_network(False)
        self.project = f'project-{uuid.uuid4()}'
        self.instance = self.add(task_status=InstanceTasks.MIGRATING)
        self.record = record(self.instance.id)
        self.instances = replaced_instance.ReplacedInstances()

    def add(self, **facts):
        return trove_database.add_instance(self.project, 'volume', server_id='old-server', **facts)

    def isolate_network(self, value):
        CONF.set_override('network_isolation', value, 'network')
        self.addCleanup(CONF.clear_override, 'network_isolation', 'network')

    def row(self):
        return trove_database.instance(self.instance.id)

    def status(self):
        return instance_models.InstanceServiceStatus.find_by(instance_id=self.instance.id).status

    def heartbeat(self, sent):
        """Report as the agent of a guest does, at a time of its clock."""
        conductor_manager.Manager().heartbeat(
            trove_context.TroveContext(),
            self.instance.id,
            {'service_status': ServiceStatuses.HEALTHY.description},
            sent=sent,
        )

    def test_facts_of_an_instance(self):
        found = self.instances.find(self.instance.id)
        self.assertEqual(
            (self.project, 'db1', 'volume', 'old-server', '1', 'MIGRATING', 'HEALTHY'),
            (
                *(found.project_id, found.name, found.volume_id, found.server_id, found.flavor_id),
                *(found.task, found.service_status),
            ),
        )
        self.assertEqual(trove_database.datastore_version(), found.version_id)
        self.assertIsNone(found.agent_seen_at.tzinfo)
        self.assertTrue(found.has_our_guest_agent)
        flags = (found.is_deleted, found.is_being_cloned, found.is_in_cluster)
        self.assertEqual((False,) * 4, (*flags, found.is_being_backed_up))
        self.assertEqual((None, None), (found.source_id, found.source_change))
        self.assertIsNone(self.instances.find('unknown'))

    def test_names_of_service_statuses(self):
        """The rules compare them."""
        status = instance_models.InstanceServiceStatus.find_by(instance_id=self.instance.id)
        for value, expected in (
            (ServiceStatuses.RUNNING, 'RUNNING'),
            (ServiceStatuses.RESTART_REQUIRED, 'RESTART_REQUIRED'),
            (ServiceStatuses.INSTANCE_READY, 'INSTANCE_READY'),
        ):
            status.set_status(value)
            status.save()
            self.assertEqual(expected, self.instances.find(self.instance.id).service_status)

    def test_facts_that_forbid_a_replacement(self):
        backup = trove_database.add_backup(self.instance)
        found = self.instances.find(self.instance.id)
        self.assertEqual((True, False), (found.is_being_backed_up, found.is_agent_backing_up))
        backup.update(storage_driver='swift')
        self.assertTrue(self.instances.find(self.instance.id).is_agent_backing_up)
        backup.update(state=BackupState.COMPLETED)
        self.assertFalse(self.instances.find(self.instance.id).is_being_backed_up)
        other = self.add(version_id=trove_database.foreign_version(), cluster_id='cluster')
        found = self.instances.find(other.id)
        self.assertEqual((False, True), (found.has_our_guest_agent, found.is_in_cluster))
        other.update(deleted=True)
        self.assertTrue(self.instances.find(other.id).is_deleted)

    def test_changes_of_the_source(self):
        source, replica = self.instance, self.add(slave_of_id=self.instance.id)
        store = instance_operations.InstanceOperationStore()
        for role, instance, of_source, of_replica in (
            (Role.CHANGE_SOURCE, source, None, None),
            (
                *(Role.EJECT_SOURCE, source),
                *('is being ejected', f'its source {source.id} is being ejected'),
            ),
            (
                *(Role.PROMOTE_REPLICA, replica),
                *(f'its replica {replica.id} is being promoted', 'is being promoted'),
            ),
            (Role.DETACH_REPLICA, replica, None, 'is being detached'),
        ):
            claim = store.begin(role, instance.id, claims.Claimant('one'))
            found = [self.instances.find(one.id).source_change for one in (source, replica)]
            self.assertEqual([of_source, of_replica], found)
            store.finish(claim)

    def test_new_source_that_an_ejection_left_read_only(self):
        store = source_marks.SourceMarkStore()
        self.instance.update(task_status=InstanceTasks.EJECTION_ERROR)
        for mark, is_unfinished in (
            (SourceMark.EJECTED, False),
            (SourceMark.UNFINISHED_EJECTION, True),
        ):
            store.set(self.instance.id, mark)
            found = self.instances.find(self.instance.id)
            self.assertEqual(
                ('EJECTION_ERROR', is_unfinished, None),
                (found.task, found.is_unfinished_source, found.source_change),
            )
        store.remove(self.instance.id)
        self.assertFalse(self.instances.find(self.instance.id).is_unfinished_source)

    def test_new_source_that_a_promotion_left_read_only(self):
        """It may lack some of its former source, whether its task was reset or not."""
        source_marks.SourceMarkStore().set(self.instance.id, SourceMark.UNFINISHED_PROMOTION)
        for task, name in (
            (InstanceTasks.PROMOTION_ERROR, 'PROMOTION_ERROR'),
            (InstanceTasks.NONE, 'NONE'),
        ):
            self.instance.update(task_status=task)
            found = self.instances.find(self.instance.id)
            self.assertEqual((name, False), (found.task, found.is_unfinished_source))
            self.assertIn('while its guest agent was silent', found.source_change)

    def test_source_whose_volume_is_cloned_for_a_new_replica(self):
        replica = self.add(slave_of_id=self.instance.id, task_status=InstanceTasks.BUILDING)
        self.assertFalse(self.instances.find(self.instance.id).is_being_cloned)
        replica.update(volume_id=None)
        self.assertTrue(self.instances.find(self.instance.id).is_being_cloned)
        replica.update(task_status=InstanceTasks.BUILDING_ERROR_REPLICA)
        self.assertFalse(self.instances.find(self.instance.id).is_being_cloned)

    def test_shows_the_new_server(self):
        for _again in range(2):
            self.instances.show_server(self.record)
            self.assertEqual(
                ('new-server', '2', InstanceTasks.MIGRATING),
                (self.row().compute_instance_id, self.row().flavor_id, self.row().task_status),
            )
            self.assertEqual(ServiceStatuses.BUILDING, self.status())

    def test_hears_a_new_agent_whose_clock_is_behind(self):
        self.heartbeat(sent=2e9)
        self.instances.show_server(self.record)
        self.heartbeat(sent=1e9)
        self.assertEqual(ServiceStatuses.HEALTHY, self.status())

    def test_shows_no_server_of_an_instance_that_is_being_deleted(self):
        self.instance.update(task_status=InstanceTasks.DELETING)
        for _stage in range(2):
            self.assertRaises(
                exceptions.ReplacementCanceledError, self.instances.show_server, self.record
            )
            self.assertEqual('old-server', self.row().compute_instance_id)
            self.assertEqual(ServiceStatuses.HEALTHY, self.status())
            self.instance.update(deleted=True, task_status=InstanceTasks.NONE)

    def used_gib(self):
        limit = QUOTAS.get_quota_by_tenant(self.instance.tenant_id, 'volumes')
        return QUOTAS.get_quota_usage(limit).in_use

    def test_counts_the_size_of_a_volume_that_is_larger_and_of_the_old_one_again(self):
        size, used = self.row().volume_size, self.used_gib()
        for growth in (3, 3, 0):
            self.instances.set_volume(self.instance.id, 'new-volume', size + growth)
            self.assertEqual(size + growth, self.row().volume_size)
            self.assertEqual(used + growth, self.used_gib())

    def test_sets_the_volume(self):
        size = self.row().volume_size
        for _again in range(2):
            self.instances.set_volume(self.instance.id, 'new-volume', None)
            self.assertEqual(('new-volume', size), (self.row().volume_id, self.row().volume_size))
        self.assertEqual(ServiceStatuses.HEALTHY, self.status())

    def test_sets_no_volume_of_an_instance_that_is_being_deleted(self):
        before, used = self.row().volume_id, self.used_gib()
        self.instance.update(task_status=InstanceTasks.DELETING)
        for _stage in range(2):
            self.assertRaises(
                exceptions.ReplacementCanceledError,
                self.instances.set_volume,
                *(self.instance.id, 'new-volume', self.row().volume_size + 1),
            )
            self.assertEqual(before, self.row().volume_id)
            self.assertEqual(used, self.used_gib())
            self.instance.update(deleted=True, task_status=InstanceTasks.NONE)

    def test_knows_the_source_of_a_replica(self):
        source = self.instances.find(self.instance.id)
        self.assertEqual((None, None), (source.source_id, source.source_status))
        replica = self.instances.find(self.add(slave_of_id=self.instance.id).id)
        self.assertEqual(
            (self.instance.id, 'HEALTHY', source.agent_seen_at),
            (replica.source_id, replica.source_status, replica.source_seen_at),
        )

    def test_reports_that_mysql_serves(self):
        self.instances.show_server(self.record)
        self.instances.report_healthy(self.record.instance_id)
        self.assertEqual(ServiceStatuses.HEALTHY, self.status())

    def test_reports_that_mysql_does_not_start(self):
        """The tenant can then change the configuration, and restart the instance."""
        self.instances.report_failed(self.record.instance_id, 'unknown variable ' + 'x' * 300)
        self.assertTrue(self.status().action_is_allowed)
        self.assertEqual('SHUTDOWN', self.status().api_status)
        fault = instance_models.DBInstanceFault.find_by(instance_id=self.instance.id)
        self.assertIn('unknown variable', fault.message)

    def test_fault_does_not_change_the_status(self):
        self.instances.report_healthy(self.record.instance_id)
        self.instances.record_fault(self.record.instance_id, 'its ports were deleted')
        self.assertEqual('HEALTHY', self.status().api_status)
        fault = instance_models.DBInstanceFault.find_by(instance_id=self.instance.id)
        self.assertEqual('its ports were deleted', fault.message)

    def test_guest_becomes_what_trove_would_boot(self):
        request = self.instances.bind_request(self.record)
        self.assertEqual(('db1', 'volume', ('port',)), self.identity(request))
        self.assertIn(f'guest_id={self.instance.id}', '\n'.join(request.files.values()))
        self.assertEqual(self.project, request.metadata['trove_project_id'])
        self.assertIn(f'trove_instance_id_{self.instance.id}', request.tags)

    def identity(self, request):
        return request.name, request.volume_id, request.port_ids

    def test_guest_gets_the_addresses_of_the_instance(self):
        """With network isolation, the agent gives the interface to the container."""
        self.isolate_network(True)
        port = {'mac_address': 'fa:16:3e:00:00:01', 'fixed_ips': []}
        neutron = types.SimpleNamespace(show_port=lambda port_id: {'port': port | {'id': port_id}})
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove.common.clients.create_neutron_client', lambda *_, **__: neutron
            )
        )
        request = self.instances.bind_request(self.record)
        self.assertIn('fa:16:3e:00:00:01', '\n'.join(request.files.values()))

    def test_database_that_does_not_answer(self):
        def fail(*_arguments):
            raise oslo_db.exception.DBConnectionError()

        self.useFixture(fixtures.MonkeyPatch('trove_ceph.trove_adapter.trove_db.find_row', fail))
        for verb in (self.instances.find, lambda _id: self.instances.bind_request(self.record)):
            self.assertRaises(exceptions.ServiceUnavailableError, verb, self.instance.id)

    def test_deleted_instance_gets_no_guest(self):
        self.instance.update(deleted=True)
        self.assertRaises(
            exceptions.ReplacementCanceledError, self.instances.bind_request, self.record
        )
