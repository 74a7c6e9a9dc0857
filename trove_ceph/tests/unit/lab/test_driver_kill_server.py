# SPDX-License-Identifier: Apache-2.0
"""The kill of an instance's server."""

import json
import signal

from driver import __main__ as command_line
from driver.errors import LabError

from trove_ceph.tests.unit.lab.test_driver_instruments import InstrumentsTestCase

_SHOW = """#!/bin/sh
test "$OS_USERNAME $*" = "admin database instance show i-1 -f json" || exit 1
echo '{shown}'
"""


class KillServerTest(InstrumentsTestCase):
    def setUp(self):
        super().setUp()
        self.write('etc/credentials.json', json.dumps({'admin': {'OS_USERNAME': 'admin'}}))
        self.show(server_id='server-1')

    def show(self, **shown):
        """Have the cloud show an instance."""
        script = _SHOW.format(shown=json.dumps(shown))
        self.write('venv/bin/openstack', script).chmod(0o755)

    def kill(self, instance='i-1'):
        arguments = command_line._parser().parse_args(['kill-server', instance])
        return arguments.run(self.settings, arguments)

    def test_kills_the_guest_of_the_instance(self):
        guest = self.guest('instance-0000000a', self.root, 'server-1')
        other = self.guest('instance-0000000b', self.root, 'server-2')
        self.assertEqual(0, self.kill())
        self.assertEqual(-signal.SIGKILL, guest.wait())
        self.assertIsNone(other.poll())

    def test_what_cannot_be_killed_is_an_error(self):
        error = self.assertRaises(LabError, self.kill)
        self.assertIn('its server server-1 does not run', str(error))
        error = self.assertRaises(LabError, self.kill, 'i-2')
        self.assertIn('i-2 cannot be shown', str(error))
        self.show(server_id=None)
        self.assertIn('has no server', str(self.assertRaises(LabError, self.kill)))

    def test_refuses_a_stopped_lab(self):
        self.supervisord_pid.return_value = None
        self.assertIn('run make lab to start it', str(self.assertRaises(LabError, self.kill)))
