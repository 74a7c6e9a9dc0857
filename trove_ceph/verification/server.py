# SPDX-License-Identifier: Apache-2.0
"""Run a real mysqld on a clone of a tenant's data, recover it, and check its tables.

The server accepts no remote login, runs no replication and no scheduled event, and no statement
can write. It needs no password.
"""

import contextlib
import dataclasses
import itertools
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pymysql
from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.host import bounded_files
from trove_ceph.mysql import mysqld, sql
from trove_ceph.verification import data_directory, error_log, evidence, report

_LOG_BYTES = 8 * units.Mi
_LOG_END_BYTES = units.Mi
# Divisor of the server's memory; the rest is for its threads, caches and the dictionary.
_BUFFER_POOL_PART = 4
_LEAST_BUFFER_POOL_MIB = 32
_ER_MALFORMED_GTID_SET = 1772
#: Errors of a connection that was lost or refused.
_LOST = (0, 2003, 2006, 2013)
#: How long a server may take to crash.
_GRACE_SEC = 10
#: About as many tables as one server can open within the time limit of an inspection.
MAX_TABLES = 100_000
_MAX_INDEX_PARTS = 2048
_MAX_CHECK_ROWS = 100
_LIST_TABLES = f"""
    SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(DATA_LENGTH, 0) + COALESCE(INDEX_LENGTH, 0),
           COALESCE(AVG_ROW_LENGTH, 0)
    FROM information_schema.TABLES
    WHERE TABLE_TYPE = 'BASE TABLE'
      AND TABLE_SCHEMA NOT IN ('information_schema', 'performance_schema', 'sys')
    ORDER BY TABLE_SCHEMA, TABLE_NAME
    LIMIT {MAX_TABLES + 1}
"""
_LIST_INDEX_COLUMNS = f"""
    SELECT INDEX_NAME, COLUMN_NAME, COLLATION,
           INDEX_TYPE = 'BTREE' AND IS_VISIBLE = 'YES' AND SUB_PART IS NULL
    FROM information_schema.STATISTICS
    WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
    ORDER BY INDEX_NAME, SEQ_IN_INDEX
    LIMIT {_MAX_INDEX_PARTS}
"""
_LEAST_ROW_BYTES = 64
_MOST_XIDS = 100
#: The server's own schema, which it needs to start and which holds its GTID position.
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
    """Return the options with which a server opens the data and does not modify it."""
    buffer_pool_mib = max(_LEAST_BUFFER_POOL_MIB, memory_bytes // _BUFFER_POOL_PART // units.Mi)
    return {
        # As the data was written.
        'innodb_page_size': found.page_bytes,
        'innodb_data_file_path': found.system_files,
        'gtid_mode': 'ON',
        'enforce_gtid_consistency': 'ON',
        **({'log_bin': found.binlog} if found.binlog else {'skip_log_bin': True}),
        'server_id': 1,
        # Nothing may be changed, nor may settings that a tenant persisted apply.
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
        # The clone need not survive a power failure.
        'sync_binlog': 0,
        'innodb_flush_log_at_trx_commit': 0,
        # The server has little memory.
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
    """One server on one clone.

    Every method raises NotSoundError when the server reports that data is damaged or missing. Such
    a finding counts only if the host had no fault; see :meth:`check_undisturbed`.

    :param running: the process with :func:`options`, not started
    :param found: the settings from its data directory
    """

    def __init__(self, running: mysqld.Mysqld, found: data_directory.DataDirectory):
        self._mysqld = running
        self.data_version = found.version_text
        self.recovery_sec: float | None = None
        self._deadline = 0.0

    def start(self, timeout_sec: float) -> None:
        """Start the server, which recovers the data.

        :param timeout_sec: limit of the start and of all later calls together
        :raises NotInspectableError: the server does not support this data
        :raises ServerFailedError: it does not start, without evidence that the data is damaged
        :raises InspectionFaultError: the host had a fault
        """
        self._deadline = time.monotonic() + timeout_sec
        self._mysqld.prepare_run()
        try:
            self._mysqld.start(timeout_sec)
        except exceptions.ServerFailedError as error:
            raise self._explain('recovery failed') from error
        self.recovery_sec = error_log.recovery_sec(self._messages())

    def kill(self) -> None:
        """Kill the server at once."""
        self._mysqld.kill()

    def check_undisturbed(self) -> None:
        """Check that the server logged no fault of the host, so that its findings are of the data.

        :raises InspectionFaultError: the log has a fault of the host
        """
        if fault := evidence.fault_of_the_host(_all_of(self._messages())):
            raise exceptions.InspectionFaultError(f'the log of mysqld has "{fault}"')

    def version(self) -> str:
        return self._row('SELECT LEFT(@@version, 64)')[0]

    def gtid_executed(self) -> str:
        """Return ``gtid_executed``, normalised; it never changes, since nothing can be written.

        :raises NotInspectableError: it is longer than MAX_GTID_BYTES
        """
        size, found = self._row(
            f'SELECT LENGTH(@@GLOBAL.gtid_executed), '
            f'LEFT(@@GLOBAL.gtid_executed, {report.MAX_GTID_BYTES})'
        )
        if size > report.MAX_GTID_BYTES:
            raise exceptions.NotInspectableError(
                f'gtid_executed has {size} bytes; at most {report.MAX_GTID_BYTES} can be recorded'
            )
        return re.sub(r'\s', '', found)

    def missing_and_extra(self, expected: str, found: str) -> tuple[str, str]:
        """Return the GTIDs that are only in the first set, and those only in the second.

        Long sets are cut to the length of a reason.

        :raises InvalidRequestError: the first is not a GTID set
        """
        missing, extra = self._row(
            f'SELECT LEFT(GTID_SUBTRACT(%s, %s), {report.MAX_REASON_CHARACTERS}), '
            f'LEFT(GTID_SUBTRACT(%s, %s), {report.MAX_REASON_CHARACTERS})',
            *(expected, found, found, expected),
        )
        return re.sub(r'\s', '', missing), re.sub(r'\s', '', extra)

    def prepared_transactions(self) -> tuple[list[str], int]:
        """List at most 100 prepared XA transactions, and return how many there are.

        A snapshot includes them: they hold their locks until they are committed or rolled back.

        :returns: each in hexadecimal digits, as ``XA COMMIT`` and ``XA ROLLBACK`` take it
        """
        with self._query('listing the XA transactions') as cursor:
            cursor.execute('XA RECOVER CONVERT XID')
            rows = cursor.fetchall()
        return [_xid(*row) for row in rows[:_MOST_XIDS]], len(rows)

    def tables(self) -> list[Table]:
        """List all tables, the server's own too.

        :raises NotInspectableError: there are more than MAX_TABLES
        """
        with self._query('listing the tables') as cursor:
            # Read the statistics from the tables: cached ones may be old and cannot be updated.
            cursor.execute('SET SESSION information_schema_stats_expiry = 0')
            cursor.execute(_LIST_TABLES)
            found = [
                Table(_text(schema), _text(name), int(size), int(row_size))
                for schema, name, size, row_size in cursor.fetchall()
            ]
        if len(found) > MAX_TABLES:
            raise exceptions.NotInspectableError(f'there are more than {MAX_TABLES} tables')
        return found

    def check(self, table: Table) -> None:
        """Read a table and all its indexes, and check that they match (CHECK TABLE)."""
        with self._query(f'table {table}') as cursor:
            cursor.execute(f'CHECK TABLE {table.quoted}')
            rows = cursor.fetchall()
        problems = [
            error_log.censor(_text(text))
            for *_, kind, text in rows[:_MAX_CHECK_ROWS]
            if _text(kind).lower() == 'error'
        ]
        last_kind, last_text = map(_text, rows[-1][2:])
        if last_kind == 'status' and last_text != 'OK':
            problems.append(last_text)
        if problems:
            raise evidence.of_statement(f'table {table}', '; '.join(problems))

    def read_ends(self, table: Table, limit_bytes: int) -> None:
        """Read some rows at both ends of each index of a table.

        The last rows of the primary key are the newest in most tables. This detects a damaged page
        by its checksum, but not indexes that do not match.

        :param limit_bytes: approximate limit of all indexes together
        """
        with self._query(f'table {table}') as cursor:
            cursor.execute(_LIST_INDEX_COLUMNS, (table.schema, table.name))
            orders = _orders(cursor.fetchall())
            row_bytes = max(table.row_bytes, _LEAST_ROW_BYTES)
            rows = max(1, limit_bytes // row_bytes // len(orders))
            for order in orders:
                # The server reads index entries only, and sends none.
                cursor.execute(
                    f'SELECT COUNT(*) FROM (SELECT 1 FROM {table.quoted}{order} LIMIT {rows}) AS e'
                )
                cursor.fetchall()

    def _row(self, statement: str, *arguments: str) -> tuple:
        with self._query('reading system variables') as cursor:
            cursor.execute(statement, arguments or None)
            return cursor.fetchone()

    @contextlib.contextmanager
    def _query(self, what: str) -> Iterator[pymysql.cursors.Cursor]:
        """Yield a cursor and translate errors; a server that dies of a query died of its data."""
        # A server that waits for a disk cannot be killed, and does not close its connections.
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
                message = error_log.censor(str(error.args[-1]))
                raise evidence.of_statement(what, message, error.args[0]) from error
            raise self._explain(what) from error

    def _explain(self, what: str) -> Exception:
        """Classify the end of the server, or its failure to become ready."""
        messages = self._messages()
        errors = '; '.join(map(str, error_log.errors(messages))) or 'its log has no error'
        return evidence.of_server(what, errors, _all_of(messages), self._mysqld.exit_code)

    def _messages(self) -> list[error_log.Message]:
        return error_log.read(_both_ends(self._mysqld.log))


def _all_of(messages: Sequence[error_log.Message]) -> str:
    return '\n'.join(map(str, messages))


def _orders(parts: Sequence[tuple]) -> list[str]:
    """Return the clauses that read a table from either end of each index, whatever its size.

    An index on column prefixes or expressions gives no order to read by; a table without any other
    index is read in its physical order.
    """
    orders = []
    for index, group in itertools.groupby(parts, key=lambda part: part[0]):
        columns = list(group)
        if all(usable and column is not None for _, column, _, usable in columns):
            for direction in ('A', 'D'):
                keys = ', '.join(
                    sql.quoted(_text(column)) + (' ASC' if _text(order) == direction else ' DESC')
                    for _, column, order, _ in columns
                )
                orders.append(f' FORCE INDEX ({sql.quoted(_text(index))}) ORDER BY {keys}')
    return orders or ['']


def _both_ends(log: Path) -> str:
    """Return the beginning and the end of a log of any length.

    The first errors show the cause of the later ones; a fault of the host may be at the end.
    """
    try:
        found = bounded_files.read_head(log, _LOG_BYTES)
        if len(found) == _LOG_BYTES:
            end, _ = bounded_files.read_tail(log, _LOG_END_BYTES)
            found += b'\n' + end
    except OSError:
        return ''
    return found.decode(errors='replace')


def _xid(format_id: int, global_length: int, branch_length: int, data: str | bytes) -> str:
    """Return an XA transaction's id as statements take it."""
    digits = _text(data).removeprefix('0x')
    end = 2 * global_length
    return f"X'{digits[:end]}',X'{digits[end : end + 2 * branch_length]}',{format_id}"


def _text(value: str | bytes) -> str:
    return value.decode(errors='replace') if isinstance(value, bytes) else value
