# SPDX-License-Identifier: Apache-2.0
from pathlib import Path
from unittest import mock

import fixtures
import taps
from oslotest import base

# Broadcast and multicast, with IFF_PROMISC and IFF_UP in each combination.
OFF, NEW, ON = '0x1102', '0x1002', '0x1103'


class TapsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.interfaces = Path(self.useFixture(fixtures.TempDir()).path)
        self.run = mock.Mock()

    def add(self, name, flags):
        directory = self.interfaces / name
        directory.mkdir()
        (directory / 'flags').write_text(f'{flags}\n')

    def switch_on(self):
        names = taps.switch_on(self.interfaces, self.run)
        calls = [call.args[0] for call in self.run.call_args_list]
        self.assertEqual([['ip', 'link', 'set', 'dev', name, 'up'] for name in names], calls)
        return names

    def test_switches_on_taps_that_are_off(self):
        for name, flags in (('tap-a', OFF), ('tap-b', ON), ('tap-c', OFF), ('eth0', OFF)):
            self.add(name, flags)
        self.assertEqual(['tap-a', 'tap-c'], self.switch_on())

    def test_leaves_taps_outside_the_switch_alone(self):
        self.add('tap-a', NEW)
        self.assertEqual([], self.switch_on())

    def test_ignores_a_tap_that_disappears(self):
        (self.interfaces / 'tap-a' / 'flags').mkdir(parents=True)
        self.add('tap-b', OFF)
        self.assertEqual(['tap-b'], self.switch_on())
