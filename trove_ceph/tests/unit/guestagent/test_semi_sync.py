# SPDX-License-Identifier: Apache-2.0
import pymysql
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.guestagent import replication, semi_sync
from trove_ceph.tests.unit.guestagent import replication_world

CONTEXT = {
    'master': {'host': '192.0.2.1', 'port': 3306},
    'replica_conf': {'replication_user': {'name': 'slave_0123456789', 'password': 'Secret-1'}},
}
LOADED = {
    'rpl_semi_sync_source_enabled': 'OFF',
    'rpl_semi_sync_replica_enabled': 'OFF',
    'rpl_semi_sync_source_timeout': '10000',
}


class SemiSyncTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.app = replication_world.App()
        self.app.variables = dict(LOADED)
        self.overrides = self.app.configuration_manager.overrides

    def changes(self):
        return [found.removeprefix('SET GLOBAL ') for found, _ in self.app.executed('SET GLOBAL')]

    def test_source(self):
        semi_sync.switch(self.app, True, False, 5000)
        self.assertEqual(
            ['rpl_semi_sync_source_enabled = ON', 'rpl_semi_sync_source_timeout = 5000'],
            self.changes(),
        )
        options = self.overrides['semi-sync']['mysqld']
        self.assertEqual('ON', options['loose_rpl_semi_sync_source_enabled'])

    def test_replica_connects_again(self):
        self.app.follow()
        semi_sync.switch(self.app, False, True, 10000)
        self.assertEqual(['rpl_semi_sync_replica_enabled = ON'], self.changes())
        self.assertEqual(1, len(self.app.executed('START REPLICA IO_THREAD')))

    def test_replica_that_was_stopped_stays_so(self):
        self.app.follow(Replica_IO_Running='No')
        semi_sync.switch(self.app, False, True, 10000)
        self.assertEqual([], self.app.executed('START'))

    def test_repetition_changes_nothing(self):
        self.app.follow()
        self.app.variables['rpl_semi_sync_replica_enabled'] = 'ON'
        semi_sync.switch(self.app, False, True, 10000)
        self.assertEqual(([], []), (self.changes(), self.app.executed('START')))

    def test_off(self):
        semi_sync.switch(self.app, True, False, 10000)
        self.app.variables['rpl_semi_sync_source_enabled'] = 'ON'
        self.app.statements.clear()
        semi_sync.switch(self.app, False, False, 10000)
        self.assertEqual(['rpl_semi_sync_source_enabled = OFF'], self.changes())
        self.assertEqual({}, self.overrides)

    def test_server_without_the_plugins(self):
        self.app.variables = {}
        self.assertRaises(
            exceptions.UnsafeSettingsError, semi_sync.switch, self.app, True, False, 10000
        )
        semi_sync.switch(self.app, False, False, 10000)
        self.assertEqual(([], {}), (self.changes(), self.overrides))


class InterruptionTest(base.BaseTestCase):
    """The agent loses the server, or dies, while a replica connects to its source again."""

    def setUp(self):
        super().setUp()
        self.strategy = replication.CloneReplication(lambda: 0.0, lambda _seconds: None)
        self.app = self.follow()

    def follow(self):
        app = replication_world.App()
        app.variables = dict(LOADED)
        app.follow()
        app.super_read_only = 1
        self.strategy.enable_as_slave(app, CONTEXT, '')
        return app

    def interrupt(self, *beginnings):
        """Lose the server at the first of some statements, and at all others of them."""
        self.app.errors = dict.fromkeys(beginnings, pymysql.OperationalError(2013, 'lost'))
        self.assertRaises(pymysql.OperationalError, semi_sync.switch, self.app, False, True, 10000)
        self.app.errors = {}
        self.app.statements.clear()

    def resume(self):
        """Return whether the agent has changed something, and the statements for that."""
        self.app.statements.clear()
        is_resumed = self.strategy.resume(self.app)
        verbs = ('STOP', 'START')
        return is_resumed, [one for one, _ in self.app.statements if one.startswith(verbs)]

    def check_connects(self):
        reconnection = ['STOP REPLICA IO_THREAD', 'START REPLICA IO_THREAD']
        self.assertEqual((True, reconnection), self.resume())
        self.assertEqual('Yes', self.app.channel['Replica_IO_Running'])
        self.assertEqual((False, []), self.resume())

    def test_receiver_that_was_stopped_and_not_started(self):
        self.interrupt('START REPLICA IO_THREAD')
        self.assertEqual('No', self.app.channel['Replica_IO_Running'])
        self.check_connects()

    def test_receiver_that_was_not_stopped(self):
        """Its source does not know that it acknowledges from now on."""
        self.interrupt('STOP REPLICA IO_THREAD', 'START REPLICA IO_THREAD')
        self.assertEqual('Yes', self.app.channel['Replica_IO_Running'])
        self.check_connects()

    def test_receiver_starts_at_once_although_its_stop_has_failed(self):
        self.app.errors = {'STOP REPLICA IO': pymysql.OperationalError(3024, 'still stops')}
        self.assertRaises(pymysql.OperationalError, semi_sync.switch, self.app, False, True, 10000)
        self.assertEqual(1, len(self.app.executed('START REPLICA IO_THREAD')))
        self.app.errors = {}
        self.check_connects()

    def test_setting_that_was_not_changed(self):
        self.interrupt('SET GLOBAL rpl_semi_sync_replica_enabled')
        self.check_connects()

    def test_server_that_was_restarted_meanwhile(self):
        self.interrupt('START REPLICA IO_THREAD')
        self.app.channel['Replica_SQL_Running'] = 'No'
        self.assertEqual((True, ['START REPLICA']), self.resume())
        self.assertEqual((False, []), self.resume())

    def test_nothing_is_left_without_an_interruption(self):
        semi_sync.switch(self.app, False, True, 10000)
        self.app.channel['Replica_IO_Running'] = 'No'
        self.assertEqual((False, []), self.resume())

    def test_receiver_that_is_told_to_stop_stays_so(self):
        self.interrupt('START REPLICA IO_THREAD')
        self.strategy.stop_receiving(self.app)
        self.assertEqual((False, []), self.resume())
        self.assertEqual('No', self.app.channel['Replica_IO_Running'])

    def test_receiver_that_has_stopped_at_an_error_stays_so(self):
        self.interrupt('START REPLICA IO_THREAD')
        self.app.channel['Last_IO_Errno'] = 13114
        self.assertEqual((False, []), self.resume())

    def test_receiver_that_does_not_reach_its_source(self):
        self.interrupt('STOP REPLICA IO_THREAD', 'START REPLICA IO_THREAD')
        self.app.channel |= {'Replica_IO_Running': 'Connecting', 'Last_IO_Errno': 2003}
        self.check_connects()

    def test_not_under_the_identity_of_the_cloned_server(self):
        self.interrupt('START REPLICA IO_THREAD')
        self.app.uuid = 'of-the-source'
        self.assertEqual((False, []), self.resume())
