# SPDX-License-Identifier: Apache-2.0
"""The committer's process: reads its task from standard input and ends when that is closed.

Its log has a line for each statement, written before the next one is sent::

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
#: One row for ever: the committer must not change the size of the data.
_COMMIT = f'REPLACE INTO {TABLE} (id, sequence) VALUES (1, %s)'

_CONNECT_TIMEOUT_SEC = 5
_RECONNECT_SEC = 0.05
_LAST_STATEMENT_SEC = 5
#: A server that vanished without a word is noticed after about six seconds.
_KEEPALIVE = {socket.TCP_KEEPIDLE: 3, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 3}


def connect(address: Mapping[str, Any]) -> pymysql.Connection:
    """Open a connection that commits each statement.

    There is no time limit for an answer, since a stall is to be seen as a stall, but a dead peer is
    noticed.
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
        place = (address['host'], address['port'])
        tcp = socket.create_connection(place, _CONNECT_TIMEOUT_SEC)
        tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tcp.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            tcp.setsockopt(socket.IPPROTO_TCP, option, value)
    except OSError as error:
        raise pymysql.err.OperationalError(2003, f'cannot reach {place}: {error}') from error
    connection.connect(tcp)
    return connection


class Loop:
    """Commits until told to end."""

    def __init__(self, task: Mapping[str, Any], ended: threading.Event):
        self._address = task['address']
        self._interval_sec = task['interval_sec']
        self._log = os.open(task['log'], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._ended = ended
        self._sequence = 0

    def run(self) -> None:
        """Commit and connect again after errors.

        :raises pymysql.MySQLError: the server cannot be used at the very beginning
        """
        connection = connect(self._address)
        with connection.cursor() as cursor:
            cursor.execute(_CREATE)
        while not self._ended.is_set():
            try:
                self._commit(connection)
            except pymysql.MySQLError:
                connection = self._connect_again(connection)

    def _commit(self, connection: pymysql.Connection) -> None:
        with connection.cursor() as cursor:
            while not self._ended.is_set():
                self._sequence += 1
                with self._logged() as sent:
                    cursor.execute(_COMMIT, (self._sequence,))
                if self._interval_sec:
                    self._ended.wait(max(0.0, sent + self._interval_sec - time.monotonic()))

    def _connect_again(self, broken: pymysql.Connection) -> pymysql.Connection:
        with contextlib.suppress(pymysql.MySQLError):
            broken.close()
        while not self._ended.wait(_RECONNECT_SEC):
            with contextlib.suppress(pymysql.MySQLError), self._logged(only_errors=True):
                return connect(self._address)
        return broken

    @contextlib.contextmanager
    def _logged(self, only_errors: bool = False) -> Iterator[float]:
        """Log what happens within, and pass errors on."""
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


def _watch_input(ended: threading.Event) -> None:
    """Wait until the other end closes standard input: told to end, or its process is gone.

    A statement that a stalled server does not answer must not keep this process alive.
    """
    while os.read(sys.stdin.fileno(), 1):
        pass
    ended.set()
    time.sleep(_LAST_STATEMENT_SEC)
    os._exit(1)


def main() -> None:
    """Run the task; the first error is the last line on standard error."""
    task = json.loads(sys.stdin.buffer.readline())
    ended = threading.Event()
    threading.Thread(target=_watch_input, args=(ended,), daemon=True).start()
    gc.disable()  # a collection would delay a commit now and then
    try:
        Loop(task, ended).run()
    except pymysql.MySQLError as error:
        sys.exit(f'{error}')


if __name__ == '__main__':
    main()
