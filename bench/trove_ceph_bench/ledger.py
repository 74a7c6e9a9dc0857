# SPDX-License-Identifier: Apache-2.0
"""A client that commits numbered rows and remembers which the server acknowledged.

Unlike the committer, it keeps all rows: after a failure the numbers in the table tell which
acknowledged commits the server has lost. How many rows there are does not tell it: one that was
committed, but not acknowledged any more, would stand for one that is lost.
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

#: Only rows of a writer have numbers.
_CREATE = (
    f'CREATE TABLE IF NOT EXISTS {TABLE} (id INT AUTO_INCREMENT PRIMARY KEY, number BIGINT UNIQUE)'
)
_COUNT = f'SELECT COUNT(*) FROM {TABLE}'
_COMMIT = f'INSERT INTO {TABLE} () VALUES ()'
_NUMBERS = f'SELECT number FROM {TABLE} WHERE number IS NOT NULL'
_COMMIT_NUMBER = f'INSERT INTO {TABLE} (number) VALUES (%s)'
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

    def numbers(self, host: str) -> set[int]:
        """Return the numbers of the rows that a server has of writers.

        :raises LoadFailedError: it does not answer, or has no ledger
        """
        try:
            with self.connection(host) as connection, connection.cursor() as cursor:
                cursor.execute(_NUMBERS)
                return {int(number) for (number,) in cursor.fetchall()}
        except _FAILED as error:
            raise exceptions.LoadFailedError(f'{host}: cannot read the ledger: {error}') from error


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
    """Commit numbered rows in a thread while entered, until a commit fails.

    :ivar acknowledged: the numbers of the rows whose commits were acknowledged, in order
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
        self.acknowledged: list[int] = []
        self.error: Exception | None = None

    def __enter__(self) -> 'Writer':
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    def wait_for(self, rows: int) -> None:
        """Wait until so many commits of this writer are acknowledged.

        :raises LoadFailedError: a commit failed, or this took more than a minute
        """
        deadline = self._start_wait(_FIRST_TIMEOUT_SEC)
        while len(self.acknowledged) < rows:
            if self.error:
                raise exceptions.LoadFailedError(f'{self._host}: no commit: {self.error}')
            if not deadline.pause(_POLL_SEC):
                raise exceptions.LoadFailedError(
                    f'{self._host}: {len(self.acknowledged)} of {rows} commits within '
                    f'{_FIRST_TIMEOUT_SEC} s'
                )

    def _run(self) -> None:
        try:
            with self._client.connection(self._host) as connection, connection.cursor() as cursor:
                cursor.execute(_CREATE)
                cursor.execute(_NUMBERS)
                number = max((int(found) for (found,) in cursor.fetchall()), default=0)
                is_last = False
                while not is_last:
                    # The last commit follows the request to stop, so it tells whether the server
                    # still lives then.
                    is_last = self._stopped.is_set()
                    number += 1
                    cursor.execute(_COMMIT_NUMBER, (number,))
                    self.acknowledged.append(number)
        except _FAILED as error:
            self.error = error
