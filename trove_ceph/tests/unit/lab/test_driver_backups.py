# SPDX-License-Identifier: Apache-2.0
"""The choice of the task manager that takes backups on a running lab."""

import json

from driver import __main__ as command_line
from driver import backups
from driver.errors import LabError

from trove_ceph.tests.unit.lab import LAB
from trove_ceph.tests.unit.lab.test_driver_instruments import InstrumentsTestCase


class BackupsTest(InstrumentsTestCase):
    def choose(self, *options):
        arguments = command_line._parser().parse_args(['backups', *options])
        code = arguments.run(self.settings, arguments)
        variables = json.loads((self.root / 'run' / 'settings.json').read_text())
        return code, variables['lab_backups'], variables['lab_quiesce']

    def test_chooses_with_tables(self):
        self.write('state/marks/schema-trove-ceph')
        self.assertEqual((0, 'trove_ceph', 'freeze'), self.choose('freeze'))
        arguments = json.loads(self.playbook.read_text())['arguments']
        self.assertIn(str(self.lab_dir / backups.PLAYBOOK), arguments)
        self.assertTrue((LAB / backups.PLAYBOOK).exists())
        self.assertEqual((0, 'stock', 'none'), self.choose('stock'))

    def test_without_tables_only_stock_is_possible(self):
        self.assertEqual((0, 'stock', 'none'), self.choose('stock'))
        error = self.assertRaises(LabError, self.choose, 'none')
        self.assertIn('run make lab', str(error))

    def test_refuses_a_stopped_lab(self):
        self.supervisord_pid.return_value = None
        error = self.assertRaises(LabError, self.choose, 'stock')
        self.assertIn('run make lab to start it', str(error))

    def test_refuses_an_unknown_choice(self):
        self.assertRaises(SystemExit, self.choose, 'swift')
