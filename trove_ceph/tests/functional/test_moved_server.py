# SPDX-License-Identifier: Apache-2.0
"""A real server that was killed keeps its identity, even if Trove lost its account."""

import pymysql

from trove_ceph.guestagent import moved_server
from trove_ceph.tests.functional import base, mysqld

NEW = {'root': 'new-root-1A', 'os_admin': 'new-admin-1A'}
INIT_FILE = 'init-file.sql'
ACCESS_DENIED = 1045

FILL = """
CREATE DATABASE shop
CREATE TABLE shop.orders (number INT PRIMARY KEY)
INSERT INTO shop.orders VALUES (1), (2), (3)
CREATE USER 'root'@'%' IDENTIFIED BY 'of-the-tenant-1A'
CREATE USER 'os_admin'@'localhost' IDENTIFIED BY 'changed-1A' ACCOUNT LOCK
CHANGE REPLICATION SOURCE TO SOURCE_HOST = '192.0.2.1', SOURCE_USER = 'slave_1'
ALTER USER 'root'@'localhost' IDENTIFIED BY 'changed-1A'
""".strip()
STATE = (
    'SELECT @@server_uuid',
    'SELECT @@GLOBAL.gtid_executed',
    'SELECT COUNT(*) FROM shop.orders',
    "SELECT authentication_string FROM mysql.user WHERE User = 'root' AND Host = '%'",
    "SELECT Host, User_name FROM mysql.slave_master_info WHERE Host <> ''",
)


class MovedServerTest(base.FunctionalTestCase):
    def setUp(self):
        super().setUp()
        volume = self.directory / 'volume'
        volume.mkdir()
        self.server = mysqld.durable_server(volume, self.directory / 'r')
        with self.server:
            with self.server.connect() as connection, connection.cursor() as cursor:
                for statement in FILL.splitlines():
                    cursor.execute(statement)
            self.state = self._state({'user': 'root', 'password': 'changed-1A'})
            self.server.kill()

    def _state(self, login):
        with self.server.connect(**login) as connection, connection.cursor() as cursor:
            rows = []
            for statement in STATE:
                cursor.execute(statement)
                rows.append(cursor.fetchall())
            return rows

    def test_trove_gets_new_passwords_and_all_else_stays(self):
        error = self.assertRaises(
            pymysql.err.OperationalError, self._start_and_log_in, 'os_admin', 'of-the-file'
        )
        self.assertIn(error.args[0], (ACCESS_DENIED, 3118))
        self.server.stop()
        path = self.directory / 'r' / INIT_FILE
        statements = moved_server.repair_statements(NEW['root'], NEW['os_admin'])
        path.write_text(''.join(f'{statement};\n' for statement in statements))
        self.server.options['init_file'] = f'/run/mysqld/{INIT_FILE}'
        with self.server:
            for user, password in NEW.items():
                self.assertEqual(self.state, self._state({'user': user, 'password': password}))

    def _start_and_log_in(self, user, password):
        self.server.start()
        self.server.connect(user=user, password=password)
