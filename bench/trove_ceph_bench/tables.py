# SPDX-License-Identifier: Apache-2.0
"""Fill sysbench's tables in a target's schema to match a dataset.

A register table lists the tables that the benchmark created, with their row counts. The row count
is NULL until a table is filled, so that an incompletely filled table is never measured.
"""

import contextlib
from collections.abc import Iterator

import pymysql

from trove_ceph import exceptions
from trove_ceph_bench import model, sysbench

REGISTER = 'bench_tables'
#: All of sysbench's OLTP scripts share one table layout.
_LAYOUT = model.Workload('fill', 'fills tables', 'oltp_read_write')
_COLUMNS = (('id', 'int'), ('k', 'int'), ('c', 'char(120)'), ('pad', 'char(60)'))
_FILL_THREADS = 4
_CONNECT_TIMEOUT_SEC = 10

_CREATE_REGISTER = (
    f'CREATE TABLE IF NOT EXISTS {REGISTER} (name VARCHAR(64) PRIMARY KEY, row_count BIGINT)'
)


class Tables:
    """The tables in one schema."""

    def __init__(self, address: model.Address):
        self._address = address

    def ensure(self, dataset: model.Dataset) -> bool:
        """Ensure that the tables hold a dataset; reuse tables with the same columns and row count.

        :returns: whether the tables were filled by this call
        :raises TargetUnavailableError: the server cannot be used, or the schema has a table of
            sysbench's names that the benchmark did not create
        :raises LoadFailedError: sysbench failed to fill a table
        """
        names = [f'sbtest{number}' for number in range(1, dataset.tables + 1)]
        with self._connection() as cursor:
            cursor.execute(_CREATE_REGISTER)
            ours = self._ours(cursor)
            self._refuse_foreign(cursor, ours)
            if sorted(ours) == sorted(names) and all(
                _holds(cursor, name, dataset.rows) for name in names
            ):
                return False
            for name in ours:
                cursor.execute(f'DROP TABLE IF EXISTS {name}')
            cursor.execute(f'DELETE FROM {REGISTER}')
            cursor.executemany(f'INSERT INTO {REGISTER} (name) VALUES (%s)', names)
        sysbench.Sysbench(self._address, _LAYOUT, dataset).prepare(_FILL_THREADS)
        with self._connection() as cursor:
            # Otherwise the statistics lag behind, and with them query plans and reported sizes.
            cursor.execute(f'ANALYZE TABLE {", ".join(names)}')
            cursor.execute(f'UPDATE {REGISTER} SET row_count = %s', (dataset.rows,))
        return True

    def _ours(self, cursor: pymysql.cursors.Cursor) -> dict[str, int | None]:
        cursor.execute(f'SELECT name, row_count FROM {REGISTER}')
        return dict(cursor.fetchall())

    def _refuse_foreign(self, cursor: pymysql.cursors.Cursor, ours: dict[str, int | None]) -> None:
        cursor.execute("SHOW TABLES LIKE 'sbtest%%'")
        foreign = sorted({name for (name,) in cursor.fetchall()} - set(ours))
        if foreign:
            raise exceptions.TargetUnavailableError(
                f'schema {self._address.database} has a table {foreign[0]} that this benchmark did '
                f'not create; remove it, or name another schema'
            )

    @contextlib.contextmanager
    def _connection(self) -> Iterator[pymysql.cursors.Cursor]:
        address = self._address
        try:
            with pymysql.connect(
                **address.login(),
                connect_timeout=_CONNECT_TIMEOUT_SEC,
                autocommit=True,
            ) as connection:
                with connection.cursor() as cursor:
                    yield cursor
        except pymysql.MySQLError as error:
            raise exceptions.TargetUnavailableError(
                f'schema {address.database} of {address.unix_socket or address.host} cannot be '
                f'used as {address.user}: {error}'
            ) from error


def _holds(cursor: pymysql.cursors.Cursor, name: str, rows: int) -> bool:
    """Return whether a table has sysbench's columns and index, and this number of rows."""
    cursor.execute('SHOW TABLES LIKE %s', (name,))
    if not cursor.fetchall():
        return False
    cursor.execute(f'DESCRIBE {name}')
    described = cursor.fetchall()
    if tuple((column[0], column[1]) for column in described) != _COLUMNS:
        return False
    keys = [column[3] for column in described]
    cursor.execute(f'SELECT COUNT(*) FROM {name}')
    return keys[:2] == ['PRI', 'MUL'] and cursor.fetchall() == ((rows,),)
