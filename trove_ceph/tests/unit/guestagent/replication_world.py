# SPDX-License-Identifier: Apache-2.0
"""A server that replicates, as a fake that executes the statements of the guest agent."""

from unittest import mock

import pymysql

UUID = '99999999-2222-3333-4444-555555555555'


class Configuration:
    """The overrides of my.cnf, in memory; an existing file is extended, as by Trove."""

    def __init__(self):
        self.overrides = {}

    def apply_system_override(self, options, change_id):
        present = self.overrides.setdefault(change_id, {})
        for section, values in options.items():
            present.setdefault(section, {}).update(values)

    def replace_system_override(self, options, change_id):
        self.overrides.pop(change_id, None)
        self.apply_system_override(options, change_id)

    def remove_system_override(self, change_id):
        self.overrides.pop(change_id, None)

    def has_system_override(self, change_id):
        return change_id in self.overrides

    def get_value(self, key, section):
        found = {}
        for override in self.overrides.values():
            found.update(override.get(section, {}))
        return found.get(key)

    def effective(self, key):
        return self.get_value(key, 'mysqld')


class App:
    """The application of the agent and the server behind it.

    Statements that are not known are recorded only. ``errors`` has the exception of a statement by
    its beginning.
    """

    def __init__(self, uuid=UUID):
        self.configuration_manager = Configuration()
        self.statements = []
        self.errors = {}
        self.uuid = uuid
        self.super_read_only = 0
        self.read_only = 0
        self.events = 'ON'
        self.channel = None
        self.gtid_executed = ''
        self.is_applied = 1
        self.lag_sec = None
        self.worker_error = None
        self.variables = {}
        self.status = {}
        self.users = []
        # The users of the connected replicas.
        self.connected = []
        self.closed = 0

    def open_connection(self, timeout_sec):
        return mock.Mock(cursor=self._cursor, close=self._close)

    def follow(self, **columns):
        """Give the server a source from which it receives."""
        self.channel = {
            'Source_Host': '192.0.2.1',
            'Source_User': 'slave_0123456789',
            'Source_UUID': 'source-uuid',
            'Source_Log_File': 'binlog.000001',
            'Replica_IO_Running': 'Yes',
            'Replica_SQL_Running': 'Yes',
            'Last_IO_Errno': 0,
            'Last_IO_Error': '',
            'Last_SQL_Errno': 0,
            'Last_SQL_Error': '',
            'Retrieved_Gtid_Set': '',
            'Seconds_Behind_Source': 0,
            **columns,
        }

    def executed(self, beginning):
        """Return the statements, with their arguments, that begin so."""
        return [found for found in self.statements if found[0].startswith(beginning)]

    def _close(self):
        self.closed += 1

    def _cursor(self, kind=pymysql.cursors.Cursor):
        cursor = mock.MagicMock()
        cursor.__enter__.return_value = cursor
        rows = []

        def execute(statement, arguments=()):
            for beginning, error in self.errors.items():
                if statement.startswith(beginning):
                    raise error
            self.statements.append((statement, arguments))
            rows[:] = self._rows(statement)

        cursor.execute = execute
        cursor.fetchone = lambda: rows[0] if rows else None
        cursor.fetchall = lambda: tuple(rows)
        return cursor

    def _rows(self, statement):
        receiver, applier = {'Replica_IO_Running': 'Yes'}, {'Replica_SQL_Running': 'Yes'}
        if self.channel:
            self.channel |= {
                'START REPLICA': receiver | applier,
                'START REPLICA IO_THREAD': receiver,
                'STOP REPLICA IO_THREAD': dict.fromkeys(receiver, 'No'),
            }.get(statement, {})
        for beginning, rows in (
            ('SHOW REPLICA STATUS', [self.channel] if self.channel else []),
            ('SELECT @@GLOBAL.super_read_only', [(self.super_read_only,)]),
            ('SELECT @@GLOBAL.read_only', [(self.read_only,)]),
            ('SELECT @@GLOBAL.event_scheduler', [(self.events,)]),
            ('SELECT @@server_uuid AS uuid', [{'uuid': self.uuid}]),
            (
                'SELECT @@server_uuid, ',
                [(self.uuid, self.gtid_executed, self.super_read_only, self.is_applied)],
            ),
            ('SELECT @@server_uuid', [(self.uuid,)]),
            ('SELECT LAST_ERROR_MESSAGE', [(self.worker_error,)] if self.worker_error else []),
            ('SELECT TIMESTAMPDIFF', [(self.lag_sec,)]),
            ('SHOW GLOBAL VARIABLES', list(self.variables.items())),
            ("SHOW GLOBAL STATUS LIKE 'Uptime'", [('Uptime', '60')]),
            ('SHOW GLOBAL STATUS', list(self.status.items())),
            ('SELECT User', [(user,) for user in self.users]),
            (
                'SHOW PROCESSLIST',
                [(9, 'os_admin', 'localhost', None, 'Sleep', 5, '', None)]
                + [
                    (1, user, '192.0.2.7:1', None, 'Binlog Dump GTID', 9, '', None)
                    for user in self.connected
                ],
            ),
            ('SELECT WAIT_FOR_EXECUTED_GTID_SET', [(1 - self.is_applied,)]),
        ):
            if statement.startswith(beginning):
                return rows
        return []
