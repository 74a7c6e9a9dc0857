# SPDX-License-Identifier: Apache-2.0
"""What a server knows of its replication: positions, threads, errors, lag."""

from typing import Any

import pymysql

_MAX_ERROR_CHARACTERS = 500
_RUNNING = {'Yes': 'ON', 'Connecting': 'CONNECTING'}
# The transactions that are being applied, by the clock of the server that committed them. Without
# parallel workers, the coordinator's table is empty and there is one worker.
_OLDEST_APPLYING = (
    'SELECT TIMESTAMPDIFF(MICROSECOND, MIN(started), NOW(6)) / 1000000 FROM ('
    'SELECT APPLYING_TRANSACTION_ORIGINAL_COMMIT_TIMESTAMP AS started '
    'FROM performance_schema.replication_applier_status_by_worker '
    "WHERE APPLYING_TRANSACTION <> '' AND CHANNEL_NAME = '' UNION ALL "
    'SELECT PROCESSING_TRANSACTION_ORIGINAL_COMMIT_TIMESTAMP '
    'FROM performance_schema.replication_applier_status_by_coordinator '
    "WHERE PROCESSING_TRANSACTION <> '' AND CHANNEL_NAME = '') AS transactions "
    "WHERE started > '1970-01-02'"
)
# SHOW REPLICA STATUS refers to it only.
_WORKER_ERROR = (
    'SELECT LAST_ERROR_MESSAGE FROM performance_schema.replication_applier_status_by_worker '
    "WHERE LAST_ERROR_NUMBER <> 0 AND CHANNEL_NAME = '' ORDER BY LAST_ERROR_TIMESTAMP LIMIT 1"
)


def read(connection: pymysql.connections.Connection) -> dict[str, Any]:
    """Return the fields of ReplicationStatus (strategies), as plain values.

    :raises pymysql.MySQLError: the server does not answer
    """
    with connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute('SHOW REPLICA STATUS')
        channel = cursor.fetchone() or {}
    received = _joined(channel.get('Retrieved_Gtid_Set', ''))
    with connection.cursor() as cursor:
        cursor.execute(
            'SELECT @@server_uuid, @@GLOBAL.gtid_executed, @@GLOBAL.super_read_only, '
            'GTID_SUBSET(%s, @@GLOBAL.gtid_executed)',
            (received,),
        )
        server_uuid, gtid_executed, is_read_only, is_applied = cursor.fetchone()
        lag_sec = _find_lag_sec(cursor, channel, bool(is_applied))
        sql_error = _find_worker_error(cursor, channel) or channel.get('Last_SQL_Error', '')
        semi_sync = _semi_sync(cursor)
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Uptime'")
        uptime_sec = int(cursor.fetchone()[1])
    return {
        'server_uuid': server_uuid,
        'gtid_executed': _joined(gtid_executed),
        'gtid_received': received,
        'is_replica': bool(channel),
        'source_host': channel.get('Source_Host') or '',
        'source_uuid': channel.get('Source_UUID') or '',
        'io_state': _RUNNING.get(channel.get('Replica_IO_Running', ''), 'OFF'),
        'sql_state': _RUNNING.get(channel.get('Replica_SQL_Running', ''), 'OFF'),
        'io_error': _line(channel.get('Last_IO_Error', '')),
        'sql_error': _line(sql_error),
        'io_error_number': int(channel.get('Last_IO_Errno', 0)),
        'sql_error_number': int(channel.get('Last_SQL_Errno', 0)),
        'lag_sec': lag_sec,
        'is_read_only': bool(is_read_only),
        'uptime_sec': uptime_sec,
        **semi_sync,
    }


def _find_lag_sec(
    cursor: pymysql.cursors.Cursor, channel: dict[str, Any], is_applied: bool
) -> float | None:
    """Return the age of the oldest transaction that is received and not applied.

    Without a connection to its source, a replica does not know what it has not received.

    :param is_applied: all that was received is applied
    :returns: None: not known
    """
    threads = (channel.get('Replica_IO_Running'), channel.get('Replica_SQL_Running'))
    if threads != ('Yes', 'Yes'):
        return None
    if is_applied:
        return 0.0
    cursor.execute(_OLDEST_APPLYING)
    age_sec = cursor.fetchone()[0]
    if age_sec is None:
        # Between two transactions, or the performance schema is off: in whole seconds.
        age_sec = channel.get('Seconds_Behind_Source')
    # The clock of the source may be ahead.
    return None if age_sec is None else max(float(age_sec), 0.0)


def _find_worker_error(cursor: pymysql.cursors.Cursor, channel: dict[str, Any]) -> str | None:
    if not channel.get('Last_SQL_Errno'):
        return None
    cursor.execute(_WORKER_ERROR)
    row = cursor.fetchone()
    return row[0] if row else None


def _semi_sync(cursor: pymysql.cursors.Cursor) -> dict[str, Any]:
    # Without the plugins, the server has neither.
    cursor.execute("SHOW GLOBAL VARIABLES LIKE 'rpl\\_semi\\_sync\\_%\\_enabled'")
    enabled = dict(cursor.fetchall())
    cursor.execute("SHOW GLOBAL STATUS LIKE 'Rpl\\_semi\\_sync\\_source\\_%'")
    status = dict(cursor.fetchall())
    return {
        'semi_sync_source': enabled.get('rpl_semi_sync_source_enabled') == 'ON',
        'semi_sync_replica': enabled.get('rpl_semi_sync_replica_enabled') == 'ON',
        'semi_sync_clients': int(status.get('Rpl_semi_sync_source_clients', 0)),
        'semi_sync_waits': status.get('Rpl_semi_sync_source_status') == 'ON',
    }


def _joined(gtid_set: str) -> str:
    return ''.join(gtid_set.split())


def _line(text: str) -> str:
    return ' '.join(text.split())[:_MAX_ERROR_CHARACTERS]
