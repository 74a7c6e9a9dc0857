# SPDX-License-Identifier: Apache-2.0
"""The datastore of stock Trove on a running lab."""

import json

from driver import __main__ as command_line
from driver import stock_version
from driver.errors import LabError

from trove_ceph.tests.unit.lab import LAB
from trove_ceph.tests.unit.lab.test_driver_instruments import InstrumentsTestCase


class StockVersionTest(InstrumentsTestCase):
    def make(self):
        arguments = command_line._parser().parse_args(['stock-version'])
        return arguments.run(self.settings, arguments)

    def test_runs_its_playbook(self):
        self.assertEqual(0, self.make())
        arguments = json.loads(self.playbook.read_text())['arguments']
        self.assertIn(str(self.lab_dir / stock_version.PLAYBOOK), arguments)
        self.assertTrue((LAB / stock_version.PLAYBOOK).exists())

    def test_refuses_a_stopped_lab(self):
        self.supervisord_pid.return_value = None
        self.assertIn('run make lab to start it', str(self.assertRaises(LabError, self.make)))
