# SPDX-License-Identifier: Apache-2.0
"""The committer's process: reads its task from standard input and exits when that is closed.

Its log has one line per statement, written before the next statement is sent::

    sequence number, sent, acknowledged or failed (seconds of the monotonic clock), error or nothing
"""

import contextlib
import gc
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pymysql

TABLE = 'bench_commits'
_CREATE = f'CREATE TABLE IF NOT EXISTS {TABLE} (id INT PRIMARY KEY, sequence BIGINT NOT NULL)'
#: Always the same row: the committer must not change the size of the data.
_COMMIT = f'REPLACE INTO {TABLE} (id, sequence) VALUES (1, %s)'

_CONNECT_TIMEOUT_SEC = 5
_RECONNECT_SEC = 0.05
_LAST_STATEMENT_SEC = 5
#: These detect a server that vanished without closing the connection after about six seconds.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 3, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 3}


def connect(address: Mapping[str, Any]) -> pymysql.Connection:
    """Open a connection that commits each statement.

    A reply has no time limit, so that a stall shows as a stall; keepalive detects a dead peer.
    """
    connection = pymysql.connect(
        host=address['host'],
        port=address['port'],
        unix_socket=address['unix_socket'],
        user=address['user'],
        password=address['password'],
        database=address['database'],
        autocommit=True,
        connect_timeout=_CONNECT_TIMEOUT_SEC,
        defer_connect=True,
    )
    if address['unix_socket']:
        connection.connect()
        return connection
    try:
        endpoint = (address['host'], address['port'])
        tcp = socket.create_connection(endpoint, _CONNECT_TIMEOUT_SEC)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            tcp.setsockopt(socket.IPPROTO_TCP, option, value)
    except OSError as error:
        raise pymysql.err.OperationalError(2003, f'cannot reach {endpoint}: {error}') from error
    connection.connect(tcp)
    return connection


class Loop:
    """Commit until stopped."""

    def __init__(self, task: Mapping[str, Any], stopped: threading.Event):
        self._address = task['address']
        self._interval_sec = task['interval_sec']
        self._log = os.open(task['log'], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._stopped = stopped
        self._sequence = 0

    def run(self) -> None:
        """Commit, and reconnect after errors.

        :raises pymysql.MySQLError: the first connection or statement fails
        """
        connection = connect(self._address)
        with connection.cursor() as cursor:
            cursor.execute(_CREATE)
        while not self._stopped.is_set():
            try:
                self._commit(connection)
            except pymysql.MySQLError:
                connection = self._reconnect(connection)

    def _commit(self, connection: pymysql.Connection) -> None:
        with connection.cursor() as cursor:
            while not self._stopped.is_set():
                self._sequence += 1
                with self._logged() as sent:
                    cursor.execute(_COMMIT, (self._sequence,))
                if self._interval_sec:
                    self._stopped.wait(max(0.0, sent + self._interval_sec - time.monotonic()))

    def _reconnect(self, broken: pymysql.Connection) -> pymysql.Connection:
        with contextlib.suppress(pymysql.MySQLError):
            broken.close()
        while not self._stopped.wait(_RECONNECT_SEC):
            with contextlib.suppress(pymysql.MySQLError), self._logged(only_errors=True):
                return connect(self._address)
        return broken

    @contextlib.contextmanager
    def _logged(self, only_errors: bool = False) -> Iterator[float]:
        """Log the statement or connection attempt within, and pass errors on."""
        sent = time.monotonic()
        error = ''
        try:
            yield sent
        except pymysql.MySQLError as problem:
            error = ' '.join(str(problem).split()) or type(problem).__name__
            raise
        finally:
            if error or not only_errors:
                ended = time.monotonic()
                line = f'{self._sequence},{sent:.6f},{ended:.6f},{error}\n'
                os.write(self._log, line.encode())


def _watch_input(stopped: threading.Event) -> None:
    """Stop when the parent closes standard input or exits.

    A statement that a stalled server does not answer must not keep this process alive.
    """
    while os.read(sys.stdin.fileno(), 1):
        pass
    stopped.set()
    time.sleep(_LAST_STATEMENT_SEC)
    os._exit(1)


def main() -> None:
    """Run the task; the first error is the last line on standard error."""
    task = json.loads(sys.stdin.buffer.readline())
    stopped = threading.Event()
    threading.Thread(target=_watch_input, args=(stopped,), daemon=True).start()
    gc.disable()  # a garbage collection would delay a commit
    try:
        Loop(task, stopped).run()
    except pymysql.MySQLError as error:
        sys.exit(f'{error}')


if __name__ == '__main__':
    main()
