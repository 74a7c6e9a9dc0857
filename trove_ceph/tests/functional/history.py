# SPDX-License-Identifier: Apache-2.0
"""The expected content of a server, computed from its binary log, and its actual content.

The log has the text of each statement (``binlog_rows_query_log_events``), so the expected content
at a position can be computed without records of the writers.
"""

import dataclasses
import re

#: Options of a server whose history can be read, with small binary logs.
OPTIONS = {'binlog_rows_query_log_events': 'ON', 'max_binlog_size': 4 * 1024**2}

_GTID = re.compile(r"'([0-9a-f-]+):(\d+)'")
_ORDER = re.compile(r'INSERT INTO shop\.orders .*VALUES \((\d+), (\d+),', re.DOTALL)
_COMMIT = re.compile(r'REPLACE INTO bench_commits .*VALUES \(1, (\d+)\)', re.DOTALL)
_CREATED = re.compile(r'CREATE TABLE shop\.(shape_\d+)')
_DROPPED = re.compile(r'DROP TABLE .*(shape_\d+)')


@dataclasses.dataclass(frozen=True)
class Content:
    """The content of the writers' tables.

    :param orders: the number of rows of each writer, which are numbered without a gap
    :param commits: the last number that the commit probe wrote
    :param shapes: the tables that are created and dropped
    """

    orders: dict[int, int]
    commits: int
    shapes: frozenset[str]


def content_of(query):
    """Return the content of a server.

    :param query: runs a statement and returns its rows
    :raises AssertionError: the rows of a writer have a gap
    """
    rows = query('SELECT writer, COUNT(*), MAX(number) FROM shop.orders GROUP BY writer')
    for writer, count, highest in rows:
        if count != highest:
            raise AssertionError(f'writer {writer} has {count} rows up to number {highest}')
    ((commits,),) = query('SELECT sequence FROM shop.bench_commits')
    shapes = query(
        'SELECT TABLE_NAME FROM information_schema.TABLES '
        "WHERE TABLE_SCHEMA = 'shop' AND TABLE_NAME REGEXP '^shape_'"
    )
    return Content(
        {writer: count for writer, count, _ in rows}, commits, frozenset(name for (name,) in shapes)
    )


class History:
    """The transactions of a server in the order of its binary log, which must not be purged."""

    def __init__(self, query):
        ((self.server_uuid,),) = query('SELECT @@server_uuid')
        self._statements = {}
        for name, *_ in query('SHOW BINARY LOGS'):
            number = None
            for _, _, kind, _, _, text in query(f"SHOW BINLOG EVENTS IN '{name}'"):
                if kind == 'Gtid':
                    number = int(_GTID.search(text)[2])
                    self._statements[number] = ''
                elif number and (kind == 'Rows_query' or (kind == 'Query' and text != 'BEGIN')):
                    self._statements[number] = text

    def __len__(self):
        return len(self._statements)

    def content(self, position):
        """Return the content of a server that has exactly the transactions of a position.

        :param position: a GTID set of this server only, from the first transaction on
        """
        server_uuid, _, numbers = position.partition(':')
        if server_uuid != self.server_uuid or not re.fullmatch(r'1-\d+', numbers):
            raise AssertionError(f'{position} is not a prefix of the history of {self.server_uuid}')
        orders, commits, shapes = {}, 0, set()
        for number in range(1, int(numbers.partition('-')[2]) + 1):
            text = self._statements[number]
            if order := _ORDER.search(text):
                orders[int(order[1])] = int(order[2])
            elif commit := _COMMIT.search(text):
                commits = int(commit[1])
            elif created := _CREATED.search(text):
                shapes.add(created[1])
            elif dropped := _DROPPED.search(text):
                shapes.remove(dropped[1])
        return Content(orders, commits, frozenset(shapes))
