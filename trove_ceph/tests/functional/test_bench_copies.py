# SPDX-License-Identifier: Apache-2.0
"""MySQL's own copy methods on real servers, with which backups are compared."""

import pymysql
from pymysql.constants import ER

from trove_ceph.tests.functional import base, mysqld, ports
from trove_ceph_bench import model, mysql_operations

DATABASE = 'trove_ceph_bench_1'


class CopiesTest(base.FunctionalTestCase):
    def setUp(self):
        super().setUp()
        volume = self.directory / 'volume'
        volume.mkdir()
        port = ports.free_port()
        source = mysqld.durable_server(volume, self.directory / 'run')
        source.options |= {'skip_networking': False, 'bind_address': '127.0.0.1', 'port': port}
        self.source = self.enterContext(source)
        for statement in (
            f'CREATE DATABASE {DATABASE}',
            f'CREATE TABLE {DATABASE}.t (id INT PRIMARY KEY)',
            f'INSERT INTO {DATABASE}.t VALUES (1), (2)',
            "CREATE USER u IDENTIFIED BY 'p'",
            f'GRANT ALL ON {DATABASE}.* TO u',
            "CREATE USER boss IDENTIFIED BY 'x'",
            'GRANT ALL ON *.* TO boss WITH GRANT OPTION',
        ):
            self.source.query(statement)
        self.phases = []
        self.operations = mysql_operations.Operations(
            model.Address('u', 'p', DATABASE, port=port),
            mysqld.rootfs(),
            self.phases.append,
            lambda instance: ('boss', 'x'),
        )

    def test_probes_and_dumps_a_server(self):
        self.operations.probe()
        with self.source.connect() as holder, holder.cursor() as cursor:
            cursor.execute('LOCK INSTANCE FOR BACKUP')
            error = self.assertRaises(pymysql.MySQLError, self.operations.probe)
        self.assertEqual(ER.LOCK_WAIT_TIMEOUT, error.args[0])
        dump, restored = self.directory / 'dump.sql', self.directory / 'restored'
        self.operations.dump(dump)
        self.operations.initialise(restored)
        self.operations.load(dump, restored)
        self.assertEqual(['answers', 'loaded'], self.phases)
        with self.operations._serving(restored) as server:
            self.assertEqual(((2,),), server.query('SELECT COUNT(*) FROM dumped.t'))

    def test_clone_starts_and_the_donor_is_unchanged(self):
        users = 'SELECT user FROM mysql.user ORDER BY user'
        before = self.source.query(users)
        copy = self.directory / 'copy'
        self.operations.prepare_clone('shop', copy)
        self.operations.clone(copy)
        self.operations.start(copy)
        self.assertEqual(['answers', 'copied', 'answers'], self.phases)
        with self.operations._serving(copy) as server:
            with server.connect(user='boss', password='x') as connection:
                with connection.cursor() as cursor:
                    cursor.execute(f'SELECT COUNT(*) FROM {DATABASE}.t')
                    self.assertEqual(((2,),), cursor.fetchall())
        self.operations.end_clone('shop', copy)
        self.assertEqual(before, self.source.query(users))
        self.assertFalse(copy.exists())
