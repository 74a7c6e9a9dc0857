# SPDX-License-Identifier: Apache-2.0
"""Eject if the storage of replicas keeps one copy of their data, or several."""

from trove_ceph.tests.unit.strategies.source_servers import gtids
from trove_ceph.tests.unit.strategies.source_world import SOURCE
from trove_ceph.tests.unit.taskmanager import test_source_change_ejections


class CopiesTest(test_source_change_ejections.EjectionTestCase):
    def test_a_replica_on_several_copies_wins_if_it_has_as_much(self):
        self.world.on_one_copy = {'one'}
        self.kill_source()
        self.eject()
        self.world.check_source('two', ['one'])
        self.assertNotIn('one copy', self.world.faults['two'][-1])

    def test_a_replica_on_several_copies_is_waited_for(self):
        """On a busy source, it nearly always has something to execute."""
        self.world.on_one_copy = {'one'}
        self.kill_source()
        for name in ('one', 'two'):
            self.world.servers[name].received |= gtids(SOURCE, 12, 14)
        self.world.servers['one'].executed |= gtids(SOURCE, 12, 14)
        self.world.servers['two'].pace_sec = 2
        self.eject()
        self.world.check_source('two', ['one'])

    def test_a_replica_on_several_copies_that_does_not_go_on(self):
        self.world.on_one_copy = {'one'}
        self.kill_source()
        for name in ('one', 'two'):
            self.world.servers[name].received |= gtids(SOURCE, 12, 14)
        self.world.servers['one'].executed |= gtids(SOURCE, 12, 14)
        self.world.servers['two'].is_stuck = True
        self.eject()
        self.assertEqual(['one'], self.world.writers())

    def test_the_one_that_has_all_wins_on_one_copy(self):
        """An instance has one fault, which tells both."""
        self.world.on_one_copy = {'two'}
        self.kill_source()
        self.world.servers['two'].received |= gtids(SOURCE, 12, 14)
        self.world.last_known = gtids(SOURCE, 1, 20)
        self.eject()
        self.world.check_source('two', ['one'])
        fault = self.world.faults['two'][-1]
        self.assertIn('keeps one copy', fault)
        self.assertIn('At least 6 transactions are missing', fault)
