# SPDX-License-Identifier: Apache-2.0
"""A server that ran before its instance becomes that of the instance."""

from unittest import mock

import pymysql
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.guestagent import hot_server, restored_server, waiting_messages
from trove_ceph.tests.unit.guestagent import manager_world, waiting_world

SERVER_ID = 42
SETTINGS = {'mysqld': {'server_id': 7, 'max_connections': 100}}


class App:
    """A running server, which records its statements."""

    def __init__(self, case):
        self._case = case
        self.settings = SETTINGS
        self.runs = True
        self.saved, self.statements = {}, []
        self.refuses = None
        self.configuration_manager = mock.Mock(parse_configuration=lambda: self.settings)

    def accepts_password(self):
        if not self.runs:
            raise exceptions.ServerFailedError('it does not answer')
        return self.saved != {'root': 'lost'}

    def open_connection(self, timeout_sec):
        cursor = mock.MagicMock()
        cursor.__enter__.return_value = cursor
        cursor.execute = self.execute
        cursor.fetchone.return_value = ('uuid', '')
        return mock.Mock(cursor=lambda: cursor)

    def execute(self, statement):
        if self.refuses and self.refuses in statement:
            raise pymysql.err.OperationalError(1290, 'refused')
        self.statements.append(statement)

    def save_password(self, user, password):
        self.saved[user] = password


class AdoptTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.app = App(self)
        self.new_settings = {'mysqld': {'server_id': SERVER_ID, 'max_connections': 100}}
        passwords = restored_server.Passwords('for-root', 'for-admin', 'for-remote')
        patch = mock.patch.object(restored_server, 'new_passwords', return_value=passwords)
        patch.start()
        self.addCleanup(patch.stop)

    def adopt(self):
        def configure():
            self.app.settings = self.new_settings

        return hot_server.adopt(self.app, SERVER_ID, configure)

    def assert_not_changed(self):
        self.assertEqual(([], {}), (self.app.statements, self.app.saved))

    def test_new_identity(self):
        self.assertTrue(self.adopt())
        self.assertEqual({'root': 'for-root', 'os_admin': 'for-admin'}, self.app.saved)
        self.assertEqual('SET SESSION sql_log_bin = 0', self.app.statements[0])
        self.assertIn(f'SET GLOBAL server_id = {SERVER_ID}', self.app.statements)
        self.assertIn(
            "ALTER USER 'os_admin'@'localhost' IDENTIFIED BY 'for-admin' ACCOUNT UNLOCK",
            self.app.statements,
        )

    def test_other_settings(self):
        for changes in ({'max_connections': 99}, {'sort_buffer_size': '1M'}):
            self.app = App(self)
            self.new_settings = {'mysqld': {**SETTINGS['mysqld'], **changes}}
            self.assertFalse(self.adopt(), changes)
            self.assert_not_changed()
        self.app = App(self)
        self.new_settings = SETTINGS | {'mysql': {'ssl-mode': 'REQUIRED'}}
        self.assertFalse(self.adopt())

    def test_settings_of_an_extended_volume(self):
        larger = {'innodb_redo_log_capacity': 2**28, 'innodb_io_capacity': 500}
        self.new_settings = {'mysqld': {**SETTINGS['mysqld'], **larger}}
        self.assertTrue(self.adopt())
        self.assertEqual(
            [f'SET GLOBAL {name} = {value}' for name, value in sorted(larger.items())],
            self.app.statements[-3:-1],
        )

    def test_setting_of_an_extended_volume_that_the_server_refuses(self):
        self.new_settings = {'mysqld': {**SETTINGS['mysqld'], 'innodb_redo_log_capacity': 1}}
        self.app.refuses = 'innodb_redo_log_capacity'
        self.assertFalse(self.adopt())
        self.assertEqual({}, self.app.saved)

    def test_server_that_does_not_run(self):
        self.app.runs = False
        self.assertFalse(self.adopt())
        self.assert_not_changed()
        self.assertIs(SETTINGS, self.app.settings)

    def test_server_with_another_password(self):
        self.app.saved = {'root': 'lost'}
        self.assertFalse(self.adopt())
        self.assertEqual([], self.app.statements)

    def test_statement_that_fails(self):
        self.app.refuses = 'SET GLOBAL server_id'
        self.assertFalse(self.adopt())
        self.assertEqual({}, self.app.saved)

    def test_no_statement_of_an_identity_names_a_tenant(self):
        statements = hot_server.identity_statements(restored_server.new_passwords(), SERVER_ID)
        users = {one.split("'")[1] for one in statements if "'@'" in one}
        self.assertEqual({'root', 'os_admin'}, users)


class ManagerTest(manager_world.ManagerTestCase):
    """The guest manager before and after there is an instance."""

    def setUp(self):
        super().setUp()
        self.calls = mock.Mock()
        for name in ('stop_db', 'set_data_dir', 'update_overrides'):
            setattr(self.manager.app, name, getattr(self.calls, name))
        patch = mock.patch('trove_ceph.guestagent.restored_server.RestoredServer')
        self.restored = patch.start()
        self.addCleanup(patch.stop)
        patch = mock.patch('trove_ceph.guestagent.hot_server.adopt')
        self.adopt = patch.start()
        self.addCleanup(patch.stop)

    def prepare(self, **backup_info):
        self.manager.adm = mock.Mock()
        self.manager.adm.is_root_enabled.return_value = False
        self.manager.do_prepare(
            None,
            packages=None,
            databases=[],
            memory_mb=1024,
            users=[],
            device_path='/dev/vdb',
            mount_point='/var/lib/mysql',
            backup_info={'id': 'i', 'storage_driver': 'cinder', 'location': 'x'} | backup_info,
            config_contents='[mysqld]',
            root_password=None,
            overrides=None,
            cluster_config=None,
            snapshot=None,
            ds_version='9.7.4',
        )

    def test_adopted_server_is_not_restarted(self):
        self.adopt.return_value = True
        self.prepare(is_hot=True, volume_gib=3)
        self.volume.ensure_size.assert_called_once_with(3 * 2**30, mock.ANY)
        self.calls.stop_db.assert_not_called()
        self.restored.assert_not_called()
        app, server_id, configure = self.adopt.call_args.args
        self.assertIs(self.manager.app, app)
        self.assertGreater(server_id, 0)
        configure()
        self.configuration.reset_configuration.assert_called_once_with('[mysqld]')

    def test_server_that_cannot_be_adopted_is_restarted(self):
        self.adopt.return_value = False
        self.prepare(is_hot=True)
        self.calls.stop_db.assert_called_once_with()
        self.restored.return_value.start.assert_called_once_with('9.7.4', mock.ANY)

    def test_taskmanager_of_an_earlier_release(self):
        self.adopt.return_value = True
        self.prepare(is_hot=True)
        self.volume.ensure_size.assert_called_once_with(0, mock.ANY)

    def test_volume_that_does_not_get_its_size(self):
        self.volume.ensure_size.side_effect = exceptions.VolumeNotReadyError('too small')
        self.assertRaises(exceptions.VolumeNotReadyError, self.prepare, is_hot=True, volume_gib=3)
        self.adopt.assert_not_called()

    def test_other_clones_are_started_as_ever(self):
        self.prepare()
        self.adopt.assert_not_called()
        self.restored.return_value.start.assert_called_once_with('9.7.4', mock.ANY)

    def test_start_without_an_instance(self):
        self.manager.start_without_instance(waiting_messages.Load(**waiting_world.LOAD))
        self.volume.prepare.assert_called_once()
        self.assertEqual(waiting_world.VOLUME, self.volume.prepare.call_args.kwargs['volume_id'])
        # It is trimmed only when its instance has all its data.
        self.volume.mark_clone.assert_called_once_with()
        self.configuration.reset_configuration.assert_called_once_with('[mysqld]\n')
        self.restored.return_value.start.assert_called_once_with('9.7.4', mock.ANY)
