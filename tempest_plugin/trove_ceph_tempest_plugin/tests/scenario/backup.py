# SPDX-License-Identifier: Apache-2.0
"""A tenant backs the database up under load; an operator finds the snapshot in Ceph."""

import time
import uuid
from concurrent import futures

from tempest import config
from tempest.lib import decorators

from trove_ceph.storage import image_types
from trove_ceph_tempest_plugin import backups, images, load
from trove_ceph_tempest_plugin.tests import base

CONF = config.CONF
#: Of a load before a backup is begun beside it.
LEAD_SEC = 5
LOCK_WAIT_SEC = 10


class BackupTestCase(base.DatabaseTest):
    """What all scenarios of backups share."""

    def setUp(self):
        super().setUp()
        timeout_sec = CONF.database.backup_wait_timeout
        self.backups = backups.Backups(self.client, timeout_sec)
        self.backups_of_all = backups.Backups(self.admin_client, timeout_sec)

    def require_backups(self, details=False):
        """Skip the test where this project takes no backups.

        :param details: the API extension is needed, too
        """
        if not CONF.trove_ceph.backups:
            raise self.skipException('[trove_ceph] backups is not set')
        if details and not self.backups.has_details():
            raise self.skipException("trove-api has not loaded this project's extension")

    def take(self, purpose: str, **wanted) -> dict:
        """Take a backup as stock clients do, record what Trove showed, and return it."""
        began = time.monotonic()
        made = self.create_backup(
            self.instance_id, self.get_resource_name(purpose), storage_driver='cinder', **wanted
        )
        seen = self.backups.wait_until_taken(made['id'])
        took = round(time.monotonic() - began, 1)
        self.record(f'backup {purpose}', {'seconds_to_completed': took, 'states': seen})
        self.assertLessEqual(set(seen), {'NEW', 'BUILDING', backups.COMPLETED})
        return self.backups.show(made['id'])

    def snapshots(self) -> set[str]:
        """Return the volume's snapshots in Cinder, by the names that they have in Ceph.

        Where Ceph may be asked, it has the same.
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
        """Definitions can be changed, by somebody with little patience."""
        table = f'probe_{uuid.uuid4().hex}'
        with self.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f'SET SESSION lock_wait_timeout = {LOCK_WAIT_SEC}')
            cursor.execute(f'CREATE TABLE {table} (id INT PRIMARY KEY)')
            cursor.execute(f'DROP TABLE {table}')

    def assert_not_stalled(self, seen):
        self.assertEqual(0, seen['errors'])
        if allowed_ms := CONF.trove_ceph.maximum_backup_gap_ms:
            self.assertLessEqual(seen['gap_max_ms'], allowed_ms)


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
            futures.ThreadPoolExecutor() as beside,
            load.Client(self.database.address) as client,
        ):
            loaded = beside.submit(mixed.run, options.sysbench_threads, options.sysbench_seconds)
            time.sleep(LEAD_SEC)
            backup = self.take('under-load')
            self.record('load', loaded.result())
            seen = client.figures()
        self.record('client', seen)
        self.assert_not_stalled(seen)
        self.assert_no_lock_is_left()
        instance = self.client.get_resource('instances', self.instance_id)['instance']
        self.assertEqual(instance['volume']['size'], backup['size'])
        self.assertEqual(1, len(self.snapshots() - before))
        if self.backups.has_details():
            self._verify(backup)

        self.backups.delete(backup['id'])

        self.assertEqual(before, self.snapshots())

    def _verify(self, backup):
        details = self.backups.have_done('verify', backup['id'])
        self.record('verified', {name: details[name] for name in ('snapshot_sec', 'verify_sec')})
        self.assertEqual('verified', details['state'], details['verify_error'])

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a014')
    def test_backup_levels(self):
        """However the server is held, it goes on, and what was done is told."""
        self.require_backups(details=True)
        before = self.snapshots()
        for level in ('none', 'ddl', 'freeze'):
            with load.Client(self.database.address) as client:
                backup_id = self.backups.take(
                    self.instance_id, self.get_resource_name(level), quiesce=level
                )
                self.addCleanup(self.backups.delete, backup_id)
                self.backups.wait_until_taken(backup_id)
                seen = client.figures()
            details = self.backups_of_all.details(backup_id)
            held = {name: details[name] for name in ('quiesce', 'take_sec', 'quiesced_sec')}
            self.record(level, {**seen, **held})
            self.assertEqual(level, details['quiesce'], details['raised_because'])
            self.assert_not_stalled(seen)
            self.assert_no_lock_is_left()
            self.backups.delete(backup_id)
        self.assertEqual(before, self.snapshots())
