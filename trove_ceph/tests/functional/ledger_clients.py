# SPDX-License-Identifier: Apache-2.0
"""Clients of a source and its replicas that notice a commit that is lost or half there.

Each commit of the writer has a number, and changes several tables. A reader that sees some of these
changes only, or goes back in time, reports that.
"""

import contextlib
import random
import threading

import pymysql

from trove_ceph import waiting

#: On a busy machine.
TIMEOUT_SEC = 240
_PARTS = 3
_MOST_COLUMNS = 2
_PAUSE_SEC = 0.01
_READ_PAUSE_SEC = 0.2
_RETRY_SEC = 0.05
#: A change of definitions follows after so many commits on average.
_COMMITS_PER_CHANGE = 60
FILL = (
    'CREATE DATABASE shop',
    'CREATE TABLE shop.ledger (number INT PRIMARY KEY)',
    'CREATE TABLE shop.parts (part INT PRIMARY KEY, commits INT NOT NULL)',
    f'INSERT INTO shop.parts VALUES {", ".join(f"({part}, 0)" for part in range(_PARTS))}',
    'CREATE TABLE shop.orders (number INT PRIMARY KEY AUTO_INCREMENT, note TEXT)',
    # Rows of a table without a key are found by their values.
    'CREATE TABLE shop.notes (commit_number INT, note TEXT)',
    'CREATE TABLE shop.events (number INT PRIMARY KEY AUTO_INCREMENT)',
    'CREATE EVENT shop.tick ON SCHEDULE EVERY 1 SECOND DO INSERT INTO shop.events VALUES (NULL)',
    'SET PERSIST event_scheduler = ON',
    'SET PERSIST max_connections = 177',
)
_READ = (
    'SELECT (SELECT COUNT(*) FROM shop.ledger), (SELECT SUM(commits) FROM shop.parts), '
    '(SELECT MAX(number) FROM shop.ledger)'
)
_COLUMNS = (
    'SELECT COLUMN_NAME FROM information_schema.COLUMNS '
    "WHERE TABLE_SCHEMA = 'shop' AND TABLE_NAME = 'orders' AND COLUMN_NAME LIKE 'of\\_%' "
    'ORDER BY COLUMN_NAME'
)


class _Client(threading.Thread):
    """A thread with a loop that the end of a connection does not end."""

    def __init__(self):
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self.error = None

    def run(self):
        try:
            while not self._ended.is_set():
                try:
                    with self.connect() as connection, connection.cursor() as cursor:
                        while not self._ended.is_set():
                            self.work(cursor)
                except (pymysql.MySQLError, OSError):
                    self.note_failure()
                    self._ended.wait(_RETRY_SEC)
        except Exception as error:
            self.error = error

    def note_failure(self):
        """Called when a statement or a connection fails."""

    def end(self):
        self._ended.set()
        self.join(TIMEOUT_SEC)

    def check(self):
        """Raise what the client has found."""
        if self.error is not None:
            raise AssertionError(f'{type(self).__name__}: {self.error!r}') from self.error


class Writer(_Client):
    """Commit numbers on the server that accepts writes.

    :param find_servers: returns the servers that it tries in turn, the one that should accept
        writes first
    """

    def __init__(self, find_servers, seed):
        super().__init__()
        self._find_servers = find_servers
        self._random = random.Random(seed)
        self._failures = 0
        self._is_working = threading.Lock()
        # A lock alone would often go to this thread again.
        self._is_paused = threading.Event()
        self._mutex = threading.Lock()
        self._requested = 0
        self._acknowledged = set()
        self._count = 0
        self._shapes = 0

    @property
    def requested(self):
        """The highest number for which a commit was requested."""
        return self._requested

    def acknowledged(self):
        """Return the numbers of which the client knows that they are committed."""
        with self._mutex:
            return frozenset(self._acknowledged)

    def forget(self, numbers):
        """Forget commits that are known to be lost."""
        with self._mutex:
            self._acknowledged -= numbers

    @contextlib.contextmanager
    def paused(self):
        """Request nothing inside the block; what was requested has ended."""
        self._is_paused.set()
        try:
            with self._is_working:
                yield
        finally:
            self._is_paused.clear()

    def wait_for(self, count):
        """Wait until it has committed some more numbers."""
        # The one that is under way may have been requested before.
        expected = self._count + count + 1
        deadline = waiting.Deadline(TIMEOUT_SEC)
        while self._count < expected:
            self.check()
            if not deadline.pause(0.02):
                raise AssertionError(f'the writer does not commit within {TIMEOUT_SEC} s')

    def connect(self):
        servers = self._find_servers()
        return servers[self._failures % len(servers)].open_connection(TIMEOUT_SEC)

    def note_failure(self):
        self._failures += 1

    def work(self, cursor):
        if not self._is_paused.is_set():
            with self._is_working:
                self._commit(cursor)
                self._failures = 0
                if self._random.randrange(_COMMITS_PER_CHANGE) == 0:
                    self._random.choice((self._shape, self._alter, self._copy))(cursor)
        self._ended.wait(_PAUSE_SEC)

    def _commit(self, cursor):
        with self._mutex:
            self._requested += 1
        number, note = self._requested, 'n' * self._random.randrange(1, 2000)
        cursor.execute('BEGIN')
        cursor.execute('INSERT INTO shop.ledger VALUES (%s)', number)
        cursor.execute('INSERT INTO shop.orders (note) VALUES (%s)', note)
        cursor.execute('INSERT INTO shop.notes VALUES (%s, %s)', (number, note[:20]))
        cursor.execute(
            'UPDATE shop.parts SET commits = commits + 1 WHERE part = %s', number % _PARTS
        )
        cursor.execute('DELETE FROM shop.notes WHERE commit_number < %s', number - 20)
        cursor.execute('COMMIT')
        with self._mutex:
            self._acknowledged.add(number)
            self._count += 1

    def _shape(self, cursor):
        self._shapes += 1
        cursor.execute(f'CREATE TABLE shop.shape_{self._shapes} (number INT PRIMARY KEY)')
        cursor.execute(f'INSERT INTO shop.shape_{self._shapes} VALUES (1), (2)')
        cursor.execute(f'DROP TABLE IF EXISTS shop.shape_{self._shapes - 1}')

    def _copy(self, cursor):
        self._shapes += 1
        cursor.execute(f'CREATE TABLE shop.shape_{self._shapes} AS SELECT * FROM shop.parts')
        cursor.execute(f'TRUNCATE TABLE shop.shape_{self._shapes}')
        cursor.execute(f'DROP TABLE IF EXISTS shop.shape_{self._shapes - 2}')

    def _alter(self, cursor):
        cursor.execute(_COLUMNS)
        columns = [column for (column,) in cursor.fetchall()]
        if len(columns) >= _MOST_COLUMNS:
            cursor.execute(f'ALTER TABLE shop.orders DROP COLUMN {columns[0]}')
        else:
            column = f'of_{self._requested}'
            cursor.execute(f'ALTER TABLE shop.orders ADD COLUMN {column} INT DEFAULT 7')


class Reader(_Client):
    """Check that a server shows each commit as a whole, and never less than before."""

    def __init__(self, app):
        super().__init__()
        self._app = app

    def connect(self):
        self._highest = 0
        return self._app.open_connection(TIMEOUT_SEC)

    def work(self, cursor):
        cursor.execute(_READ)
        ((rows, commits, highest),) = cursor.fetchall()
        if rows != commits or (highest or 0) < self._highest:
            raise AssertionError(
                f'{rows} numbers, {commits} commits, up to {highest} after {self._highest}'
            )
        self._highest = highest or 0
        self._ended.wait(_READ_PAUSE_SEC)


def read_numbers(app):
    """Return the numbers that a server has."""
    return {number for (number,) in app.query('SELECT number FROM shop.ledger')}
