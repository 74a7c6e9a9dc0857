# SPDX-License-Identifier: Apache-2.0
"""Servers that hold the ledger of a client, in memory."""

import contextlib
import threading

import pymysql


class Servers:
    """Servers by host; one without rows does not answer.

    :ivar rows: number of rows in the ledger of each server
    :ivar numbers: the numbers of those that have one
    :ivar dies_after: the number of rows at which a server fails; None: it does not
    :ivar failures: raised by the next statements
    """

    def __init__(self):
        self.rows = {}
        self.numbers = {}
        self.dies_after = None
        self.failures = []
        self.logins = []
        self.lock = threading.Lock()
        self.kills = 0

    def connect(self, **login):
        self.logins.append(login)
        if login['host'] not in self.rows:
            raise pymysql.OperationalError(2003, "Can't connect to MySQL server")
        return _Connection(self, login['host'])

    def kill(self, host):
        """Kill a server; return the numbers of its ledger. Connections break for good."""
        with self.lock:
            self.kills += 1
            del self.rows[host]
            return self.numbers.pop(host, [])


class _Connection:
    def __init__(self, servers, host):
        self._servers = servers
        self._host = host
        self._kills = servers.kills

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def cursor(self):
        return contextlib.nullcontext(self)

    def execute(self, statement, values=()):
        servers = self._servers
        self._statement = statement
        with servers.lock:
            if servers.failures:
                raise servers.failures.pop(0)
            is_dead = self._kills != servers.kills
            if is_dead or servers.rows[self._host] == servers.dies_after:
                raise pymysql.OperationalError(2013, 'Lost connection to MySQL server')
            if statement.startswith('INSERT'):
                servers.rows[self._host] += 1
                servers.numbers.setdefault(self._host, []).extend(values)

    def fetchall(self):
        if 'COUNT' in self._statement:
            return ((self._servers.rows[self._host],),)
        return tuple((number,) for number in self._servers.numbers.get(self._host, ()))
