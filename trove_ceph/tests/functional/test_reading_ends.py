# SPDX-License-Identifier: Apache-2.0
"""The rows of large tables that a real server reads, for all kinds of indexes."""

from trove_ceph.mysql import sql
from trove_ceph.tests.functional import base, mysqld
from trove_ceph.verification import data_directory, server

ROWS = 20_000
TABLES = {
    'plain': 'id INT AUTO_INCREMENT PRIMARY KEY, note CHAR(200), KEY (note)',
    'backwards': 'id INT, day INT, PRIMARY KEY (day DESC, id), note CHAR(200), KEY (id, note DESC)',
    'odd`name': '`an``id` INT PRIMARY KEY, day INT, note CHAR(200), UNIQUE KEY (`an``id`, day)',
    'begins': 'id CHAR(9), note CHAR(90), day INT, PRIMARY KEY (id(8)), KEY ((day + 1)), KEY (day)',
    'nothing': 'id INT, note CHAR(200)',
    'hidden': 'id INT PRIMARY KEY, day INT, note CHAR(200), KEY (day) INVISIBLE, FULLTEXT (note)',
    'partitioned': 'id INT PRIMARY KEY, note CHAR(200), KEY (note)',
}
FOUND = data_directory.DataDirectory(0, 0, (9, 7, 4), 16384, 'ibdata1:12M:autoextend', 'binlog')


class ReadingEndsTest(base.FunctionalTestCase):
    def setUp(self):
        super().setUp()
        volume = self.directory / 'volume'
        volume.mkdir()
        self.mysqld = mysqld.durable_server(volume, self.directory / 'run')
        self.mysqld.ensure_initialised()
        self.enterContext(self.mysqld)
        self.server = server.Server(self.mysqld, FOUND)
        self.mysqld.query('CREATE DATABASE shop')

    def rows_read(self):
        found = self.mysqld.query("SHOW GLOBAL STATUS LIKE 'Handler_read%%'")
        self.assertNotEqual((), found)
        return sum(int(count) for _, count in found)

    def fill(self, name, definition):
        quoted = server.Table('shop', name).quoted
        parts = ' PARTITION BY HASH (id) PARTITIONS 4' if name == 'partitioned' else ''
        self.mysqld.query(f'CREATE TABLE {quoted} ({definition}){parts}')
        columns = [column for column, *_ in self.mysqld.query(f'SHOW COLUMNS FROM {quoted}')]
        values = ['LPAD(n, 9, 0)' if column == 'note' else 'n' for column in columns]
        names = ', '.join(sql.quoted(column) for column in columns)
        self.mysqld.query(
            f'INSERT INTO {quoted} ({names}) WITH RECURSIVE numbers (n) AS '
            f'(SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {ROWS}) '
            f'SELECT /*+ SET_VAR(cte_max_recursion_depth = {ROWS}) */ {", ".join(values)} '
            'FROM numbers'
        )
        self.mysqld.query(f'ANALYZE TABLE {quoted}')

    def test_reads_few_rows_of_tables_with_any_indexes(self):
        for name, definition in TABLES.items():
            self.fill(name, definition)
        tables = {table.name: table for table in self.server.tables() if table.schema == 'shop'}
        self.assertEqual(set(TABLES), set(tables))
        for name, table in tables.items():
            self.assertGreater(table.bytes, ROWS * 9)
            self.assertGreater(table.row_bytes, 9)
            before = self.rows_read()
            self.server.read_ends(table, 1000 * table.row_bytes)
            few = self.rows_read() - before
            before = self.rows_read()
            self.server.read_ends(table, 4000 * table.row_bytes)
            more = self.rows_read() - before

            # Each row counts twice, because found rows are counted again. The dictionary counts,
            # too.
            self.assertGreater(more - few, 2500, name)
            self.assertLess(more, 10_000, name)
