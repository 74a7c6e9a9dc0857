# SPDX-License-Identifier: Apache-2.0
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.host import commands


class RunTest(base.BaseTestCase):
    def test_returns_the_output_without_trailing_newline(self):
        self.assertEqual('1 2', commands.run('echo', 1, 2))

    def test_environment(self):
        self.assertEqual('x', commands.run('sh', '-c', 'echo $A', environment={'A': 'x'}))

    def test_an_error_has_the_output_of_the_command(self):
        error = self.assertRaises(
            exceptions.StorageCommandError, commands.run, 'sh', '-c', 'echo why >&2; exit 3'
        )

        self.assertIn('failed with exit code 3: why', str(error))

    def test_a_command_that_does_not_end(self):
        error = self.assertRaises(
            exceptions.StorageCommandError, commands.run, 'sleep', '60', timeout_sec=0.01
        )

        self.assertIn('did not end within 0.01 s', str(error))

    def test_a_command_that_is_not_installed(self):
        error = self.assertRaises(
            exceptions.StorageCommandError, commands.run, 'no-such-command-here'
        )

        self.assertIn('cannot be run', str(error))
