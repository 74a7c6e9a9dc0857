# SPDX-License-Identifier: Apache-2.0
"""A client that commits rows and counts what the server acknowledged.

Unlike the committer, it keeps all rows: after a failure the number of rows tells how many
acknowledged commits the server has lost.
"""

import dataclasses
import threading
from collections.abc import Callable
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


class Client:
    """A client of a server at changing hosts.

    :param address: its host is not used
    """

    def __init__(self, address: model.Address, connect: Connect = pymysql.connect):
        self._address = address
        self._connect = connect

    @property
    def user(self) -> str:
        return self._address.user

    @property
    def password(self) -> str:
        return self._address.password

    @property
    def database(self) -> str:
        return self._address.database

    def connection(self, host: str) -> Any:
        """Return a connection that commits each statement."""
        address = dataclasses.replace(self._address, host=host)
        return self._connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            database=address.database,
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
        except _FAILED:
            return None
        return int(rows)


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
