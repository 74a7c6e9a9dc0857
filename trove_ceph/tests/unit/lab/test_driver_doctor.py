# SPDX-License-Identifier: Apache-2.0
"""The doctor on a running lab."""

import json

from driver import __main__ as command_line
from driver.errors import LabError

from trove_ceph.cmd.manage import doctor, options
from trove_ceph.tests.unit.lab import LAB
from trove_ceph.tests.unit.lab.test_driver_instruments import InstrumentsTestCase


class DoctorTest(InstrumentsTestCase):
    def run_command(self, *words, code=0):
        self.record = self.program('venv/bin/trove-ceph-manage', code=code)
        arguments = command_line._parser().parse_args(['doctor', *words])
        return arguments.run(self.settings, arguments)

    def parsed(self):
        """Return the arguments as the command reads them, and its environment."""
        found = json.loads(self.record.read_text())
        name, *words = found['arguments']
        self.assertEqual('doctor', name)
        return doctor.Doctor(None, None).get_parser(name).parse_args(words), found['environment']

    def test_names_the_configuration_of_all_services(self):
        self.assertEqual(0, self.run_command())
        found, environment = self.parsed()
        etc = self.root / 'etc'
        self.assertEqual([f'{etc}/cinder/cinder.conf'], found.cinder_config_file)
        self.assertEqual(f'{etc}/trove/trove.conf', environment[options.TROVE_CONF])
        self.assertEqual(f'{self.root}/venv/bin/trove-manage', found.trove_manage)
        for role, files in (
            ('compute', found.nova_config_file),
            ('trove', found.trove_api_config_file),
            ('cinder', found.cinder_config_file),
        ):
            tasks = (LAB / 'roles' / role / 'tasks' / 'main.yml').read_text()
            for file in files:
                path = file.removeprefix(str(etc))
                self.assertIn(f'--config-file {{{{ etc }}}}{path}', tasks)

    def test_passes_options_and_the_exit_code(self):
        code = self.run_command('--', '--level', 'warning', '--check', 'fill', code=2)
        found, _ = self.parsed()
        self.assertEqual((2, 'warning', ['fill']), (code, found.level, found.check))

    def test_refuses_a_stopped_lab(self):
        self.supervisord_pid.return_value = None
        error = self.assertRaises(LabError, self.run_command)
        self.assertIn('run make lab to start it', str(error))
