# SPDX-License-Identifier: Apache-2.0
"""Semi-synchronous replication of the replica that an ejection makes the source."""

import fixtures

from trove_ceph.tests.unit.strategies import source_services
from trove_ceph.tests.unit.strategies.source_world import SOURCE, World
from trove_ceph.tests.unit.taskmanager import test_source_change_ejections


class SemiSyncTest(test_source_change_ejections.EjectionTestCase):
    def test_the_first_commit_waits_for_a_replica_if_those_of_the_old_source_did(self):
        self.kill_source()
        self.world.servers[SOURCE].semi_sync = (True, False, 10000)
        for name in ('one', 'two'):
            self.world.servers[name].semi_sync = (False, True, 10000)
        opened, enable = [], source_services.Agents.enable_as_source

        def note(agents, name):
            opened.append(self.world.servers[name].semi_sync)
            enable(agents, name)

        self.useFixture(
            fixtures.MonkeyPatch(f'{source_services.__name__}.Agents.enable_as_source', note)
        )
        self.eject()
        self.world.check_source('one', ['two'])
        self.assertEqual([(True, False, 10000)], opened)
        self.assertEqual((False, True, 10000), self.world.servers['two'].semi_sync)

    def test_no_commit_waits_without_another_replica(self):
        self.world = World(('one',))
        self.world.request('EJECTING')
        self.world.servers['one'].semi_sync = (False, True, 10000)
        self.kill_source()
        self.eject()
        self.world.check_source('one', [])
        self.assertEqual((False, True, 10000), self.world.servers['one'].semi_sync)
