# SPDX-License-Identifier: Apache-2.0
"""A tenant backs up the database under load; an operator finds the snapshot in Ceph."""

import time
import uuid
from concurrent import futures

from tempest import config
from tempest.lib import decorators

from trove_ceph.storage import image_types
from trove_ceph_tempest_plugin import backups, images, load
from trove_ceph_tempest_plugin.tests import base

CONF = config.CONF
#: How long a load runs before a concurrent backup starts.
LEAD_SEC = 5
LOCK_WAIT_SEC = 10


class BackupTestCase(base.DatabaseTest):
    """Base class of the backup scenarios."""

    def setUp(self):
        super().setUp()
        timeout_sec = CONF.database.backup_wait_timeout
        self.backups = backups.Backups(self.client, timeout_sec)
        self.admin_backups = backups.Backups(self.admin_client, timeout_sec)

    def require_backups(self, details=False):
        """Skip the test if this project does not create the backups.

        :param details: also require the API extension
        """
        if not CONF.trove_ceph.backups:
            raise self.skipException('[trove_ceph] backups is not set')
        if details and not self.backups.has_details():
            raise self.skipException("trove-api has not loaded this project's extension")

    def back_up(self, purpose: str, **options) -> dict:
        """Create a backup as stock clients do, record its states, and return it."""
        began = time.monotonic()
        backup = self.create_backup(
            self.instance_id, self.get_resource_name(purpose), storage_driver='cinder', **options
        )
        states = self.backups.wait_until_completed(backup['id'])
        elapsed = round(time.monotonic() - began, 1)
        self.record(f'backup {purpose}', {'seconds_to_completed': elapsed, 'states': states})
        self.assertLessEqual(set(states), {'NEW', 'BUILDING', backups.COMPLETED})
        return self.backups.show(backup['id'])

    def snapshots(self) -> set[str]:
        """Return the volume's snapshots in Cinder, by their names in Ceph.

        If Ceph is accessible, assert that it has the same snapshots.
        """
        volume_id = self.traces_of(self.instance_id).volume_id
        listed = self.os_admin.snapshots_client_latest.list_snapshots(
            all_tenants=True, volume_id=volume_id
        )
        known = {f'snapshot-{one["id"]}' for one in listed['snapshots']}
        if self.cluster and self.expected:
            options = CONF.trove_ceph
            ceph = images.Images(options.ceph_conf, options.ceph_user)
            facts = ceph.describe(image_types.ImageRef(self.expected.pool, f'volume-{volume_id}'))
            self.assertEqual(known, {one.name for one in facts.snapshots if not one.removed})
        return known

    def assert_no_lock_is_left(self):
        """Assert that a table can be created and dropped within a short lock timeout."""
        table = f'probe_{uuid.uuid4().hex}'
        with self.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f'SET SESSION lock_wait_timeout = {LOCK_WAIT_SEC}')
            cursor.execute(f'CREATE TABLE {table} (id INT PRIMARY KEY)')
            cursor.execute(f'DROP TABLE {table}')

    def assert_not_stalled(self, figures):
        self.assertEqual(0, figures['errors'])
        if allowed_ms := CONF.trove_ceph.maximum_backup_gap_ms:
            self.assertLessEqual(figures['gap_max_ms'], allowed_ms)


class BackupScenario(BackupTestCase):
    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a013')
    @decorators.attr(type='smoke')
    def test_backup(self):
        """A backup under load is one snapshot; it can be verified, and leaves nothing behind."""
        self.require_backups()
        options = CONF.trove_ceph
        before = self.snapshots()
        mixed = self.prepare_load('mixed-70-30')
        with (
            futures.ThreadPoolExecutor() as executor,
            load.Client(self.database.address) as client,
        ):
            running = executor.submit(mixed.run, options.sysbench_threads, options.sysbench_seconds)
            time.sleep(LEAD_SEC)
            backup = self.back_up('under-load')
            self.record('load', running.result())
            figures = client.figures()
        self.record('client', figures)
        self.assert_not_stalled(figures)
        self.assert_no_lock_is_left()
        instance = self.client.get_resource('instances', self.instance_id)['instance']
        self.assertEqual(instance['volume']['size'], backup['size'])
        self.assertEqual(1, len(self.snapshots() - before))
        if self.backups.has_details():
            self._verify(backup)

        self.backups.delete(backup['id'])

        self.assertEqual(before, self.snapshots())

    def _verify(self, backup):
        details = self.backups.request('verify', backup['id'])
        self.record('verified', {name: details[name] for name in ('snapshot_sec', 'verify_sec')})
        self.assertEqual('verified', details['state'], details['verify_error'])

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a014')
    def test_backup_levels(self):
        """At each quiesce level clients continue, and the details report the level and its time."""
        self.require_backups(details=True)
        before = self.snapshots()
        for level in ('none', 'ddl', 'freeze'):
            with load.Client(self.database.address) as client:
                backup_id = self.backups.create(
                    self.instance_id, self.get_resource_name(level), quiesce=level
                )
                self.addCleanup(self.backups.delete, backup_id)
                self.backups.wait_until_completed(backup_id)
                figures = client.figures()
            details = self.admin_backups.details(backup_id)
            quiesce = {name: details[name] for name in ('quiesce', 'take_sec', 'quiesced_sec')}
            self.record(level, {**figures, **quiesce})
            self.assertEqual(level, details['quiesce'], details['raised_because'])
            self.assert_not_stalled(figures)
            self.assert_no_lock_is_left()
            self.backups.delete(backup_id)
        self.assertEqual(before, self.snapshots())
