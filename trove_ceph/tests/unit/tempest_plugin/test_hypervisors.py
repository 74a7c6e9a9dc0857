# SPDX-License-Identifier: Apache-2.0
"""Tests of the commands that let servers and hosts fail."""

import subprocess
from unittest import mock

from oslotest import base

from trove_ceph import exceptions
from trove_ceph_tempest_plugin import hypervisors

SERVER_COMMAND = 'ssh {host} "pkill --signal {signal} --full {server}"'


class HypervisorsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.run_command = mock.Mock(return_value=mock.Mock(returncode=0))
        self.hypervisors = hypervisors.Hypervisors(
            SERVER_COMMAND, 'lab {host} {action}', 'kill {service}', self.run_command
        )

    def test_signal(self):
        self.hypervisors.signal('STOP', 's-1', 'h-1')
        (command,) = self.run_command.call_args.args
        self.assertEqual(['ssh', 'h-1', 'pkill --signal STOP --full s-1'], command)

    def test_host(self):
        self.hypervisors.host('freeze', 'h-1')
        self.assertEqual((['lab', 'h-1', 'freeze'],), self.run_command.call_args.args)

    def test_service(self):
        self.hypervisors.kill_service('trove-taskmanager')
        self.assertEqual((['kill', 'trove-taskmanager'],), self.run_command.call_args.args)

    def test_failed_command(self):
        self.run_command.return_value = mock.Mock(returncode=1, stderr='no such host\n')
        error = self.assertRaises(exceptions.TroveCephError, self.hypervisors.host, 'kill', 'h-1')
        self.assertEqual('lab h-1 kill exited with 1: no such host', str(error))

    def test_command_that_does_not_end(self):
        self.run_command.side_effect = subprocess.TimeoutExpired('lab', 600)
        self.assertRaises(exceptions.TroveCephError, self.hypervisors.host, 'kill', 'h-1')
