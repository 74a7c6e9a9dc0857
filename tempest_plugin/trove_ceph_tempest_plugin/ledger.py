# SPDX-License-Identifier: Apache-2.0
"""A client that remembers each commit which the server acknowledged, through failures of it.

The server must have all of them at the end, and no row that this client did not send.
"""

import itertools
import threading
import time
from collections.abc import Callable

import pymysql

from trove_ceph import exceptions, waiting
from trove_ceph_tempest_plugin import mysql

TABLE = 'ledger'
#: A server that is gone answers nothing. A slow one must not be mistaken for it.
REPLY_TIMEOUT_SEC = 15
_RECONNECT_SEC = 0.2
_POLL_SEC = 0.1


class Ledger:
    """Commit numbered rows while entered; reconnect after errors.

    A row whose commit failed may be in the table or not: its number is not used again.
    """

    def __init__(
        self,
        database: mysql.Database,
        clock: Callable[[], float] = time.monotonic,
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
    ):
        self._database = database
        self._clock = clock
        self._start_wait = start_wait
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._sent = 0
        #: The acknowledged numbers with the times of their acknowledgement, in order.
        self._acknowledged: list[tuple[int, float]] = []

    def __enter__(self) -> 'Ledger':
        self._database.query(f'DROP TABLE IF EXISTS {TABLE}')
        self._database.query(f'CREATE TABLE {TABLE} (number BIGINT PRIMARY KEY)')
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopped.set()
        self._thread.join()

    def wait_for_commits(self, commits: int, timeout_sec: float) -> None:
        """Wait until so many further commits are acknowledged.

        :raises TroveCephError: they were not in time
        """
        needed = len(self._acknowledged) + commits
        deadline = self._start_wait(timeout_sec)
        while len(self._acknowledged) < needed:
            if not deadline.pause(_POLL_SEC):
                raise exceptions.TroveCephError(
                    f'{self._database.address.host}: {needed - len(self._acknowledged)} of '
                    f'{commits} commits were not acknowledged within {timeout_sec} s'
                )

    def figures(self) -> dict[str, float]:
        """Return the number of acknowledged commits, and the largest gap between two of them."""
        times = [at for _, at in self._acknowledged]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        return {'commits': len(times), 'gap_max_sec': round(max(gaps, default=0.0), 1)}

    def faults(self, database: mysql.Database | None = None) -> list[str]:
        """Compare the table with what was acknowledged and sent; return what is wrong.

        Call it after the client has stopped.

        :param database: that must have the rows; None: the one to which the client commits
        """
        database = database or self._database
        rows = {number for (number,) in database.query(f'SELECT number FROM {TABLE}')}
        lost = sorted({number for number, _ in self._acknowledged} - rows)
        foreign = sorted(number for number in rows if not 0 < number <= self._sent)
        ((*_, verdict),) = database.query(f'CHECK TABLE {TABLE} EXTENDED')
        faults = [f'{len(lost)} acknowledged commits are lost: {lost[:10]}'] if lost else []
        faults += [f'{len(foreign)} rows were never sent: {foreign[:10]}'] if foreign else []
        return faults + ([] if verdict == 'OK' else [f'CHECK TABLE {TABLE}: {verdict}'])

    def _run(self):
        while not self._stopped.is_set():
            try:
                with self._database.connect(REPLY_TIMEOUT_SEC) as connection:
                    self._commit(connection)
            except (pymysql.MySQLError, OSError):
                self._stopped.wait(_RECONNECT_SEC)

    def _commit(self, connection):
        with connection.cursor() as cursor:
            while not self._stopped.is_set():
                self._sent += 1
                cursor.execute(f'INSERT INTO {TABLE} VALUES (%s)', (self._sent,))
                self._acknowledged.append((self._sent, self._clock()))
