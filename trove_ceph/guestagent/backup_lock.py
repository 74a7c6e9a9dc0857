# SPDX-License-Identifier: Apache-2.0
"""MySQL's locks for quiescing an instance, held by one connection."""

import collections.abc
import contextlib

import pymysql
from pymysql.constants import ER
from trove.common import exception as trove_exceptions

from trove_ceph import exceptions
from trove_ceph.mysql import sql

Connect = collections.abc.Callable[[int], pymysql.connections.Connection]

#: Time limit of a statement, in addition to its wait for locks.
STATEMENT_SEC = 10

_OWN_SCHEMAS = ('mysql', 'sys', 'information_schema', 'performance_schema')
# Engines whose tables keep no data on the volume.
_WITHOUT_DATA = ('MEMORY', 'BLACKHOLE', 'FEDERATED', 'PERFORMANCE_SCHEMA')


class BackupLock:
    """LOCK INSTANCE FOR BACKUP on a connection of its own.

    The server releases the locks when the connection ends, as at the end of this process, and when
    the connection is idle for ``hold_sec``.

    :param connect: opens a connection; its argument is the time limit of a statement in seconds
    :param wait_sec: how long to wait for conflicting statements
    :param hold_sec: how long the server keeps an idle connection
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
        """Block statements that change definitions or files; changes of rows go on.

        Waits at most ``wait_sec`` for running statements of that kind. Changes of rows never wait.

        :raises NotQuiescedError: such a statement did not end in time
        """
        self._execute('LOCK INSTANCE FOR BACKUP')

    def lock_non_transactional_tables(self) -> int:
        """Flush non-transactional tables, block writes to them, and return their number.

        A table can be flushed when no statement uses it. Waits at most ``wait_sec`` for those that
        do; meanwhile new statements on the same table wait, too. Other tables are not affected.

        :raises NotQuiescedError: such a statement did not end in time
        """
        with self._translated(), self._connection.cursor() as cursor:
            tables = non_transactional_tables(cursor)
            if tables:
                names = ', '.join(sql.quoted(*table) for table in tables)
                cursor.execute(f'FLUSH TABLES {names} WITH READ LOCK')
        return len(tables)

    def is_held(self) -> bool:
        """Return whether the connection, and with it the locks, still exists; sends a ping."""
        try:
            self._connection.ping(reconnect=False)
        except pymysql.MySQLError:
            return False
        return True

    def unlock(self) -> str:
        """Release the locks; return why they were lost before, or an empty text."""
        try:
            self._execute('UNLOCK TABLES')
            self._execute('UNLOCK INSTANCE')
        except exceptions.NotQuiescedError as error:
            return str(error)
        return ''

    def close(self) -> None:
        """Close the connection, which releases the locks; idempotent."""
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
                    'A statement that conflicts with the lock for the backup did not end within '
                    f'{self._wait_sec} s'
                ) from error
            raise exceptions.NotQuiescedError(f'MySQL does not hold the lock: {error}') from error


def non_transactional_tables(cursor: pymysql.cursors.Cursor) -> list[tuple[str, str]]:
    """Return schema and name of tenants' tables whose engine has no crash recovery."""
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
