# SPDX-License-Identifier: Apache-2.0
"""A real mysqld on a copy of somebody's data: what it recovers, and what it says of its tables.

It changes nothing that counts: no user can log in from elsewhere, nothing is replicated or
scheduled, and no statement can write. Nobody's password is needed.
"""

import contextlib
import dataclasses
import itertools
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pymysql
from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.mysql import mysqld, sql
from trove_ceph.verification import data_directory, error_log, evidence

_LOG_BYTES = 8 * units.Mi
_LOG_END_BYTES = units.Mi
# Of the memory that the server may take; the rest is for its threads, caches and the dictionary.
_BUFFER_POOL_PART = 4
_LEAST_BUFFER_POOL_MIB = 32
_ER_MALFORMED_GTID_SET = 1772
#: The connection ended, or was not made.
_LOST = (0, 2003, 2006, 2013)
#: A crash takes its time to end.
_GRACE_SEC = 10
_LISTED = """
    SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(DATA_LENGTH, 0) + COALESCE(INDEX_LENGTH, 0),
           COALESCE(AVG_ROW_LENGTH, 0)
    FROM information_schema.TABLES
    WHERE TABLE_TYPE = 'BASE TABLE'
      AND TABLE_SCHEMA NOT IN ('information_schema', 'performance_schema', 'sys')
    ORDER BY TABLE_SCHEMA, TABLE_NAME
"""
_PARTS_OF_INDEXES = """
    SELECT INDEX_NAME, COLUMN_NAME, COLLATION,
           INDEX_TYPE = 'BTREE' AND IS_VISIBLE = 'YES' AND SUB_PART IS NULL
    FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
    ORDER BY INDEX_NAME, SEQ_IN_INDEX
"""
_LEAST_ROW_BYTES = 64
_MOST_XIDS = 100
#: Of the server itself: what it needs to start, and what it knows of its position.
SYSTEM_SCHEMA = 'mysql'


@dataclasses.dataclass(frozen=True, order=True)
class Table:
    schema: str
    name: str
    bytes: int = 0
    row_bytes: int = 0

    def __str__(self) -> str:
        return f'{self.schema}.{self.name}'

    @property
    def quoted(self) -> str:
        return sql.quoted(self.schema, self.name)


def options(found: data_directory.DataDirectory, memory_bytes: int) -> mysqld.Options:
    """Return what a server must be told to open data and leave it as it is."""
    buffer_pool_mib = max(_LEAST_BUFFER_POOL_MIB, memory_bytes // _BUFFER_POOL_PART // units.Mi)
    return {
        # As it was written.
        'innodb_page_size': found.page_bytes,
        'innodb_data_file_path': found.system_files,
        'gtid_mode': 'ON',
        'enforce_gtid_consistency': 'ON',
        **({'log_bin': found.binlog} if found.binlog else {'skip_log_bin': True}),
        'server_id': 1,
        # Nothing is changed. What a tenant had persisted might.
        'skip_grant_tables': True,
        'persisted_globals_load': False,
        'read_only': True,
        'super_read_only': True,
        'loose_skip_replica_start': True,
        'loose_skip_slave_start': True,
        'event_scheduler': False,
        'binlog_expire_logs_seconds': 0,
        'loose_binlog_expire_logs_auto_purge': False,
        'loose_upgrade': 'MINIMAL',
        'local_infile': False,
        # Nobody has to find it again after a power cut.
        'sync_binlog': 0,
        'innodb_flush_log_at_trx_commit': 0,
        # It is small.
        'innodb_buffer_pool_size': buffer_pool_mib * units.Mi,
        'innodb_buffer_pool_load_at_startup': False,
        'innodb_buffer_pool_dump_at_shutdown': False,
        'loose_innodb_dedicated_server': False,
        'performance_schema': False,
        'max_connections': 8,
        'table_open_cache': 64,
        'log_error_verbosity': 3,
    }


class Server:
    """One server on one copy.

    Every method raises Finding where the server says that the data is damaged or not there. That
    counts only if the host did not fail it, see :meth:`check_undisturbed`.

    :param running: with ``options``, not started
    :param found: what its data directory says
    """

    def __init__(self, running: mysqld.Mysqld, found: data_directory.DataDirectory):
        self._mysqld = running
        self.data_version = found.version_text
        self.recovery_sec: float | None = None
        self._deadline = 0.0

    def start(self, timeout_sec: float) -> None:
        """Recover.

        :param timeout_sec: for that and for all that is asked later
        :raises NotInspectableError: the server is not made for this data
        :raises ServerFailedError: it does not start, and does not say that the data is to blame
        :raises InspectionFaultError: the host failed it
        """
        self._deadline = time.monotonic() + timeout_sec
        self._mysqld.prepare_run()
        try:
            self._mysqld.start(timeout_sec)
        except exceptions.ServerFailedError as error:
            raise self._why('recovery failed') from error
        self.recovery_sec = error_log.recovery_sec(self._messages())

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self._mysqld.kill()

    def check_undisturbed(self) -> None:
        """Do nothing if the server has met no fault of the host: what it says is of the data then.

        :raises InspectionFaultError: it has
        """
        if fault := evidence.fault_of_the_host(_all_of(self._messages())):
            raise exceptions.InspectionFaultError(f'the log of mysqld has "{fault}"')

    def version(self) -> str:
        return self._row('SELECT @@version')[0]

    def gtid_executed(self) -> str:
        """Return the position, normalised; the same until the end, since nothing can be written."""
        return re.sub(r'\s', '', self._row('SELECT @@GLOBAL.gtid_executed')[0])

    def missing_and_extra(self, expected: str, found: str) -> tuple[str, str]:
        """Return the transactions of the first set that the other has not, and the other way round.

        :raises InvalidRequestError: the first is no set of GTIDs
        """
        missing, extra = self._row(
            'SELECT GTID_SUBTRACT(%s, %s), GTID_SUBTRACT(%s, %s)',
            *(expected, found, found, expected),
        )
        return re.sub(r'\s', '', missing), re.sub(r'\s', '', extra)

    def prepared_transactions(self) -> tuple[list[str], int]:
        """List XA transactions that are prepared, at most 100, and tell how many there are.

        A snapshot has them as they were: their locks are held until somebody decides about them.

        :returns: each as ``XA COMMIT`` and ``XA ROLLBACK`` take it, in hexadecimal digits
        """
        with self._asking('listing the XA transactions') as cursor:
            cursor.execute('XA RECOVER CONVERT XID')
            rows = cursor.fetchall()
        return [_xid(*row) for row in rows[:_MOST_XIDS]], len(rows)

    def tables(self) -> list[Table]:
        """List all tables, the server's own too."""
        with self._asking('listing the tables') as cursor:
            # Of the tables themselves: what was remembered of them may be old, and is not written.
            cursor.execute('SET SESSION information_schema_stats_expiry = 0')
            cursor.execute(_LISTED)
            return [
                Table(_text(schema), _text(name), int(size), int(row_size))
                for schema, name, size, row_size in cursor.fetchall()
            ]

    def check(self, table: Table) -> None:
        """Have the server read all of a table and its indexes, and hold them against each other."""
        with self._asking(f'table {table}') as cursor:
            cursor.execute(f'CHECK TABLE {table.quoted}')
            rows = cursor.fetchall()
        problems = [
            error_log.censor(_text(text))
            for *_, kind, text in rows
            if _text(kind).lower() == 'error'
        ]
        last_kind, last_text = map(_text, rows[-1][2:])
        if last_kind == 'status' and last_text != 'OK':
            problems.append(last_text)
        if problems:
            raise evidence.of_statement(f'table {table}', '; '.join(problems))

    def read_ends(self, table: Table, limit_bytes: int) -> None:
        """Have the server read some rows at both ends of each index of a table.

        The last ones of the primary key are the newest in most tables. A page that is damaged is
        found by its checksum; what does not fit together is not.

        :param limit_bytes: for all indexes together, about
        """
        with self._asking(f'table {table}') as cursor:
            cursor.execute(_PARTS_OF_INDEXES, (table.schema, table.name))
            orders = _orders(cursor.fetchall())
            row_bytes = max(table.row_bytes, _LEAST_ROW_BYTES)
            rows = max(1, limit_bytes // row_bytes // len(orders))
            for order in orders:
                # Nothing but entries of the index is read, and none is sent.
                cursor.execute(
                    f'SELECT COUNT(*) FROM (SELECT 1 FROM {table.quoted}{order} LIMIT {rows}) AS e'
                )
                cursor.fetchall()

    def _row(self, statement: str, *arguments: str) -> tuple:
        with self._asking('reading the position') as cursor:
            cursor.execute(statement, arguments or None)
            return cursor.fetchone()

    @contextlib.contextmanager
    def _asking(self, what: str) -> Iterator[pymysql.cursors.Cursor]:
        """Give a cursor; a server that dies of what it is asked died of its data."""
        # A server that waits for a disk cannot be killed, and does not hang up either.
        timeout_sec = max(0.0, self._deadline - time.monotonic()) + _GRACE_SEC
        try:
            with self._mysqld.connect(charset='utf8mb4', read_timeout=timeout_sec) as connection:
                with connection.cursor() as cursor:
                    yield cursor
        except pymysql.MySQLError as error:
            if error.args[0] == _ER_MALFORMED_GTID_SET:
                raise exceptions.InvalidRequestError(f'{what}: {error.args[-1]}') from error
            if error.args[0] in _LOST and not self._mysqld.has_ended(_GRACE_SEC):
                raise exceptions.ServerFailedError(f'{what}: the server does not answer') from error
            if not self._mysqld.has_ended(within_sec=0):
                told = error_log.censor(str(error.args[-1]))
                raise evidence.of_statement(what, told, error.args[0]) from error
            raise self._why(what) from error

    def _why(self, what: str) -> Exception:
        """Return what it comes to that the server ended, or did not get ready."""
        messages = self._messages()
        told = '; '.join(map(str, error_log.errors(messages))) or 'its log has no error'
        return evidence.of_server(what, told, _all_of(messages), self._mysqld.exit_code)

    def _messages(self) -> list[error_log.Message]:
        return error_log.read(_both_ends(self._mysqld.log))


def _all_of(messages: Sequence[error_log.Message]) -> str:
    return '\n'.join(map(str, messages))


def _orders(parts: Sequence[tuple]) -> list[str]:
    """Return how a table is read from either end of each index, whatever its size.

    An index of the beginnings of columns, or of expressions, gives no order to read by; a table
    without any other is read in the order that it is in.
    """
    orders = []
    for index, group in itertools.groupby(parts, key=lambda part: part[0]):
        columns = list(group)
        if all(usable and column is not None for _, column, _, usable in columns):
            for direction in ('A', 'D'):
                keys = ', '.join(
                    sql.quoted(_text(column)) + (' ASC' if _text(way) == direction else ' DESC')
                    for _, column, way, _ in columns
                )
                orders.append(f' FORCE INDEX ({sql.quoted(_text(index))}) ORDER BY {keys}')
    return orders or ['']


def _both_ends(log: Path) -> str:
    """Return the beginning and the end of a log, which may be of any length.

    The first errors tell what the later ones come from; what the host did may stand in the last.
    """
    if not log.exists():
        return ''
    with log.open('rb') as file:
        found = file.read(_LOG_BYTES)
        rest = os.fstat(file.fileno()).st_size - len(found)
        if rest > 0:
            file.seek(-min(rest, _LOG_END_BYTES), os.SEEK_END)
            found += b'\n' + file.read(_LOG_END_BYTES)
    return found.decode(errors='replace')


def _xid(format_id: int, global_length: int, branch_length: int, data: str | bytes) -> str:
    """Write the name of an XA transaction as statements take it."""
    digits = _text(data).removeprefix('0x')
    end = 2 * global_length
    return f"X'{digits[:end]}',X'{digits[end : end + 2 * branch_length]}',{format_id}"


def _text(value: str | bytes) -> str:
    return value.decode(errors='replace') if isinstance(value, bytes) else value
