# SPDX-License-Identifier: Apache-2.0
"""The scenarios on a running lab."""

import json

from driver import __main__ as command_line
from driver import scenario

from trove_ceph.tests.unit.lab.test_driver_instruments import InstrumentsTestCase


class ScenarioTest(InstrumentsTestCase):
    def setUp(self):
        super().setUp()
        self.record = self.program('instruments/bin/python', code=3)

    def run_scenario(self, *options):
        arguments = command_line._parser().parse_args(['scenario', *options])
        code = scenario.run(self.settings, arguments)
        return code, json.loads(self.record.read_text())

    def test_runs_all_scenarios(self):
        code, run = self.run_scenario()
        self.assertEqual(3, code)
        self.assertEqual(['-m', 'scenarios', str(self.root)], run['arguments'])
        self.assertTrue(self.playbook.exists())

    def test_passes_the_choice_on(self):
        _, run = self.run_scenario('--smoke', '--ours', 'test_x|y')
        self.assertEqual(['--smoke', '--ours', '--regex=test_x|y'], run['arguments'][3:])

    def test_theirs(self):
        _, run = self.run_scenario('--theirs')
        self.assertEqual(['--theirs'], run['arguments'][3:])

    def test_choices_exclude_each_other(self):
        self.assertRaises(SystemExit, self.run_scenario, '--theirs', '--ours')
        self.assertFalse(self.record.exists())
