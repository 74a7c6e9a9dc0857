# SPDX-License-Identifier: Apache-2.0
"""Access a database by SQL as its tenant."""

import time

import pymysql

from trove_ceph import exceptions
from trove_ceph_bench import model

CONNECT_TIMEOUT_SEC = 10
REPLY_TIMEOUT_SEC = 60
PROBE_SEC = 1
POLL_SEC = 1.0


class Database:
    """One schema of a server; each statement opens its own connection."""

    def __init__(self, address: model.Address):
        self.address = address

    def connect(
        self,
        reply_timeout_sec: float = REPLY_TIMEOUT_SEC,
        connect_timeout_sec: float = CONNECT_TIMEOUT_SEC,
    ) -> pymysql.Connection:
        """Return a connection that commits each statement.

        :raises pymysql.MySQLError: the server refuses, or does not answer in time
        """
        return pymysql.connect(
            **self.address.login(),
            autocommit=True,
            connect_timeout=connect_timeout_sec,
            read_timeout=reply_timeout_sec,
            write_timeout=reply_timeout_sec,
        )

    def query(self, statement: str, *arguments) -> list[tuple]:
        """Return a statement's rows.

        :raises pymysql.MySQLError: the statement fails, or the server cannot be reached
        """
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return list(cursor.fetchall())

    def answers(self) -> bool:
        """Return whether the server answers a new client within about a second."""
        try:
            with self.connect(PROBE_SEC, PROBE_SEC) as connection, connection.cursor() as cursor:
                cursor.execute('SELECT 1')
        except (pymysql.MySQLError, OSError):
            return False
        return True

    def variable(self, name: str) -> str:
        """Return the global value of a server variable."""
        return str(self.query('SHOW GLOBAL VARIABLES LIKE %s', name)[0][1])

    def status(self, name: str) -> str:
        """Return the global value of a status variable."""
        return str(self.query('SHOW GLOBAL STATUS LIKE %s', name)[0][1])

    def uptime_sec(self) -> int:
        """Return the uptime of the server in seconds."""
        return int(self.status('Uptime'))

    def wait_reachable(self, timeout_sec: float) -> None:
        """Wait until the server answers a statement.

        :raises TroveCephError: the server does not answer in time
        """
        deadline = time.monotonic() + timeout_sec
        while True:
            try:
                self.query('SELECT 1')
                return
            except pymysql.MySQLError as error:
                if time.monotonic() > deadline:
                    raise exceptions.TroveCephError(
                        f'{self.address.host}:{self.address.port} does not answer SQL within '
                        f'{timeout_sec} s: {error}'
                    ) from error
            time.sleep(POLL_SEC)
