# SPDX-License-Identifier: Apache-2.0
"""MySQL's side of bringing an instance to rest: locks that one connection holds."""

import collections.abc
import contextlib

import pymysql
from pymysql.constants import ER
from trove.common import exception as trove_exceptions

from trove_ceph import exceptions
from trove_ceph.mysql import sql

Connect = collections.abc.Callable[[int], pymysql.connections.Connection]

#: What a statement may take besides waiting for a lock.
STATEMENT_SEC = 10

_OWN_SCHEMAS = ('mysql', 'sys', 'information_schema', 'performance_schema')
# Their tables hold nothing on the volume that a restart would keep.
_WITHOUT_DATA = ('MEMORY', 'BLACKHOLE', 'FEDERATED', 'PERFORMANCE_SCHEMA')


class BackupLock:
    """LOCK INSTANCE FOR BACKUP, on a connection that nobody else uses.

    The server gives the locks back by itself when the connection ends, as it does with this
    process, and when nothing was heard on it for ``hold_sec``.

    :param connect: opens a connection, given the seconds that a statement may take
    :param wait_sec: how long to wait for statements that are in the way
    :param hold_sec: how long the server waits for us
    :raises NotQuiescedError: the server does not answer
    """

    def __init__(self, connect: Connect, wait_sec: int, hold_sec: int):
        self._wait_sec = wait_sec
        try:
            self._connection = connect(wait_sec + STATEMENT_SEC)
        except (pymysql.MySQLError, trove_exceptions.TroveError) as error:
            raise exceptions.NotQuiescedError(f'MySQL does not answer: {error}') from error
        try:
            self._execute(
                f'SET SESSION lock_wait_timeout = {wait_sec}, SESSION wait_timeout = {hold_sec}, '
                f'SESSION max_execution_time = {STATEMENT_SEC * 1000}'
            )
        except BaseException:
            self.close()
            raise

    def lock_instance(self) -> None:
        """Keep out statements that change definitions or files; rows may be changed.

        Waits for those that run, at most ``wait_sec``; who changes rows waits for nothing.

        :raises NotQuiescedError: some ran on for longer
        """
        self._execute('LOCK INSTANCE FOR BACKUP')

    def lock_plain_tables(self) -> int:
        """Write out tables that cannot be recovered, keep their writers out, return how many.

        A table is written out when no statement uses it. Waits for those that do, at most
        ``wait_sec``; meanwhile new ones on the same table wait as well. All other tables are left
        alone.

        :raises NotQuiescedError: some statement ran on for longer
        """
        with self._translated(), self._connection.cursor() as cursor:
            tables = non_transactional_tables(cursor)
            if tables:
                names = ', '.join(sql.quoted(*table) for table in tables)
                cursor.execute(f'FLUSH TABLES {names} WITH READ LOCK')
        return len(tables)

    def is_held(self) -> bool:
        """Ask the server whether the connection is still there."""
        try:
            self._connection.ping(reconnect=False)
        except pymysql.MySQLError:
            return False
        return True

    def unlock(self) -> str:
        """Give the locks back, and return why they were not held until now; empty if they were."""
        try:
            self._execute('UNLOCK TABLES')
            self._execute('UNLOCK INSTANCE')
        except exceptions.NotQuiescedError as error:
            return str(error)
        return ''

    def close(self) -> None:
        """End the connection, and with it the locks; harmless when repeated."""
        with contextlib.suppress(pymysql.MySQLError):
            self._connection.close()

    def _execute(self, statement: str) -> None:
        with self._translated(), self._connection.cursor() as cursor:
            cursor.execute(statement)

    @contextlib.contextmanager
    def _translated(self) -> collections.abc.Iterator[None]:
        try:
            yield
        except pymysql.MySQLError as error:
            if error.args[:1] == (ER.LOCK_WAIT_TIMEOUT,):
                raise exceptions.NotQuiescedError(
                    'A statement that must not run during a backup, or that reads or writes a '
                    f'table which must be at rest, had not ended after {self._wait_sec} s'
                ) from error
            raise exceptions.NotQuiescedError(f'MySQL does not hold the lock: {error}') from error


def non_transactional_tables(cursor: pymysql.cursors.Cursor) -> list[tuple[str, str]]:
    """Return schema and name of tenants' tables whose engine recovers nothing after a crash."""
    cursor.execute(
        'SELECT ENGINE FROM information_schema.ENGINES '
        "WHERE COALESCE(TRANSACTIONS, 'NO') <> 'YES' AND ENGINE NOT IN %s",
        (_WITHOUT_DATA,),
    )
    engines = [engine for (engine,) in cursor.fetchall()]
    cursor.execute(
        'SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES '
        "WHERE TABLE_TYPE = 'BASE TABLE' AND ENGINE IN %s AND TABLE_SCHEMA NOT IN %s "
        'ORDER BY TABLE_SCHEMA, TABLE_NAME',
        (engines, _OWN_SCHEMAS),
    )
    return list(cursor.fetchall())
