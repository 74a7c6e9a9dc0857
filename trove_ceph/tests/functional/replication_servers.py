# SPDX-License-Identifier: Apache-2.0
"""Real servers on this host, of which some are clones of another one that runs."""

import os
import signal
import subprocess
import threading

import fixtures
import pymysql

from trove_ceph import exceptions, waiting
from trove_ceph.guestagent import (
    persisted_options,
    read_only,
    replication,
    replication_status,
    restored_server,
    semi_sync,
    server_config,
)
from trove_ceph.tests.functional import base, mysqld, ports

#: On a busy machine.
TIMEOUT_SEC = 120
PASSWORDS = restored_server.Passwords('root-1A', 'admin-1A', 'remote-1A')
PLUGINS = {'plugin_load_add': 'semisync_source.so;semisync_replica.so'}
_INIT_FILE = 'first-start.sql'
_POLL_SEC = 0.1


class Configuration:
    """The configuration of a server in memory, with the calls of Trove's configuration manager."""

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

    def get_value(self, key, section=None, default=None):
        return self._section(section).get(key, default)

    def effective(self, key):
        return self.get_value(key, section=server_config.SERVER_SECTION)

    def mysqld_options(self):
        return self._section(server_config.SERVER_SECTION)

    def _section(self, name):
        found = {}
        for override in self.overrides.values():
            found.update(override.get(name, {}))
        return found


class App:
    """The application of a guest agent around a real server, as far as replication uses it.

    :param server: a sandbox that is not started yet
    """

    def __init__(self, server):
        self.configuration_manager = Configuration()
        self.server = server
        self.password = ''
        self._port = ports.free_port()
        self._options = dict(server.options) | PLUGINS
        self._options |= {'skip_networking': 'OFF', 'port': self._port, 'bind_address': '127.0.0.1'}
        # Servers start as the template has them.
        del self._options['skip_replica_start']

    def start(self, **options):
        """Start the server with its present configuration."""
        self.server.options = self._options | self.configuration_manager.mysqld_options() | options
        self.server.start()

    def restart(self):
        """Restart the server as docker does, without the agent."""
        self.server.stop()
        self.start()

    def get_port(self):
        """Return the port at which a replica reaches the server."""
        return self._port

    def open_connection(self, timeout_sec):
        return self.server.connect(
            password=self.password, read_timeout=timeout_sec, write_timeout=timeout_sec
        )

    def query(self, statement, *arguments):
        """Execute one statement on a new connection and return its rows."""
        with self.open_connection(TIMEOUT_SEC) as connection, connection.cursor() as cursor:
            cursor.execute(statement, arguments or None)
            return cursor.fetchall()

    def value(self, expression):
        """Return the value of an expression."""
        ((value,),) = self.query(f'SELECT {expression}')
        return value

    def status(self):
        """Return what the agent reports."""
        with self.open_connection(TIMEOUT_SEC) as connection:
            return replication_status.read(connection)

    def wait_for_status(self, **expected):
        """Wait until the agent reports these fields; return the whole status."""
        deadline = waiting.Deadline(TIMEOUT_SEC)
        while True:
            status = self.status()
            if all(status[name] == value for name, value in expected.items()):
                return status
            if not deadline.pause(_POLL_SEC):
                raise AssertionError(f'{expected} not within {TIMEOUT_SEC} s: {status}')


class Guest:
    """The guest agent of a server, with the calls of the taskmanager's client."""

    def __init__(self, app, strategy):
        self._verbs = {
            'get_replication_status': lambda _timeout_sec: app.status(),
            'get_replica_context': lambda replica_id: strategy.get_replica_context(
                app, None, replica_id
            ),
            'drop_replication_users': lambda kept: strategy.drop_users(app, list(kept)),
            'make_read_only': lambda read_only: strategy.make_read_only(app, read_only),
            'wait_for_gtid': lambda gtids, wait_sec: strategy.wait_for_gtid(app, gtids, wait_sec),
            'stop_receiving': lambda: strategy.stop_receiving(app),
            'attach_replica': lambda context: strategy.enable_as_slave(app, context, ''),
            'detach_replica': lambda for_failover: strategy.detach_slave(app, for_failover),
            'enable_as_master': lambda: strategy.enable_as_master(app, ''),
            'set_semi_sync': lambda *sides: semi_sync.switch(app, *sides),
        }

    def __getattr__(self, verb):
        def call(*arguments, **named):
            try:
                return self._verbs[verb](*arguments, **named)
            except (pymysql.MySQLError, exceptions.TroveCephError) as error:
                raise exceptions.GuestUnavailableError(f'{verb}: {error}') from error

        return call


class ReplicationTestCase(base.FunctionalTestCase):
    """Base class of tests with the guest's strategy for replicas.

    :ivar source: a server that runs
    :ivar options: of all servers
    """

    app_class = App
    options = {'performance_schema': 'ON'}

    def setUp(self):
        super().setUp()
        self.useFixture(
            fixtures.MonkeyPatch(
                'trove_ceph.guestagent.replication.CloneReplication.get_master_ref',
                lambda _self, app, _info: {'host': '127.0.0.1', 'port': app.get_port()},
            )
        )
        self.strategy = replication.CloneReplication()
        self.source = self.make_app('s', 1)
        self.source.server.ensure_initialised()
        self.source.start()

    def make_app(self, name, server_id):
        """Return an application whose server is not started yet."""
        volume = self.directory / f'{name}v'
        volume.mkdir()
        server = mysqld.durable_server(volume, self.directory / name, server_id)
        server.options |= self.options
        self.addCleanup(server.stop)
        return self.app_class(server)

    def clone_to(self, replica, replica_id, source=None):
        """Start a replica on a clone of a running source, and have it follow.

        :param source: None: the first one
        """
        source = source or self.source
        copy_running(source.server, replica.server.volume)
        start_clone(replica)
        context = self.strategy.get_replica_context(source, None, replica_id)
        self.strategy.connect_to_master(replica, context)

    def move(self, app, is_replica, **semi_sync_options):
        """Start a server that was killed as on a new machine, where only its volume is left."""
        app.configuration_manager = Configuration()
        replication.configure(app, is_replica, semi_sync_options or None)
        app.start()
        self.strategy.follow_under_own_identity(app)

    def catch_up(self, source, replica):
        """Wait until a replica has executed what its source has."""
        executed = source.status()['gtid_executed']
        while not self.strategy.wait_for_gtid(replica, executed, 30):
            self.assertTrue(replica.status()['sql_state'] == 'ON', replica.status())

    def assert_same_transactions(self, source, replica):
        """Assert that neither server has a transaction that the other lacks."""
        self.catch_up(source, replica)
        one, other = source.status()['gtid_executed'], replica.status()['gtid_executed']
        subtracted = 'SELECT GTID_SUBTRACT(%s, %s), GTID_SUBTRACT(%s, %s)'
        self.assertEqual((('', ''),), source.query(subtracted, one, other, other, one))


def copy_running(source, volume):
    """Copy the data of a running server at one instant, as a snapshot of its volume does."""
    os.kill(source.pid, signal.SIGSTOP)
    try:
        # A stopped server runs until each thread has been interrupted.
        _wait_until_stopped(source.pid)
        subprocess.run(['cp', '--archive', '--', str(source.data), str(volume)], check=True)
    finally:
        os.kill(source.pid, signal.SIGCONT)


def start_clone(app):
    """Start a server on a copy for the first time, as a guest agent does."""
    mysqld.remove_server_uuid(app.server)
    app.server.prepare_run()
    read_only.configure_replica(app)
    persisted = app.server.data / persisted_options.FILE
    persisted.write_text(
        persisted_options.without(persisted.read_text(), read_only.REPLICA_OPTIONS)
    )
    path = app.server.socket.parent / _INIT_FILE
    statements = restored_server.statements(PASSWORDS, is_replica=True)
    path.write_text(''.join(f'{statement};\n' for statement in statements))
    app.password = PASSWORDS.root
    app.start(init_file=f'/run/mysqld/{_INIT_FILE}', **restored_server.OPTIONS)
    path.unlink()


class Writer:
    """A thread that inserts rows into ``shop.orders`` of a server until it is stopped."""

    def __init__(self, app):
        self._app = app
        self._stopped = threading.Event()
        self._wrote = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._stopped.set()
        self._thread.join(TIMEOUT_SEC)

    def wait_for_rows(self, count):
        """Wait until it has inserted some more rows."""
        for _ in range(count):
            if not self._wrote.acquire(timeout=TIMEOUT_SEC):
                raise AssertionError('the writer does not write')

    def _run(self):
        with self._app.open_connection(TIMEOUT_SEC) as connection:
            while not self._stopped.is_set():
                try:
                    connection.query('INSERT INTO shop.orders (note) VALUES (UUID())')
                except pymysql.MySQLError:
                    return
                self._wrote.release()


def _wait_until_stopped(pid):
    deadline = waiting.Deadline(TIMEOUT_SEC)
    while _states(pid) != {'T'}:
        if not deadline.pause(0.01):
            raise AssertionError(f'process {pid} does not stop: {_states(pid)}')


def _states(pid):
    tasks = f'/proc/{pid}/task'
    states = set()
    for task in os.listdir(tasks):
        with open(f'{tasks}/{task}/stat', encoding='utf-8') as stat:
            states.add(stat.read().rpartition(')')[2].split()[0])
    return states
