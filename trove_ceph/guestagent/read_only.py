# SPDX-License-Identifier: Apache-2.0
"""Servers that refuse writes: replicas, and a source whose writers are to stop.

``super_read_only`` refuses the writes of administrators as well: a single transaction of its own
would keep a replica from following any other server than its source. Events of a clone are enabled,
so the event scheduler of a replica is off.

The options are in the configuration before they take effect, so a server that docker restarts
without the agent does not accept writes either.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pymysql
from oslo_log import log as logging
from trove.guestagent.datastore.mysql_common import service as common_service

from trove_ceph import exceptions
from trove_ceph.guestagent import server, server_config

LOG = logging.getLogger(__name__)

#: Of a server that is no replica.
CHANGE_ID = 'read-only'
REPLICA_CHANGE_ID = common_service.CNF_SLAVE
#: With which a server refuses writes.
REFUSES_WRITES = {'read_only': 'ON', 'super_read_only': 'ON'}
#: A server never follows by itself: its volume may be a clone that still has the identity of its
#: source. The agent has it follow (:mod:`replication`).
REPLICA_OPTIONS = REFUSES_WRITES | {'event_scheduler': 'OFF', 'skip_replica_start': 'ON'}
#: How long a change waits for statements that write; others that write wait behind it.
WAIT_SEC = 15
_TIMEOUT_SEC = 60
_ON = ('ON', '1')


def configure_replica(app: server.MySqlServer) -> None:
    """Configure the options of a replica for the next start; idempotent."""
    options = {server_config.SERVER_SECTION: REPLICA_OPTIONS}
    app.configuration_manager.apply_system_override(options, REPLICA_CHANGE_ID)


def is_configured_replica(app: server.MySqlServer) -> bool:
    """Return whether the server has the options of a replica."""
    return app.configuration_manager.has_system_override(REPLICA_CHANGE_ID)


def is_configured_read_only(app: server.MySqlServer) -> bool:
    """Return whether a server that is no replica is to refuse writes."""
    return app.configuration_manager.has_system_override(CHANGE_ID)


def become_replica(app: server.MySqlServer, wait_sec: int = WAIT_SEC) -> None:
    """Give the running server the options of a replica, also for later starts; idempotent.

    Options that a tenant has persisted would override them at the next start, and are removed.

    :raises NotQuiescedError: a statement that writes does not end; nothing is changed
    """
    was_replica = is_configured_replica(app)
    configure_replica(app)
    try:
        with _cursor(app) as cursor:
            _refuse_writes(cursor, wait_sec)
            _switch_events(cursor, 'OFF')
            _forget_persisted(cursor, REPLICA_OPTIONS)
    except BaseException:
        if not was_replica:
            app.configuration_manager.remove_system_override(REPLICA_CHANGE_ID)
        raise
    app.configuration_manager.remove_system_override(CHANGE_ID)


def become_writable(app: server.MySqlServer) -> None:
    """Have the running server accept writes; one that was a replica runs its events again.

    Idempotent. From its beginning on, the server accepts writes after a restart as well. Events
    that were created on the source after the clone was made stay disabled: the binary log does not
    tell whether they were enabled.
    """
    configured = app.configuration_manager
    configured.remove_system_override(CHANGE_ID)
    was_replica = is_configured_replica(app)
    if was_replica:
        _configure_writable(app)
    with _cursor(app) as cursor:
        # This switches super_read_only off as well.
        cursor.execute('SET GLOBAL read_only = OFF')
        if was_replica:
            _switch_events(cursor, str(configured.effective('event_scheduler') or 'ON').upper())
    # Last: a repetition must know that it was a replica.
    configured.remove_system_override(REPLICA_CHANGE_ID)


def allowed(app: server.MySqlServer, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options that a tenant may change while the server runs.

    Those that make a replica refuse writes and run no events stay; the tenant's configuration has
    the others again when it is promoted or detached.
    """
    if not is_configured_replica(app):
        return options
    return {name: value for name, value in options.items() if name not in REPLICA_OPTIONS}


def refuse_writes(app: server.MySqlServer, wait_sec: int = WAIT_SEC) -> None:
    """Have the running server refuse writes, also after a restart; idempotent.

    Waits for commits: each that was acknowledged is in ``gtid_executed`` afterwards. Options that a
    tenant has persisted would override those for later starts, and are removed.

    :raises NotQuiescedError: a statement that writes does not end; nothing is changed
    """
    configured = app.configuration_manager
    was_configured = is_configured_read_only(app)
    configured.apply_system_override({server_config.SERVER_SECTION: REFUSES_WRITES}, CHANGE_ID)
    try:
        with _cursor(app) as cursor:
            _refuse_writes(cursor, wait_sec)
            _forget_persisted(cursor, REFUSES_WRITES)
    except BaseException:
        if not was_configured:
            configured.remove_system_override(CHANGE_ID)
        raise


def _configure_writable(app: server.MySqlServer) -> None:
    """Leave events and writes to the other options; a repetition still finds a replica."""
    options = {'skip_replica_start': REPLICA_OPTIONS['skip_replica_start']}
    app.configuration_manager.replace_system_override(
        {server_config.SERVER_SECTION: options}, REPLICA_CHANGE_ID
    )


@contextlib.contextmanager
def _cursor(app: server.MySqlServer) -> Iterator[pymysql.cursors.Cursor]:
    with (
        contextlib.closing(app.open_connection(_TIMEOUT_SEC)) as connection,
        connection.cursor() as cursor,
    ):
        yield cursor


def _refuse_writes(cursor: pymysql.cursors.Cursor, wait_sec: int) -> None:
    cursor.execute('SELECT @@GLOBAL.read_only')
    was_read_only = cursor.fetchone()[0]
    try:
        with server.lock_wait(cursor, wait_sec, 'A statement that writes, or a lock of tables,'):
            cursor.execute('SET GLOBAL super_read_only = ON')
    except exceptions.NotQuiescedError:
        if not was_read_only:
            # MySQL switches it on first, before it waits.
            cursor.execute('SET GLOBAL read_only = OFF')
        raise


def _forget_persisted(cursor: pymysql.cursors.Cursor, names: Iterable[str]) -> None:
    for name in names:
        cursor.execute(f'RESET PERSIST IF EXISTS {name}')


def _switch_events(cursor: pymysql.cursors.Cursor, wanted: str) -> None:
    cursor.execute('SELECT @@GLOBAL.event_scheduler')
    present = cursor.fetchone()[0]
    # A server that was started with DISABLED does not change that until it is restarted.
    if present != wanted and 'DISABLED' not in (present, wanted):
        cursor.execute(f"SET GLOBAL event_scheduler = {'ON' if wanted in _ON else 'OFF'}")
