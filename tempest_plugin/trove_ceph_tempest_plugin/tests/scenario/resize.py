# SPDX-License-Identifier: Apache-2.0
"""A tenant resizes the volume, then the flavor, while clients work."""

from concurrent import futures

from tempest import config
from tempest.lib import decorators

from trove_ceph_tempest_plugin import load
from trove_ceph_tempest_plugin.tests import base

CONF = config.CONF


class ResizeScenario(base.DatabaseTest):
    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a005')
    def test_resize_volume(self):
        """The volume and its file system grow; no client notices."""
        options = CONF.trove_ceph
        size = self._volume()['size'] + 1
        file_system_gib = self._volume()['total']
        uptime = self.database.uptime_sec()
        mixed = self.prepare_load('mixed-70-30')
        with (
            futures.ThreadPoolExecutor() as executor,
            load.Client(self.database.address) as client,
        ):
            running = executor.submit(mixed.run, options.sysbench_threads, options.sysbench_seconds)
            elapsed = self.act({'resize': {'volume': {'size': size}}})
            figures = client.figures()
        self.record('resize', {'seconds_to_healthy': elapsed})
        self.record('client', figures)
        self.record('load', running.result())
        self.assertEqual(size, self._volume()['size'])
        self.assertGreater(self._volume()['total'], file_system_gib + 0.5)
        self.assertEqual(0, figures['errors'])
        self.assertGreaterEqual(self.database.uptime_sec(), uptime + int(elapsed))

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a006')
    def test_resize_flavor(self):
        """The server restarts on the larger flavor, uses its memory, and loses no row."""
        flavor = CONF.trove_ceph.resize_flavor_id or CONF.database.resize_flavor_id
        pool_before = int(self.database.variable('innodb_buffer_pool_size'))
        rows = self.write_rows()
        with load.Client(self.database.address) as client:
            elapsed = self.act({'resize': {'flavorRef': flavor}})
            self.database.wait_reachable(CONF.trove_ceph.connect_timeout_sec)
            figures = client.figures()
        self.record('resize', {'seconds_to_healthy': elapsed})
        self.record('client', figures)
        instance = self.admin_client.get_resource('instances', self.instance_id)['instance']
        self.assertEqual(flavor, instance['flavor']['id'])
        server = self.os_admin.servers_client.show_server(instance['server_id'])['server']
        self.assertEqual('ACTIVE', server['status'])
        self.assertGreater(int(self.database.variable('innodb_buffer_pool_size')), pool_before)
        self.assertEqual(rows, self.rows())

    def _volume(self):
        """Return the volume: its size in GiB, and the file system's total from the guest."""
        return self.admin_client.get_resource('mgmt/instances', self.instance_id)['instance'][
            'volume'
        ]
