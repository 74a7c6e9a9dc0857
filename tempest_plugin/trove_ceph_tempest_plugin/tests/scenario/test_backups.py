# SPDX-License-Identifier: Apache-2.0
"""What a backup is for: copies that are known to restore, and databases made of them."""

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
#: What is left is looked for every five minutes, and what was in use then the time after.
RECLAIM_SEC = 900


class TestBackups(backup.BackupTestCase):
    """Each test is a journey; the last one deletes the class's database."""

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        if not CONF.trove_ceph.backups:
            raise cls.skipException('[trove_ceph] backups is not set')

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a015')
    def test_copied_and_verified(self):
        """The second copy moves what changed; without its parent it is as good as before."""
        self.require_backups(details=True)
        self.write_rows()
        first = self.take('first')
        self._copy_and_verify('first', first)
        self.write_rows()
        second = self.take('second', incremental=True, parent_id=first['id'])
        self._copy_and_verify('second', second)
        moved = [self.backups.details(one['id'])['moved_bytes'] for one in (first, second)]
        self.record('moved', {'first_bytes': moved[0], 'second_bytes': moved[1]})
        self.assertLess(moved[1], moved[0])

        self.backups.delete(first['id'])

        details = self.backups.have_done('verify', second['id'])
        self.assertEqual('verified', details['state'], details['verify_error'])
        vault = self.backups_of_all.details(second['id'])['vault_place']
        self.backups.delete(second['id'])
        self._assert_gone_from_ceph(vault.partition('@')[0])

    def _copy_and_verify(self, name, taken):
        ((now,),) = self.database.query('SELECT @@GLOBAL.gtid_executed')
        copied = self.backups.have_done('copy', taken['id'])
        self.assertIn('vault', copied['places'], copied['copy_error'])
        verified = self.backups.have_done('verify', taken['id'])
        self.assertEqual('verified', verified['state'], verified['verify_error'])
        # It was complete before the position was asked for.
        ((is_part,),) = self.database.query(
            'SELECT GTID_SUBSET(%s, %s)', verified['gtid_executed'], now
        )
        self.assertEqual((True, 1), (bool(verified['gtid_executed']), is_part))
        figures = ('used_bytes', 'moved_bytes', 'copy_sec', 'verify_sec', 'verification')
        self.record(name, {figure: verified[figure] for figure in figures})

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a019')
    def test_policy(self):
        """A policy takes a backup at once, another when it is asked to, and keeps the last."""
        self.require_backups(details=True)
        policy_id = self.backups.create_policy(
            f'policy-{uuid.uuid4().hex}', self.instance_id, interval_min=1440, keep={'last': 1}
        )
        self.addCleanup(self.backups.delete_policy, policy_id)
        began = time.monotonic()
        first = self.backups.wait_for_one_of(policy_id, self.instance_id)
        took = round(time.monotonic() - began, 1)
        self.backups.run_policy(policy_id)
        second = self.backups.wait_for_one_of(policy_id, self.instance_id, but=first)
        self.record('policy', {'seconds_to_first': took})
        self.assertRaises(exceptions.NotFound, self.backups.show, first)

        self.backups.delete_policy(policy_id)
        self.backups.delete(second)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a020')
    def test_restore_from_the_vault(self):
        """The snapshot is lost: what is made of the copy is usable at once, and its own in time."""
        self.require_backups(details=True)
        kept, before = self.write_rows(), self.snapshots()
        taken = self.take('to-lose')
        (snapshot,) = self.snapshots() - before
        self.backups.have_done('copy', taken['id'])
        vault = self.backups_of_all.details(taken['id'])['vault_place']
        self._lose(snapshot.removeprefix('snapshot-'))

        try:
            restored_id = self._restore(taken)
        except exceptions.NotFound as error:
            raise self.skipException('trove-api has no remote_cinder_client of ours') from error

        self.assertEqual(kept, self.rows(self.database_of(restored_id)))
        volume_id = self.traces_of(restored_id).volume_id
        self.assertEqual([], self._wait_until_gone(lambda: self._dependence(volume_id)))
        self.backups.delete(taken['id'])
        self._assert_gone_from_ceph(vault.partition('@')[0])
        self.assertEqual(kept, self.rows(self.database_of(restored_id)))
        self._delete_instance(restored_id)

    def _lose(self, snapshot_id):
        client = self.os_admin.snapshots_client_latest
        client.delete_snapshot(snapshot_id)
        client.wait_for_resource_deletion(snapshot_id)

    def _dependence(self, volume_id):
        """Return what Cinder says of a volume that reads from another pool."""
        volume = self.os_admin.volumes_client_latest.show_volume(volume_id)['volume']
        is_dependent = volume['metadata'].get(resources.DEPENDENT_KEY) == resources.DEPENDENT
        return [volume_id] if is_dependent else []

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a016')
    def test_restore_to_a_larger_volume(self):
        """What was there at the backup is there, users included, and the file system is larger."""
        kept = self.write_rows()
        taken = self.take('to-restore')
        self.write_rows()
        volume = self._volume_of(self.instance_id)
        size, total = volume['size'] + 1, volume['total']
        if volume['size'] > 1:
            self.assertRaises(
                exceptions.Forbidden, self._ask_for, taken, {'size': volume['size'] - 1}
            )

        restored_id = self._restore(taken, {'size': size})

        restored = self.database_of(restored_id)
        self.assertEqual(kept, self.rows(restored))
        self.assertEqual(size, self._volume_of(restored_id)['size'])
        self.assertGreater(self._volume_of(restored_id)['total'], total + 0.5)
        # It is a server of its own, which the source need not be kept apart from.
        uuids = [one.variable('server_uuid') for one in (self.database, restored)]
        self.assertNotEqual(*uuids)
        self._delete_instance(restored_id)
        self.backups.delete(taken['id'])

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a018')
    def test_restore_to_another_type(self):
        """The restored volume is another back end's, and leaves nothing there."""
        _, *others = CONF.trove_ceph.volume_types
        if not others:
            raise self.skipException('[trove_ceph] volume_types has one only')
        kept = self.write_rows()
        taken = self.take('to-move')

        restored_id = self._restore(taken, {'type': others[0]})

        self.assertEqual(kept, self.rows(self.database_of(restored_id)))
        place = placement.parse(CONF.trove_ceph.placement).get(others[0])
        pool = place.pool if place else ''
        cluster = self.cluster if place else None
        restored = traces.Traces(self.os_admin, self.admin_client, restored_id, cluster, pool)
        if cluster:
            self.assertIsNotNone(cluster.find_image(pool, f'volume-{restored.volume_id}'))
        # It may be reading from the backup still.
        self.backups.delete(taken['id'])
        self.assertEqual(kept, self.rows(self.database_of(restored_id)))
        self._delete_instance(restored_id)
        self.assertEqual([], self._wait_until_gone(restored.left))

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a017')
    def test_survives_its_instance(self):
        """The database is deleted, restored, and loses its backup; at the end nothing is left."""
        kept = self.write_rows()
        taken = self.take('to-survive')
        source = self.traces_of(self.instance_id)
        self._delete_instance(self.instance_id)
        self.assertEqual('COMPLETED', self.backups.show(taken['id'])['status'])

        restored_id = self._restore(taken)
        self.assertEqual(kept, self.rows(self.database_of(restored_id)))
        restored = self.traces_of(restored_id)
        # It reads from what is deleted here.
        self.backups.delete(taken['id'])
        self.assertEqual(kept, self.rows(self.database_of(restored_id)))

        began = time.monotonic()
        self._delete_instance(restored_id)
        left = self._wait_until_gone(lambda: [*source.left(), *restored.left()])
        self.record('deletion', {'seconds': round(time.monotonic() - began, 1)})
        self.assertEqual([], left)

    def _ask_for(self, taken, volume):
        return self.create_instance(backup_id=taken['id'], create_user=False, volume=volume)

    def _restore(self, taken, volume=None):
        """Make a database of a backup, which has the users of the backup, and return its id."""
        began = time.monotonic()
        made = self._ask_for(taken, volume)
        self.wait_for_instance_status(
            made['id'],
            expected_op_status=['HEALTHY'],
            timeout=CONF.database.database_restore_timeout,
        )
        took = round(time.monotonic() - began, 1)
        self.record('restore', {'seconds_to_healthy': took})
        self.database_of(made['id']).wait_reachable(CONF.trove_ceph.connect_timeout_sec)
        return made['id']

    def _delete_instance(self, instance_id):
        self.client.delete_resource('instances', instance_id)
        self.assertEqual([], self._wait_until_gone(lambda: self._shown(instance_id)))

    def _shown(self, instance_id):
        try:
            return [self.client.get_resource('instances', instance_id)['instance']['status']]
        except exceptions.NotFound:
            return []

    def _volume_of(self, instance_id):
        """Return the size in GiB, and what the guest calls the file system's total."""
        path = 'mgmt/instances'
        return self.admin_client.get_resource(path, instance_id)['instance']['volume']

    def _assert_gone_from_ceph(self, image):
        if self.cluster:
            pool, _, name = image.partition('/')
            found = self._wait_until_gone(
                lambda: [image] if self.cluster.find_image(pool, name) else []
            )
            self.assertEqual([], found)

    def _wait_until_gone(self, find_left):
        """Return what is left in the end."""
        deadline = time.monotonic() + max(RECLAIM_SEC, CONF.trove_ceph.delete_timeout_sec)
        while (left := find_left()) and time.monotonic() < deadline:
            time.sleep(POLL_SEC)
        return left


def load_tests(loader, tests, pattern):
    return base.on_volume_types(loader, everywhere=None, first=TestBackups)
