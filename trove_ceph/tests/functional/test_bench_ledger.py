# SPDX-License-Identifier: Apache-2.0
"""The ledger of a client of a real server that is killed."""

import pymysql

from trove_ceph.tests.functional import base, mysqld, ports
from trove_ceph_bench import ledger, model

DATABASE = 'shop'
HOST = '127.0.0.1'


class LedgerTest(base.FunctionalTestCase):
    def setUp(self):
        super().setUp()
        volume = self.directory / 'volume'
        volume.mkdir()
        port = ports.free_port()
        server = mysqld.durable_server(volume, self.directory / 'run')
        server.options |= {'skip_networking': False, 'bind_address': HOST, 'port': port}
        self.server = self.enterContext(server)
        for statement in (
            f'CREATE DATABASE {DATABASE}',
            "CREATE USER u IDENTIFIED BY 'p'",
            f'GRANT ALL ON {DATABASE}.* TO u',
        ):
            self.server.query(statement)
        self.client = ledger.Client(model.Address('u', 'p', DATABASE, port=port))

    def test_remembers_what_a_killed_server_has_acknowledged(self):
        self.assertEqual(0, self.client.commit(HOST))
        with ledger.Writer(self.client, HOST) as writer:
            writer.wait_for(20)
            self.server.kill()
        self.assertIsInstance(writer.error, pymysql.MySQLError)
        self.assertIsNone(self.client.commit(HOST))

        self.server.start()

        # The commit that the kill interrupted may be there or not.
        self.assertIsNotNone(self.client.commit(HOST))
        found, acknowledged = self.client.numbers(HOST), set(writer.acknowledged)
        self.assertLessEqual(acknowledged, found)
        self.assertLessEqual(found, acknowledged | {len(acknowledged) + 1})
