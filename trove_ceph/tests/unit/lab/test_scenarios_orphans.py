# SPDX-License-Identifier: Apache-2.0
"""Orphans that a run of the scenarios leaves."""

import fixtures
from scenarios import orphans

from trove_ceph.tests.unit.lab import test_scenarios

# Reports orphans for the first calls.
_MANAGE = """#!/bin/sh
echo "$*" >>{record}
[ "$(wc -l <{record})" -gt {times} ] && exit 0
echo image vault/x is an orphan
exit 1
"""


class OrphansTest(test_scenarios.RunTestCase):
    def setUp(self):
        super().setUp()
        self.record = self.root / 'record'
        self.waited = 0

    def install(self, times, manager='trove_ceph.taskmanager.manager.Manager'):
        config = self.root / 'etc' / 'trove-taskmanager.conf'
        config.write_text(f'[DEFAULT]\ntaskmanager_manager = {manager}\n')
        program = self.root / 'venv' / 'bin' / 'trove-ceph-manage'
        program.parent.mkdir(parents=True)
        program.write_text(_MANAGE.format(record=self.record, times=times))
        program.chmod(0o755)

    def find(self):
        def sleep(seconds):
            self.waited += seconds

        return orphans.find(self.root, sleep)

    def test_no_orphans(self):
        self.install(times=0)
        self.assertEqual(('', 0), (self.find(), self.waited))
        words = self.record.read_text().split()
        self.assertEqual(['gc', 'list', '--min-age-hours=0'], words[:3])
        self.assertIn(f'--config-file={self.root}/etc/trove/trove.conf', words)

    def test_waits_for_deletions_in_progress(self):
        self.install(times=3)
        self.assertEqual(('', 3 * orphans.POLL_SEC), (self.find(), self.waited))

    def test_reports_remaining_orphans(self):
        self.install(times=1000)
        self.assertIn('vault/x is an orphan', self.find())
        self.assertEqual(orphans.TIMEOUT_SEC, self.waited)

    def test_searches_nothing_with_the_stock_task_manager(self):
        self.assertEqual('', self.find())
        self.install(times=1000, manager='trove.taskmanager.manager.Manager')
        self.assertEqual('', self.find())
        self.assertFalse(self.record.exists())

    def test_run_that_leaves_orphans_fails(self):
        self.install(times=1000)
        self.tempest('success')
        find = orphans.find
        patch = fixtures.MonkeyPatch(
            'scenarios.orphans.find', lambda root: find(root, lambda seconds: None)
        )
        self.useFixture(patch)
        code, output = self.run_scenarios()
        self.assertEqual(1, code)
        self.assertIn('vault/x is an orphan', output)
