# SPDX-License-Identifier: Apache-2.0
import dataclasses
from unittest import mock

import pymysql
import testscenarios
from oslotest import base
from trove.common import exception as trove_exceptions

from trove_ceph import exceptions
from trove_ceph.guestagent import backup_settings, settings_history

CONTAINER_PATH = '/var/lib/mysql'
SAFE = {
    'datadir': '/var/lib/mysql/data/',
    'innodb_data_home_dir': '',
    'innodb_log_group_home_dir': './',
    'innodb_undo_directory': './',
    'innodb_doublewrite_dir': '',
    'log_bin_basename': '/var/lib/mysql/data/mysql-bin',
    'log_bin_index': '/var/lib/mysql/data/mysql-bin.index',
    'innodb_flush_log_at_trx_commit': '1',
    'sync_binlog': '1',
    'innodb_doublewrite': 'ON',
    'innodb_flush_method': 'O_DIRECT',
    'log_bin': 'ON',
    'gtid_mode': 'ON',
    'super_read_only': 'OFF',
    'server_uuid': 'a-uuid',
    'gtid_executed': 'a-uuid:1-5,\nb-uuid:1-2',
}
SERVER = backup_settings.ServerFacts(SAFE, True, False, [], [])
VOLUME = backup_settings.VolumeFacts(True, ['rw', 'noatime'], 1 << 30, [], [])


def found(reasons):
    return [(reason.code, reason.object, reason.freeze_suffices) for reason in reasons]


class ServerTestCase(testscenarios.WithScenarios, base.BaseTestCase):
    """Each setting alone, with the expected reason."""

    scenarios = [
        (f'{name}={value}', {'change': {name: value}, 'expected': expected})
        for name, value, expected in (
            ('innodb_flush_log_at_trx_commit', '2', True),
            ('innodb_flush_log_at_trx_commit', '0', False),
            ('sync_binlog', '0', True),
            ('sync_binlog', '100', True),
            ('innodb_doublewrite', 'OFF', True),
            ('innodb_doublewrite', 'DETECT_ONLY', True),
            ('innodb_doublewrite', 'DETECT_AND_RECOVER', None),
            ('innodb_flush_method', 'nosync', True),
            ('innodb_flush_method', 'littlesync', True),
            ('innodb_flush_method', 'fsync', None),
            ('innodb_flush_method', 'O_DIRECT_NO_FSYNC', None),
            ('log_bin', 'OFF', False),
            ('gtid_mode', 'ON_PERMISSIVE', False),
        )
    ]

    def test_setting(self):
        ((name, value),) = self.change.items()
        server = dataclasses.replace(SERVER, variables=SAFE | self.change)
        expected = []
        if self.expected is not None:
            expected = [(name.replace('_', '-'), f'{name}={value}', self.expected)]

        reasons = backup_settings.judge_server(server, CONTAINER_PATH)

        self.assertEqual(expected, found(reasons))
        for reason in reasons:
            self.assertIn(name, reason.remedy)


class JudgementTestCase(base.BaseTestCase):
    def judge(self, **change):
        variables = SAFE | change.pop('variables', {})
        server = dataclasses.replace(SERVER, variables=variables, **change)
        return found(backup_settings.judge_server(server, CONTAINER_PATH))

    def judge_volume(self, **change):
        volume = dataclasses.replace(VOLUME, **change)
        return found(backup_settings.judge_volume(volume, CONTAINER_PATH))

    def test_settings_of_our_template_are_safe(self):
        self.assertEqual([], self.judge())
        self.assertEqual([], self.judge_volume())

    def test_no_binary_log_is_one_reason(self):
        self.assertEqual(
            [('log-bin', 'log_bin=OFF', False)],
            self.judge(variables={'log_bin': 'OFF', 'sync_binlog': '0', 'gtid_mode': 'OFF'}),
        )

    def test_disabled_redo_log(self):
        self.assertEqual(
            [('no-redo-log', 'InnoDB redo log', False)], self.judge(redo_log_enabled=False)
        )

    def test_paths_outside_the_volume(self):
        for name, value, path in (
            ('datadir', '/srv/data/', '/srv/data'),
            ('datadir', '/var/lib/mysqld/', '/var/lib/mysqld'),
            ('innodb_data_home_dir', '/srv/ib', '/srv/ib'),
            ('innodb_log_group_home_dir', '../../redo', '/var/lib/redo'),
            ('innodb_undo_directory', '/srv', '/srv'),
            ('innodb_doublewrite_dir', '/srv', '/srv'),
            ('log_bin_basename', '/var/log/mysql/bin', '/var/log/mysql/bin'),
            ('log_bin_index', '/var/log/mysql/bin.index', '/var/log/mysql/bin.index'),
        ):
            reasons = self.judge(variables={name: value})
            self.assertIn(('outside-volume', False), [(code, ok) for code, _, ok in reasons])
            self.assertTrue(any(text.endswith(f': {path}') for _, text, _ in reasons), reasons)

    def test_other_paths_on_the_volume(self):
        self.assertEqual(
            [], self.judge(variables={'innodb_undo_directory': '../undo'}, files=['../more.ibd'])
        )

    def test_tablespaces_outside_the_volume_are_named_up_to_a_limit(self):
        self.assertEqual(
            [('outside-volume', 'tablespace: /srv/shop/t.ibd', False)],
            self.judge(files=['/srv/shop/t.ibd', '/var/lib/mysql/other/t.ibd']),
        )
        self.assertEqual(20, len(self.judge(files=[f'/srv/{n}.ibd' for n in range(100)])))

    def test_non_transactional_tables(self):
        self.assertEqual(
            [('non-transactional-tables', '2 tables', True)],
            self.judge(tables=[('shop', 'a'), ('shop', 'b')]),
        )

    def test_super_read_only(self):
        stopped = {'super_read_only': 'ON'}

        self.assertEqual(['read-only'], [code for code, _, _ in self.judge(variables=stopped)])
        self.assertEqual([], self.judge(variables=stopped, is_replica=True))

    def test_file_system(self):
        for change, expected in (
            ({'is_mounted': False}, 'outside-volume'),
            ({'mounts_below': ['/var/lib/mysql/data/shop']}, 'outside-volume'),
            ({'options': ['rw', 'nobarrier']}, 'no-barriers'),
            ({'options': ['rw', 'barrier=0']}, 'no-barriers'),
            ({'free_bytes': 1 << 20}, 'volume-full'),
        ):
            ((code, _, freeze_suffices),) = self.judge_volume(**change)
            self.assertEqual((expected, False), (code, freeze_suffices))

    def test_links_out_of_the_volume(self):
        links = [
            ('/var/lib/mysql/data/inside', 'shop'),
            ('/var/lib/mysql/data/shop/t.MYD', '/srv/t.MYD'),
            ('/var/lib/mysql/data/up', '../../../log'),
        ]

        self.assertEqual(
            [
                'symbolic link: /var/lib/mysql/data/shop/t.MYD -> /srv/t.MYD',
                'symbolic link: /var/lib/mysql/data/up -> /var/log',
            ],
            [text for _, text, _ in self.judge_volume(links=links)],
        )


class CheckTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.storage = mock.Mock(
            find_mount=lambda _: ('/dev/vdb', 'xfs'),
            mount_options=lambda _: ['rw'],
            free_bytes=lambda _: 1 << 30,
            used_bytes=lambda _: 1 << 29,
            mounts_below=lambda _: [],
        )
        self.storage.find_links.return_value = []
        self.connection = mock.Mock()

    def check(self, server=SERVER, **options):
        self.patch(backup_settings, 'read_server', lambda connection, container_path: server)
        return backup_settings.check(
            lambda timeout_sec: self.connection, self.storage, '/mnt', **options
        )

    def test_safe_settings(self):
        self.assertEqual(
            {
                'reasons': [],
                'non_transactional_tables': {'count': 0, 'names': []},
                'server_uuid': 'a-uuid',
                'gtid_executed': 'a-uuid:1-5,b-uuid:1-2',
                'filesystem_used_bytes': 1 << 29,
                'settings_id': None,
                'unchanged_sec': 0.0,
                'positions': [],
            },
            self.check(),
        )
        self.connection.close.assert_called_once_with()
        self.storage.find_links.assert_called_once_with('/mnt/data', 2)

    def test_answer_has_the_time_without_changes(self):
        now = 100.0
        history = settings_history.SettingsHistory(clock=lambda: now)
        server = dataclasses.replace(SERVER, evidence='e1')
        self.check(server, history=history)
        now += 30

        answer = self.check(server, history=history)

        self.assertEqual(('e1', 30.0), (answer['settings_id'], answer['unchanged_sec']))
        self.assertEqual(
            [{'age_sec': 30.0, 'gtid_executed': 'a-uuid:1-5,b-uuid:1-2'}], answer['positions']
        )

    def test_answer_is_plain_and_bounded(self):
        tables = [('shop', f't{number}') for number in range(100)]

        answer = self.check(dataclasses.replace(SERVER, tables=tables))

        self.assertEqual(100, answer['non_transactional_tables']['count'])
        self.assertEqual(20, len(answer['non_transactional_tables']['names']))
        self.assertEqual('shop.t0', answer['non_transactional_tables']['names'][0])
        self.assertEqual({'code', 'object', 'remedy', 'freeze_suffices'}, set(answer['reasons'][0]))

    def test_unreachable_server(self):
        for error in (
            pymysql.err.OperationalError(2003, 'connection refused'),
            trove_exceptions.UnprocessableEntity('no password yet'),
        ):
            connect = mock.Mock(side_effect=error)

            answer = backup_settings.check(connect, self.storage, '/mnt')

            self.assertEqual(['server-down'], [reason['code'] for reason in answer['reasons']])
            self.assertIsNone(answer['server_uuid'])
            self.assertIsNone(answer['gtid_executed'])

    def test_data_directory_elsewhere_is_not_searched(self):
        server = dataclasses.replace(SERVER, variables=SAFE | {'datadir': '/srv/data/'})

        self.check(server)

        self.storage.find_links.assert_not_called()

    def test_failed_check_is_a_reason(self):
        self.storage.find_links.side_effect = exceptions.StorageCommandError('find failed')

        answer = self.check()

        self.assertEqual(['not-checked'], [reason['code'] for reason in answer['reasons']])
