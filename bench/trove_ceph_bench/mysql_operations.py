# SPDX-License-Identifier: Apache-2.0
"""MySQL's own ways of copying a server as commands: what backups by snapshots are held against.

They read the server of an attempt (``BENCH_HOST`` …) over TCP. What they restore to is a mysqld of
the newest root file system on this host, in a directory that the commands of one contender share:
nobody has to wait for a virtual machine, so restoring is timed in their favour.
"""

import argparse
import contextlib
import json
import os
import random
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pymysql

from trove_ceph import exceptions
from trove_ceph.host import workspace
from trove_ceph.mysql import installation, mysqld
from trove_ceph_bench import model, tables
from trove_ceph_bench.targets import cloud, specification

#: A lock that was left behind is told after this.
LOCK_WAIT_SEC = 5
#: Who MySQL's physical copy logs in as; the password is that of the attempt.
DONOR = 'tcbench_donor'
_PROBE = 'bench_probe'
_ROWS_AT_ONCE = 100
_OPTIONS = 'options.json'
_END_SEC = 60
#: The copy is complete, and the server ended, since nobody is there to start it again.
_ER_RESTART_SERVER_FAILED = 3707
_DUMP = (
    *('--single-transaction', '--set-gtid-purged=OFF', '--no-tablespaces'),
    *('--skip-lock-tables', '--skip-triggers'),
)


class Operations:
    """The verbs.

    :param address: of the server of the attempt
    :param rootfs: with mysqld and MySQL's client programs
    :param phase: called with the name of each part when it is done
    :param enable_root: gives name and password of an administrator of an instance, by its name
    """

    def __init__(
        self,
        address: model.Address,
        rootfs: Path | None,
        phase: Callable[[str], None],
        enable_root: Callable[[str], tuple[str, str]],
        connect: Callable[..., pymysql.Connection] = pymysql.connect,
    ):
        self._address = address
        self._rootfs = rootfs
        self._phase = phase
        self._enable_root = enable_root
        self._connect = connect

    def probe(self) -> None:
        """See that rows and definitions can be changed at once: no lock was left behind."""
        table = f'`{self._address.database}`.{_PROBE}'
        with self._cursor(self._address.user, self._address.password) as cursor:
            cursor.execute(f'SET SESSION lock_wait_timeout = {LOCK_WAIT_SEC}')
            cursor.execute(f'DROP TABLE IF EXISTS {table}')
            cursor.execute(f'CREATE TABLE {table} (id INT PRIMARY KEY)')
            cursor.execute(f'INSERT INTO {table} VALUES (1)')
            cursor.execute(f'DROP TABLE {table}')

    def change(self, rows: int) -> None:
        """Change so many rows of the load's tables, at places that are the same each time."""
        places = random.Random(rows)
        with self._cursor(self._address.user, self._address.password) as cursor:
            cursor.execute(f'USE `{self._address.database}`')
            cursor.execute(f'SELECT name, row_count FROM {tables.REGISTER} ORDER BY name')
            sizes = cursor.fetchall()
            for begin in range(0, rows, _ROWS_AT_ONCE):
                cursor.execute('START TRANSACTION')
                for _ in range(min(_ROWS_AT_ONCE, rows - begin)):
                    table, size = places.choice(sizes)
                    row = places.randint(1, size)
                    cursor.execute(f'UPDATE {table} SET c = REVERSE(c) WHERE id = {row}')
                cursor.execute('COMMIT')

    # A logical copy.

    def dump(self, file: Path) -> None:
        """Write the schema into a file, by mysqldump."""
        with file.open('wb') as output:
            self._run('mysqldump', *_DUMP, self._address.database, stdout=output)

    def load(self, file: Path, directory: Path) -> None:
        """Start a server that ``initialise`` has made, and load a file into it."""
        port = _free_port()
        network = {'skip_networking': False, 'bind_address': '127.0.0.1', 'port': port}
        with self._serving(directory, network) as server:
            self._phase('answers')
            server.query('CREATE DATABASE dumped')
            here = model.Address('root', '', 'dumped', port=port)
            with file.open('rb') as statements:
                self._run('mysql', 'dumped', address=here, stdin=statements)
            self._phase('loaded')

    # A physical copy.

    def initialise(self, directory: Path) -> None:
        """Make an empty server in a directory, in place of all that it holds."""
        self._initialise(directory, {})

    def prepare_clone(self, instance: str, directory: Path) -> None:
        """Make an instance a donor, and an empty server that may receive its data."""
        root, password = self._enable_root(instance)
        with self._cursor(root, password) as cursor:
            if not _has_plugin(cursor):
                cursor.execute("INSTALL PLUGIN clone SONAME 'mysql_clone.so'")
            cursor.execute(f"DROP USER IF EXISTS '{DONOR}'@'%'")
            cursor.execute(
                f"CREATE USER '{DONOR}'@'%%' IDENTIFIED BY %s", (self._address.password,)
            )
            cursor.execute(f"GRANT BACKUP_ADMIN ON *.* TO '{DONOR}'@'%'")
            cursor.execute('SELECT @@innodb_data_file_path, @@innodb_page_size')
            ((system_files, page_bytes),) = cursor.fetchall()
        same = {'innodb_data_file_path': system_files, 'innodb_page_size': page_bytes}
        self._initialise(directory, same)

    def clone(self, directory: Path) -> None:
        """Have the server in a directory take over all that the attempt's holds."""
        with self._serving(directory) as server:
            self._phase('answers')
            server.query("INSTALL PLUGIN clone SONAME 'mysql_clone.so'")
            donor = f'{self._address.host}:{self._address.port}'
            server.query('SET GLOBAL clone_valid_donor_list = %s', donor)
            self._take_over(server)
            if not server.has_ended(_END_SEC):
                raise exceptions.LoadFailedError('the server did not end after it was cloned')
            self._phase('copied')

    def _take_over(self, server: mysqld.Mysqld) -> None:
        address = self._address
        try:
            server.query(
                f"CLONE INSTANCE FROM '{DONOR}'@%s:{address.port} IDENTIFIED BY %s",
                *(address.host, address.password),
            )
        except pymysql.MySQLError as error:
            if error.args[:1] != (_ER_RESTART_SERVER_FAILED,):
                raise

    def start(self, directory: Path) -> None:
        """Start the server in a directory, and end it as soon as it answers."""
        with self._serving(directory):
            self._phase('answers')

    def end_clone(self, instance: str, directory: Path) -> None:
        """Undo what ``prepare_clone`` did, however far it came."""
        root, password = self._enable_root(instance)
        with self._cursor(root, password) as cursor:
            cursor.execute(f"DROP USER IF EXISTS '{DONOR}'@'%'")
            if _has_plugin(cursor):
                cursor.execute('UNINSTALL PLUGIN clone')
        shutil.rmtree(directory, ignore_errors=True)

    # Inside.

    @contextlib.contextmanager
    def _cursor(self, user: str, password: str) -> Iterator[Any]:
        address = self._address
        place: dict[str, Any] = (
            {'unix_socket': address.unix_socket}
            if address.unix_socket
            else {'host': address.host, 'port': address.port}
        )
        with (
            self._connect(user=user, password=password, autocommit=True, **place) as connection,
            connection.cursor() as cursor,
        ):
            yield cursor

    def _run(
        self, program: str, *words: str, address: model.Address | None = None, **streams: Any
    ) -> None:
        """Run one of MySQL's programs.

        :raises LoadFailedError: it failed
        """
        address = address or self._address
        if address.unix_socket:
            raise exceptions.LoadFailedError(f'{program} needs a server that is reached by TCP')
        place = (f'--host={address.host}', f'--port={address.port}', f'--user={address.user}')
        done = subprocess.run(
            ['chroot', str(self._root), program, '--no-defaults', *place, *words],
            env=os.environ | {'MYSQL_PWD': address.password},
            stderr=subprocess.PIPE,
            **{'stdin': subprocess.DEVNULL, **streams},
            check=False,
        )
        if done.returncode:
            said = done.stderr.decode(errors='replace').strip()[-500:]
            raise exceptions.LoadFailedError(f'{program} ended with {done.returncode}: {said}')

    @property
    def _root(self) -> Path:
        if self._rootfs is None:
            raise exceptions.LoadFailedError(
                'there is no MySQL root file system in the cache: build one with '
                'lab/images/build mysql-rootfs'
            )
        return self._rootfs

    def _initialise(self, directory: Path, options: Mapping[str, Any]) -> None:
        """Make an empty server, which is told the same options ever after."""
        shutil.rmtree(directory, ignore_errors=True)
        (directory / 'volume').mkdir(parents=True)
        (directory / _OPTIONS).write_text(json.dumps(options))
        with workspace.Workspace() as place:
            self._server(directory, place, {}).ensure_initialised()

    @contextlib.contextmanager
    def _serving(
        self, directory: Path, options: Mapping[str, Any] | None = None
    ) -> Iterator[mysqld.Mysqld]:
        # What a killed command leaves is cleared by the next.
        with workspace.Workspace() as place:
            with self._server(directory, place, options or {}) as server:
                try:
                    yield server
                finally:
                    server.kill()

    def _server(
        self, directory: Path, place: workspace.Workspace, options: Mapping[str, Any]
    ) -> mysqld.Mysqld:
        kept = json.loads((directory / _OPTIONS).read_text())
        return mysqld.Mysqld(
            installation.Rootfs(self._root),
            directory / 'volume',
            place.path / 'run',
            {'skip_replica_start': True, **kept, **options},
            environment=place.environment,
        )


def _has_plugin(cursor: Any) -> bool:
    cursor.execute("SELECT PLUGIN_NAME FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'clone'")
    return bool(cursor.fetchall())


def _free_port() -> int:
    with socket.create_server(('127.0.0.1', 0)) as probe:
        return probe.getsockname()[1]


_VERBS = {
    'probe': ((), 'see that rows and definitions can be changed at once: no lock was left behind'),
    'change': (('rows',), "change rows of the load's tables, the same each time"),
    'dump': (('file',), 'write the schema into a file, by mysqldump'),
    'initialise': (('directory',), 'make an empty server on this host'),
    'load': (('file', 'directory'), 'start an empty server, and load a file into it'),
    'prepare-clone': (('instance', 'directory'), 'make an instance a donor, and a server empty'),
    'clone': (('directory',), "take over all of the server's data, by MySQL's CLONE plugin"),
    'start': (('directory',), 'start a server on this host, until it answers'),
    'end-clone': (('instance', 'directory'), 'undo what prepare-clone did'),
}


_KINDS: dict[str, Callable[[str], Any]] = {'instance': str, 'rows': int}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verbs and their arguments."""
    verbs = parser.add_subparsers(dest='verb', required=True, metavar='VERB')
    for verb, (names, text) in _VERBS.items():
        command = verbs.add_parser(verb, help=text, description=text)
        for name in names:
            command.add_argument(name, type=_KINDS.get(name, Path), metavar=name.upper())
        command.set_defaults(parameters=names)


def main(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> None:
    """Carry out the verb that was parsed.

    :raises LoadFailedError: the operation failed
    :raises ServerFailedError: a server on this host does not start
    """
    # Ended by its time limit, it gives back what it holds.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    cache = specification.Settings(environ).cache
    operations = Operations(
        _address(environ),
        installation.find_newest_rootfs(cache),
        lambda name: print(f'phase {name}', flush=True),
        _enable_root,
    )
    verb = getattr(operations, arguments.verb.replace('-', '_'))
    try:
        verb(**{name: getattr(arguments, name) for name in arguments.parameters})
    except pymysql.MySQLError as error:
        raise exceptions.LoadFailedError(f'MySQL failed {arguments.verb}: {error}') from error


def _address(environ: Mapping[str, str]) -> model.Address:
    try:
        return model.Address(
            user=environ['BENCH_USER'],
            password=environ['BENCH_PASSWORD'],
            database=environ['BENCH_DATABASE'],
            host=environ['BENCH_HOST'],
            port=int(environ['BENCH_PORT']),
            unix_socket=environ.get('BENCH_SOCKET') or None,
        )
    except KeyError as error:
        raise exceptions.LoadFailedError(
            f'{error.args[0]} is not set: it tells, in plans of operations, where the server is'
        ) from error


def _enable_root(instance: str) -> tuple[str, str]:
    """Give an instance an administrator, whose password is known to nobody afterwards."""
    _, trove = cloud.clients()
    password = secrets.token_urlsafe(24)
    found = [one for one in trove.instances.list() if instance in (one.name, one.id)]
    if len(found) != 1:
        raise exceptions.TargetUnavailableError(
            f'{instance}: Trove lists {len(found)} of this name'
        )
    return trove.root.create_instance_root(found[0].id, password)
