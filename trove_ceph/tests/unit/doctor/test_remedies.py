# SPDX-License-Identifier: Apache-2.0
"""The commands that findings name exist, with the options that they are given."""

import contextlib
import importlib
import importlib.metadata
import io
import json
import shlex
from unittest import mock

from oslotest import base

from trove_ceph.cmd.manage import shell
from trove_ceph.doctor import checks, remedies
from trove_ceph.tests.unit.doctor import facts

OPENSTACK = ('openstack.database.v1', 'openstack.volume.v3', 'openstack.compute.v2')


def commands():
    """Return every command of the module, with values for its fields."""
    values = {'id': 'ID', 'pool': 'P', 'image': 'P/I', 'version': '9.7.4', 'size_gib': '10'}
    values['parameters'] = json.dumps({'sync_binlog': 1})
    return [
        text.format(**values)
        for name, text in vars(remedies).items()
        if name.isupper() and isinstance(text, str)
    ]


def parse(parser, words):
    """Parse a command line; return what the parser complains of."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            parser.parse_args(words)
        except SystemExit as ended:
            return errors.getvalue() if ended.code else ''
    return ''


class RemediesTest(base.BaseTestCase):
    def test_programs(self):
        programs = {line.split()[0] for line in commands()}
        known = {'ceph', 'rbd', 'rabbitmqctl', 'pip', 'trove-manage'}
        self.assertEqual({'trove-ceph-manage', 'openstack'}, programs - known)

    def test_own_commands(self):
        app = shell.Shell()
        app.options = mock.Mock()
        for line in commands():
            program, *words = shlex.split(line)
            if program != 'trove-ceph-manage':
                continue
            factory, name, rest = app.command_manager.find_command(words)
            self.assertEqual('', parse(factory(app, None).get_parser(name), rest), line)

    def test_commands_of_openstack(self):
        found = {
            point.name.replace('_', ' '): point
            for group in OPENSTACK
            for point in importlib.metadata.entry_points(group=group)
        }
        for line in commands():
            program, *words = shlex.split(line)
            if program != 'openstack':
                continue
            names = [' '.join(words[:count]) for count in range(len(words), 0, -1)]
            name = next((one for one in names if one in found), None)
            self.assertIsNotNone(name, line)
            parser = found[name].load()(mock.Mock(), None).get_parser(name)
            self.assertEqual('', parse(parser, words[len(name.split()) :]), line)

    def test_guest_manager_and_replication_exist(self):
        for word in shlex.split(remedies.UPDATE_VERSION):
            if word.startswith('trove_ceph.'):
                module, _, name = word.rpartition('.')
                self.assertTrue(hasattr(importlib.import_module(module), name), word)

    def test_edit_names_each_service(self):
        self.assertEqual('edit [g] o of a, and restart it', remedies.edit('o', 'g', ('a',)))
        self.assertEqual(
            'edit [g] o of a, b and c, only while there is no instance, and restart them',
            remedies.edit('o', 'g', ('a', 'b', 'c'), 'there is no instance'),
        )

    def test_key_of_instances_is_not_changed_under_them(self):
        key = 'emYjgHFqfXNB1NGehAFIUeoyw4V4XwWHEaKP'
        sources = facts.FakeSources(settings=facts.values(inst_rpc_key_encr_key=key))
        (one,) = (each for each in checks.ALL if each.name == 'configuration')
        (found,) = one.run(sources)
        self.assertEqual(
            'edit [DEFAULT] inst_rpc_key_encr_key of trove-api, trove-conductor and '
            'trove-taskmanager, only while they are stopped, follow "trove-ceph-manage '
            'instance-keys --help", and restart them',
            found.command,
        )
        self.assertIn('until the keys are encrypted under the new value', found.expected)
