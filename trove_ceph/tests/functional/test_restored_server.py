# SPDX-License-Identifier: Apache-2.0
"""A real server on the volume of another one gets a new identity and keeps everything else."""

import contextlib
import subprocess

import pymysql

from trove_ceph.guestagent import restored_server
from trove_ceph.tests.functional import base, mysqld

OLD = 'of-the-source-1A'
NEW = restored_server.Passwords('new-root-1A', 'new-admin-1A', 'new-remote-1A')
APP = {'user': 'app', 'password': 'of-the-tenant-1A'}
INIT_FILE = 'restored.sql'
ACCESS_DENIED = 1045

FILL = f"""
CREATE DATABASE shop
CREATE TABLE shop.orders (number INT PRIMARY KEY)
INSERT INTO shop.orders VALUES (1), (2), (3)
CREATE USER 'app'@'%' IDENTIFIED BY '{APP['password']}'
GRANT ALL ON shop.* TO 'app'@'%'
CREATE USER 'root'@'%' IDENTIFIED BY '{OLD}', 'root'@'10.0.0.%' IDENTIFIED BY '{OLD}'
CREATE USER 'os_admin'@'localhost' IDENTIFIED BY '{OLD}' ACCOUNT LOCK
CHANGE REPLICATION SOURCE TO SOURCE_HOST = '192.0.2.1', SOURCE_USER = 'slave_1'
ALTER USER 'root'@'localhost' IDENTIFIED BY '{OLD}'
""".strip()


class RestoredServerTest(base.FunctionalTestCase):
    def setUp(self):
        super().setUp()
        source = mysqld.durable_server(self._volume('source'), self.directory / 's')
        with source:
            with source.connect() as connection, connection.cursor() as cursor:
                for statement in FILL.splitlines():
                    cursor.execute(statement)
            root = {'user': 'root', 'password': OLD}
            self.uuid, self.gtid_executed = self._identity(source, root)
            self.remote = self._remote_passwords(source, root)
            # The state that a snapshot would have.
            source.kill()
        volume = self._volume('restored')
        subprocess.run(['cp', '-a', '--', str(source.data), str(volume)], check=True)
        self.server = mysqld.durable_server(volume, self.directory / 'r', server_id=2)
        mysqld.remove_server_uuid(self.server)
        self.server.prepare_run()

    def _volume(self, name):
        volume = self.directory / name
        volume.mkdir()
        return volume

    @contextlib.contextmanager
    def _first_start(self, statements):
        """Have the server read an init file, as in a guest except for its path."""
        path = self.directory / 'r' / INIT_FILE
        path.write_text(''.join(f'{statement};\n' for statement in statements))
        own = {'init_file': f'/run/mysqld/{INIT_FILE}', **restored_server.OPTIONS}
        before = dict(self.server.options)
        self.server.options.update(own)
        self.server.start()
        try:
            yield
        finally:
            self.server.stop()
            path.unlink()
            self.server.options = before

    def _query(self, server, login, statement):
        with server.connect(**login) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()

    def _identity(self, server, login):
        ((uuid, gtid_executed),) = self._query(
            server, login, 'SELECT @@server_uuid, @@GLOBAL.gtid_executed'
        )
        return uuid, gtid_executed

    def _remote_passwords(self, server, login):
        rows = self._query(
            server,
            login,
            'SELECT Host, authentication_string FROM mysql.user '
            "WHERE User = 'root' AND Host <> 'localhost'",
        )
        return dict(rows)

    def _is_denied(self, user, password):
        try:
            self.server.connect(user=user, password=password).close()
        except pymysql.err.OperationalError as error:
            self.assertEqual(ACCESS_DENIED, error.args[0])
            return True
        return False

    def _check(self):
        admin = {'user': 'os_admin', 'password': NEW.admin}
        uuid, gtid_executed = self._identity(self.server, admin)
        self.assertNotEqual(self.uuid, uuid)
        self.assertEqual(self.gtid_executed, gtid_executed)
        self.assertEqual((), self._query(self.server, admin, 'SHOW REPLICA STATUS'))
        self._identity(self.server, {'user': 'root', 'password': NEW.root})
        for user in ('root', 'os_admin'):
            self.assertTrue(self._is_denied(user, OLD), user)
        remote = self._remote_passwords(self.server, admin)
        self.assertEqual(self.remote.keys(), remote.keys())
        self.assertEqual(set(), set(self.remote.values()) & set(remote.values()))
        rows = self._query(self.server, APP, 'SELECT COUNT(*) FROM shop.orders')
        self.assertEqual(((3,),), rows)

    def test_only_the_identity_is_new(self):
        """Defect 11: root's password comes with the volume."""
        # A statement that fails ends the file and not the server.
        with self._first_start(['CREATE NONSENSE', *restored_server.statements(NEW)]):
            self.assertTrue(self._is_denied('os_admin', NEW.admin))
        with self._first_start(restored_server.statements(NEW)):
            self._check()
        with self.server:
            self._check()
            # Later transactions are its own.
            self._query(self.server, APP, 'INSERT INTO shop.orders VALUES (4)')
            uuid, gtid_executed = self._identity(
                self.server, {'user': 'os_admin', 'password': NEW.admin}
            )
            self.assertIn(f'{uuid}:1', gtid_executed.replace('\n', '').split(','))
