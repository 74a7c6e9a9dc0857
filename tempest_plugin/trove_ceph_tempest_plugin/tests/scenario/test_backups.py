# SPDX-License-Identifier: Apache-2.0
"""Copy and verify backups, run policies, and restore backups to new databases."""

import time
import uuid

from tempest import config
from tempest.lib import decorators, exceptions

from trove_ceph.cinder import resources
from trove_ceph_tempest_plugin import placement, traces
from trove_ceph_tempest_plugin.tests import base
from trove_ceph_tempest_plugin.tests.scenario import backup

CONF = config.CONF
POLL_SEC = 5
#: The collector runs every five minutes, and retries resources in use at its next run.
RECLAIM_SEC = 900


class TestBackups(backup.BackupTestCase):
    """Each test is a whole scenario; the last one deletes the class's database."""

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        if not CONF.trove_ceph.backups:
            raise cls.skipException('[trove_ceph] backups is not set')

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a015')
    def test_copied_and_verified(self):
        """The second copy moves only changes; it verifies also after its parent is deleted."""
        self.require_backups(details=True)
        self.write_rows()
        first = self.back_up('first')
        self._copy_and_verify('first', first)
        self.write_rows()
        second = self.back_up('second', incremental=True, parent_id=first['id'])
        self._copy_and_verify('second', second)
        moved = [self.backups.details(one['id'])['moved_bytes'] for one in (first, second)]
        self.record('moved', {'first_bytes': moved[0], 'second_bytes': moved[1]})
        self.assertLess(moved[1], moved[0])

        self.backups.delete(first['id'])

        details = self.backups.request('verify', second['id'])
        self.assertEqual('verified', details['state'], details['verify_error'])
        vault = self.admin_backups.details(second['id'])['vault_place']
        self.backups.delete(second['id'])
        self._assert_gone_from_ceph(vault.partition('@')[0])

    def _copy_and_verify(self, name, backup):
        ((executed,),) = self.database.query('SELECT @@GLOBAL.gtid_executed')
        copied = self.backups.request('copy', backup['id'])
        self.assertIn('vault', copied['places'], copied['copy_error'])
        verified = self.backups.request('verify', backup['id'])
        self.assertEqual('verified', verified['state'], verified['verify_error'])
        # The backup was complete before the server's position was read.
        ((is_subset,),) = self.database.query(
            'SELECT GTID_SUBSET(%s, %s)', verified['gtid_executed'], executed
        )
        self.assertEqual((True, 1), (bool(verified['gtid_executed']), is_subset))
        figures = ('used_bytes', 'moved_bytes', 'copy_sec', 'verify_sec', 'verification')
        self.record(name, {figure: verified[figure] for figure in figures})

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a019')
    def test_policy(self):
        """A policy creates a backup at once and another on request, and retains the last."""
        self.require_backups(details=True)
        policy_id = self.backups.create_policy(
            f'policy-{uuid.uuid4().hex}', self.instance_id, interval_min=1440, keep={'last': 1}
        )
        self.addCleanup(self.backups.delete_policy, policy_id)
        began = time.monotonic()
        first = self.backups.wait_for_only_backup(policy_id, self.instance_id)
        elapsed = round(time.monotonic() - began, 1)
        self.backups.run_policy(policy_id)
        second = self.backups.wait_for_only_backup(policy_id, self.instance_id, other_than=first)
        self.record('policy', {'seconds_to_first': elapsed})
        self.assertRaises(exceptions.NotFound, self.backups.show, first)

        self.backups.delete_policy(policy_id)
        self.backups.delete(second)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a020')
    def test_restore_from_the_vault(self):
        """A lost snapshot is restored from its copy: usable at once, and flattened later."""
        self.require_backups(details=True)
        rows, before = self.write_rows(), self.snapshots()
        backup = self.back_up('to-lose')
        (snapshot,) = self.snapshots() - before
        self.backups.request('copy', backup['id'])
        vault = self.admin_backups.details(backup['id'])['vault_place']
        self._delete_snapshot(snapshot.removeprefix('snapshot-'))

        try:
            restored_id = self._restore(backup)
        except exceptions.NotFound as error:
            raise self.skipException(
                "trove-api does not use this project's remote_cinder_client"
            ) from error

        self.assertEqual(rows, self.rows(self.database_of(restored_id)))
        volume_id = self.traces_of(restored_id).volume_id
        self.assertEqual([], self._wait_until_gone(lambda: self._dependent_volume(volume_id)))
        self.backups.delete(backup['id'])
        self._assert_gone_from_ceph(vault.partition('@')[0])
        self.assertEqual(rows, self.rows(self.database_of(restored_id)))
        self._delete_instance(restored_id)

    def _delete_snapshot(self, snapshot_id):
        client = self.os_admin.snapshots_client_latest
        client.delete_snapshot(snapshot_id)
        client.wait_for_resource_deletion(snapshot_id)

    def _dependent_volume(self, volume_id):
        """Return the volume in a list if Cinder marks it as dependent on another pool."""
        volume = self.os_admin.volumes_client_latest.show_volume(volume_id)['volume']
        is_dependent = volume['metadata'].get(resources.DEPENDENT_KEY) == resources.DEPENDENT
        return [volume_id] if is_dependent else []

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a016')
    def test_restore_to_a_larger_volume(self):
        """The restored database has the rows and users of the backup, and a larger file system."""
        rows = self.write_rows()
        backup = self.back_up('to-restore')
        self.write_rows()
        volume = self._volume_of(self.instance_id)
        size, total = volume['size'] + 1, volume['total']
        if volume['size'] > 1:
            self.assertRaises(
                exceptions.Forbidden, self._request_restore, backup, {'size': volume['size'] - 1}
            )

        restored_id = self._restore(backup, {'size': size})

        restored = self.database_of(restored_id)
        self.assertEqual(rows, self.rows(restored))
        self.assertEqual(size, self._volume_of(restored_id)['size'])
        self.assertGreater(self._volume_of(restored_id)['total'], total + 0.5)
        # A distinct server_uuid allows replication between both.
        uuids = [one.variable('server_uuid') for one in (self.database, restored)]
        self.assertNotEqual(*uuids)
        self._delete_instance(restored_id)
        self.backups.delete(backup['id'])

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a018')
    def test_restore_to_another_type(self):
        """The restored volume is on another back end, and its deletion leaves nothing there."""
        _, *others = CONF.trove_ceph.volume_types
        if not others:
            raise self.skipException('[trove_ceph] volume_types lists only one')
        rows = self.write_rows()
        backup = self.back_up('to-move')

        restored_id = self._restore(backup, {'type': others[0]})

        self.assertEqual(rows, self.rows(self.database_of(restored_id)))
        expected = placement.parse(CONF.trove_ceph.placement).get(others[0])
        pool = expected.pool if expected else ''
        cluster = self.cluster if expected else None
        restored = traces.Traces(self.os_admin, self.admin_client, restored_id, cluster, pool)
        if cluster:
            self.assertIsNotNone(cluster.find_image(pool, f'volume-{restored.volume_id}'))
        # The restored volume may still read from the backup.
        self.backups.delete(backup['id'])
        self.assertEqual(rows, self.rows(self.database_of(restored_id)))
        self._delete_instance(restored_id)
        self.assertEqual([], self._wait_until_gone(restored.remaining))

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a017')
    def test_survives_its_instance(self):
        """Delete the database, restore it, delete the backup and the copy; nothing is left."""
        rows = self.write_rows()
        backup = self.back_up('to-survive')
        source = self.traces_of(self.instance_id)
        self._delete_instance(self.instance_id)
        self.assertEqual('COMPLETED', self.backups.show(backup['id'])['status'])

        restored_id = self._restore(backup)
        self.assertEqual(rows, self.rows(self.database_of(restored_id)))
        restored = self.traces_of(restored_id)
        # The restored volume reads from the backup.
        self.backups.delete(backup['id'])
        self.assertEqual(rows, self.rows(self.database_of(restored_id)))

        began = time.monotonic()
        self._delete_instance(restored_id)
        remaining = self._wait_until_gone(lambda: [*source.remaining(), *restored.remaining()])
        self.record('deletion', {'seconds': round(time.monotonic() - began, 1)})
        self.assertEqual([], remaining)

    def _request_restore(self, backup, volume):
        return self.create_instance(backup_id=backup['id'], create_user=False, volume=volume)

    def _restore(self, backup, volume=None):
        """Restore a backup to a database, which has the users of the backup; return its id."""
        began = time.monotonic()
        instance = self._request_restore(backup, volume)
        self.wait_for_instance_status(
            instance['id'],
            expected_op_status=['HEALTHY'],
            timeout=CONF.database.database_restore_timeout,
        )
        elapsed = round(time.monotonic() - began, 1)
        self.record('restore', {'seconds_to_healthy': elapsed})
        self.database_of(instance['id']).wait_reachable(CONF.trove_ceph.connect_timeout_sec)
        return instance['id']

    def _delete_instance(self, instance_id):
        self.client.delete_resource('instances', instance_id)
        self.assertEqual([], self._wait_until_gone(lambda: self._statuses(instance_id)))

    def _statuses(self, instance_id):
        try:
            return [self.client.get_resource('instances', instance_id)['instance']['status']]
        except exceptions.NotFound:
            return []

    def _volume_of(self, instance_id):
        """Return the volume: its size in GiB, and the file system's total from the guest."""
        path = 'mgmt/instances'
        return self.admin_client.get_resource(path, instance_id)['instance']['volume']

    def _assert_gone_from_ceph(self, image):
        if self.cluster:
            pool, _, name = image.partition('/')
            found = self._wait_until_gone(
                lambda: [image] if self.cluster.find_image(pool, name) else []
            )
            self.assertEqual([], found)

    def _wait_until_gone(self, find_remaining):
        """Wait until no resource remains, and return those that remain after the timeout."""
        deadline = time.monotonic() + max(RECLAIM_SEC, CONF.trove_ceph.delete_timeout_sec)
        while (remaining := find_remaining()) and time.monotonic() < deadline:
            time.sleep(POLL_SEC)
        return remaining


def load_tests(loader, tests, pattern):
    return base.on_volume_types(loader, everywhere=None, first=TestBackups)
