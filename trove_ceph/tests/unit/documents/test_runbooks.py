# SPDX-License-Identifier: Apache-2.0
"""The runbooks name commands, alerts, metrics and messages that exist."""

import re
from pathlib import Path

import yaml
from oslotest import base

import trove_ceph
from trove_ceph.doctor import checks
from trove_ceph.metrics import catalog
from trove_ceph.tests.unit.packaging import documented_commands

PACKAGE = Path(trove_ceph.__file__).parent
CHECKOUT = PACKAGE.parent
PAGE = CHECKOUT / 'doc/source/admin/runbooks.rst'
TEXT = PAGE.read_text()
#: Ceph's, Nova's and the operating system's own.
FOREIGN = {'ceph', 'journalctl', 'rabbitmqctl', 'rbd', 'systemctl'}


class RunbooksTest(base.BaseTestCase):
    def test_programs(self):
        # test_documented_commands.py reads the commands of all pages as their programs do.
        programs = [one.words[0] for one in documented_commands.commands(PAGE)]
        self.assertLessEqual(set(programs), {*FOREIGN, 'openstack', 'trove-ceph-manage'})
        self.assertGreater(len(programs), 50)

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
