# SPDX-License-Identifier: Apache-2.0
"""The tutorial: its commands, what they print, and what they leave."""

import json
import os
import textwrap
from unittest import mock

import fixtures
from driver import __main__ as command_line
from driver import tutorial as command
from driver.errors import LabError
from main_job.errors import JobError
from oslotest import base
from tutorial import comparison, leftovers, page, shell

from trove_ceph.tests.unit.lab.test_driver_instruments import InstrumentsTestCase

_PAGE = textwrap.dedent("""\
    Title
    =====

    Text with a price of 5 $ and more.

    .. code-block:: console

       $ first
       one

       two
       $ second \\
           --option
       $ openstack database instance create shop --flavor small \\
           --size 2

    More text.

    .. code-block:: console

       $ openstack database backup take before --instance shop
       $ openstack database backup policy create nightly --instance shop
       last
    """)


def _table(rows, head=('Field', 'Value')):
    """Return lines as cliff prints them."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    border = '+' + '+'.join('-' * (width + 2) for width in widths) + '+'

    def line(row):
        cells = (f' {cell:{width}} ' for cell, width in zip(row, widths, strict=True))
        return '|' + '|'.join(cells) + '|'

    return [border, line(head), border, *map(line, rows), border]


class PageTest(base.BaseTestCase):
    def test_steps(self):
        found = page.steps(_PAGE)
        self.assertEqual(
            [
                ('first', ('one', '', 'two')),
                ('second \\\n    --option', ()),
                ('openstack database instance create shop --flavor small \\\n    --size 2', ()),
                ('openstack database backup take before --instance shop', ()),
                ('openstack database backup policy create nightly --instance shop', ('last',)),
            ],
            [(one.command, one.shown) for one in found],
        )
        self.assertEqual(8, found[0].line)

    def test_created(self):
        found = page.steps(_PAGE)
        self.assertEqual(['shop'], page.created(found, 'instance'))
        self.assertEqual(['before'], page.created(found, 'backup'))
        self.assertEqual(['nightly'], page.created(found, 'backup policy'))

    def test_the_same_output_changes_nothing(self):
        shown = [list(one.shown) for one in page.steps(_PAGE)]
        self.assertEqual(_PAGE, page.record(_PAGE, shown))

    def test_record(self):
        recorded = page.record(_PAGE, [['new', '', 'lines'], ['of the second']])
        found = page.steps(recorded)
        self.assertEqual(('new', '', 'lines'), found[0].shown)
        self.assertEqual(('of the second',), found[1].shown)
        # The run ended before these.
        self.assertEqual(('last',), found[-1].shown)
        self.assertIn('More text.\n', recorded)
        self.assertNotIn('one', recorded)

    def test_a_page_without_commands_is_an_error(self):
        path = mock.Mock(read_text=lambda: 'Text')
        self.assertRaises(ValueError, page.read, path)

    def test_the_tutorial_shows_the_output_of_its_commands(self):
        found = page.steps(page.read(command.PAGE))
        self.assertGreater(len(found), 30)
        for one in found:
            if one.command.startswith(('openstack database instance create', 'until_healthy s')):
                self.assertTrue(one.shown, one.command)
        # Each instance is deleted, so that the page leaves nothing.
        for name in page.created(found, 'instance'):
            deletion = f'openstack database instance delete {name}'
            self.assertIn(deletion, [one.command for one in found])


class ComparisonTest(base.BaseTestCase):
    ID = 'c71b0a0e-6a2f-4b27-9f6e-3f1b0f3f2a1{}'

    def assertSame(self, shown, real):
        self.assertEqual([], comparison.differences(shown, real))

    def assertDiffers(self, shown, real, *words):
        found = comparison.differences(shown, real)
        self.assertTrue(found)
        for word in words:
            self.assertIn(word, ' '.join(found))

    def test_lines(self):
        self.assertSame(['a', '10.21.0.7'], ['a', '10.21.0.123'])
        self.assertSame(
            [f'id {self.ID.format(1)} at 2026-11-24T08:00:01'],
            [f'id {self.ID.format(2)} at 2026-11-25T18:30:59'],
        )
        self.assertDiffers(['HEALTHY ACTIVE'], ['ERROR ERROR'], 'HEALTHY', 'ERROR')
        self.assertDiffers(['4 rows'], ['5 rows'], '4 rows', '5 rows')
        self.assertDiffers(['a', 'b'], ['a'], "did not print ('b',)")
        self.assertDiffers([], ['a warning'], 'does not show')

    def test_fields(self):
        shown = _table([('state', 'verified'), ('take_sec', '0.31 s'), ('used_bytes', '5.1 MiB')])
        self.assertSame(
            shown,
            _table([('state', 'verified'), ('take_sec', '12.5 s'), ('used_bytes', '980.5 KiB')]),
        )
        other = _table([('state', 'copied'), ('take_sec', '0.31 s'), ('used_bytes', '5.1 MiB')])
        self.assertDiffers(shown, other, "('state', 'verified')", "('state', 'copied')")
        # An empty figure is not a figure, and other fields are compared exactly.
        self.assertDiffers(shown, _table([('state', 'verified'), ('take_sec', '')]))
        self.assertDiffers(_table([('copies', '2')]), _table([('copies', '1')]))

    def test_sets_of_transactions(self):
        sets = [f'{self.ID.format(1)}:1-27', f'{self.ID.format(2)}:1-9:11']
        self.assertSame(*(_table([('gtid_executed', one)]) for one in sets))

    def test_broken_lines_of_a_field(self):
        self.assertSame(
            _table([('reason', 'to try it')]), _table([('reason', 'to try'), ('', 'it')])
        )

    def test_columns(self):
        head = ('Name', 'State', 'Lag')
        shown = _table([('a', 'following', '0 s'), ('b', 'following', '1 s')], head)
        real = _table([('a', 'following', '20 s'), ('b', 'following', '0 s')], head)
        self.assertSame(shown, real)
        broken = _table([('a', 'following', '20 s'), ('b', 'broken', '0 s')], head)
        self.assertDiffers(shown, broken, 'State')

    def test_a_table_of_sql(self):
        shown = _table([('1', 'anvil'), ('2', 'rope')], ('id', 'item'))
        self.assertDiffers(shown, _table([('1', 'anvil')], ('id', 'item')), '12', '1')


class ShellTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.shell = self.enterContext(shell.Shell({'PATH': os.environ['PATH']}))

    def run_command(self, command, limit_sec=60):
        return self.shell.run(command, limit_sec)

    def test_variables_and_functions_stay(self):
        self.assertEqual([], self.run_command('NAME=$(echo shop)'))
        self.assertEqual([], self.run_command('show() { echo \\\n  "$1 of $NAME"; }'))
        self.assertEqual(['x of shop'], self.run_command('show x'))

    def test_errors_are_in_the_output(self):
        self.assertEqual(['a', 'b'], self.run_command('echo a; echo b >&2'))

    def test_a_command_does_not_read_the_next_one(self):
        self.assertEqual([], self.run_command('cat'))
        self.assertEqual(['next'], self.run_command('echo next'))

    def test_failures(self):
        error = self.assertRaises(shell.CommandError, self.run_command, 'echo why; false')
        self.assertIn('ended with status 1: why', str(error))
        error = self.assertRaises(shell.CommandError, self.run_command, 'exit 0')
        self.assertIn('ended the shell', str(error))

    def test_the_limit_ends_what_the_command_has_started(self):
        error = self.assertRaises(
            shell.CommandError, self.run_command, 'echo begun; cat /dev/zero | cat >/dev/null', 0.5
        )
        self.assertIn('did not end within 0.5 s', str(error))


class _Client:
    """The tenant's client of a project."""

    def __init__(self, instances=(), backups=()):
        self.resources = {'instance': list(instances), 'backup': list(backups)}
        self.refused = {}
        self.forced = []

    def list_instances(self):
        return [{'ID': f'id-{name}', 'Name': name} for name in self.resources['instance']]

    def list_backups(self):
        return [{'ID': f'id-{name}', 'Name': name} for name in self.resources['backup']]

    def request_deletion(self, kind, identity, *options):
        name = identity.removeprefix('id-')
        if self.refused.get(name, 0) > 0:
            self.refused[name] -= 1
            raise JobError(f'{name} is refused')
        self.forced += [name] if options else []
        self.resources[kind].remove(name)


class LeftoversTest(base.BaseTestCase):
    def of(self, client):
        self.useFixture(fixtures.MonkeyPatch('time.sleep', lambda seconds: None))
        return leftovers.Leftovers(client, ('shop', 'copy'), ('before', 'nightly'))

    def test_only_what_the_page_creates_is_deleted(self):
        client = _Client(['shop', 'mine', 'copy'], ['before', 'nightly-1', 'other'])
        self.of(client).remove()
        self.assertEqual({'instance': ['mine'], 'backup': ['other']}, client.resources)
        self.assertEqual([], client.forced)

    def test_one_that_is_built_is_forced(self):
        client = _Client(['shop'])
        client.refused = {'shop': 1}
        self.of(client).remove()
        self.assertEqual(['shop'], client.forced)

    def test_a_refusal_is_repeated_and_at_last_reported(self):
        client = _Client(['shop'], ['before'])
        client.refused = {'shop': 5, 'before': 3}
        self.of(client).remove()
        self.assertEqual({'instance': [], 'backup': []}, client.resources)
        client = _Client([], ['before'])
        client.refused = {'before': 10000}
        error = self.assertRaises(leftovers.LeftoversError, self.of(client).remove)
        self.assertIn('backup before (id-before); the last refusal: before is refused', str(error))

    def test_what_stays_is_reported(self):
        client = _Client(['shop'])
        error = self.assertRaises(leftovers.LeftoversError, self.of(client).wait_until_gone)
        self.assertIn('the page leaves behind: instance shop (id-shop)', str(error))
        self.assertEqual(['shop'], client.resources['instance'])
        error = self.assertRaises(leftovers.LeftoversError, self.of(client).require_none)
        self.assertIn('exists already', str(error))
        self.of(_Client(['mine'])).require_none()


#: Keeps instances in a file. Its folder is also where it finds what it shall refuse.
_OPENSTACK = """#!/bin/sh
cd {folder} || exit 1
test "$OS_USERNAME" = tenant || exit 1
case "$*" in
"database instance list -f json")
    printf '['; separator=
    while read -r name; do
        printf '%s{{"ID": "id-%s", "Name": "%s"}}' "$separator" "$name" "$name"; separator=,
    done <instances
    echo ']' ;;
"database backup list -f json") echo '[]' ;;
"database instance create "*) echo "$4" >>instances; echo "created $4" ;;
"database instance delete "*)
    grep -vx "${{4#id-}}" instances >rest; mv rest instances ;;
"fail") echo "no reason"; exit 3 ;;
*) exit 2 ;;
esac
"""

_COMMANDS = """\
Text

.. code-block:: console

   $ openstack database instance create shop
   created shop
   $ {second}
   $ openstack database instance delete shop
"""


class TutorialTest(InstrumentsTestCase):
    def setUp(self):
        super().setUp()
        self.write('etc/credentials.json', json.dumps({'tenant': {'OS_USERNAME': 'tenant'}}))
        self.instances = self.write('cloud/instances', 'mine\n')
        script = _OPENSTACK.format(folder=self.instances.parent)
        self.write('venv/bin/openstack', script).chmod(0o755)
        self.useFixture(fixtures.MonkeyPatch('time.sleep', lambda seconds: None))
        self.shown = self.useFixture(fixtures.StringStream('stdout')).stream
        self.useFixture(fixtures.MonkeyPatch('sys.stdout', self.shown))

    def follow(self, *options, second='true'):
        self.page = self.write('page.rst', _COMMANDS.format(second=second))
        arguments = ['tutorial', '--page', str(self.page), *options]
        parsed = command_line._parser().parse_args(arguments)
        return parsed.run(self.settings, parsed)

    def remaining(self):
        return self.instances.read_text().split()

    def test_the_page_is_right(self):
        self.assertEqual(0, self.follow())
        self.assertEqual(['mine'], self.remaining())

    def test_other_output_is_a_failure(self):
        self.assertEqual(1, self.follow(second='echo surprise'))
        self.assertEqual(['mine'], self.remaining())

    def test_other_output_is_recorded(self):
        self.assertEqual(0, self.follow('--record', second='echo surprise'))
        [_, second, _] = page.steps(self.page.read_text())
        self.assertEqual(('surprise',), second.shown)
        self.assertEqual(0, self.follow('--record', second='true'))

    def test_a_failed_command_is_an_error_and_leaves_nothing(self):
        error = self.assertRaises(LabError, self.follow, second='openstack fail')
        self.assertIn('"openstack fail" ended with status 3: no reason', str(error))
        self.assertEqual(['mine'], self.remaining())

    def test_an_instance_of_the_page_exists(self):
        self.instances.write_text('mine\nshop\n')
        error = self.assertRaises(LabError, self.follow)
        self.assertIn('exists already', str(error))
        # It may be someone's.
        self.assertEqual(['mine', 'shop'], self.remaining())

    def test_what_the_page_does_not_delete_is_an_error(self):
        self.useFixture(fixtures.MonkeyPatch('tutorial.leftovers.TIMEOUT_SEC', 8))
        second = 'openstack database instance create copy'
        error = self.assertRaises(LabError, self.follow, second=second)
        self.assertIn('the page leaves behind: instance copy', str(error))
        self.assertEqual(['mine'], self.remaining())
