# SPDX-License-Identifier: Apache-2.0
"""A database on a hot guest, on which MySQL ran before it was requested."""

import time

from tempest import config
from tempest.lib import decorators

from trove_ceph_tempest_plugin import guests
from trove_ceph_tempest_plugin.tests import base
from trove_ceph_tempest_plugin.tests.scenario import backup, deletion, rebuild, resize

CONF = config.CONF


class TestHotGuests(
    backup.BackupTestCase,
    rebuild.RebuildTestCase,
    resize.ResizeScenario,
    deletion.DeletionScenario,
):
    """The database of the class is created when a hot guest waits for it."""

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        if not CONF.trove_ceph.guests_command or not CONF.trove_ceph.hot_guests:
            raise cls.skipException('[trove_ceph] hot_guests and guests_command are not set')

    @classmethod
    def resource_setup(cls):
        cls.pool = guests.pool(CONF.trove_ceph.guests_command)
        cls.waited = cls.pool.await_ready(CONF.trove_ceph.guest_timeout_sec, 'hot')
        super().resource_setup()

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a074')
    def test_created_hot(self):
        """The database has the guest that was hot, a server of its own, and its tenant's data."""
        self.record('created', {'seconds_to_healthy': self.created_sec})
        self.assertTrue(
            self.pool.is_bound_to(self.instance_id, self.waited),
            f'instance {self.instance_id} has none of the hot guests: {", ".join(self.waited)}',
        )
        instance, server = self.server()
        self.assertEqual(instance['name'], server['name'])
        # Nothing of the time before the request is in its history.
        own = self.database.variable('server_uuid')
        executed = self.database.variable('gtid_executed')
        self.assertEqual({own}, {one.strip().partition(':')[0] for one in executed.split(',')})
        rows = self.write_rows()
        self.assertEqual(rows, self.rows())

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a075')
    def test_backed_up_hot(self):
        """A backup of it is as of any database, and its deletion leaves nothing."""
        self.require_backups()
        self.write_rows()
        before = self.snapshots()
        stored = self.back_up('hot')
        self.assertEqual(1, len(self.snapshots() - before))
        self.backups.delete(stored['id'])
        self.assertEqual(before, self.snapshots())

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a0f2')
    def test_larger_created_hot(self):
        """A larger database has a hot guest, too, and MySQL was not started for it."""
        waited = self.pool.await_ready(CONF.trove_ceph.guest_timeout_sec, 'hot')
        size = CONF.trove_ceph.volume_size_gib + 1
        requested = time.monotonic()
        larger_id = self.create_instance(volume={'size': size})['id']
        self.wait_for_instance_status(larger_id, expected_op_status=['HEALTHY'])
        created_sec = time.monotonic() - requested
        self.record('created', {'seconds_to_healthy': round(created_sec, 1)})
        self.assertTrue(
            self.pool.is_bound_to(larger_id, waited),
            f'instance {larger_id} has none of the hot guests: {", ".join(waited)}',
        )
        volume = self.admin_client.get_resource('mgmt/instances', larger_id)['instance']['volume']
        self.assertEqual(size, volume['size'])
        self.assertGreater(volume['total'], size - 0.5)
        database = self.database_of(larger_id)
        self.assertGreater(database.uptime_sec(), created_sec)
        self.wait_for_instance_status(larger_id, need_delete=True, expected_status='DELETED')


def load_tests(loader, tests, pattern):
    return base.on_volume_types(loader, everywhere=None, first=TestHotGuests)
