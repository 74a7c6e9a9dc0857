# SPDX-License-Identifier: Apache-2.0
"""The application: which commands there are, what they load, their help and their errors."""

import argparse
import inspect
import subprocess
import sys

import fixtures
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.cmd.manage import base as manage_base
from trove_ceph.cmd.manage import shell
from trove_ceph.tests.unit.cmd.manage import command

LOADED = """
import sys
from trove_ceph.cmd.manage import shell
manager = shell.CommandManager()
manager.find_command(sys.argv[1:])
print(*(name for name in sys.modules if name.startswith('trove_ceph.')))
"""
WITHOUT_EXTRA = """
import sys
sys.modules[sys.argv.pop()] = None
from trove_ceph.cmd.manage import app
sys.exit(app.main())
"""


def python(code, *arguments):
    """Run code in a process of its own and return the ended process."""
    words = [sys.executable, '-W', 'ignore', '-c', code, *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=False)


class Failing(manage_base.Report):
    """Fail in the way that a test sets."""

    error: Exception = exceptions.StorageError('pool  p:\n refused')

    def make_report(self, parsed_args):
        """Fail."""
        raise self.error


class CommandsTestCase(base.BaseTestCase):
    """The commands by their names."""

    def test_each_command_is_of_its_kind_and_is_described(self):
        for name, point in shell.CommandManager():
            loaded = point.load()
            self.assertTrue(issubclass(loaded, manage_base.Command), name)
            is_group = any(other.startswith(f'{name} ') for other in shell.COMMANDS)
            self.assertEqual(is_group, issubclass(loaded, manage_base.Group), name)
            first = inspect.getdoc(loaded).splitlines()[0]
            self.assertRegex(first, r'^[A-Z].*\.$', name)

    def test_a_command_loads_no_other_group(self):
        done = python(LOADED, 'storage', 'keys', 'show')
        loaded = [name for name in done.stdout.split() if '.cmd.manage.' in name]
        self.assertEqual(
            {'shell', 'base', 'columns', 'storage_keys'},
            {name.rpartition('.')[2] for name in loaded},
            done.stderr,
        )
        self.assertNotIn('trove_ceph.tiers', done.stdout)

    def test_commands_may_be_abbreviated(self):
        factory, _, rest = shell.CommandManager().find_command(['ti', 'pl', '--only', 'ceph'])
        self.assertEqual(('Plan', ['--only', 'ceph']), (factory.__name__, rest))


class HelpTestCase(base.BaseTestCase):
    """What --help prints."""

    def test_each_command_explains_its_exit_status(self):
        for name in shell.COMMANDS:
            result = command.run(*name.split(), '--help')
            self.assertEqual((0, ''), (result.status, result.err), name)
            self.assertIn(f'usage: trove-ceph-manage {name} ', result.out)
            self.assertIn('exit status:\n', result.out)
            self.assertIn('  0  ', result.out)

    def test_groups_list_their_commands_and_give_examples(self):
        for group, example in (
            ('db', 'trove-ceph-manage db sync\n'),
            ('gc', 'trove-ceph-manage gc remove --yes\n'),
            ('qos', 'trove-ceph-manage qos check -f json\n'),
            ('replacements', 'trove-ceph-manage replacements list --open\n'),
            ('storage', 'trove-ceph-manage storage cancel OPERATION-ID\n'),
            ('storage keys', 'Rotating without an interruption:\n'),
            ('tiers', 'trove-ceph-manage tiers apply --yes-move-data\n'),
        ):
            out = command.run(*group.split(), '--help').out
            self.assertIn(example, out)
            names = [name for name in shell.COMMANDS if name.startswith(f'{group} ')]
            for name in names:
                self.assertIn(name.removeprefix(f'{group} '), out)

    def test_the_program_lists_all_commands(self):
        result = command.run('--help')
        self.assertEqual(0, result.status)
        listed = [line.strip() for line in result.out.splitlines()]
        for name, point in shell.CommandManager():
            first = inspect.getdoc(point.load()).splitlines()[0].rstrip('.')
            self.assertIn(f'{name:<13}  {first}', listed)

    def test_options_name_their_variables(self):
        self.assertIn('$TROVE_CEPH_TIERS_FILE', command.run('tiers', 'plan', '--help').out)


class ErrorsTestCase(base.BaseTestCase):
    """Errors and exit status."""

    def run_failing(self, error, *words):
        """Run a command that fails."""
        self.useFixture(fixtures.MonkeyPatch(f'{__name__}.Failing.error', error))
        points = {**shell.COMMANDS, 'tiers plan': f'{__name__}:Failing'}
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.cmd.manage.shell.COMMANDS', points))
        self.useFixture(fixtures.MonkeyPatch('trove_ceph.cmd.manage.shell._MODULES', ''))
        return command.run(*words, 'tiers', 'plan')

    def test_an_error_is_one_line(self):
        for error, status in (
            (exceptions.StorageError('pool  p:\n refused'), 3),
            (exceptions.InvalidTiersError('pool p: refused'), 2),
            (exceptions.ConsequencesNotAcceptedError('pool p: refused'), 2),
            (exceptions.ChangeNotSeenError('pool p: refused'), 1),
        ):
            expected = (status, '', 'trove-ceph-manage: pool p: refused\n')
            self.assertEqual(expected, self.run_failing(error))

    def test_debug_shows_where(self):
        result = self.run_failing(exceptions.StorageError('no'), '--debug')
        self.assertIn('trove-ceph-manage: no\nTraceback', result.err)

    def test_command_line_without_a_command(self):
        result = command.run()
        self.assertEqual((2, ''), result[:2])
        self.assertIn('trove-ceph-manage: error: name a command', result.err)
        result = command.run('tiers')
        self.assertEqual((2, ''), result[:2])
        self.assertIn('trove-ceph-manage tiers: error: name a command', result.err)
        result = command.run('storage', 'jobz')
        self.assertIn("error: there is no command 'jobz'", result.err)

    def test_wrong_option(self):
        result = command.run('tiers', 'plan', '--no-such-option')
        self.assertEqual((2, ''), result[:2])
        self.assertIn('trove-ceph-manage tiers plan: error: unrecognized', result.err)

    def test_missing_package_is_named(self):
        for package in ('cliff', 'jsonschema'):
            done = python(WITHOUT_EXTRA, 'tiers', 'plan', package)
            self.assertEqual(1, done.returncode)
            self.assertEqual(
                f'trove-ceph-manage: the Python package {package} is missing; '
                "install 'trove-ceph[manage]'\n",
                done.stderr,
            )


class OutputTestCase(base.BaseTestCase):
    """Formats and verbosity."""

    def setUp(self):
        super().setUp()
        self.path = self.useFixture(fixtures.TempDir()).join('keys.json')
        self.words = ['storage', 'keys', 'show', '--key-file', self.path]
        command.run('storage', 'keys', 'create', '--key-file', self.path)

    def test_formats(self):
        shown = command.run(*self.words, '-f', 'value', '-c', 'key_file')
        self.assertEqual((0, f'{self.path}\n', ''), shown)
        self.assertIn(f'key_file: {self.path}\n', command.run(*self.words, '-f', 'yaml').out)
        self.assertIn('| key_file | ', command.run(*self.words).out)

    def test_quiet_prints_no_notes(self):
        for words, expected in (([], 'note\n'), (['--quiet'], '')):
            application = shell.Shell()
            application.options, _ = application.parser.parse_known_args(words)
            err = self.useFixture(fixtures.StringStream('stderr')).stream
            application.stderr = err
            Failing(application, argparse.Namespace()).note('note')
            err.seek(0)
            self.assertEqual(expected, err.read())
