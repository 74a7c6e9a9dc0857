# SPDX-License-Identifier: Apache-2.0
"""A client that commits rows and counts what the server acknowledged.

Unlike the committer, it keeps all rows: after a failure the number of rows tells how many
acknowledged commits the server has lost.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pymysql

from trove_ceph import exceptions, waiting
from trove_ceph_bench import model

TABLE = 'bench_ledger'
#: Addresses of a server that is not there yet do not answer at all.
CONNECT_TIMEOUT_SEC = 1
#: A killed server does not close its connections.
REPLY_TIMEOUT_SEC = 5

_CREATE = f'CREATE TABLE IF NOT EXISTS {TABLE} (id INT AUTO_INCREMENT PRIMARY KEY)'
_COUNT = f'SELECT COUNT(*) FROM {TABLE}'
_COMMIT = f'INSERT INTO {TABLE} () VALUES ()'
_FIRST_TIMEOUT_SEC = 60
_POLL_SEC = 0.02


Connect = Callable[..., Any]
_FAILED = (pymysql.MySQLError, OSError)


def address(environ: Mapping[str, str]) -> model.Address:
    """Return the address of a plan's client, without the host.

    :raises LoadFailedError: a variable is not set
    """
    try:
        return model.Address(
            environ['BENCH_USER'], environ['BENCH_PASSWORD'], environ['BENCH_DATABASE']
        )
    except KeyError as error:
        raise exceptions.LoadFailedError(
            f'{error.args[0]} is not set; plans of operations with a target set it'
        ) from error


class Client:
    """A client of a server at changing hosts.

    :param address: its host is not used
    :ivar error: why the last commit that failed did; None: none has failed
    """

    def __init__(self, address: model.Address, connect: Connect = pymysql.connect):
        self._address = address
        self._connect = connect
        self.error: Exception | None = None

    @property
    def user(self) -> str:
        return self._address.user

    @property
    def password(self) -> str:
        return self._address.password

    @property
    def database(self) -> str:
        return self._address.database

    def address_of(self, host: str) -> model.Address:
        """Return the address of the client at a host."""
        return dataclasses.replace(self._address, host=host)

    def connection(self, host: str) -> Any:
        """Return a connection that commits each statement."""
        return self._connect(
            **self.address_of(host).login(),
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_SEC,
            read_timeout=REPLY_TIMEOUT_SEC,
            write_timeout=REPLY_TIMEOUT_SEC,
        )

    def commit(self, host: str) -> int | None:
        """Commit a row; return how many there were before, or None if the commit failed."""
        try:
            with self.connection(host) as connection, connection.cursor() as cursor:
                cursor.execute(_CREATE)
                cursor.execute(_COUNT)
                ((rows,),) = cursor.fetchall()
                cursor.execute(_COMMIT)
        except _FAILED as error:
            self.error = error
            return None
        return int(rows)

    def rows(self, host: str) -> int | None:
        """Return how many rows a server has; None: it does not answer, or has no ledger."""
        try:
            with self.connection(host) as connection, connection.cursor() as cursor:
                cursor.execute(_COUNT)
                ((rows,),) = cursor.fetchall()
        except _FAILED:
            return None
        return int(rows)


class Reader:
    """Read from a server in a thread while entered.

    :param read: opens a connection, and returns whether the server has answered
    :ivar gap_sec: the longest time between the ends of two successful reads
    """

    def __init__(
        self,
        read: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] = time.sleep,
    ):
        self._read = read
        self._clock = clock
        self._pause = pause
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.gap_sec = 0.0

    def __enter__(self) -> 'Reader':
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        last = self._clock()
        is_last = False
        while not is_last:
            # The last read follows the request to stop, so a gap until then counts.
            is_last = self._stopped.is_set()
            is_answered = self._read()
            now = self._clock()
            self.gap_sec = max(self.gap_sec, now - last)
            if is_answered:
                last = now
            self._pause(_POLL_SEC)


class Writer:
    """Commit rows in a thread while entered, until a commit fails.

    :ivar rows: of the ledger when the last commit was acknowledged
    :ivar error: the first failure, after which nothing is committed; None: there was none
    """

    def __init__(
        self,
        client: Client,
        host: str,
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
    ):
        self._client = client
        self._host = host
        self._start_wait = start_wait
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.rows = 0
        self.error: Exception | None = None

    def __enter__(self) -> 'Writer':
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    def wait_for(self, rows: int) -> None:
        """Wait until so many rows are committed.

        :raises LoadFailedError: a commit failed, or this took more than a minute
        """
        deadline = self._start_wait(_FIRST_TIMEOUT_SEC)
        while self.rows < rows:
            if self.error:
                raise exceptions.LoadFailedError(f'{self._host}: no commit: {self.error}')
            if not deadline.pause(_POLL_SEC):
                raise exceptions.LoadFailedError(
                    f'{self._host}: {self.rows} of {rows} commits within {_FIRST_TIMEOUT_SEC} s'
                )

    def _run(self) -> None:
        try:
            with self._client.connection(self._host) as connection, connection.cursor() as cursor:
                cursor.execute(_CREATE)
                cursor.execute(_COUNT)
                ((rows,),) = cursor.fetchall()
                self.rows = int(rows)
                is_last = False
                while not is_last:
                    # The last commit follows the request to stop, so it tells whether the server
                    # still lives then.
                    is_last = self._stopped.is_set()
                    cursor.execute(_COMMIT)
                    self.rows += 1
        except _FAILED as error:
            self.error = error
