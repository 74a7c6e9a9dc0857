# SPDX-License-Identifier: Apache-2.0
"""Sources of replicas and tasks, in Trove's own table of instances."""

import datetime
import types
from unittest import mock

from trove.common import context as trove_context
from trove.extensions.common import models as root_models
from trove.instance import models as instance_models
from trove.instance.tasks import InstanceTask, InstanceTasks
from trove.quota.quota import QUOTAS
from trove.taskmanager import manager as taskmanager_manager

from trove_ceph.db.replacement_record import ReplacementKind
from trove_ceph.strategies.replication.source_dependencies import Member, RowChange
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.tests.unit.trove_adapter import contract
from trove_ceph.trove_adapter import replication_rows

PROMOTING = InstanceTasks.PROMOTING


class ReplicationRowsTest(contract.ContractTestCase):
    def setUp(self):
        super().setUp()
        self.source = self.add()
        self.one, self.two = (self.add(slave_of_id=self.source.id) for _each in range(2))
        self.rows = replication_rows.ReplicationRows()

    def add(self, task_status=PROMOTING, **facts):
        return trove_database.add_instance('project', 'volume', task_status=task_status, **facts)

    def shown(self, instance):
        row = trove_database.instance(instance.id)
        return row.slave_of_id, row.task_status

    def test_finds_instances(self):
        member = Member(
            self.one.id,
            'project',
            'volume',
            self.one.compute_instance_id,
            'PROMOTING',
            self.source.id,
            self.one.flavor_id,
        )
        self.assertEqual(member, self.rows.find(self.one.id))
        replicas = self.rows.list_replicas(self.source.id)
        self.assertEqual(sorted([self.one.id, self.two.id]), [one.instance_id for one in replicas])

    def test_leaves_deleted_instances_out(self):
        self.one.update(deleted=True)
        self.assertIsNone(self.rows.find(self.one.id))
        replicas = self.rows.list_replicas(self.source.id)
        self.assertEqual([self.two.id], [one.instance_id for one in replicas])

    def test_names_errors_by_their_code(self):
        """The action of PROMOTION_ERROR is PROMOTING."""
        self.one.update(task_status=InstanceTasks.PROMOTION_ERROR)
        self.assertEqual('PROMOTION_ERROR', self.rows.find(self.one.id).task)

    def test_records_a_promotion(self):
        self.rows.record(
            [
                RowChange(self.one.id, None),
                RowChange(self.two.id, self.one.id, 'MIGRATING'),
                RowChange(self.source.id, self.one.id, 'PROMOTION_ERROR'),
            ]
        )
        self.assertEqual((None, InstanceTasks.NONE), self.shown(self.one))
        self.assertEqual((self.one.id, InstanceTasks.MIGRATING), self.shown(self.two))
        self.assertEqual((self.one.id, InstanceTasks.PROMOTION_ERROR), self.shown(self.source))

    def has_root(self, instance):
        context = trove_context.TroveContext()
        status = types.SimpleNamespace(is_datastore_running=True)
        with mock.patch.object(root_models, 'load_and_verify', return_value=status):
            return root_models.Root.load(context, instance.id)

    def enable_root(self, instance):
        root_models.RootHistory.create(trove_context.TroveContext(), instance.id)

    def test_root_of_a_new_replica_is_that_of_its_source(self):
        self.enable_root(self.one)
        self.rows.copy_root_record(self.one.id)
        self.assertFalse(self.has_root(self.one))
        self.enable_root(self.source)
        for _again in range(2):
            self.rows.copy_root_record(self.one.id)
            self.rows.copy_root_record(self.source.id)
            self.assertEqual([True, True], [self.has_root(self.source), self.has_root(self.one)])
        root_models.RootHistory.load(None, self.source.id).delete()
        self.rows.copy_root_record(self.one.id)
        self.assertFalse(self.has_root(self.one))

    def test_root_of_a_promoted_replica_is_that_of_its_source(self):
        """Also if it was enabled while the replica followed."""
        self.enable_root(self.source)
        promotion = [RowChange(self.one.id, None), RowChange(self.source.id, self.one.id)]
        for _again in range(2):
            self.rows.record(promotion)
            self.assertEqual([True, True], [self.has_root(self.source), self.has_root(self.one)])
        self.assertFalse(self.has_root(self.two))

    def test_keeps_other_tasks(self):
        self.one.update(task_status=InstanceTasks.DELETING)
        self.rows.record([RowChange(self.one.id, None)])
        self.assertEqual((None, InstanceTasks.DELETING), self.shown(self.one))

    def test_ends_tasks(self):
        self.two.update(task_status=InstanceTasks.DELETING)
        self.rows.end_tasks({self.one.id: 'NONE', self.two.id: 'NONE'})
        self.assertEqual((self.source.id, InstanceTasks.NONE), self.shown(self.one))
        self.assertEqual((self.source.id, InstanceTasks.DELETING), self.shown(self.two))

    def test_begins_an_ejection_of_all_or_of_none(self):
        ids = [self.one.id, self.two.id]
        self.one.update(task_status=InstanceTasks.NONE)
        self.assertFalse(self.rows.begin_ejection(ids))
        self.assertEqual((self.source.id, InstanceTasks.NONE), self.shown(self.one))
        self.assertEqual((self.source.id, PROMOTING), self.shown(self.two))
        self.two.update(task_status=InstanceTasks.NONE)
        for _again in range(2):
            self.assertTrue(self.rows.begin_ejection(ids))
        for one in (self.one, self.two):
            self.assertEqual((self.source.id, InstanceTasks.EJECTING), self.shown(one))
        self.two.update(deleted=True)
        self.assertFalse(self.rows.begin_ejection(ids))

    def test_gives_back_the_tasks_of_other_operations(self):
        """Unless they have ended meanwhile, and have not found their task."""
        others = {self.one.id: 'MIGRATING'}
        rows = replication_rows.ReplicationRows(find_task=others.get)
        for kind in ReplacementKind:
            self.one.update(task_status=PROMOTING)
            rows.end_tasks({self.one.id: 'MIGRATING', self.two.id: kind.task})
            self.assertEqual(InstanceTasks.MIGRATING, self.shown(self.one)[1])
            self.assertEqual(InstanceTasks.NONE, self.shown(self.two)[1])
            self.two.update(task_status=PROMOTING)
        rows.record([RowChange(self.two.id, self.one.id, 'MIGRATING')])
        self.assertEqual((self.one.id, InstanceTasks.NONE), self.shown(self.two))
        # Trove has set another one since.
        self.two.update(task_status=InstanceTasks.DELETING)
        rows.end_tasks({self.two.id: 'MIGRATING'})
        self.assertEqual(InstanceTasks.DELETING, self.shown(self.two)[1])

    def used(self, resource):
        return QUOTAS.get_quota_usage(QUOTAS.get_quota_by_tenant('project', resource)).in_use

    def test_refuses_a_deletion(self):
        before = {one: self.used(one) for one in ('instances', 'volumes', 'ram')}
        self.one.update(task_status=InstanceTasks.DELETING, volume_size=3)
        self.rows.refuse_deletion(self.one.id, 'PROMOTING', 2048)
        self.assertEqual((self.source.id, PROMOTING), self.shown(self.one))
        self.assertEqual(before['instances'] + 1, self.used('instances'))
        self.assertEqual(before['volumes'] + 3, self.used('volumes'))
        self.assertEqual(before['ram'] + 2048, self.used('ram'))

    def test_refuses_no_deletion_that_has_ended(self):
        before = self.used('instances')
        self.rows.refuse_deletion(self.two.id, 'NONE', 2048)
        self.one.update(task_status=InstanceTasks.DELETING, deleted=True)
        self.rows.refuse_deletion(self.one.id, 'NONE', 2048)
        self.assertEqual((self.source.id, PROMOTING), self.shown(self.two))
        self.assertEqual((self.source.id, InstanceTasks.DELETING), self.shown(self.one))
        self.assertEqual(before, self.used('instances'))

    def test_subtracts_the_growth_of_what_was_not_resized(self):
        before = {one: self.used(one) for one in ('volumes', 'ram')}
        self.one.update(volume_size=3)
        self.rows.subtract_growth(self.one.id, 0, 5)
        self.assertEqual(before['volumes'] - 2, self.used('volumes'))
        self.rows.subtract_growth(self.one.id, 2048, None)
        self.assertEqual(before['volumes'] - 2, self.used('volumes'))
        self.assertEqual(before['ram'] - 2048, self.used('ram'))

    def test_subtracts_nothing_from_others(self):
        """Such as for a replica that is larger than its source already."""
        before = {one: self.used(one) for one in ('volumes', 'ram')}
        self.one.update(volume_size=9)
        self.rows.subtract_growth(self.one.id, 0, 5)
        self.rows.subtract_growth('unknown', 2048, 5)
        self.assertEqual(before, {one: self.used(one) for one in before})

    def test_lists_what_is_changed_for_long(self):
        ids = {self.one.id, self.two.id}

        def listed(age_sec):
            found = self.rows.list_changing(datetime.timedelta(seconds=age_sec))
            return {one.instance_id for one in found} & ids

        self.assertEqual(set(), listed(60))
        self.assertEqual(ids, listed(-60))
        self.two.update(task_status=InstanceTasks.RESIZING)
        self.assertEqual({self.one.id}, listed(-60))

    def test_shows_a_fault(self):
        self.rows.add_fault(self.one.id, 'it does not answer')
        fault = instance_models.DBInstanceFault.find_by(instance_id=self.one.id)
        self.assertEqual('it does not answer', fault.message)
        self.rows.add_fault('unknown', 'it does not answer')

    # What Trove is.

    def test_columns(self):
        table = replication_rows._INSTANCES
        self.assertEqual(instance_models.DBInstance._table_name, table.name)
        self.assert_columns(instance_models.DBInstance, *(one.name for one in table.columns))

        table = replication_rows._ROOT_HISTORY
        self.assertEqual(root_models.RootHistory._table_name, table.name)
        self.assert_columns(root_models.RootHistory, *(one.name for one in table.columns))

    def test_tasks(self):
        for name in (
            *('NONE', 'BUILDING', 'DELETING', 'MIGRATING', 'RESIZING'),
            *('PROMOTING', 'EJECTING', 'DETACHING', 'PROMOTION_ERROR', 'EJECTION_ERROR'),
        ):
            self.assertIsInstance(getattr(InstanceTasks, name), InstanceTask)
        self.assertTrue(InstanceTasks.EJECTION_ERROR.is_error)
        self.assertTrue(InstanceTasks.PROMOTION_ERROR.is_error)

    def test_verbs_of_the_manager(self):
        stock = taskmanager_manager.Manager
        for verb in (
            stock.promote_to_replica_source,
            stock.eject_replica_source,
            stock.detach_replica,
        ):
            self.assert_signatures((verb, 'context, instance_id'))
        # Trove's API sets the tasks before it calls them.
        for verb, task in (
            (instance_models.Instance.promote_to_replica_source, 'PROMOTING'),
            (instance_models.Instance.eject_replica_source, 'EJECTING'),
            (instance_models.Instance.detach_replica, 'DETACHING'),
        ):
            self.assert_uses(verb, task)
