# SPDX-License-Identifier: Apache-2.0
"""Finds what makes a snapshot of the running instance's volume less than a backup.

A snapshot that nothing was stopped for is the state after a power cut. It is a backup when the
server can recover from one: whatever it acknowledged is in its logs, the logs are in order, and all
of it is on this one volume. A snapshot of the frozen volume is the state after the server was
killed, which asks for less: what was written need not have been flushed.
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

#: Where the database's container sees the volume, whatever the host calls that place.
SEEN_AT = '/var/lib/mysql'
#: Names that an answer lists of each kind; there may be any number.
MAX_NAMES = 20
TIMEOUT_SEC = 5
#: With less the server cannot finish a transaction, nor its recovery.
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
#: Settings that can be changed while the server runs, each with the time of its last change.
_CHANGEABLE = (
    *('innodb_flush_log_at_trx_commit', 'sync_binlog', 'innodb_doublewrite'),
    *('gtid_mode', 'super_read_only'),
)
#: What a change leaves behind, and nobody can set back: the microsecond of the last SET of each
#: setting, the number of ALTER INSTANCE statements (which switch the redo log off and on) and of
#: RESET statements (which empty the position), and when the server was started, for they count
#: from there. Neither FLUSH STATUS nor TRUNCATE of the status tables resets them.
EVIDENCE = ('SET_TIME', 'Com_alter_instance', 'Com_reset', 'start of the server')
# Schema directories are in the data directory, and files in those.
_LINK_DEPTH = 2
_MAX_FILES = 1000


@dataclasses.dataclass(frozen=True)
class Reason:
    """Why a snapshot that nothing was stopped for would be no backup.

    :param code: what kind of reason it is, the same in all releases
    :param object: what it is about: a setting with its value, a file, a number of tables
    :param remedy: what somebody can do about it
    :param freeze_suffices: whether a snapshot of the frozen volume is a backup all the same
    """

    code: str
    object: str
    remedy: str
    freeze_suffices: bool = False


@dataclasses.dataclass(frozen=True)
class ServerFacts:
    """What MySQL tells: variables by name, InnoDB's files that are not in the data directory.

    :param evidence: as that of :class:`Settings`
    """

    variables: collections.abc.Mapping[str, str]
    redo_log_enabled: bool
    is_replica: bool
    files: collections.abc.Sequence[str]
    tables: collections.abc.Sequence[tuple[str, str]]
    evidence: str | None = None


@dataclasses.dataclass(frozen=True)
class Settings:
    """What MySQL tells without a look at any file or table.

    :param evidence: a digest that differs after every change, see :data:`EVIDENCE`; None where the
        performance schema is off
    """

    variables: collections.abc.Mapping[str, str]
    redo_log_enabled: bool
    is_replica: bool
    evidence: str | None


@dataclasses.dataclass(frozen=True)
class VolumeFacts:
    """What the machine tells: links below the data directory with their targets, other mounts."""

    is_mounted: bool
    options: collections.abc.Collection[str]
    free_bytes: int
    mounts_below: collections.abc.Sequence[str]
    links: collections.abc.Sequence[tuple[str, str]]


def check(
    connect: backup_lock.Connect,
    storage: filesystem.HostStorage,
    mount_point: str,
    seen_at: str = SEEN_AT,
    history: settings_history.SettingsHistory | None = None,
) -> dict[str, typing.Any]:
    """Look at the running instance; takes no lock, changes nothing, ends within half a minute.

    :param history: of this server's settings
    :returns: ``reasons``, a list of :class:`Reason` as dicts, empty when a snapshot is a backup;
        ``non_transactional_tables`` with ``count`` and up to MAX_NAMES ``names``; ``server_uuid``;
        ``filesystem_used_bytes``, None where that could not be found out;
        ``gtid_executed`` as it was during the check. That is not a backup's position, which is
        known from its clone alone: transactions go on until the snapshot. ``settings_id`` differs
        after each change of a setting, None: this server cannot tell; ``unchanged_sec`` and
        ``positions`` are those of :meth:`.SettingsHistory.observe`.
    """
    server = None
    used_bytes = None
    reasons = []
    proof: dict[str, typing.Any] = {'unchanged_sec': 0.0, 'positions': []}
    try:
        with contextlib.closing(connect(TIMEOUT_SEC)) as connection:
            server = read_server(connection, seen_at)
        if history:
            proof = history.observe(server.evidence, _position(server.variables))
    except (pymysql.MySQLError, trove_exceptions.TroveError) as error:
        reasons.append(
            Reason('server-down', f'MySQL does not answer: {error}', 'start or restart it')
        )
    try:
        datadir = server.variables['datadir'] if server else ''
        reasons += judge_volume(read_volume(storage, mount_point, datadir, seen_at), seen_at)
        used_bytes = storage.used_bytes(mount_point)
    except exceptions.StorageCommandError as error:
        reasons.append(Reason('not-checked', str(error), 'look into the machine'))
    if server:
        reasons += judge_server(server, seen_at)
    LOG.info('Backup settings: %s', [reason.code for reason in reasons] or 'nothing is unsafe')
    return _answer(reasons, server) | proof | {'filesystem_used_bytes': used_bytes}


def observe(connect: backup_lock.Connect, history: settings_history.SettingsHistory) -> None:
    """Remember what the settings are; a server that does not answer is none to remember.

    It costs the server a few milliseconds and no access to any file or table.
    """
    try:
        with (
            contextlib.closing(connect(TIMEOUT_SEC)) as connection,
            connection.cursor() as cursor,
        ):
            found = read_settings(cursor)
    except (pymysql.MySQLError, trove_exceptions.TroveError) as error:
        LOG.info('The settings of the server cannot be read now: %s', error)
        return
    history.observe(found.evidence, _position(found.variables))


def read_settings(cursor: pymysql.cursors.Cursor) -> Settings:
    """Ask MySQL for its settings; each question has a time limit.

    :raises pymysql.MySQLError: it does not answer, or not in time
    """
    cursor.execute(
        f"SET SESSION max_execution_time = {TIMEOUT_SEC * 1000}, SESSION time_zone = '+00:00'"
    )
    # Before the values: a change in between is one that the next evidence shows.
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
        seen = [evidence, values, enabled, is_replica, variables.get('server_uuid')]
        evidence = hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()
    return Settings(variables, enabled, is_replica, evidence)


def _read_evidence(cursor: pymysql.cursors.Cursor) -> str | None:
    """Return what changes have left behind, as text; None where the server does not tell."""
    # Both are read at the instant at which the statement begins.
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


def read_server(connection: pymysql.connections.Connection, seen_at: str) -> ServerFacts:
    """Ask MySQL; each question has a time limit.

    :raises pymysql.MySQLError: it does not answer, or not in time
    """
    with connection.cursor() as cursor:
        settings = read_settings(cursor)
        # Files below the data directory begin with a dot.
        cursor.execute(
            "SELECT FILE_NAME FROM information_schema.FILES WHERE ENGINE = 'InnoDB' "
            "AND FILE_TYPE IN ('TABLESPACE', 'UNDO LOG') "
            'AND FILE_NAME NOT LIKE %s AND FILE_NAME NOT LIKE %s LIMIT %s',
            ('./%', f'{seen_at}/%', _MAX_FILES),
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
    storage: filesystem.HostStorage, mount_point: str, datadir: str, seen_at: str
) -> VolumeFacts:
    """Ask the machine.

    :param datadir: as the server names it; empty when nobody knows
    :raises StorageCommandError: it does not answer
    """
    links = []
    directory = posixpath.normpath(datadir)
    if datadir and _is_inside(directory, seen_at):
        here = posixpath.join(mount_point, posixpath.relpath(directory, seen_at))
        links = [
            (posixpath.join(directory, path), target)
            for path, target in storage.find_links(posixpath.normpath(here), _LINK_DEPTH)
        ]
    return VolumeFacts(
        storage.find_mount(mount_point) is not None,
        storage.mount_options(mount_point),
        storage.free_bytes(mount_point),
        storage.mounts_below(mount_point),
        links,
    )


def judge_server(server: ServerFacts, seen_at: str) -> list[Reason]:
    """Return what MySQL's settings, files and tables speak against."""
    return [
        *_judge_durability(server),
        *_judge_position(server.variables),
        *_judge_places(server, seen_at),
        *_judge_tables(server.tables),
        *_judge_state(server),
    ]


def judge_volume(volume: VolumeFacts, seen_at: str) -> list[Reason]:
    """Return what the volume's file system speaks against."""
    reasons = []
    if not volume.is_mounted:
        reasons.append(_outside('data directory', 'no volume is mounted'))
    for point in volume.mounts_below:
        reasons.append(_outside('another file system', point))
    for path, target in volume.links:
        end = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if not _is_inside(end, seen_at):
            reasons.append(_outside('symbolic link', f'{path} -> {end}'))
    for option in sorted({'nobarrier', 'barrier=0'}.intersection(volume.options)):
        # A freeze asks the device for nothing either.
        reasons.append(Reason('no-barriers', option, 'mount the volume without this option'))
    if volume.free_bytes < MIN_FREE_BYTES:
        free = f'{volume.free_bytes // 1024} KiB free'
        reasons.append(Reason('volume-full', free, 'resize the volume, or delete data'))
    return reasons[:MAX_NAMES]


def _judge_durability(server: ServerFacts) -> list[Reason]:
    """Whether recovery finds what was acknowledged, and finds it whole."""
    values, reasons = server.variables, []
    flush = values['innodb_flush_log_at_trx_commit']
    if flush != '1':
        reasons.append(
            # At 0 a commit is in the binary log while InnoDB still has it in memory alone.
            _setting(values, 'innodb_flush_log_at_trx_commit', '1', freeze_suffices=flush == '2')
        )
    if values['log_bin'] == 'ON' and values['sync_binlog'] != '1':
        reasons.append(_setting(values, 'sync_binlog', '1', freeze_suffices=True))
    if values['innodb_doublewrite'] not in ('ON', 'DETECT_AND_RECOVER'):
        # A page is written in one piece, and a freeze waits for the end of each write.
        reasons.append(_setting(values, 'innodb_doublewrite', 'ON', freeze_suffices=True))
    if values['innodb_flush_method'] in ('nosync', 'littlesync'):
        reasons.append(_setting(values, 'innodb_flush_method', 'O_DIRECT', freeze_suffices=True))
    if not server.redo_log_enabled:
        reasons.append(
            Reason('no-redo-log', 'InnoDB redo log', 'ALTER INSTANCE ENABLE INNODB REDO_LOG')
        )
    return reasons


def _judge_position(values: collections.abc.Mapping[str, str]) -> list[Reason]:
    """Whether the backup's position among the transactions can be told."""
    if values['log_bin'] != 'ON':
        return [_setting(values, 'log_bin', 'ON')]
    if values['gtid_mode'] != 'ON':
        return [_setting(values, 'gtid_mode', 'ON')]
    return []


def _judge_places(server: ServerFacts, seen_at: str) -> list[Reason]:
    """Whether one snapshot has all the files."""
    datadir = server.variables['datadir']
    places = [(what, server.variables.get(name, '')) for name, what in _PATHS.items()]
    places += [('tablespace', name) for name in server.files]
    outside = []
    for what, place in places:
        path = posixpath.normpath(posixpath.join(datadir, place))
        if place and not _is_inside(path, seen_at):
            outside.append(_outside(what, path))
    return outside[:MAX_NAMES]


def _judge_tables(tables: collections.abc.Sequence[tuple[str, str]]) -> list[Reason]:
    """Whether every table is recovered."""
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
    """Whether somebody stopped writes for a reason that a restored instance would share."""
    if server.variables['super_read_only'] != 'ON' or server.is_replica:
        return []
    return [
        Reason(
            'read-only',
            'super_read_only=ON, and no replica',
            'find out why writes were stopped, then SET GLOBAL read_only = OFF',
        )
    ]


def _setting(
    values: collections.abc.Mapping[str, str],
    name: str,
    wanted: str,
    freeze_suffices: bool = False,
) -> Reason:
    return Reason(
        name.replace('_', '-'),
        f'{name}={values[name]}',
        f'{name} = {wanted}, in the configuration group if there is one',
        freeze_suffices,
    )


def _outside(what: str, place: str) -> Reason:
    return Reason('outside-volume', f'{what}: {place}', 'move it to the data volume')


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
