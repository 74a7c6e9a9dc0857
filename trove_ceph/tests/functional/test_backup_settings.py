# SPDX-License-Identifier: Apache-2.0
"""Unsafe settings that the guest agent finds on a real server with a real XFS volume."""

import pathlib

from oslo_utils import units

from trove_ceph.guestagent import backup_settings, settings_history
from trove_ceph.tests.functional import test_quiesce


class SettingsTest(test_quiesce.VolumeTestCase):
    def _codes(self):
        return [reason['code'] for reason in self._check()['reasons']]

    def test_settings_of_a_running_server(self):
        server = self._serve(innodb_directories='/tmp')
        answer = self._check()
        self.assertEqual([], answer['reasons'])
        ((uuid, position),) = server.query('SELECT @@server_uuid, @@gtid_executed')
        self.assertEqual((uuid, position), (answer['server_uuid'], answer['gtid_executed']))

        for change, code, undo in (
            ('SET GLOBAL innodb_flush_log_at_trx_commit = 2',)
            + ('innodb-flush-log-at-trx-commit', 'SET GLOBAL innodb_flush_log_at_trx_commit = 1'),
            ('SET GLOBAL sync_binlog = 0', 'sync-binlog', 'SET GLOBAL sync_binlog = 1'),
            ('SET GLOBAL gtid_mode = ON_PERMISSIVE', 'gtid-mode', 'SET GLOBAL gtid_mode = ON'),
            ('ALTER INSTANCE DISABLE INNODB REDO_LOG',)
            + ('no-redo-log', 'ALTER INSTANCE ENABLE INNODB REDO_LOG'),
            ('SET GLOBAL super_read_only = ON', 'read-only', 'SET GLOBAL read_only = OFF'),
            ('CREATE TABLE shop.visits (id INT) ENGINE = MyISAM',)
            + ('non-transactional-tables', 'DROP TABLE shop.visits'),
            ("CREATE TABLE shop.far (id INT PRIMARY KEY) DATA DIRECTORY = '/tmp'",)
            + ('outside-volume', 'DROP TABLE shop.far'),
            ("CREATE TABLESPACE far ADD DATAFILE '/tmp/far.ibd'",)
            + ('outside-volume', 'DROP TABLESPACE far'),
            ("CREATE UNDO TABLESPACE far ADD DATAFILE '/tmp/far.ibu'", 'outside-volume', None),
        ):
            server.query(change)
            self.assertEqual([code], self._codes(), change)
            if undo:
                server.query(undo)
                self.assertEqual([], self._codes(), undo)

    def test_every_change_of_settings_leaves_evidence(self):
        """Also a change that was reverted before the next check."""
        server = self._serve()
        history = settings_history.SettingsHistory()

        def read_evidence():
            backup_settings.observe(self._connect, history)
            return history._evidence

        # Prepared statements and variables belong to one connection.
        connection = self._connect(30)
        self.addCleanup(connection.close)
        change = connection.cursor().execute
        before = read_evidence()
        self.assertIsNotNone(before)
        change('CREATE TABLE shop.more (id INT PRIMARY KEY)')
        change('INSERT INTO shop.more VALUES (1)')
        change('FLUSH STATUS')
        change('TRUNCATE TABLE performance_schema.global_status')
        self.assertEqual(before, read_evidence())

        alter = 'ALTER INSTANCE %s INNODB REDO_LOG'
        for changes in (
            ['SET GLOBAL innodb_flush_log_at_trx_commit = 2'],
            ['SET GLOBAL innodb_flush_log_at_trx_commit = 1'],
            ['SET GLOBAL sync_binlog = 0', 'SET GLOBAL sync_binlog = 1'],
            ['SET timestamp = 1', 'SET GLOBAL sync_binlog = 0', 'SET GLOBAL sync_binlog = 1'],
            ['SET PERSIST sync_binlog = 1'],
            ["SET GLOBAL innodb_doublewrite = 'DETECT_ONLY'", 'SET GLOBAL innodb_doublewrite = ON'],
            ['SET GLOBAL gtid_mode = ON_PERMISSIVE', 'SET GLOBAL gtid_mode = ON'],
            ['SET GLOBAL super_read_only = ON', 'SET GLOBAL read_only = OFF'],
            [
                *(alter % 'DISABLE', alter % 'ENABLE', 'FLUSH STATUS'),
                'TRUNCATE TABLE performance_schema.global_status',
            ],
            [
                *("SET @s = 'ALTER INSTANCE DISABLE INNODB REDO_LOG'", 'PREPARE s FROM @s'),
                *('EXECUTE s', "SET @s = 'ALTER INSTANCE ENABLE INNODB REDO_LOG'"),
                *('PREPARE s FROM @s', 'EXECUTE s'),
            ],
            ['RESET BINARY LOGS AND GTIDS'],
        ):
            for statement in changes:
                change(statement)
            after = read_evidence()
            self.assertNotEqual(before, after, changes)
            self.assertEqual(after, read_evidence(), changes)
            before = after
        server.restart()
        self.assertNotEqual(before, read_evidence())

    def test_settings_of_a_started_server(self):
        server = self._serve()
        durable = dict(server.options)
        for options, codes in (
            ({'innodb_doublewrite': 'OFF'}, {'innodb-doublewrite'}),
            ({'innodb_flush_method': 'nosync'}, {'innodb-flush-method'}),
            ({'log_bin': '/tmp/binlog'}, {'outside-volume'}),
            ({'skip_log_bin': 'ON', 'gtid_mode': 'OFF', 'log_bin': None}, {'log-bin'}),
        ):
            changed = durable | options
            server.options = {k: v for k, v in changed.items() if v is not None}
            server.restart()
            self.assertEqual(codes, set(self._codes()), options)

    def test_finds_links_out_of_the_volume(self):
        server = self._serve()
        (server.data / 'far').symlink_to('/srv/far')
        (server.data / 'shop' / 'near.MYD').symlink_to('../near.MYD')
        server.query('CREATE TABLE shop.visits (id INT) ENGINE = MyISAM')

        answer = self._check()

        self.assertEqual(
            [
                ('outside-volume', 'symbolic link: /var/lib/mysql/data/far -> /srv/far', False),
                ('non-transactional-tables', '1 tables', True),
            ],
            [
                (reason['code'], reason['object'], reason['freeze_suffices'])
                for reason in answer['reasons']
            ],
        )
        self.assertEqual({'count': 1, 'names': ['shop.visits']}, answer['non_transactional_tables'])

    def test_finds_a_full_volume_and_a_stopped_server(self):
        server = self._serve()
        free = self.storage.free_bytes(self.mount_point)
        filler = pathlib.Path(self.mount_point) / 'filler'
        test_quiesce.run('fallocate', '--length', str(free - 8 * units.Mi), str(filler))
        self.assertEqual(['volume-full'], self._codes())
        filler.unlink()

        server.stop()

        answer = self._check()
        self.assertEqual(['server-down'], [reason['code'] for reason in answer['reasons']])
        self.assertIsNone(answer['server_uuid'])

    def test_finds_mounts_inside_and_missing_barriers(self):
        ext4 = self.directory / 'ext4.img'
        with open(ext4, 'wb') as image:
            image.truncate(64 * units.Mi)
        test_quiesce.run('mkfs.ext4', '-q', str(ext4))
        inside = pathlib.Path(self.mount_point) / 'inside'
        inside.mkdir()
        test_quiesce.run('mount', '-o', 'loop,barrier=0', str(ext4), str(inside))
        self.addCleanup(test_quiesce.run, 'umount', str(inside))

        self.assertEqual([str(inside)], self.storage.mounts_below(self.mount_point))
        volume = backup_settings.read_volume(self.storage, str(inside), '', '/var/lib/mysql')
        reasons = backup_settings.judge_volume(volume, '/var/lib/mysql')
        self.assertEqual(['no-barriers'], [reason.code for reason in reasons])
