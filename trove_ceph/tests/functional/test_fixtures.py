# SPDX-License-Identifier: Apache-2.0
"""The fixtures that let functional tests run in parallel."""

import subprocess
import sys

import rbd

from trove_ceph.tests.functional import base, ceph, mysqld, ports, test_mysql_on_rbd

RESERVE = (
    'import sys; from trove_ceph.tests.functional import ports; ports.reserve(int(sys.argv[1]))'
)


class PortsTest(base.FunctionalTestCase):
    def test_no_other_worker_gets_the_same_ports(self):
        first, second = ports.free_ports(2)
        self.assertNotEqual(first, second)
        for port in (first, second):
            self.assertRaises(OSError, ports.reserve, port)
            command = [sys.executable, '-W', 'ignore', '-c', RESERVE, str(port)]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
            self.assertIn('Address already in use', ended.stderr)


class DurableServerTest(base.FunctionalTestCase):
    def test_each_server_has_its_own_identity(self):
        uuids = set()
        for name in ('one', 'two'):
            volume = self.directory / name
            volume.mkdir()
            with mysqld.durable_server(volume, volume / 'run') as server:
                ((uuid, done),) = server.query('SELECT @@server_uuid, @@GLOBAL.gtid_executed')
                self.assertEqual('', done)
                uuids.add(uuid)
        self.assertEqual(2, len(uuids))


class MountedTest(base.FunctionalTestCase):
    def test_files_are_on_the_image_though_another_namespace_keeps_the_mount(self):
        cluster = ceph.shared_cluster()
        name = self.directory.name
        cluster.create_image(test_mysql_on_rbd.POOL, name, 512)
        self.addCleanup(self._remove, cluster, name)
        with test_mysql_on_rbd.mounted(cluster, name, self.directory / 'first', make=True) as path:
            (path / 'file').write_bytes(b'x' * 100_000)
            keeper = subprocess.Popen(
                ['unshare', '--mount', 'sh', '-c', 'echo; exec sleep infinity'],
                stdout=subprocess.PIPE,
            )
            self.addCleanup(keeper.wait)
            self.addCleanup(keeper.kill)
            keeper.stdout.readline()

        with test_mysql_on_rbd.mounted(cluster, name, self.directory / 'second') as path:
            self.assertEqual(b'x' * 100_000, (path / 'file').read_bytes())

    @staticmethod
    def _remove(cluster, name):
        with cluster.pool(test_mysql_on_rbd.POOL) as pool:
            rbd.RBD().remove(pool, name)
