# SPDX-License-Identifier: Apache-2.0
"""Tests of commands that the configuration names."""

from oslotest import base

from trove_ceph import exceptions
from trove_ceph_tempest_plugin import commands


class CommandsTest(base.BaseTestCase):
    def test_output(self):
        self.assertEqual('x\n', commands.run(['echo', 'x']))

    def test_failure_has_what_the_command_said(self):
        for text in ('echo no database >&2', 'echo no database'):
            error = self.assertRaises(
                exceptions.TroveCephError, commands.run, ['sh', '-c', f'{text}; exit 3']
            )
            self.assertIn('exited with 3: no database', str(error))

    def test_accepted_exit_code(self):
        self.assertEqual('x\n', commands.run(['sh', '-c', 'echo x; exit 1'], accepted=(0, 1)))

    def test_command_that_does_not_exist_or_end(self):
        for words in (['/nowhere/command'], ['sleep', '60']):
            self.assertRaises(exceptions.TroveCephError, commands.run, words, timeout_sec=0.1)
