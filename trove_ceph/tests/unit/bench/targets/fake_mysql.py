# SPDX-License-Identifier: Apache-2.0
"""Fake of a MySQL server, with the statements that targets use, for pymysql.connect."""

import re

import pymysql

VARIABLES = {
    'version': '9.7.4',
    'version_comment': 'MySQL',
    'innodb_flush_log_at_trx_commit': '1',
    'sync_binlog': '1',
    'log_bin': 'ON',
}


class FakeMysql:
    """Record schemas; refuse wrong passwords, and changes without privileges.

    :param may_change: whether CREATE and DROP are allowed
    """

    def __init__(self, password='right', may_change=True):
        self.password = password
        self.may_change = may_change
        self.schemas = {'mysql', 'shop'}
        self.endpoints = []
        self.is_up = True

    def connect(self, user, password, host=None, port=None, unix_socket=None, **options):
        self.endpoints.append(unix_socket or (host, port))
        if not self.is_up:
            raise pymysql.err.OperationalError(2003, 'no route to host')
        if password != self.password:
            raise pymysql.err.OperationalError(1045, f"Access denied for user '{user}'")
        return FakeConnection(self)


class FakeConnection:
    def __init__(self, server):
        self._server = server
        self._rows = ()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def cursor(self):
        return self

    def fetchall(self):
        return self._rows

    def execute(self, statement):
        change = re.fullmatch(r'(CREATE DATABASE|DROP DATABASE IF EXISTS) `(\w+)`', statement)
        if change and not self._server.may_change:
            raise pymysql.err.OperationalError(1044, 'Access denied to database')
        if change and change[1] == 'CREATE DATABASE':
            self._server.schemas.add(change[2])
        elif change:
            self._server.schemas.discard(change[2])
        elif statement == 'SHOW DATABASES':
            self._rows = [(name,) for name in sorted(self._server.schemas)]
        elif statement == 'SHOW GLOBAL VARIABLES':
            self._rows = list(VARIABLES.items())
        elif statement == 'SELECT 1':
            self._rows = [(1,)]
        else:
            raise pymysql.err.ProgrammingError(1064, statement)
