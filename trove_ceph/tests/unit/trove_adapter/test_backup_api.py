# SPDX-License-Identifier: Apache-2.0
"""Asking Trove for backups as its tenants do, and finding them again."""

import fixtures
from oslotest import base
from trove.backup.state import BackupState
from trove.common import cfg as trove_cfg
from trove.instance.tasks import InstanceTasks
from trove.quota.quota import QUOTAS

from trove_ceph import exceptions
from trove_ceph.enums import QuiesceLevel
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.backup.options import BackupOptions
from trove_ceph.taskmanager import instance_tiers
from trove_ceph.tests.unit.api import world
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import backup_api

CONF = trove_cfg.CONF
TIERS = """
tiers:
  first:
    purpose: data
    device_class: nvme
    pool: volumes-nvme
    copies: 2
    placement_groups: {count: 32}
    volume_type: {name: fast, backend: nvme}
"""


class TroveBackupsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = self.useFixture(world.World())
        self.row = self.world.add_instance()
        self.trove = backup_api.BackupApi()
        self.instance = next(one for one in self.trove.list_instances() if one.id == self.row.id)

    def ask(self, name='hourly-1', asked=None):
        return self.trove.request_backup(self.instance, name, 'by policy', asked or BackupOptions())

    def used_quota(self):
        QUOTAS.check_quotas(self.instance.project_id, backups=0)
        quota = QUOTAS.get_quota_by_tenant(self.instance.project_id, 'backups')
        return QUOTAS.get_quota_usage(quota).in_use

    def complete(self, backup_id):
        trove_database.backup(backup_id).update(state=BackupState.COMPLETED)

    def test_instances(self):
        self.assertEqual(('mysql', '9.7'), (self.instance.datastore, self.instance.version))
        self.row.update(deleted=True)
        self.assertNotIn(self.row.id, [one.id for one in self.trove.list_instances()])

    def test_backup_is_the_tenants(self):
        backup_id = self.ask(asked=BackupOptions(QuiesceLevel.DDL, verify=True))
        row = trove_database.backup(backup_id)
        self.assertEqual(
            (self.world.project, 'hourly-1', 'cinder', BackupState.NEW),
            (row.tenant_id, row.name, row.storage_driver, row.state),
        )
        self.assertEqual(1, self.used_quota())
        ((method, context, arguments),) = self.world.casts
        self.assertEqual(('create_backup', backup_id), (method, arguments['backup_info']['id']))
        self.assertEqual(
            BackupOptions(QuiesceLevel.DDL, verify=True), backup_api.request_of(context)
        )
        self.assertEqual('taskmanager', context.notification.server_type)
        ((event, payload),) = self.world.told
        self.assertEqual('dbaas.backup_create.start', event)
        self.assertEqual(self.world.project, payload['tenant_id'])

    def test_found_again(self):
        self.assertIsNone(self.trove.find_named(self.instance.id, 'hourly-1'))
        backup_id = self.ask()
        found = self.trove.find_named(self.instance.id, 'hourly-1')
        self.assertEqual(
            (backup_id, True, False), (found.backup_id, found.is_running, found.is_completed)
        )
        self.complete(backup_id)
        found = self.trove.find(backup_id)
        self.assertEqual((False, True), (found.is_running, found.is_completed))
        trove_database.backup(backup_id).update(deleted=True)
        self.assertIsNone(self.trove.find(backup_id))
        self.assertIsNone(self.trove.find_named(self.instance.id, 'hourly-1'))

    def test_given_up(self):
        backup_id = self.ask()
        self.trove.fail_backup(backup_id)
        found = self.trove.find(backup_id)
        self.assertEqual((False, False), (found.is_running, found.is_completed))

    def test_refused(self):
        self.ask()
        error = self.assertRaises(exceptions.ServiceUnavailableError, self.ask, 'hourly-2')
        self.assertIn('not currently available', str(error))
        self.assertIsNone(self.trove.find_named(self.instance.id, 'hourly-2'))
        self.assertEqual(1, self.used_quota())

    def test_instances_of_which_none_can_be_taken(self):
        """Nothing is recorded, nor counted, of what Trove's API refuses.

        It lets pass those whose server is stopped; the guest agent tells the taskmanager of that.
        """
        server = self.world.server
        for facts, server_status, word in (
            ({'task_status': InstanceTasks.BUILDING}, 'ACTIVE', 'BUILDING'),
            ({'task_status': InstanceTasks.DELETING}, 'ACTIVE', 'DELETING'),
            ({}, 'SHUTOFF', 'SHUTOFF'),
        ):
            row = self.world.add_instance(**facts)
            server.status = server_status
            self.instance = self.trove._tables.find_instance(row.id)
            error = self.assertRaises(exceptions.ServiceUnavailableError, self.ask)
            self.assertIn(row.id, str(error))
            self.assertIn(word, str(error))
            self.assertEqual([], self.world.casts)
            self.assertEqual(
                (0, None), (self.used_quota(), self.trove.find_named(row.id, 'hourly-1'))
            )

    def test_quota(self):
        """Defect 12: each project has one of its own for backups; stock's share a single one."""
        CONF.set_override('max_backups_per_tenant', 1)
        self.addCleanup(CONF.clear_override, 'max_backups_per_tenant')
        self.complete(self.ask())
        error = self.assertRaises(exceptions.QuotaExceededError, self.ask, 'hourly-2')
        self.assertIn(self.instance.id, str(error))

    def test_bus_that_is_down(self):
        def fail(*_arguments, **_options):
            raise RuntimeError('no broker')

        self.useFixture(fixtures.MonkeyPatch('trove.taskmanager.api.API.get_client', fail))
        self.assertRaises(exceptions.ServiceUnavailableError, self.ask)
        # Trove leaves its row, and whoever asked finds it.
        self.assertTrue(self.trove.find_named(self.instance.id, 'hourly-1').is_running)
        self.assertEqual(0, self.used_quota())

    def test_deletion(self):
        backup_id = self.ask()
        self.complete(backup_id)
        self.world.casts.clear()
        self.trove.request_deletion(backup_id, self.instance.project_id)
        ((method, _context, arguments),) = self.world.casts
        self.assertEqual(('delete_backup', {'backup_id': backup_id}), (method, arguments))
        self.assertEqual(0, self.used_quota())
        # It never came about: what is counted stays right.
        self.trove.request_deletion(backup_id, self.instance.project_id, again=True)
        self.assertEqual(0, self.used_quota())
        trove_database.backup(backup_id).update(deleted=True)
        for again in (False, True):
            self.trove.request_deletion(backup_id, self.instance.project_id, again)
            self.assertEqual(0, self.used_quota())

    def test_deletion_where_the_quota_is_used_up(self):
        """The room that it once had was given to another one since."""
        CONF.set_override('max_backups_per_tenant', 1)
        self.addCleanup(CONF.clear_override, 'max_backups_per_tenant')
        backup_id = self.ask()
        self.complete(backup_id)
        self.trove.request_deletion(backup_id, self.instance.project_id)
        self.ask('hourly-2')
        self.world.casts.clear()
        self.trove.request_deletion(backup_id, self.instance.project_id, again=True)
        self.assertEqual(['delete_backup'], [method for method, *_ in self.world.casts])
        self.assertEqual(1, self.used_quota())


class TierFinderTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        path = self.useFixture(fixtures.TempDir()).join('tiers.yaml')
        with open(path, 'w') as tiers:
            tiers.write(TIERS)
        self.now, self.asked = 0.0, []
        self.types = {'v1': 'fast', 'v2': 'slow'}
        self.finder = instance_tiers.InstanceTiers(self, path, lambda: self.now)

    def find_volume(self, volume_id):
        """Cinder's answer, as far as it is asked for."""
        self.asked.append(volume_id)
        volume_type = self.types.get(volume_id)
        return volume_type and Volume(volume_type)

    def find(self, *volumes):
        return self.finder.find([backup_types.Instance(f'of-{one}', 'p', one) for one in volumes])

    def test_tiers(self):
        self.assertEqual({'of-v1': 'first'}, self.find('v1', 'v2', 'gone', None))
        self.find('v1', 'v2')
        self.assertEqual(['v1', 'v2', 'gone'], self.asked)

    def test_other_tier_is_noticed_in_time(self):
        self.find('v2')
        self.types['v2'] = 'fast'
        self.assertEqual({}, self.find('v2'))
        self.now += 3600
        self.assertEqual({'of-v2': 'first'}, self.find('v2'))


class Volume:
    def __init__(self, volume_type):
        self.volume_type = volume_type
