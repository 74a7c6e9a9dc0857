# SPDX-License-Identifier: Apache-2.0
"""Access a MySQL server by SQL: connect, create and remove schemas, read its settings."""

import contextlib
import itertools
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pymysql

from trove_ceph import exceptions
from trove_ceph_bench import model

#: Prefix of every schema that the benchmark creates; it may remove any schema with this prefix.
PREFIX = 'trove_ceph_bench_'
#: The same for users; Trove allows 16 characters.
USER_PREFIX = 'tcbench_'
# Distinguishes the schemas of this process, which are in use, from those that earlier ones left.
_PROCESS = f'{secrets.randbits(20):05x}'
_NUMBERS = itertools.count()

#: Variables that determine whether an acknowledged commit survives a power cut, and its cost.
DURABILITY = (
    'innodb_flush_log_at_trx_commit',
    'sync_binlog',
    'innodb_doublewrite',
    'innodb_flush_method',
    'log_bin',
    'gtid_mode',
    'binlog_format',
)

_CONNECT_TIMEOUT_SEC = 10
_POLL_SEC = 1.0
_ER_DBACCESS_DENIED = 1044
_ER_ACCESS_DENIED = 1045
_DENIED = (_ER_DBACCESS_DENIED, _ER_ACCESS_DENIED, 1142, 1227)

Connect = Callable[..., pymysql.connections.Connection]


def new_name() -> str:
    """Return a unique name for a schema."""
    return f'{PREFIX}{_PROCESS}{next(_NUMBERS):03x}'


def is_leftover(schema: str) -> bool:
    """Return whether an earlier process of the benchmark left a schema."""
    return schema.startswith(PREFIX) and not schema.startswith(PREFIX + _PROCESS)


def user_of(schema: str) -> str:
    """Return the name of the user of a schema."""
    return USER_PREFIX + schema.removeprefix(PREFIX)


def schema_of(user: str) -> str:
    """Return the name of the schema of a user."""
    return PREFIX + user.removeprefix(USER_PREFIX)


class Server:
    """A server, accessed as one user.

    :param address: its database is not used to connect
    """

    def __init__(self, address: model.Address, connect: Connect = pymysql.connect):
        self._address = address
        self._connect = connect

    def __str__(self) -> str:
        return address_text(self._address)

    def create_schema(self, name: str) -> None:
        """Create an empty schema.

        :raises TargetUnavailableError: the server cannot be reached or refuses
        """
        with self._connection() as cursor:
            cursor.execute(f'CREATE DATABASE `{name}`')

    def ensure_no_schema(self, name: str) -> None:
        """Remove a schema with all its tables.

        :raises TargetUnavailableError: the server cannot be reached or refuses
        """
        with self._connection() as cursor:
            cursor.execute(f'DROP DATABASE IF EXISTS `{name}`')

    def list_leftovers(self) -> list[str]:
        """Return the schemas that earlier runs left.

        :raises TargetUnavailableError: the server cannot be reached or refuses
        """
        return [row[0] for row in self._rows('SHOW DATABASES') if is_leftover(row[0])]

    def variables(self) -> dict[str, str]:
        """Return all global variables.

        :raises TargetUnavailableError: the server cannot be reached or refuses
        """
        return dict(self._rows('SHOW GLOBAL VARIABLES'))

    def schema_bytes(self, name: str) -> int:
        """Return the current size in bytes of the data and index pages of a schema.

        :raises TargetUnavailableError: the server cannot be reached or refuses
        """
        with self._connection() as cursor:
            cursor.execute('SET SESSION information_schema_stats_expiry = 0')
            cursor.execute(
                'SELECT COALESCE(SUM(DATA_LENGTH + INDEX_LENGTH), 0) '
                'FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s',
                (name,),
            )
            ((size_bytes,),) = cursor.fetchall()
            return int(size_bytes)

    def check(self) -> None:
        """Check that the server answers a query.

        :raises TargetUnavailableError: the server cannot be reached or refuses
        """
        self._rows('SELECT 1')

    def _rows(self, statement: str) -> Sequence[tuple]:
        with self._connection() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()

    @contextlib.contextmanager
    def _connection(self) -> Iterator[pymysql.cursors.Cursor]:
        address = self._address
        try:
            with self._connect(
                user=address.user,
                password=address.password,
                connect_timeout=_CONNECT_TIMEOUT_SEC,
                autocommit=True,
                **(
                    {'unix_socket': address.unix_socket}
                    if address.unix_socket
                    else {'host': address.host, 'port': address.port}
                ),
            ) as connection:
                with connection.cursor() as cursor:
                    yield cursor
        except (pymysql.MySQLError, OSError) as error:
            raise exceptions.TargetUnavailableError(_explain(self, address.user, error)) from error


def address_text(address: model.Address) -> str:
    """Return the socket or ``host:port`` of a server."""
    return address.unix_socket or f'{address.host}:{address.port}'


def disclose(server: Server) -> dict[str, Any]:
    """Return version and settings of a server.

    :raises TargetUnavailableError: the server cannot be reached or refuses
    """
    variables = server.variables()
    return {
        'version': variables.get('version'),
        'version_comment': variables.get('version_comment'),
        'durability': {name: variables[name] for name in DURABILITY if name in variables},
        'durable': is_durable(variables),
        'variables': variables,
    }


def is_durable(variables: dict[str, str]) -> bool:
    """Return whether every acknowledged commit is on disk, including the binary log."""
    binlog = variables.get('log_bin') != 'ON' or variables.get('sync_binlog') == '1'
    return variables.get('innodb_flush_log_at_trx_commit') == '1' and binlog


def find_reachable_address(
    addresses: Sequence[model.Address],
    timeout_sec: float,
    connect: Connect = pymysql.connect,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> model.Address:
    """Wait until one of several addresses of a server answers, and return it.

    :raises TargetUnavailableError: no address answers in time
    """
    deadline = clock() + timeout_sec
    while True:
        failures = []
        for address in addresses:
            try:
                Server(address, connect).check()
                return address
            except exceptions.TargetUnavailableError as error:
                failures.append(str(error))
        if clock() > deadline:
            raise exceptions.TargetUnavailableError(
                f'no SQL connection within {timeout_sec:g} s: '
                f'{"; ".join(failures) or "the server has no address"}'
            )
        sleep(_POLL_SEC)


def _explain(server: Server, user: str, error: Exception) -> str:
    code = error.args[0] if error.args else None
    if code == _ER_ACCESS_DENIED:
        return f'{server} refuses the user {user}; check the password ({error})'
    if code in _DENIED:
        escaped = PREFIX.replace('_', r'\_')
        return (
            f'{server} refuses the user {user}; it needs '
            f"GRANT ALL ON `{escaped}%`.* TO '{user}'@'…' ({error})"
        )
    return f'cannot use {server}: {error}'
