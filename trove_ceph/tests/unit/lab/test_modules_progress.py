# SPDX-License-Identifier: Apache-2.0
"""The output of the lab during a playbook."""

import contextlib
import io
from types import SimpleNamespace
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph.tests.unit.lab import plugins

progress = plugins.load('callback/progress.py', 'lab_callback_progress')


class ProgressTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 1000.0
        self.out = io.StringIO()
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        stack.enter_context(contextlib.redirect_stdout(self.out))
        stack.enter_context(mock.patch.object(progress, 'time', mock.Mock(time=lambda: self.now)))
        self.useFixture(fixtures.EnvironmentVariable('LAB_STARTED', '900'))
        self.callback = progress.CallbackModule()
        roles = [self._named('base'), self._named('ceph')]
        self.callback.v2_playbook_on_play_start(SimpleNamespace(get_roles=lambda: roles))

    @staticmethod
    def _named(name):
        return SimpleNamespace(get_name=lambda: name)

    def _task(self, role, name, seconds=0.0, changed=False):
        task = SimpleNamespace(_role=self._named(role), get_name=lambda: f'{role} : {name}')
        self.callback.v2_playbook_on_task_start(task, False)
        self.now += seconds
        self.callback.v2_runner_on_ok(SimpleNamespace(_result={'changed': changed}))

    def _fail(self, ignored=False, **result):
        self.callback.v2_runner_on_failed(SimpleNamespace(_result=result), ignored)

    def _stats(self, changed=0, **summary):
        counts = {'failures': 0, 'unreachable': 0} | summary
        self.callback.v2_playbook_on_stats(
            SimpleNamespace(
                processed=['localhost'],
                changed={'localhost': changed},
                summarize=lambda host: counts,
            )
        )

    def _lines(self):
        return [line.rstrip() for line in self.out.getvalue().splitlines()]

    def test_roles_slow_tasks_and_the_end(self):
        self._task('base', 'Be quick', 3.9)
        self._task('base', 'Be slow', 60.0, changed=True)
        self._task('ceph', 'Start', 1.0)
        self._stats(changed=1)
        self.assertEqual(
            [
                '[ 1/2] base …',
                '            60.0 s  Be slow',
                '[ 1/2] base           63.9 s, 1 changed   (elapsed 2:43)',
                '[ 2/2] ceph …',
                '[ 2/2] ceph            1.0 s   (elapsed 2:44)',
                'done after 2:44, 1 changed',
            ],
            self._lines(),
        )

    def test_failure(self):
        self._task('ceph', 'Start')
        self._fail(msg='osd.1 does not stay up', stdout='a\nb', log='/l/osd.1.log')
        self._stats(failures=1)
        lines = self._lines()
        self.assertIn('FAILED  ceph: Start', lines)
        for expected in ('  | osd.1 does not stay up', '  | b', '  log: /l/osd.1.log'):
            self.assertIn(expected, lines)
        self.assertTrue(lines[-1].startswith('stopped after'))

    def test_shows_only_the_end_of_long_output(self):
        self._fail(stdout='\n'.join(str(n) for n in range(20)))
        self.assertIn('  | … 5 lines before', self._lines())
        self.assertNotIn('  | 4', self._lines())
        self.assertEqual('  | 19', self._lines()[-1])

    def test_failed_item_of_a_loop(self):
        results = [{'msg': 'fine'}, {'failed': True, 'msg': 'this one'}]
        self._fail(msg='All items completed', results=results)
        self.assertIn('  | this one', self._lines())
        self.assertNotIn('  | All items completed', self._lines())

    def test_does_not_show_an_ignored_failure(self):
        self._fail(ignored=True, msg='no matter')
        self.assertEqual([], self._lines())

    def test_reports_an_unreachable_host_as_a_failure(self):
        self._stats(unreachable=1)
        self.assertTrue(self._lines()[-1].startswith('stopped after'))
