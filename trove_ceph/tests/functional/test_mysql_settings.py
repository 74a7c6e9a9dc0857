# SPDX-License-Identifier: Apache-2.0
"""A real MySQL accepts the settings unchanged, and agrees with the configuration group rules."""

import dataclasses
import json
import re
import subprocess
import time
from unittest import mock

import pymysql
import sqlalchemy

from trove_ceph.guestagent import server
from trove_ceph.mysql import my_cnf, tuning
from trove_ceph.tests.functional import base, mysqld, workspace

TEMPLATES = base.CHECKOUT / 'etc' / 'trove' / 'templates' / 'mysql'
RULES = TEMPLATES / '9' / 'validation-rules.json'
#: Warnings about the empty password of this test, and about self-signed certificates.
HARMLESS = {'MY-010453', 'MY-010068'}
ER_INCORRECT_GLOBAL_LOCAL_VAR = 1238
TINY = tuning.Machine(768, 1, 1024, 3000)
SMALL = tuning.Machine(2048, 2, 10240, 3000)


def tuned_server(volume, directory, machine, group=None):
    """Return a server with exactly the settings of the template and of one machine.

    Data directories are initialised once in a run: they are the same for every machine.
    """
    template = my_cnf.server_options((TEMPLATES / '9' / 'config.template').read_text())
    computed = tuning.tune(machine).mysqld_options()
    options = {'server_id': 1} | template | computed | (group or {})
    server = mysqld.server(volume, directory, options)
    seed = workspace.shared() / 'tuned-data'
    if not server.data.exists():
        if seed.exists():
            _copy(seed, server.data)
        else:
            server.ensure_initialised()
            _copy(server.data, seed)
    return server


def _copy(source, target):
    subprocess.run(['cp', '-a', str(source), str(target)], check=True, timeout=60)


class MySqlSettingsTest(base.FunctionalTestCase):
    def _serve(self, machine, group=None):
        volume = self.directory / 'volume'
        volume.mkdir(exist_ok=True)
        run = self.directory / ('run-group' if group else 'run')
        return self.enterContext(tuned_server(volume, run, machine, group))

    def _assert_taken_as_they_are(self, machine):
        server = self._serve(machine)
        options = tuning.tune(machine).mysqld_options()

        for name, value in options.items():
            self.assertEqual(((value,),), server.query(f'SELECT @@GLOBAL.{name}'), name)
        self.assertEqual(
            set(), set(re.findall(r'\[Warning\] \[(MY-\d+)', server.log_tail())) - HARMLESS
        )
        return server

    def test_settings_of_a_tiny_machine(self):
        server = self._assert_taken_as_they_are(TINY)

        rows = server.query(
            'SELECT @@log_bin, @@gtid_mode, @@enforce_gtid_consistency, @@log_replica_updates,'
            ' @@sync_binlog, @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite,'
            ' @@innodb_flush_method, @@skip_name_resolve'
        )
        self.assertEqual(((1, 'ON', 'ON', 1, 1, 1, 'ON', 'O_DIRECT', 1),), rows)
        index = (self.directory / 'volume' / 'data' / 'mysql-bin.index').read_text()
        self.assertTrue(index.startswith('./mysql-bin.'), index)
        # Replication status must be readable, or Trove never sees a replica start.
        server.query('SELECT * FROM performance_schema.replication_connection_status')

    def test_settings_follow_a_larger_volume(self):
        server = self._assert_taken_as_they_are(SMALL)
        larger = tuning.tune(tuning.Machine(2048, 2, 1024 * 1024, 20000)).mysqld_options()

        for name in tuning.VOLUME_OPTIONS:
            server.query(f'SET GLOBAL {name} = {larger[name]}')

        for name in tuning.VOLUME_OPTIONS:
            self.assertEqual(((larger[name],),), server.query(f'SELECT @@GLOBAL.{name}'), name)

    def test_running_server_follows_a_slower_tier(self):
        server = self._assert_taken_as_they_are(SMALL)
        slower = tuning.tune(dataclasses.replace(SMALL, volume_iops=60)).mysqld_options()
        self.assertEqual(100, slower['innodb_io_capacity_max'])

        for name in tuning.VOLUME_OPTIONS:
            server.query(f'SET GLOBAL {name} = {slower[name]}')

        for name in tuning.VOLUME_OPTIONS:
            self.assertEqual(((slower[name],),), server.query(f'SELECT @@GLOBAL.{name}'), name)

    def test_server_is_a_source_and_its_binary_logs_are_bounded(self):
        """Defect 9: the first replica restarts its source."""
        mysqld_server = self._serve(TINY)
        engine = sqlalchemy.create_engine(
            f"mysql+pymysql://root@localhost/?unix_socket={self.directory / 'run' / 'mysqld.sock'}"
        )
        self.addCleanup(engine.dispose)
        agent = server.MySqlServer(mock.Mock(), mock.Mock(), lambda *_: TINY, 1)
        agent.get_engine = lambda: engine
        agent._configuration_manager = mock.Mock()
        agent._configuration_manager.has_system_override.return_value = False

        # Otherwise Trove restarts the source.
        self.assertTrue(agent.exists_replication_source_overrides())

        for number in range(4):
            mysqld_server.query(f'CREATE DATABASE d{number}')
            mysqld_server.query('FLUSH BINARY LOGS')
        sizes = [row[1] for row in mysqld_server.query('SHOW BINARY LOGS')]
        budget = sum(sizes[-2:])
        with mysqld_server.connect() as backup, backup.cursor() as cursor:
            cursor.execute('LOCK INSTANCE FOR BACKUP')
            began = time.monotonic()
            self.assertEqual(0, agent.purge_binary_logs(budget))
            self.assertLess(time.monotonic() - began, 60)
            self.assertEqual(len(sizes), len(mysqld_server.query('SHOW BINARY LOGS')))

        self.assertEqual(len(sizes) - 2, agent.purge_binary_logs(budget))

        remaining = [row[1] for row in mysqld_server.query('SHOW BINARY LOGS')]
        self.assertEqual(sizes[-2:], remaining)
        self.assertEqual(0, agent.purge_binary_logs(budget))

    def test_configuration_group_rules(self):
        server = self._serve(TINY)
        known = {
            name: (kind, low, high)
            for name, kind, low, high in server.query(
                'SELECT VARIABLE_NAME, DATA_TYPE, MIN_VALUE, MAX_VALUE'
                ' FROM performance_schema.variables_metadata'
            )
        }
        rules = json.loads(RULES.read_text())['configuration-parameters']

        for rule in rules:
            name = rule['name']
            self.assertIn(name, known)
            kind, low, high = known[name]
            if kind == 'Integer':
                self.assertEqual((int(low), int(high)), (rule['min'], rule['max']), name)
            self.assertEqual(rule['restart_required'], not _is_dynamic(server, name), name)

        # Each must also be a start option; not every variable is one.
        group = {}
        for rule in rules:
            ((value,),) = server.query(f"SELECT @@GLOBAL.{rule['name']}")
            if value is not None:
                # Trove writes a boolean as True or False.
                group[rule['name']] = bool(value) if rule['type'] == 'boolean' else value
        server.stop()
        self._serve(TINY, group)


def _is_dynamic(server, name):
    try:
        server.query(f'SET GLOBAL {name} = @@GLOBAL.{name}')
    except pymysql.err.OperationalError as error:
        if error.args[0] == ER_INCORRECT_GLOBAL_LOCAL_VAR:
            return False
        raise
    return True
