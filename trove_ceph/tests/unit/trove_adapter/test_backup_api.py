# SPDX-License-Identifier: Apache-2.0
"""Requesting backups from Trove as tenants do, and finding them."""

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


class BackupApiTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.world = self.useFixture(world.World())
        self.row = self.world.add_instance()
        self.trove = backup_api.BackupApi()
        self.instance = next(one for one in self.trove.list_instances() if one.id == self.row.id)

    def request(self, name='hourly-1', options=None):
        options = options or BackupOptions()
        return self.trove.request_backup(self.instance, name, 'by policy', options)

    def used_quota(self):
        QUOTAS.check_quotas(self.instance.project_id, backups=0)
        quota = QUOTAS.get_quota_by_tenant(self.instance.project_id, 'backups')
        return QUOTAS.get_quota_usage(quota).in_use

    def complete(self, backup_id):
        trove_database.backup(backup_id).update(state=BackupState.COMPLETED)

    def test_lists_instances(self):
        self.assertEqual(('mysql', '9.7'), (self.instance.datastore, self.instance.version))
        self.row.update(deleted=True)
        self.assertNotIn(self.row.id, [one.id for one in self.trove.list_instances()])

    def test_a_requested_backup_belongs_to_the_tenant(self):
        backup_id = self.request(options=BackupOptions(QuiesceLevel.DDL, verify=True))
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
        ((event, payload),) = self.world.notifications
        self.assertEqual('dbaas.backup_create.start', event)
        self.assertEqual(self.world.project, payload['tenant_id'])

    def test_finds_a_backup(self):
        self.assertIsNone(self.trove.find_named(self.instance.id, 'hourly-1'))
        backup_id = self.request()
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

    def test_shows_a_backup_as_failed(self):
        backup_id = self.request()
        self.trove.fail_backup(backup_id)
        found = self.trove.find(backup_id)
        self.assertEqual((False, False), (found.is_running, found.is_completed))

    def test_reports_a_refusal(self):
        self.request()
        error = self.assertRaises(exceptions.ServiceUnavailableError, self.request, 'hourly-2')
        self.assertIn('not currently available', str(error))
        # Trove's API shows tenants the same.
        self.assertEqual(str(error), error.shown)
        self.assertIsNone(self.trove.find_named(self.instance.id, 'hourly-2'))
        self.assertEqual(1, self.used_quota())

    def test_reports_instances_that_cannot_be_backed_up(self):
        """Trove's API neither records nor counts a refused backup.

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
            error = self.assertRaises(exceptions.ServiceUnavailableError, self.request)
            self.assertIn(row.id, str(error))
            self.assertIn(word, str(error))
            self.assertEqual([], self.world.casts)
            self.assertEqual(
                (0, None), (self.used_quota(), self.trove.find_named(row.id, 'hourly-1'))
            )

    def test_quota(self):
        """Defect 12: each project has its own quota of backups; with stock all share one."""
        CONF.set_override('max_backups_per_tenant', 1)
        self.addCleanup(CONF.clear_override, 'max_backups_per_tenant')
        self.complete(self.request())
        error = self.assertRaises(exceptions.QuotaExceededError, self.request, 'hourly-2')
        self.assertIn(self.instance.id, str(error))
        self.assertEqual(str(error), error.shown)

    def test_fails_if_the_message_bus_is_down(self):
        def fail(*_arguments, **_options):
            raise RuntimeError('no broker')

        self.useFixture(fixtures.MonkeyPatch('trove.taskmanager.api.API.get_client', fail))
        error = self.assertRaises(exceptions.ServiceUnavailableError, self.request)
        self.assertEqual((True, None), ('no broker' in str(error), error.shown))
        # Trove leaves its row, which the caller finds.
        self.assertTrue(self.trove.find_named(self.instance.id, 'hourly-1').is_running)
        self.assertEqual(0, self.used_quota())

    def test_requests_a_deletion(self):
        backup_id = self.request()
        self.complete(backup_id)
        self.world.casts.clear()
        self.trove.request_deletion(backup_id, self.instance.project_id)
        ((method, _context, arguments),) = self.world.casts
        self.assertEqual(('delete_backup', {'backup_id': backup_id}), (method, arguments))
        self.assertEqual(0, self.used_quota())
        # The first request had no effect; the used quota stays correct.
        self.trove.request_deletion(backup_id, self.instance.project_id, again=True)
        self.assertEqual(0, self.used_quota())
        trove_database.backup(backup_id).update(deleted=True)
        for again in (False, True):
            self.trove.request_deletion(backup_id, self.instance.project_id, again)
            self.assertEqual(0, self.used_quota())

    def test_requests_a_deletion_with_an_exhausted_quota(self):
        """Another backup has used the freed quota since the first request."""
        CONF.set_override('max_backups_per_tenant', 1)
        self.addCleanup(CONF.clear_override, 'max_backups_per_tenant')
        backup_id = self.request()
        self.complete(backup_id)
        self.trove.request_deletion(backup_id, self.instance.project_id)
        self.request('hourly-2')
        self.world.casts.clear()
        self.trove.request_deletion(backup_id, self.instance.project_id, again=True)
        self.assertEqual(['delete_backup'], [method for method, *_ in self.world.casts])
        self.assertEqual(1, self.used_quota())


class InstanceTiersTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        path = self.useFixture(fixtures.TempDir()).join('tiers.yaml')
        with open(path, 'w') as tiers:
            tiers.write(TIERS)
        self.now, self.requested = 0.0, []
        self.types = {'v1': 'fast', 'v2': 'slow'}
        self.finder = instance_tiers.InstanceTiers(self, path, lambda: self.now)

    def find_volume(self, volume_id):
        """Return a volume, as Cinder does."""
        self.requested.append(volume_id)
        volume_type = self.types.get(volume_id)
        return volume_type and Volume(volume_type)

    def find(self, *volumes):
        return self.finder.find([backup_types.Instance(f'of-{one}', 'p', one) for one in volumes])

    def test_finds_the_tiers_of_instances(self):
        self.assertEqual({'of-v1': 'first'}, self.find('v1', 'v2', 'gone', None))
        self.find('v1', 'v2')
        self.assertEqual(['v1', 'v2', 'gone'], self.requested)

    def test_notices_another_tier_after_an_hour(self):
        self.find('v2')
        self.types['v2'] = 'fast'
        self.assertEqual({}, self.find('v2'))
        self.now += 3600
        self.assertEqual({'of-v2': 'first'}, self.find('v2'))


class Volume:
    def __init__(self, volume_type):
        self.volume_type = volume_type
