# SPDX-License-Identifier: Apache-2.0
"""The options that environment variables stand for."""

import os

import fixtures
from oslotest import base

from trove_ceph.cmd.manage import options, shell

VARIABLES = {
    'CEPH_CONF': '/lab/ceph.conf',
    'TROVE_CEPH_CEPH_USER': 'operator',
    'TROVE_CEPH_TIERS_FILE': '/lab/tiers.yaml',
    'TROVE_CEPH_TROVE_CONF': os.pathsep.join(['/lab/trove.conf', '/lab/taskmanager.conf']),
    'TROVE_CEPH_STORAGE_CONF': '/lab/storage.conf',
}
OF_CEPH = {'ceph_conf': '/lab/ceph.conf', 'ceph_user': 'operator', 'file': '/lab/tiers.yaml'}
#: The commands with the options that they take from the environment.
COMMANDS = {
    **{
        ('tiers', verb): OF_CEPH | {'trove_conf': '/lab/trove.conf'}
        for verb in ('plan', 'apply', 'show', 'check', 'import')
    },
    **{('qos', verb): OF_CEPH for verb in ('plan', 'apply', 'check')},
    **{('storage', verb): {'config_file': '/lab/storage.conf'} for verb in ('status', 'jobs')},
    **{('db', verb): {'config_file': '/lab/trove.conf'} for verb in ('sync', 'version')},
}


class EnvironmentTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        for name in VARIABLES:
            self.useFixture(fixtures.EnvironmentVariable(name))

    def set_variables(self):
        for name, value in VARIABLES.items():
            self.useFixture(fixtures.EnvironmentVariable(name, value))

    def options(self, *words):
        """Return the options of a command line."""
        application = shell.Shell()
        factory, name, rest = application.command_manager.find_command(list(words))
        parser = factory(application, None, cmd_name=name).get_parser(name)
        return vars(parser.parse_args(rest))

    def test_each_command_works_without_further_options(self):
        self.set_variables()
        for words, expected in COMMANDS.items():
            found = self.options(*words)
            self.assertEqual(expected, {name: found[name] for name in expected}, words)

    def test_collecting_reads_every_file(self):
        self.set_variables()
        self.assertIsNone(self.options('gc', 'list')['config_file'])
        self.assertEqual(['/lab/trove.conf', '/lab/taskmanager.conf'], options.trove_conf())

    def test_options_win(self):
        self.set_variables()
        found = self.options('tiers', 'plan', '--file', 'mine', '--ceph-user', 'me')
        self.assertEqual(('mine', 'me'), (found['file'], found['ceph_user']))

    def test_without_the_variables(self):
        found = self.options('tiers', 'plan')
        self.assertEqual('/etc/trove-ceph/tiers.yaml', found['file'])
        self.assertEqual(('/etc/ceph/ceph.conf', 'admin'), (found['ceph_conf'], found['ceph_user']))
        self.assertEqual('/etc/trove/trove.conf', found['trove_conf'])
        self.assertEqual(['/etc/trove/trove.conf'], options.trove_conf())
