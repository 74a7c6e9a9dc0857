# SPDX-License-Identifier: Apache-2.0
"""Semi-synchronous replication: a commit of the source waits until a replica has received it.

The plugins are loaded at each start, switched off (``plugin_load_add`` of the template). To install
one later would be a write, which a replica refuses.
"""

import contextlib
from typing import Any

import pymysql
from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.guestagent import server, server_config

LOG = logging.getLogger(__name__)

CHANGE_ID = 'semi-sync'
#: Has a fact, which mysqld ignores: a replica is to connect to its source again.
_RECONNECT_CHANGE_ID = 'reconnection'
_RECONNECTS = 'semi_sync_reconnects'
_TIMEOUT_SEC = 60


def switch(app: server.MySqlServer, as_source: bool, as_replica: bool, timeout_ms: int) -> None:
    """Switch both sides on or off, also for later starts; idempotent.

    :param timeout_ms: after which a commit does not wait any longer; until a replica answers again,
        no commit waits
    :raises UnsafeSettingsError: the server has not loaded the plugins
    """
    wanted = _options(as_source, as_replica, timeout_ms)
    with (
        contextlib.closing(app.open_connection(_TIMEOUT_SEC)) as connection,
        connection.cursor() as cursor,
    ):
        present = _settings(cursor)
        if as_source or as_replica:
            _check_plugins(present)
        _configure(app, wanted if as_source or as_replica else {})
        changed = {
            name: value
            for name, value in wanted.items()
            if name in present and present[name] != str(value)
        }
        reconnects = 'rpl_semi_sync_replica_enabled' in changed and _is_receiving(connection)
        if reconnects:
            # A repetition does not see it, if this agent dies.
            options = {server_config.FACTS_SECTION: {_RECONNECTS: True}}
            app.configuration_manager.apply_system_override(options, _RECONNECT_CHANGE_ID)
        for name, value in changed.items():
            cursor.execute(f'SET GLOBAL {name} = {value}')
        if reconnects:
            reconnect(cursor)
            forget_reconnection(app)
    if changed:
        LOG.info('Semi-synchronous replication: %s', changed)


def configure(app: server.MySqlServer, as_source: bool, as_replica: bool, timeout_ms: int) -> None:
    """Configure both sides for the next start, as :func:`switch`; idempotent.

    A source whose replicas have not connected again then holds its first commit up, until one has
    received it, or the timeout is over.
    """
    is_on = as_source or as_replica
    _configure(app, _options(as_source, as_replica, timeout_ms) if is_on else {})


def is_to_reconnect(app: server.MySqlServer) -> bool:
    """Return whether :func:`switch` was interrupted before the source knew of the change."""
    facts = server_config.FACTS_SECTION
    return app.configuration_manager.get_value(_RECONNECTS, section=facts) is not None


def reconnect(cursor: pymysql.cursors.Cursor) -> None:
    """Have a replica tell its source that it acknowledges, or does not any more."""
    try:
        cursor.execute('STOP REPLICA IO_THREAD')
    finally:
        # Also if the answer is lost.
        cursor.execute('START REPLICA IO_THREAD')


def forget_reconnection(app: server.MySqlServer) -> None:
    """Forget it, since the replica has connected, or is to receive no more; idempotent."""
    if is_to_reconnect(app):
        app.configuration_manager.remove_system_override(_RECONNECT_CHANGE_ID)


def _options(as_source: bool, as_replica: bool, timeout_ms: int) -> dict[str, str | int]:
    return {
        'rpl_semi_sync_source_enabled': 'ON' if as_source else 'OFF',
        'rpl_semi_sync_replica_enabled': 'ON' if as_replica else 'OFF',
        'rpl_semi_sync_source_timeout': int(timeout_ms),
    }


def _settings(cursor: pymysql.cursors.Cursor) -> dict[str, str]:
    cursor.execute("SHOW GLOBAL VARIABLES LIKE 'rpl\\_semi\\_sync\\_%'")
    return dict(cursor.fetchall())


def _check_plugins(present: dict[str, str]) -> None:
    for side in ('source', 'replica'):
        if f'rpl_semi_sync_{side}_enabled' not in present:
            raise exceptions.UnsafeSettingsError(
                f'MySQL has not loaded semisync_{side}.so: its configuration is older than '
                'semi-synchronous replication; resize the instance to another flavor and back'
            )


def _configure(app: server.MySqlServer, wanted: dict[str, Any]) -> None:
    # A server without the plugins must start as well.
    options = {f'loose_{name}': value for name, value in wanted.items()}
    configured = app.configuration_manager
    if options:
        configured.replace_system_override({server_config.SERVER_SECTION: options}, CHANGE_ID)
    else:
        configured.remove_system_override(CHANGE_ID)


def _is_receiving(connection: pymysql.connections.Connection) -> bool:
    """Return whether the receiver of a replica runs; one that was stopped stays so."""
    with connection.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute('SHOW REPLICA STATUS')
        channel = cursor.fetchone()
    return bool(channel) and channel['Replica_IO_Running'] != 'No'
