# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.guestagent import semi_sync
from trove_ceph.tests.unit.guestagent import replication_world

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
