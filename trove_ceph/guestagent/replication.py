# SPDX-License-Identifier: Apache-2.0
"""The replication strategy of the guest: a replica is a clone of its source's volume.

Trove loads :class:`CloneReplication` by ``repl_strategy`` of the datastore version. A clone has the
position at which it follows in its own ``gtid_executed``, so nothing is dumped and no file tells
it; and no server is restarted, neither the source nor a replica that changes its source.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pymysql
from oslo_log import log as logging
from trove.guestagent.strategies.replication import mysql_gtid

from trove_ceph import exceptions, waiting
from trove_ceph.guestagent import (
    persisted_options,
    read_only,
    replication_status,
    replication_user,
    semi_sync,
    server,
    server_config,
    server_uuid,
)

LOG = logging.getLogger(__name__)

#: The configuration group, ignored by mysqld, with the identity under which the server follows.
CHANGE_ID = 'replication'
_SERVER_UUID = 'replica_uuid'
_REQUEST = 'replica_request'

#: Until a replica has connected to its source.
CONNECT_TIMEOUT_SEC = 60
_POLL_SEC = 0.2
#: A statement that stops replication waits for the transaction that is being applied.
_TIMEOUT_SEC = 120
#: Of one wait for transactions.
MAX_WAIT_SEC = 30
#: A source sends something at least this often, however idle it is.
_HEARTBEAT_SEC = 2
#: After this silence a replica gives its connection up, which the server of a dead host does not
#: close. A busy source or network delays a heartbeat, so that several must be missing in a row. It
#: also bounds the wait for an answer to an attempt to connect.
_SILENCE_SEC = 10
#: Between two attempts to connect, of which the first follows at once.
_RETRY_SEC = 5
# As good as for ever; MySQL 8.4 and later give up after ten attempts by default.
_RETRY_COUNT = 2**31 - 1
_FOLLOW = (
    'CHANGE REPLICATION SOURCE TO SOURCE_HOST = %s, SOURCE_PORT = %s, SOURCE_USER = %s, '
    'SOURCE_PASSWORD = %s, SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1, GET_SOURCE_PUBLIC_KEY = 1, '
    f'SOURCE_CONNECT_RETRY = {_RETRY_SEC}, SOURCE_RETRY_COUNT = {_RETRY_COUNT}, '
    f'SOURCE_HEARTBEAT_PERIOD = {_HEARTBEAT_SEC}'
)
_NET_TIMEOUT = 'replica_net_timeout'
# A channel that an earlier agent has created may have heartbeats every 30 s only: an idle source
# would be taken for a dead one.
_NOTICE_SILENCE = (
    f'SET GLOBAL {_NET_TIMEOUT} = (SELECT CAST(IF(MAX(HEARTBEAT_INTERVAL) BETWEEN 0.001 AND '
    f'{_SILENCE_SEC // 2}, {_SILENCE_SEC}, @@GLOBAL.{_NET_TIMEOUT}) AS UNSIGNED) '
    'FROM performance_schema.replication_connection_configuration)'
)


class CloneReplication(mysql_gtid.MysqlGTIDReplication):
    """Replication by GTIDs with TLS between servers that are clones of each other.

    Trove's words in the names of methods: a master is a source, a slave is a replica, the service
    is the application. All methods are safe to repeat.

    :param clock: seconds of a monotonic clock
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        super().__init__()
        self._clock = clock
        self._sleep = sleep

    def backup_required_for_replication(self):
        """Return False: the clone is made by the taskmanager."""
        return False

    def get_replica_context(self, service, adm, replica_id=None):
        """Create or renew the replication user of a replica; return how to follow this server.

        :param replica_id: None: a user with a random name
        :raises UnsafeSettingsError: this server refuses writes
        """
        with _cursor(service) as cursor:
            _check_writable(cursor)
            user = replication_user.ensure(cursor, replica_id)
        LOG.info('Replication user %s has a new password', user['name'])
        return {
            'master': self.get_master_ref(service, None),
            'replica_conf': {'log_position': {}, 'replication_user': user},
        }

    def enable_as_slave(self, service, master_info, slave_config):
        """Have the running server follow a source, whether it follows another one or none.

        :param slave_config: not used: :mod:`read_only` has the options of a replica
        :raises NotQuiescedError: a statement that writes does not end; nothing is changed
        :raises ServerFailedError: the replica cannot connect or cannot apply; the message has
            MySQL's reason, and the replica continues to try
        """
        read_only.become_replica(service)
        self.connect_to_master(service, master_info)

    def connect_to_master(self, service, master_info):
        """Change the source of a server that refuses writes already; see enable_as_slave.

        :raises ServerFailedError: as there, or the server accepts writes
        """
        source, user = master_info['master'], master_info['replica_conf']['replication_user']
        LOG.info('Following %s:%s as %s', source['host'], source['port'], user['name'])
        with _cursor(service) as cursor:
            if not _refuses_writes(cursor):
                raise exceptions.ServerFailedError(
                    'the server accepts writes, so it must not become a replica: see its log for '
                    'the failed statement of its first start'
                )
            cursor.execute('STOP REPLICA')
            cursor.execute(
                _FOLLOW, (source['host'], source['port'], user['name'], user['password'])
            )
            self._store(service, _find_server_uuid(cursor))
            _start(service, cursor)
        self._wait_until_connected(service)

    def detach_slave(self, service, for_failover):
        """Have the server forget its source, without a restart.

        Unlike Trove's method, it drops no user: that would be a transaction of its own.

        :param for_failover: it continues to refuse writes; otherwise it becomes writable
        :returns: ``replication_user``: the name of its user on the source, None if it had none
        """
        with _dict_cursor(service) as cursor:
            cursor.execute('SHOW REPLICA STATUS')
            channel = cursor.fetchone() or {}
            cursor.execute('STOP REPLICA')
            cursor.execute('RESET REPLICA ALL')
        service.configuration_manager.remove_system_override(CHANGE_ID)
        LOG.info('Detached from %s', channel.get('Source_Host') or 'no source')
        if not for_failover:
            read_only.become_writable(service)
        return {'replication_user': channel.get('Source_User') or None}

    def enable_as_master(self, service, master_config):
        """Have a server that follows no source accept writes, and run its events.

        :param master_config: not used: each server is configured as a source from its first start
        :raises UnsafeSettingsError: it still follows a source
        """
        self._check_has_no_source(service)
        read_only.become_writable(service)

    def make_read_only(self, service: server.MySqlServer, refuses_writes: bool) -> None:
        """Have a server that is no replica refuse writes, or accept them again.

        :raises NotQuiescedError: a statement that writes does not end; nothing is changed
        :raises UnsafeSettingsError: it is to accept writes, and follows a source
        """
        if refuses_writes:
            read_only.refuse_writes(service)
        else:
            self.enable_as_master(service, None)

    def demote_master(self, service):
        """Have a server refuse writes and run no events, as a replica does."""
        read_only.become_replica(service)

    def _check_has_no_source(self, service: server.MySqlServer) -> None:
        channel = _find_channel(service)
        if channel:
            raise exceptions.UnsafeSettingsError(
                f'the server follows {channel["Source_Host"]}: detach it before it accepts writes'
            )

    def stop_receiving(self, service: server.MySqlServer) -> None:
        """Receive no more transactions; those that were received are applied."""
        semi_sync.forget_reconnection(service)
        with _cursor(service) as cursor:
            cursor.execute('STOP REPLICA IO_THREAD')

    def wait_for_gtid(self, service: server.MySqlServer, gtid_set: str, wait_sec: int) -> bool:
        """Return whether the server has executed a GTID set within the time, at most 30 s."""
        with _cursor(service) as cursor:
            cursor.execute(
                'SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)',
                (gtid_set, max(0.001, min(wait_sec, MAX_WAIT_SEC))),
            )
            return cursor.fetchone()[0] == 0

    def drop_users(self, service: server.MySqlServer, keep_replica_ids: list[str]) -> None:
        """Drop the replication users of all replicas except of those."""
        with _cursor(service) as cursor:
            dropped = replication_user.drop_others(cursor, keep_replica_ids)
        if dropped:
            LOG.info('Dropped the replication users %s', ', '.join(dropped))

    def resume(self, service: server.MySqlServer) -> bool:
        """Start replication that a restart of the server has ended; return whether it was started.

        Likewise a receiver that an interrupted switch of semi-synchronous replication has stopped.

        A server on a clone that has not got its own identity yet is left alone: it would follow in
        the name of the server that was cloned. One that accepts writes refuses them first.

        :raises NotQuiescedError: a statement that writes does not end; it does not follow yet
        """
        own_uuid = self._stored(service).get(_SERVER_UUID)
        if not own_uuid:
            return False
        with _dict_cursor(service) as cursor:
            cursor.execute('SHOW REPLICA STATUS')
            channel = cursor.fetchone()
            if not channel or not (_is_idle(channel) or _is_to_reconnect(service, channel)):
                return False
            cursor.execute('SELECT @@server_uuid AS uuid')
            if cursor.fetchone()['uuid'] != own_uuid:
                return False
            _ensure_refuses_writes(service)
            if _is_idle(channel):
                _start(service, cursor)
            else:
                semi_sync.reconnect(cursor)
        semi_sync.forget_reconnection(service)
        LOG.info('Following %s again after an interruption', channel['Source_Host'])
        return True

    def prepare_start(self, service: server.MySqlServer, data_dir: str) -> None:
        """Prepare the start of a replica on its own volume; do nothing for another server.

        Its identity is recorded: if the start fails, and the cause is repaired later,
        :meth:`resume` has it follow. And options that a tenant has persisted, such as when it was
        the source, do not open it: they would override those of a replica.

        :param data_dir: path of the data directory
        """
        if not read_only.is_configured_replica(service):
            return
        persisted_options.remove(service, data_dir, read_only.REFUSES_WRITES)
        if found := server_uuid.find(data_dir):
            self._store(service, found)

    def follow_under_own_identity(self, service: server.MySqlServer) -> None:
        """Have a replica follow again that was started on a volume of its own, its former one."""
        if read_only.is_configured_replica(service):
            with _cursor(service) as cursor:
                self._store(service, _find_server_uuid(cursor))
            self.resume(service)

    def set_request(self, service: server.MySqlServer, request_id: str) -> None:
        """Record for which request the server follows; an agent that restarts knows it then."""
        self._store(service, self._stored(service)[_SERVER_UUID], request_id)

    def is_done(self, service: server.MySqlServer, request_id: str) -> bool:
        """Return whether the server follows for a request."""
        return self._stored(service).get(_REQUEST) == request_id

    def _store(
        self, service: server.MySqlServer, own_uuid: str, request_id: str | None = None
    ) -> None:
        values = {_SERVER_UUID: own_uuid}
        if request_id is not None:
            values[_REQUEST] = request_id
        service.configuration_manager.replace_system_override(
            {server_config.FACTS_SECTION: values}, CHANGE_ID
        )

    def _stored(self, service: server.MySqlServer) -> dict[str, str]:
        names = (_SERVER_UUID, _REQUEST)
        configured = service.configuration_manager
        found = {
            name: configured.get_value(name, section=server_config.FACTS_SECTION) for name in names
        }
        return {name: str(value) for name, value in found.items() if value}

    def _wait_until_connected(self, service: server.MySqlServer) -> None:
        deadline = waiting.Deadline(CONNECT_TIMEOUT_SEC, self._clock, self._sleep)
        while True:
            with contextlib.closing(service.open_connection(_TIMEOUT_SEC)) as connection:
                status = replication_status.read(connection)
            if status['io_state'] == status['sql_state'] == 'ON' and _is_sent(service):
                return
            reason = status['io_error'] or status['sql_error']
            has_given_up = bool(reason) and 'OFF' in (status['io_state'], status['sql_state'])
            if has_given_up or not deadline.pause(_POLL_SEC):
                raise exceptions.ServerFailedError(
                    f'the replica does not follow {status["source_host"]}: '
                    f'{reason or "it gives no reason"}'
                )


def configure(
    app: server.MySqlServer, is_replica: bool, semi_sync_options: Mapping[str, Any] | None
) -> None:
    """Configure what a source or a replica has on its root disk, which may be new; idempotent.

    :param semi_sync_options: the arguments of :func:`.semi_sync.configure`; None: it stays
    """
    if is_replica:
        read_only.configure_replica(app)
    if semi_sync_options is not None:
        semi_sync.configure(app, **semi_sync_options)


@contextlib.contextmanager
def _cursor(
    service: server.MySqlServer, kind: type[pymysql.cursors.Cursor] = pymysql.cursors.Cursor
) -> Iterator[Any]:
    with (
        contextlib.closing(service.open_connection(_TIMEOUT_SEC)) as connection,
        connection.cursor(kind) as cursor,
    ):
        yield cursor


def _dict_cursor(service: server.MySqlServer) -> contextlib.AbstractContextManager[Any]:
    return _cursor(service, pymysql.cursors.DictCursor)


def _find_channel(service: server.MySqlServer) -> dict[str, Any] | None:
    """Return what the server tells of its source; None: it has none."""
    with _dict_cursor(service) as cursor:
        cursor.execute('SHOW REPLICA STATUS')
        return cursor.fetchone()


def _is_sent(service: server.MySqlServer) -> bool:
    """Return whether the source has begun to send a binary log to a server that was told to follow.

    Before, the receiver runs for some milliseconds even if the source refuses it, for instance
    since it has purged binary logs.
    """
    # The change of the source has emptied it.
    return bool((_find_channel(service) or {}).get('Source_Log_File'))


def _start(service: server.MySqlServer, cursor: pymysql.cursors.Cursor) -> None:
    """Start replication; a silent source is noticed, as long as its tenant does not say when."""
    if service.configuration_manager.effective(_NET_TIMEOUT) is None:
        cursor.execute(_NOTICE_SILENCE)
    cursor.execute('START REPLICA')


def _refuses_writes(cursor: pymysql.cursors.Cursor) -> bool:
    cursor.execute('SELECT @@GLOBAL.super_read_only')
    return bool(cursor.fetchone()[0])


def _ensure_refuses_writes(service: server.MySqlServer) -> None:
    """Have a replica refuse writes that a crash or its tenant has opened."""
    with _cursor(service) as cursor:
        if _refuses_writes(cursor):
            return
    LOG.warning('The replica accepts writes: it refuses them before it follows again')
    read_only.become_replica(service)


def _check_writable(cursor: pymysql.cursors.Cursor) -> None:
    if _refuses_writes(cursor):
        raise exceptions.UnsafeSettingsError(
            'the server refuses writes, as a replica does, so it cannot create a replication user: '
            'replicate from its source, or promote it first'
        )


def _find_server_uuid(cursor: pymysql.cursors.Cursor) -> str:
    cursor.execute('SELECT @@server_uuid')
    return cursor.fetchone()[0]


def _is_idle(channel: dict[str, Any]) -> bool:
    """Return whether both threads are stopped without an error, as after a start of the server."""
    return (
        channel['Replica_IO_Running'] == channel['Replica_SQL_Running'] == 'No'
        and not channel['Last_IO_Errno']
        and not channel['Last_SQL_Errno']
    )


def _is_to_reconnect(service: server.MySqlServer, channel: dict[str, Any]) -> bool:
    """Return whether a receiver that has not stopped at an error is to connect again."""
    has_failed = channel['Replica_IO_Running'] == 'No' and channel['Last_IO_Errno']
    return not has_failed and semi_sync.is_to_reconnect(service)
