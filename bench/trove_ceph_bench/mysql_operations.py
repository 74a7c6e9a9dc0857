# SPDX-License-Identifier: Apache-2.0
"""Commands that copy a server by MySQL's own tools, to compare snapshot backups with.

They read the server of an attempt (``BENCH_HOST`` …) over TCP. They restore to a mysqld of the
newest root file system on this host, in a directory that the commands of one contender share. A
restore does not wait for a virtual machine to boot, so its time favours these tools.
"""

import argparse
import contextlib
import json
import os
import random
import secrets
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pymysql

from trove_ceph import exceptions
from trove_ceph.host import workspace
from trove_ceph.mysql import installation, mysqld
from trove_ceph_bench import model, operation_output, process_group, tables
from trove_ceph_bench.targets import cloud, specification

#: A statement that waits longer than this for a lock fails.
LOCK_WAIT_SEC = 5
#: The user of MySQL's physical copy; its password is that of the attempt.
DONOR = 'tcbench_donor'
_PROBE_TABLE = 'bench_probe'
_ROWS_PER_TRANSACTION = 100
_OPTIONS_FILE = 'options.json'
_STOP_TIMEOUT_SEC = 60
#: The copy is complete, and the server stopped, because no service manager restarts it.
_ER_RESTART_SERVER_FAILED = 3707
_DUMP = (
    *('--single-transaction', '--set-gtid-purged=OFF', '--no-tablespaces'),
    *('--skip-lock-tables', '--skip-triggers'),
)


class Operations:
    """The verbs of ``trove-ceph-bench mysql``.

    :param address: address of the server of the attempt
    :param rootfs: root file system with mysqld and MySQL's client programs
    :param phase: called with the name of each phase when it ends
    :param enable_root: returns name and password of an administrator of the named instance
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
        """Check that no lock is left: change rows and definitions without waiting for one."""
        table = f'`{self._address.database}`.{_PROBE_TABLE}'
        with self._cursor(self._address.user, self._address.password) as cursor:
            cursor.execute(f'SET SESSION lock_wait_timeout = {LOCK_WAIT_SEC}')
            cursor.execute(f'DROP TABLE IF EXISTS {table}')
            cursor.execute(f'CREATE TABLE {table} (id INT PRIMARY KEY)')
            cursor.execute(f'INSERT INTO {table} VALUES (1)')
            cursor.execute(f'DROP TABLE {table}')

    def change(self, rows: int) -> None:
        """Change a number of rows of the load's tables; the same rows each time."""
        generator = random.Random(rows)
        with self._cursor(self._address.user, self._address.password) as cursor:
            cursor.execute(f'USE `{self._address.database}`')
            cursor.execute(f'SELECT name, row_count FROM {tables.REGISTER} ORDER BY name')
            sizes = cursor.fetchall()
            for begin in range(0, rows, _ROWS_PER_TRANSACTION):
                cursor.execute('START TRANSACTION')
                for _ in range(min(_ROWS_PER_TRANSACTION, rows - begin)):
                    table, size = generator.choice(sizes)
                    row = generator.randint(1, size)
                    cursor.execute(f'UPDATE {table} SET c = REVERSE(c) WHERE id = {row}')
                cursor.execute('COMMIT')

    # A logical copy.

    def dump(self, file: Path) -> None:
        """Write the schema to a file with mysqldump."""
        with file.open('wb') as output:
            self._run('mysqldump', *_DUMP, self._address.database, stdout=output)

    def load(self, file: Path, directory: Path) -> None:
        """Start a server that ``initialise`` created, and load a file into it."""
        port = _free_port()
        network = {'skip_networking': False, 'bind_address': '127.0.0.1', 'port': port}
        with self._serving(directory, network) as server:
            self._phase('answers')
            server.query('CREATE DATABASE dumped')
            address = model.Address('root', '', 'dumped', port=port)
            with file.open('rb') as statements:
                self._run('mysql', 'dumped', address=address, stdin=statements)
            self._phase('loaded')

    # A physical copy.

    def initialise(self, directory: Path) -> None:
        """Create an empty server in a directory; delete its previous content."""
        self._initialise(directory, {})

    def prepare_clone(self, instance: str, directory: Path) -> None:
        """Prepare an instance as donor, and create an empty server that can receive its data."""
        root, password = self._enable_root(instance)
        with self._cursor(root, password) as cursor:
            if not _has_clone_plugin(cursor):
                cursor.execute("INSTALL PLUGIN clone SONAME 'mysql_clone.so'")
            cursor.execute(f"DROP USER IF EXISTS '{DONOR}'@'%'")
            cursor.execute(
                f"CREATE USER '{DONOR}'@'%%' IDENTIFIED BY %s", (self._address.password,)
            )
            cursor.execute(f"GRANT BACKUP_ADMIN ON *.* TO '{DONOR}'@'%'")
            cursor.execute('SELECT @@innodb_data_file_path, @@innodb_page_size')
            ((system_files, page_bytes),) = cursor.fetchall()
        options = {'innodb_data_file_path': system_files, 'innodb_page_size': page_bytes}
        self._initialise(directory, options)

    def clone(self, directory: Path) -> None:
        """Clone all data of the attempt's server into the server in a directory."""
        with self._serving(directory) as server:
            self._phase('answers')
            server.query("INSTALL PLUGIN clone SONAME 'mysql_clone.so'")
            donor = f'{self._address.host}:{self._address.port}'
            server.query('SET GLOBAL clone_valid_donor_list = %s', donor)
            self._clone_from_donor(server)
            if not server.has_ended(_STOP_TIMEOUT_SEC):
                raise exceptions.LoadFailedError(
                    f'the cloned server did not stop within {_STOP_TIMEOUT_SEC} s after the copy'
                )
            self._phase('copied')

    def _clone_from_donor(self, server: mysqld.Mysqld) -> None:
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
        """Start the server in a directory, and stop it as soon as it answers."""
        with self._serving(directory):
            self._phase('answers')

    def end_clone(self, instance: str, directory: Path) -> None:
        """Undo ``prepare_clone``, also if it failed midway."""
        root, password = self._enable_root(instance)
        with self._cursor(root, password) as cursor:
            cursor.execute(f"DROP USER IF EXISTS '{DONOR}'@'%'")
            if _has_clone_plugin(cursor):
                cursor.execute('UNINSTALL PLUGIN clone')
        shutil.rmtree(directory, ignore_errors=True)

    @contextlib.contextmanager
    def _cursor(self, user: str, password: str) -> Iterator[Any]:
        address = self._address
        endpoint: dict[str, Any] = (
            {'unix_socket': address.unix_socket}
            if address.unix_socket
            else {'host': address.host, 'port': address.port}
        )
        with (
            self._connect(user=user, password=password, autocommit=True, **endpoint) as connection,
            connection.cursor() as cursor,
        ):
            yield cursor

    def _run(
        self, program: str, *arguments: str, address: model.Address | None = None, **streams: Any
    ) -> None:
        """Run one of MySQL's programs.

        :raises LoadFailedError: the program failed
        """
        address = address or self._address
        if address.unix_socket:
            raise exceptions.LoadFailedError(
                f'{program} needs TCP, but the target is reached by the socket '
                f'{address.unix_socket}'
            )
        login = (f'--host={address.host}', f'--port={address.port}', f'--user={address.user}')
        result = subprocess.run(
            ['chroot', str(self._root), program, '--no-defaults', *login, *arguments],
            env=os.environ | {'MYSQL_PWD': address.password},
            stderr=subprocess.PIPE,
            **{'stdin': subprocess.DEVNULL, **streams},
            check=False,
        )
        if result.returncode:
            text = result.stderr.decode(errors='replace').strip()[-500:]
            raise exceptions.LoadFailedError(f'{program} exited with {result.returncode}: {text}')

    @property
    def _root(self) -> Path:
        if self._rootfs is None:
            raise exceptions.LoadFailedError(
                'the cache has no MySQL root file system; build one with '
                'lab/images/build mysql-rootfs'
            )
        return self._rootfs

    def _initialise(self, directory: Path, options: Mapping[str, Any]) -> None:
        """Create an empty server, and record the options for its later starts."""
        shutil.rmtree(directory, ignore_errors=True)
        (directory / 'volume').mkdir(parents=True)
        (directory / _OPTIONS_FILE).write_text(json.dumps(options))
        with workspace.Workspace() as scratch:
            self._server(directory, scratch, {}).ensure_initialised()

    @contextlib.contextmanager
    def _serving(
        self, directory: Path, options: Mapping[str, Any] | None = None
    ) -> Iterator[mysqld.Mysqld]:
        # The next command cleans up after a killed one.
        with workspace.Workspace() as scratch:
            with self._server(directory, scratch, options or {}) as server:
                try:
                    yield server
                finally:
                    server.kill()

    def _server(
        self, directory: Path, scratch: workspace.Workspace, options: Mapping[str, Any]
    ) -> mysqld.Mysqld:
        recorded = json.loads((directory / _OPTIONS_FILE).read_text())
        return mysqld.Mysqld(
            installation.Rootfs(self._root),
            directory / 'volume',
            scratch.path / 'run',
            {'skip_replica_start': True, **recorded, **options},
            environment=scratch.environment,
        )


def _has_clone_plugin(cursor: Any) -> bool:
    cursor.execute("SELECT PLUGIN_NAME FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'clone'")
    return bool(cursor.fetchall())


def _free_port() -> int:
    with socket.create_server(('127.0.0.1', 0)) as probe:
        return probe.getsockname()[1]


_VERBS = {
    'probe': ((), 'check that no lock is left: change rows and definitions'),
    'change': (('rows',), "change rows of the load's tables, the same rows each time"),
    'dump': (('file',), 'write the schema to a file with mysqldump'),
    'initialise': (('directory',), 'create an empty server on this host'),
    'load': (('file', 'directory'), 'start an empty server, and load a file into it'),
    'prepare-clone': (
        ('instance', 'directory'),
        'prepare an instance as donor, and create an empty server',
    ),
    'clone': (('directory',), "copy all data of the server with MySQL's CLONE plugin"),
    'start': (('directory',), 'start a server on this host and wait until it answers'),
    'end-clone': (('instance', 'directory'), 'undo prepare-clone'),
}


_TYPES: dict[str, Callable[[str], Any]] = {'instance': str, 'rows': int}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verbs and their arguments to a parser."""
    verbs = parser.add_subparsers(dest='verb', required=True, metavar='VERB')
    for verb, (names, text) in _VERBS.items():
        command = verbs.add_parser(verb, help=text, description=text)
        for name in names:
            command.add_argument(name, type=_TYPES.get(name, Path), metavar=name.upper())
        command.set_defaults(parameters=names)


def main(arguments: argparse.Namespace, environ: Mapping[str, str] = os.environ) -> None:
    """Run the parsed verb.

    :raises LoadFailedError: the operation failed
    :raises ServerFailedError: a server on this host does not start
    """
    process_group.exit_on_sigterm()
    cache = specification.Settings(environ).cache
    operations = Operations(
        _address(environ),
        installation.find_newest_rootfs(cache),
        operation_output.print_phase,
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
            f'{error.args[0]} is not set; plans of operations set it to the address of the server'
        ) from error


def _enable_root(instance: str) -> tuple[str, str]:
    """Enable an instance's root user with a new random password, and return both."""
    _, trove = cloud.clients()
    password = secrets.token_urlsafe(24)
    found = cloud.find_one(trove.instances, instance)
    return trove.root.create_instance_root(found.id, password)
