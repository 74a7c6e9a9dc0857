# SPDX-License-Identifier: Apache-2.0
"""The commands for replication policies, through python-troveclient and Trove's real API."""

from trove_ceph.tests.unit.api import world
from trove_ceph.tests.unit.osc import harness


class CommandsTest(harness.CommandTestCase):
    prefix = 'database replica policy'

    def setUp(self):
        super().setUp()
        self.name('shop', self.instance)

    def values(self, shown):
        return tuple(
            shown[name]
            for name in ('semi_sync', 'reprovision_every_hours', 'max_own_percent', 'max_lag_sec')
        )

    def test_sets_shows_and_unsets(self):
        self.assertEqual((False, None, None, None), self.values(self.shown('show shop')))
        shown = self.shown('set shop --semi-sync --reprovision-every-hours 168')
        self.assertEqual((True, 168, None, None), self.values(shown))
        shown = self.shown('set shop --max-own-percent 20 --max-lag-sec 0')
        self.assertEqual((True, 168, 20, 0), self.values(shown))
        shown = self.shown('set shop --no-semi-sync --max-own-percent default')
        self.assertEqual((False, 168, None, 0), self.values(shown))
        self.assertEqual(shown, self.shown('show shop'))
        self.assertEqual((0, ''), self.run_command('unset shop'))
        self.assertEqual([], self.world.replication_policies.all())

    def test_volume_type_of_replicas(self):
        self.useFixture(world.TiersFile())
        self.world.restart()
        shown = self.shown('set shop --replica-volume-type nvme')
        self.assertEqual('nvme', shown['replica_volume_type'])
        self.assertEqual('nvme', self.shown('set shop --semi-sync')['replica_volume_type'])
        status, output = self.run_command('set shop --replica-volume-type nmve')
        self.assertEqual(1, status, output)
        self.assertIn("'nmve' is no volume type for the replicas of this instance; those", output)
        self.assertIn('are nvme', output)
        shown = self.shown('set shop --replica-volume-type default')
        self.assertIsNone(shown['replica_volume_type'])

    def test_shows_the_defaults(self):
        status, table = self.run_command('show shop')
        self.assertEqual(0, status)
        self.assertIn("max_own_percent='0'", table)
        self.assertIn("reprovision_every_hours='0'", table)

    def test_refuses_wrong_values(self):
        for options, expected, message in (
            ('', 1, 'nothing to set'),
            ('--max-own-percent 101', 1, '101 is too large'),
            ('--max-lag-sec soon', 2, ''),
        ):
            status, output = self.run_command(f'set shop {options}')
            self.assertEqual(expected, status, output)
            self.assertIn(message, output)
        self.assertEqual([], self.world.replication_policies.all())
