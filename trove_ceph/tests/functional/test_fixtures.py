# SPDX-License-Identifier: Apache-2.0
"""The fixtures that let functional tests run in parallel."""

import subprocess
import sys

from trove_ceph.tests.functional import base, ceph, mysqld

RESERVE = (
    'import sys; from trove_ceph.tests.functional import ceph; ceph._reserve(int(sys.argv[1]))'
)


class PortsTest(base.FunctionalTestCase):
    def test_no_other_worker_gets_the_same_ports(self):
        first, second = ceph.free_ports()
        self.assertNotEqual(first, second)
        for port in (first, second):
            self.assertRaises(OSError, ceph._reserve, port)
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
