# SPDX-License-Identifier: Apache-2.0
"""Trove's tables, and how Trove's own API reads what we write there."""

import uuid

import fixtures
from oslotest import base
from trove.backup import models as backup_models
from trove.backup.state import BackupState
from trove.common import cfg as trove_cfg
from trove.common import context as trove_context
from trove.common import exception as trove_exceptions
from trove.conductor import manager as conductor_manager
from trove.instance import models as instance_models
from trove.instance.tasks import InstanceTasks
from trove.quota.quota import QUOTAS

from trove_ceph import exceptions
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import trove_db

CONF = trove_cfg.CONF


class TroveTablesTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        trove_database.path()
        self.project = f'project-{uuid.uuid4()}'
        self.instance = trove_database.add_instance(self.project, 'volume')
        self.tables = trove_db.TroveDatabase()
        self.context = trove_context.TroveContext(project_id=self.project, user_id='user')
        # The calls of Trove's API to the taskmanager.
        self.calls = []
        for verb in ('create_backup', 'delete_backup'):
            self.useFixture(
                fixtures.MonkeyPatch(f'trove.backup.models.api.API.{verb}', self._record(verb))
            )
        self.useFixture(
            fixtures.MonkeyPatch('trove.backup.models.api.API.__init__', lambda api, context: None)
        )

    def _record(self, verb):
        return lambda api, resource_id, *rest: self.calls.append((verb, resource_id))

    def delete(self, backup):
        """Delete as tenants do, and return the backups that the taskmanager shall delete."""
        self.calls.clear()
        backup_models.Backup.delete(self.context, backup.id)
        return [backup_id for _verb, backup_id in self.calls]

    def used_quota(self):
        QUOTAS.check_quotas(self.project, backups=0)
        quota = QUOTAS.get_quota_by_tenant(self.project, 'backups')
        return QUOTAS.get_quota_usage(quota).in_use

    def test_deletes_a_parent_without_its_children(self):
        """Defect 6: Trove's API requests the deletion of children before its own."""
        parent = trove_database.add_backup(self.instance, state=BackupState.COMPLETED)
        child = trove_database.add_backup(self.instance, parent_id=parent.id)
        # Trove 26 intends to refuse, but subtracts a time without zone from one with a zone.
        refused = (trove_exceptions.UnprocessableEntity, TypeError)
        self.assertRaises(refused, self.delete, parent)
        self.assertEqual([], self.calls)
        self.tables.begin_backup(child.id)
        self.tables.complete_backup(child.id, 'snapshot', 1)
        self.assertEqual([parent.id], self.delete(parent))

    def test_stock_deletes_children(self):
        """Defect 6: what happens to a backup whose row still names its parent."""
        parent = trove_database.add_backup(self.instance, state=BackupState.COMPLETED)
        child = trove_database.add_backup(
            self.instance, state=BackupState.COMPLETED, parent_id=parent.id
        )
        self.assertEqual([child.id, parent.id], self.delete(parent))

    def test_ignores_the_clocks_of_others(self):
        """Defect 13: the conductor drops updates older than the guest agent's last one."""
        backup = trove_database.add_backup(self.instance)
        conductor = conductor_manager.Manager()
        conductor.update_backup(self.context, self.instance.id, backup.id, sent=2e9, size=5.0)
        conductor.update_backup(
            self.context, self.instance.id, backup.id, sent=1e9, state=BackupState.COMPLETED
        )
        self.assertEqual(BackupState.NEW, trove_database.backup(backup.id).state)
        self.tables.complete_backup(backup.id, 'snapshot', 1)
        found = trove_database.backup(backup.id)
        self.assertEqual(BackupState.COMPLETED, found.state)
        self.assertEqual(('cinder://snapshot', 1.0), (found.location, found.size))
        self.assertTrue(found.is_snapshot)

    def test_shows_each_state_of_a_backup(self):
        backup = trove_database.add_backup(self.instance, parent_id='parent')
        found = self.tables.find_backup(backup.id)
        self.assertEqual(
            (self.project, self.instance.id, 'parent'),
            (found.project_id, found.instance_id, found.parent_id),
        )
        self.tables.begin_backup(backup.id)
        row = trove_database.backup(backup.id)
        self.assertEqual((BackupState.BUILDING, None), (row.state, row.parent_id))
        self.assertTrue(row.is_running)
        self.tables.fail_backup(backup.id)
        self.assertEqual(BackupState.FAILED, trove_database.backup(backup.id).state)
        self.tables.fail_deletion(backup.id)
        self.assertEqual(BackupState.DELETE_FAILED, trove_database.backup(backup.id).state)
        for _again in range(2):
            self.tables.delete_backup(backup.id)
        row = trove_database.backup(backup.id)
        self.assertEqual((True, None), (bool(row.deleted), row.datastore_version_id))
        self.assertTrue(self.tables.find_backup(backup.id).is_deleted)
        self.tables.fail_backup(backup.id)
        self.assertEqual(BackupState.DELETE_FAILED, trove_database.backup(backup.id).state)
        for verb in (self.tables.begin_backup, lambda i: self.tables.complete_backup(i, 's', 1)):
            self.assertRaises(exceptions.RecordNotFoundError, verb, backup.id)

    def test_lists_running_backups(self):
        ids = {}
        for state in (*BackupState.RUNNING_STATES, *BackupState.END_STATES):
            ids[state] = trove_database.add_backup(self.instance, state=state).id
        ids['other'] = trove_database.add_backup(self.instance, storage_driver='swift').id
        ids['gone'] = trove_database.add_backup(self.instance, deleted=True).id
        found = set(self.tables.list_running_backups()) & set(ids.values())
        self.assertEqual({ids[BackupState.NEW], ids[BackupState.BUILDING]}, found)

    def test_instance_of_a_volume(self):
        volume_id = f'volume-of-{self.instance.id}'
        self.instance.update(volume_id=volume_id)
        self.assertEqual(self.instance.id, self.tables.find_instance_of_volume(volume_id).id)
        self.assertIsNone(self.tables.find_instance_of_volume('another'))
        self.instance.update(deleted=True)
        self.assertIsNone(self.tables.find_instance_of_volume(volume_id))

    def test_lists_instances(self):
        found = self.tables.find_instance(self.instance.id)
        self.assertEqual(('mysql', '9.7'), (found.datastore, found.version))
        self.assertEqual(self.instance.created, found.created_at)
        self.assertEqual((False, False), (found.is_deleting, found.is_deleted))
        self.instance.task_status = InstanceTasks.DELETING
        self.instance.save()
        self.assertTrue(self.tables.find_instance(self.instance.id).is_deleting)
        self.instance.task_status = InstanceTasks.BUILDING
        self.instance.save()
        self.assertTrue(self.tables.find_instance(self.instance.id).is_building)
        self.instance.update(deleted=True, datastore_version_id=None)
        found = self.tables.find_instance(self.instance.id)
        self.assertEqual((True, ''), (found.is_deleted, found.datastore))
        self.assertIsNone(self.tables.find_instance('none'))
        self.assertIsNone(self.tables.find_backup('none'))

    def add_replica(self, volume_id, **facts):
        facts = {'slave_of_id': self.instance.id} | facts
        return trove_database.add_instance(self.project, volume_id, **facts)

    def test_lists_replicas(self):
        ids = {self.add_replica(None).id, self.add_replica('other').id}
        self.add_replica('gone').update(deleted=True)
        self.add_replica('of another', slave_of_id='another instance')
        self.assertEqual(ids, {one.id for one in self.tables.list_replicas(self.instance.id)})

    def test_says_whether_there_are_replicas(self):
        replicas = [self.add_replica(None), self.add_replica('other')]
        self.assertTrue(self.tables.has_replicas())
        for row in instance_models.DBInstance.find_all(deleted=False):
            if row.slave_of_id and row.id not in {one.id for one in replicas}:
                row.update(deleted=True)
        replicas[0].update(deleted=True)
        self.assertTrue(self.tables.has_replicas())
        replicas[1].update(slave_of_id=None)
        self.assertFalse(self.tables.has_replicas())

    def test_lists_the_volumes_of_replicas_and_of_their_sources(self):
        volume_id = f'volume-{self.instance.id}'
        self.instance.update(volume_id=volume_id)
        self.assertNotIn(volume_id, self.tables.list_replicated_volumes())
        replica = self.add_replica(f'replica-{self.instance.id}')
        self.add_replica(None)
        self.assertLessEqual(
            {volume_id, replica.volume_id}, set(self.tables.list_replicated_volumes())
        )
        replica.update(slave_of_id=None)
        self.assertNotIn(replica.volume_id, self.tables.list_replicated_volumes())

    def test_shows_only_a_replica_in_build_as_failed(self):
        for task, expected in (
            (InstanceTasks.BUILDING, InstanceTasks.BUILDING_ERROR_REPLICA),
            (InstanceTasks.BUILDING_ERROR_SERVER, InstanceTasks.BUILDING_ERROR_SERVER),
            (InstanceTasks.NONE, InstanceTasks.NONE),
        ):
            replica = self.add_replica(None, task_status=task)
            self.tables.fail_replica(replica.id)
            self.assertEqual(expected, trove_database.instance(replica.id).task_status)
        self.tables.fail_replica('no such instance')

    def test_lists_servers_of_instances(self):
        other = trove_database.add_instance(self.project, None, server_id=None)
        expected = {self.instance.id: self.instance.compute_instance_id, other.id: None}
        self.assertEqual(expected, self.tables.list_servers([*expected, 'none']))
        # A task may change the server.
        self.instance.update(task_status=InstanceTasks.MIGRATING)
        other.update(deleted=True)
        self.assertEqual({self.instance.id: None}, self.tables.list_servers(list(expected)))

    def test_counts_a_repeated_deletion_once(self):
        for backup in [trove_database.add_backup(self.instance) for _ in range(2)]:
            self.tables.count_backup(self.project)
            self.tables.fail_backup(backup.id)
        self.assertEqual(2, self.used_quota())
        self.delete(backup)
        self.delete(backup)
        self.tables.count_backup(self.project)
        self.assertEqual(1, self.used_quota())

    def test_counts_a_deletion_with_an_exhausted_quota(self):
        CONF.set_override('max_backups_per_tenant', 1)
        self.addCleanup(CONF.clear_override, 'max_backups_per_tenant')
        for count in (1, 2):
            self.tables.count_backup(self.project)
            self.assertEqual(count, self.used_quota())

    def test_counts_while_the_api_commits_the_request(self):
        """The API sends the request before it subtracts from the used quota."""
        self.tables.count_backup(self.project)
        self.tables.count_backup(self.project)
        reservations = QUOTAS.reserve(self.project, backups=-1)
        read = QUOTAS.get_quota_usage

        def read_before_the_api_commits(limit):
            usage = read(limit)
            QUOTAS.commit(reservations)
            return usage

        with fixtures.MonkeyPatch(
            'trove.quota.quota.QUOTAS.get_quota_usage', read_before_the_api_commits
        ):
            self.tables.count_backup(self.project)
        usage = read(QUOTAS.get_quota_by_tenant(self.project, 'backups'))
        self.assertEqual((2, 0), (usage.in_use, usage.reserved))
