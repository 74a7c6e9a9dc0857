# SPDX-License-Identifier: Apache-2.0
"""Checks whether a snapshot of the running instance's volume is a consistent backup.

A snapshot without quiescing has the state after a power cut. It is a backup if the server can
recover from a power cut: its logs have every acknowledged transaction, the logs are in order, and
all files are on this one volume. A snapshot of the frozen volume has the state after a kill of the
server, which requires less: written data need not have been flushed.
"""

import collections.abc
import contextlib
import dataclasses
import hashlib
import json
import posixpath
import typing

import pymysql
from oslo_log import log as logging
from trove.common import exception as trove_exceptions

from trove_ceph import exceptions
from trove_ceph.guestagent import backup_lock, settings_history
from trove_ceph.host import filesystem

LOG = logging.getLogger(__name__)

#: Mount point of the volume in the container of the database; on the host it may differ.
CONTAINER_PATH = '/var/lib/mysql'
#: Limit of the names of each kind in an answer.
MAX_NAMES = 20
TIMEOUT_SEC = 5
#: With less free space the server can complete neither a transaction nor its recovery.
MIN_FREE_BYTES = 16 * 1024 * 1024

_PATHS = {
    'datadir': 'data directory',
    'innodb_data_home_dir': 'system tablespace',
    'innodb_log_group_home_dir': 'redo log',
    'innodb_undo_directory': 'undo tablespaces',
    'innodb_doublewrite_dir': 'doublewrite buffer',
    'log_bin_basename': 'binary log',
    'log_bin_index': 'binary log index',
}
_VARIABLES = (
    *_PATHS,
    *('innodb_flush_log_at_trx_commit', 'sync_binlog', 'innodb_doublewrite'),
    *('innodb_flush_method', 'log_bin', 'gtid_mode', 'super_read_only'),
    *('server_uuid', 'gtid_executed'),
)
#: Dynamic settings; the server records the time of the last change of each.
_CHANGEABLE = (
    *('innodb_flush_log_at_trx_commit', 'sync_binlog', 'innodb_doublewrite'),
    *('gtid_mode', 'super_read_only'),
)
#: Traces of changes that cannot be reset: the microsecond of the last SET of each setting, the
#: number of ALTER INSTANCE statements (which switch the redo log) and of RESET statements (which
#: clear gtid_executed), and the start of the server, from which these are counted. Neither FLUSH
#: STATUS nor TRUNCATE of the status tables resets them.
EVIDENCE = ('SET_TIME', 'Com_alter_instance', 'Com_reset', 'start of the server')
# The data directory has directories of schemas, and these have files.
_LINK_DEPTH = 2
_MAX_FILES = 1000


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why a snapshot without quiescing would not be a consistent backup.

    :param code: kind of the reason, stable across releases
    :param object: a setting with its value, a file, or a number of tables
    :param remedy: what to do about it
    :param freeze_suffices: whether a snapshot of the frozen volume is consistent nevertheless
    """

    code: str
    object: str
    remedy: str
    freeze_suffices: bool = False


@dataclasses.dataclass(frozen=True)
class ServerFacts:
    """Facts from MySQL.

    :param variables: system variables by name
    :param files: files of InnoDB outside of the data directory
    :param tables: schema and name of the non-transactional tables
    :param evidence: see :class:`Settings`
    """

    variables: collections.abc.Mapping[str, str]
    redo_log_enabled: bool
    is_replica: bool
    files: collections.abc.Sequence[str]
    tables: collections.abc.Sequence[tuple[str, str]]
    evidence: str | None = None


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of MySQL, read without access to files or tables.

    :param evidence: a digest that every change modifies, see :data:`EVIDENCE`; None: the
        Performance Schema is off
    """

    variables: collections.abc.Mapping[str, str]
    redo_log_enabled: bool
    is_replica: bool
    evidence: str | None


@dataclasses.dataclass(frozen=True)
class VolumeFacts:
    """Facts from the operating system.

    :param mounts_below: mount points below the volume
    :param links: symbolic links in the data directory with their targets
    """

    is_mounted: bool
    options: collections.abc.Collection[str]
    free_bytes: int
    mounts_below: collections.abc.Sequence[str]
    links: collections.abc.Sequence[tuple[str, str]]


def check(
    connect: backup_lock.Connect,
    storage: filesystem.HostStorage,
    mount_point: str,
    container_path: str = CONTAINER_PATH,
    history: settings_history.SettingsHistory | None = None,
) -> dict[str, typing.Any]:
    """Check the running instance; takes no lock, changes nothing, returns within 30 s.

    :param history: history of this server's settings
    :returns: ``reasons``, a list of :class:`Reason` as dicts, empty if a snapshot is a backup;
        ``non_transactional_tables`` with ``count`` and up to MAX_NAMES ``names``; ``server_uuid``;
        ``filesystem_used_bytes``, None if unknown; ``gtid_executed`` during the check, which is not
        the position of the backup, as transactions go on until the snapshot; ``settings_id``, which
        differs after each change of a setting, None if unknown; ``unchanged_sec`` and ``positions``
        of :meth:`.SettingsHistory.observe`
    """
    server = None
    used_bytes = None
    reasons = []
    proof: dict[str, typing.Any] = {'unchanged_sec': 0.0, 'positions': []}
    try:
        with contextlib.closing(connect(TIMEOUT_SEC)) as connection:
            server = read_server(connection, container_path)
        if history:
            proof = history.observe(server.evidence, _position(server.variables))
    except (pymysql.MySQLError, trove_exceptions.TroveError) as error:
        reasons.append(
            Reason('server-down', f'MySQL does not answer: {error}', 'start or restart it')
        )
    try:
        datadir = server.variables['datadir'] if server else ''
        reasons += judge_volume(
            read_volume(storage, mount_point, datadir, container_path), container_path
        )
        used_bytes = storage.used_bytes(mount_point)
    except exceptions.StorageCommandError as error:
        reasons.append(Reason('not-checked', str(error), 'inspect the instance'))
    if server:
        reasons += judge_server(server, container_path)
    LOG.info('Backup settings: %s', [reason.code for reason in reasons] or 'nothing is unsafe')
    return _answer(reasons, server) | proof | {'filesystem_used_bytes': used_bytes}


def observe(connect: backup_lock.Connect, history: settings_history.SettingsHistory) -> None:
    """Record the present settings; do nothing if the server does not answer.

    It takes the server a few milliseconds and no access to files or tables.
    """
    try:
        with (
            contextlib.closing(connect(TIMEOUT_SEC)) as connection,
            connection.cursor() as cursor,
        ):
            found = read_settings(cursor)
    except (pymysql.MySQLError, trove_exceptions.TroveError) as error:
        LOG.info('Reading the settings of the server failed: %s', error)
        return
    history.observe(found.evidence, _position(found.variables))


def read_settings(cursor: pymysql.cursors.Cursor) -> Settings:
    """Read the settings from MySQL; each statement has a time limit.

    :raises pymysql.MySQLError: the server does not answer in time
    """
    cursor.execute(
        f"SET SESSION max_execution_time = {TIMEOUT_SEC * 1000}, SESSION time_zone = '+00:00'"
    )
    # Read before the values: the next evidence shows a change in between.
    evidence = _read_evidence(cursor)
    cursor.execute('SHOW GLOBAL VARIABLES WHERE Variable_name IN %s', (_VARIABLES,))
    variables = dict(cursor.fetchall())
    cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_redo_log_enabled'")
    redo_log = dict(cursor.fetchall())
    cursor.execute('SHOW REPLICA STATUS')
    is_replica = bool(cursor.fetchall())
    enabled = redo_log.get('Innodb_redo_log_enabled', 'ON') == 'ON'
    if evidence is not None:
        values = {name: variables.get(name) for name in _CHANGEABLE}
        observed = [evidence, values, enabled, is_replica, variables.get('server_uuid')]
        evidence = hashlib.sha256(json.dumps(observed, sort_keys=True).encode()).hexdigest()
    return Settings(variables, enabled, is_replica, evidence)


def _read_evidence(cursor: pymysql.cursors.Cursor) -> str | None:
    """Return the traces of changes as text; None: the server does not provide them."""
    # Both values are as of the start of the statement.
    cursor.execute(
        'SELECT UNIX_TIMESTAMP() - VARIABLE_VALUE FROM performance_schema.global_status '
        "WHERE VARIABLE_NAME = 'Uptime'"
    )
    started = cursor.fetchall()
    cursor.execute("SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_alter_instance', 'Com_reset')")
    counted = sorted(cursor.fetchall())
    cursor.execute(
        'SELECT VARIABLE_NAME, CAST(SET_TIME AS CHAR) FROM performance_schema.variables_info '
        'WHERE VARIABLE_NAME IN %s ORDER BY VARIABLE_NAME',
        (_CHANGEABLE,),
    )
    changed = cursor.fetchall()
    if not started or len(counted) != 2 or len(changed) != len(_CHANGEABLE):
        return None
    return json.dumps([str(started[0][0]), list(counted), list(changed)])


def _position(variables: collections.abc.Mapping[str, str]) -> str | None:
    return variables.get('gtid_executed', '').replace('\n', '') or None


def read_server(connection: pymysql.connections.Connection, container_path: str) -> ServerFacts:
    """Read facts from MySQL; each statement has a time limit.

    :raises pymysql.MySQLError: the server does not answer in time
    """
    with connection.cursor() as cursor:
        settings = read_settings(cursor)
        # Names of files in the data directory begin with a dot.
        cursor.execute(
            "SELECT FILE_NAME FROM information_schema.FILES WHERE ENGINE = 'InnoDB' "
            "AND FILE_TYPE IN ('TABLESPACE', 'UNDO LOG') "
            'AND FILE_NAME NOT LIKE %s AND FILE_NAME NOT LIKE %s LIMIT %s',
            ('./%', f'{container_path}/%', _MAX_FILES),
        )
        files = [name for (name,) in cursor.fetchall()]
        tables = backup_lock.non_transactional_tables(cursor)
    return ServerFacts(
        settings.variables,
        settings.redo_log_enabled,
        settings.is_replica,
        files,
        tables,
        settings.evidence,
    )


def read_volume(
    storage: filesystem.HostStorage, mount_point: str, datadir: str, container_path: str
) -> VolumeFacts:
    """Read facts from the operating system.

    :param datadir: data directory as the server names it; empty: unknown
    :raises StorageCommandError: a command failed
    """
    links = []
    directory = posixpath.normpath(datadir)
    if datadir and _is_inside(directory, container_path):
        host_path = posixpath.join(mount_point, posixpath.relpath(directory, container_path))
        links = [
            (posixpath.join(directory, path), target)
            for path, target in storage.find_links(posixpath.normpath(host_path), _LINK_DEPTH)
        ]
    return VolumeFacts(
        storage.find_mount(mount_point) is not None,
        storage.mount_options(mount_point),
        storage.free_bytes(mount_point),
        storage.mounts_below(mount_point),
        links,
    )


def judge_server(server: ServerFacts, container_path: str) -> list[Reason]:
    """Return the reasons against a backup in MySQL's settings, files and tables."""
    return [
        *_judge_durability(server),
        *_judge_position(server.variables),
        *_judge_paths(server, container_path),
        *_judge_tables(server.tables),
        *_judge_state(server),
    ]


def judge_volume(volume: VolumeFacts, container_path: str) -> list[Reason]:
    """Return the reasons against a backup in the volume's file system."""
    reasons = []
    if not volume.is_mounted:
        reasons.append(_outside('data directory', 'no volume is mounted'))
    for point in volume.mounts_below:
        reasons.append(_outside('another file system', point))
    for path, target in volume.links:
        resolved = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if not _is_inside(resolved, container_path):
            reasons.append(_outside('symbolic link', f'{path} -> {resolved}'))
    for option in sorted({'nobarrier', 'barrier=0'}.intersection(volume.options)):
        # A freeze does not flush the device either.
        reasons.append(Reason('no-barriers', option, 'mount the volume without this option'))
    if volume.free_bytes < MIN_FREE_BYTES:
        free = f'{volume.free_bytes // 1024} KiB free'
        reasons.append(Reason('volume-full', free, 'resize the volume, or delete data'))
    return reasons[:MAX_NAMES]


def _judge_durability(server: ServerFacts) -> list[Reason]:
    """Check that recovery finds every acknowledged transaction and intact pages."""
    values, reasons = server.variables, []
    flush = values['innodb_flush_log_at_trx_commit']
    if flush != '1':
        reasons.append(
            # At 0 the binary log may have a commit that InnoDB has in memory only.
            _setting(values, 'innodb_flush_log_at_trx_commit', '1', freeze_suffices=flush == '2')
        )
    if values['log_bin'] == 'ON' and values['sync_binlog'] != '1':
        reasons.append(_setting(values, 'sync_binlog', '1', freeze_suffices=True))
    if values['innodb_doublewrite'] not in ('ON', 'DETECT_AND_RECOVER'):
        # A freeze waits for running writes, so no page is torn.
        reasons.append(_setting(values, 'innodb_doublewrite', 'ON', freeze_suffices=True))
    if values['innodb_flush_method'] in ('nosync', 'littlesync'):
        reasons.append(_setting(values, 'innodb_flush_method', 'O_DIRECT', freeze_suffices=True))
    if not server.redo_log_enabled:
        reasons.append(
            Reason('no-redo-log', 'InnoDB redo log', 'ALTER INSTANCE ENABLE INNODB REDO_LOG')
        )
    return reasons


def _judge_position(values: collections.abc.Mapping[str, str]) -> list[Reason]:
    """Check that the position of the backup among the transactions can be determined."""
    if values['log_bin'] != 'ON':
        return [_setting(values, 'log_bin', 'ON')]
    if values['gtid_mode'] != 'ON':
        return [_setting(values, 'gtid_mode', 'ON')]
    return []


def _judge_paths(server: ServerFacts, container_path: str) -> list[Reason]:
    """Check that all files are on the volume."""
    datadir = server.variables['datadir']
    paths = [(what, server.variables.get(name, '')) for name, what in _PATHS.items()]
    paths += [('tablespace', name) for name in server.files]
    outside = []
    for what, path in paths:
        resolved = posixpath.normpath(posixpath.join(datadir, path))
        if path and not _is_inside(resolved, container_path):
            outside.append(_outside(what, resolved))
    return outside[:MAX_NAMES]


def _judge_tables(tables: collections.abc.Sequence[tuple[str, str]]) -> list[Reason]:
    """Check that every table has crash recovery."""
    if not tables:
        return []
    return [
        Reason(
            'non-transactional-tables',
            f'{len(tables)} tables',
            'ALTER TABLE ... ENGINE = InnoDB',
            freeze_suffices=True,
        )
    ]


def _judge_state(server: ServerFacts) -> list[Reason]:
    """Check that writes are not stopped, because a restored instance might have the same cause."""
    if server.variables['super_read_only'] != 'ON' or server.is_replica:
        return []
    return [
        Reason(
            'read-only',
            'super_read_only=ON on a server that is not a replica',
            'find out why writes were stopped, then SET GLOBAL read_only = OFF',
        )
    ]


def _setting(
    values: collections.abc.Mapping[str, str],
    name: str,
    safe_value: str,
    freeze_suffices: bool = False,
) -> Reason:
    return Reason(
        name.replace('_', '-'),
        f'{name}={values[name]}',
        f'set {name} = {safe_value}, in the configuration group if there is one',
        freeze_suffices,
    )


def _outside(what: str, path: str) -> Reason:
    return Reason('outside-volume', f'{what}: {path}', 'move it to the data volume')


def _is_inside(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f'{directory}/')


def _answer(reasons: list[Reason], server: ServerFacts | None) -> dict[str, typing.Any]:
    tables = server.tables if server else []
    variables = server.variables if server else {}
    return {
        'reasons': [dataclasses.asdict(reason) for reason in reasons],
        'non_transactional_tables': {
            'count': len(tables),
            'names': [f'{schema}.{name}' for schema, name in tables[:MAX_NAMES]],
        },
        'server_uuid': variables.get('server_uuid'),
        'gtid_executed': _position(variables),
        'settings_id': server.evidence if server else None,
    }
