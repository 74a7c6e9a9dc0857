# SPDX-License-Identifier: Apache-2.0
"""Tests of what scenarios do as operators, and of its waits."""

import functools
import json
import subprocess

from oslotest import base

from trove_ceph import exceptions, waiting
from trove_ceph.cmd.manage import shell
from trove_ceph_tempest_plugin import management

COMMAND = 'env A=1 trove-ceph-manage'


def status(reporting=2, watched_by='host', **findings):
    listed = [
        {'instance_id': one, 'verdict': verdict, 'silent_sec': silent_sec}
        for one, (verdict, silent_sec) in findings.items()
    ]
    return {'reporting': reporting, 'watched_by': watched_by, 'findings': listed}


class ManagementTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = 0.0
        self.commands = []

    def _sleep(self, seconds):
        self.now += seconds

    def management(self, *outputs, exit_status=0):
        """Return the command of operators, which prints one of the outputs after the other."""
        left = list(outputs)

        def execute(words, **_options):
            self.commands.append(words)
            output = left.pop(0) if len(left) > 1 else left[0]
            return subprocess.CompletedProcess(words, exit_status, json.dumps(output), '')

        start_wait = functools.partial(waiting.Deadline, clock=lambda: self.now, sleep=self._sleep)
        return management.Management(COMMAND, execute, start_wait)

    def test_each_method_runs_a_command_that_there_is(self):
        row = {'instance_id': 'i-1', 'outcome': 'moved'}
        self.management(status()).failover_status()
        self.management({}).begin_maintenance('a new switch')
        self.management({}).end_maintenance()
        self.assertEqual(['i-1'], self.management([row]).move_host('c-2', 'new memory'))
        app, found = shell.Shell(), []
        for words in self.commands:
            self.assertEqual(['env', 'A=1', 'trove-ceph-manage', '--quiet'], words[:4])
            command, name, arguments = app.command_manager.find_command(words[4:])
            command(app, None, cmd_name=name).get_parser(name).parse_args(arguments)
            found.append(name)
        expected = [
            'failover status',
            'failover maintenance begin',
            'failover maintenance end',
            'replacements move-host',
        ]
        self.assertEqual(expected, found)

    def test_status_of_what_is_held_is_read(self):
        self.assertEqual(status(), self.management(status(), exit_status=1).failover_status())

    def test_database_that_is_left_on_a_host_is_an_error(self):
        row = {'instance_id': 'i-1', 'outcome': 'stays: it is backed up'}
        error = self.assertRaises(
            exceptions.TroveCephError,
            self.management([row], exit_status=1).move_host,
            *('c-2', 'new memory'),
        )
        self.assertIn('stays: it is backed up', str(error))

    def test_waits_for_reports(self):
        found = self.management(status(None), status(0), status(1)).wait_for_reports(60)
        self.assertEqual((1, 10), (found['reporting'], self.now))

    def test_waits_for_a_taskmanager_that_watches(self):
        found = self.management(status(1, None), status(1)).wait_for_reports(60)
        self.assertEqual(('host', 5), (found['watched_by'], self.now))

    def test_a_watch_that_nobody_keeps_is_seen(self):
        self.assertIsNone(self.management(status(1, None)).wait_for_reports(60)['watched_by'])
        self.assertEqual(60, self.now)

    def test_reports_that_do_not_arrive_are_seen(self):
        self.assertEqual(0, self.management(status(0)).wait_for_reports(60)['reporting'])
        self.assertEqual(60, self.now)

    def test_waits_until_the_instance_is_suspected(self):
        found = self.management(
            status(i2=('suspect', 99)), status(i1=('unclear', 99)), status(i1=('suspect', 100))
        ).wait_until_suspected('i1', 60)
        self.assertEqual((100, 10), (found['silent_sec'], self.now))

    def test_waits_until_it_is_silent_for_so_long(self):
        found = self.management(
            status(i1=('suspect', 100)), status(i1=('suspect', 159)), status(i1=('suspect', 160))
        ).wait_until_suspected('i1', 60, 160)
        self.assertEqual((160, 10), (found['silent_sec'], self.now))

    def test_timeout_says_what_is_seen(self):
        error = self.assertRaises(
            exceptions.TroveCephError,
            self.management(status(i1=('held', 100))).wait_until_suspected,
            *('i1', 60),
        )
        self.assertIn("'verdict': 'held'", str(error))
        self.assertEqual(60, self.now)
