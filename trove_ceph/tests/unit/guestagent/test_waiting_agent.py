# SPDX-License-Identifier: Apache-2.0
"""The whole way from a waiting guest to Trove's agent, in a process like that of a guest."""

import json
import os
import subprocess
import sys

from oslotest import base

from trove_ceph.tests.unit.guestagent import waiting_agent, waiting_world


class AgentTest(base.BaseTestCase):
    def run_agent(self, *arguments):
        environment = {
            name: value for name, value in os.environ.items() if name != 'NO_EVENTLET_MONKEYPATCH'
        }
        return subprocess.run(
            [sys.executable, '-W', 'ignore', '-m', waiting_agent.__name__, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            env=environment | {'PYTHONPATH': os.pathsep.join(sys.path)},
        )

    def test_from_a_waiting_guest_to_troves_agent(self):
        done = self.run_agent()
        self.assertEqual(0, done.returncode, done.stdout)
        *log, found = done.stdout.splitlines()
        expected = {
            'guest_id': waiting_world.INSTANCE,
            'key': waiting_world.TENANTS_SECRET,
            'waiting_guest_key': '',
            'data_volume_id': waiting_world.VOLUME,
            'bound': True,
            'green': True,
        }
        self.assertEqual(expected, json.loads(found))
        self.assertIn('waits for an instance', ''.join(log))
        self.assertIn('The interfaces were ready after', ''.join(log))
        self.assertNotIn(waiting_world.TENANTS_SECRET, ''.join(log))

    def test_an_interface_that_never_comes(self):
        done = self.run_agent('unattached')
        self.assertEqual(1, done.returncode, done.stdout)
        missing = f'No interface with the MAC address {waiting_world.MAC} was attached in time'
        self.assertIn(f'The agent cannot start: {missing}', done.stdout)
