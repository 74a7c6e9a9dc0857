# SPDX-License-Identifier: Apache-2.0
"""The runbooks name commands, alerts, metrics and messages that exist."""

import contextlib
import io
import re
import shlex
from importlib import metadata
from pathlib import Path

import yaml
from cliff import commandmanager
from oslotest import base

import trove_ceph
from trove_ceph.cmd.manage import shell
from trove_ceph.doctor import checks
from trove_ceph.metrics import catalog

PACKAGE = Path(trove_ceph.__file__).parent
CHECKOUT = PACKAGE.parent
TEXT = (CHECKOUT / 'doc/source/admin/runbooks.rst').read_text()
#: Ceph's, Nova's and the operating system's own.
FOREIGN = {'ceph', 'journalctl', 'rabbitmqctl', 'rbd', 'systemctl'}


def commands():
    """Return the command lines of the page, split into words."""
    return [shlex.split(line) for line in re.findall(r'(?m)^ +[$#] (.+)$', TEXT)]


class Client(commandmanager.CommandManager):
    """The commands of ``openstack database``, of this package and of python-troveclient."""

    def __init__(self):
        super().__init__('none')
        for point in metadata.entry_points(group='openstack.database.v1'):
            self.commands[point.name.replace('_', ' ')] = point


def problem(app, manager, words):
    """Return why a program refuses its command line, None if it accepts it."""
    said = io.StringIO()
    try:
        factory, name, rest = manager.find_command(words)
        with contextlib.redirect_stderr(said):
            factory(app, None).get_parser(name).parse_args(rest)
    except (ValueError, SystemExit) as error:
        return f'{shlex.join(words)}: {said.getvalue() or error}'
    return None


class RunbooksTest(base.BaseTestCase):
    def test_each_command_is_accepted_by_its_program(self):
        app, client = shell.Shell(), Client()
        problems, checked = [], 0
        for program, *words in commands():
            if program == app.NAME:
                problems.append(problem(app, app.command_manager, words))
            elif (program, words[0]) == ('openstack', 'database'):
                problems.append(problem(None, client, words))
            else:
                self.assertIn(program, {*FOREIGN, 'openstack'})
                continue
            checked += 1
        self.assertEqual([], [one for one in problems if one])
        self.assertGreater(checked, 50)

    def test_checks_of_the_doctor(self):
        named = set(re.findall(r'--check ([a-z-]+)', TEXT))
        self.assertLessEqual(named, {one.name for one in checks.ALL})
        self.assertTrue(named)

    def test_each_alert_has_a_runbook(self):
        rules = yaml.safe_load((CHECKOUT / 'etc/monitoring/alerts.yml').read_text())
        alerts = {rule['alert'] for group in rules['groups'] for rule in group['rules']}
        self.assertEqual(alerts, set(re.findall(r'``(TroveCeph\w+)``', TEXT)))

    def test_metrics(self):
        known = {one.name for kind in catalog.METRICS.values() for one in kind}
        named = set(re.findall(r'``(trove_ceph_\w+)``', TEXT))
        self.assertLessEqual(named, known)
        self.assertTrue(named)

    def test_messages_of_logs(self):
        sources = ''.join(
            path.read_text() for path in PACKAGE.rglob('*.py') if 'tests' not in path.parts
        )
        named = re.findall(r'log(?: of\s+trove-taskmanager)? has ``([^`]+)``', TEXT)
        self.assertGreater(len(named), 3)
        for message in named:
            self.assertIn(message, sources)
        self.assertIn('Cannot serve', sources)

    def test_each_runbook_says_when_it_is_over(self):
        sections = re.split(r'(?m)^(.+)\n-{5,}$', TEXT)[1:]
        for title, body in zip(sections[::2], sections[1::2], strict=True):
            fields = re.findall(r'(?m)^:(.+):$', body)
            self.assertEqual(['You see', 'It means', 'Do', 'It is over when'], fields, title)
