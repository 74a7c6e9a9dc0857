# SPDX-License-Identifier: Apache-2.0
"""Failures of the second compute host, and a lab that is stopped with it."""

import argparse
import json
import os
import signal
from unittest import mock

import fixtures
from driver import __main__ as command_line
from driver import processes, second_compute, stop, up
from driver.errors import LabError

from trove_ceph.tests.unit.lab import LAB
from trove_ceph.tests.unit.lab.test_driver_instruments import InstrumentsTestCase

OWN, SECOND = 'pid:[1]', 'pid:[2]'
_TIMEOUT_SEC = 60


class SecondComputeTestCase(InstrumentsTestCase):
    """Real processes; their namespaces and the links between the hosts are faked."""

    def setUp(self):
        super().setUp()
        self.namespaces = {}
        self.links = []
        self.commands = []
        exists = os.path.exists
        for name, value in (
            ('driver.processes.pid_namespace', lambda pid: self.namespaces.get(pid, OWN)),
            (
                'os.path.exists',
                lambda path: (
                    bool(self.links and self.links.pop(0))
                    if str(path).startswith('/sys/class/net/')
                    else exists(path)
                ),
            ),
            (
                'driver.processes.stop_program',
                lambda settings, program: self.commands.append(program),
            ),
        ):
            self.useFixture(fixtures.MonkeyPatch(name, value))

    def host(self):
        """Start a host: its first process and a guest."""
        conf = self.write('compute-2/etc/supervisord.conf')
        first = self.sleep('supervisord', '-n', '-c', str(conf))
        guest = self.guest('instance-00000001', self.root)
        self.namespaces |= {first.pid: SECOND, guest.pid: SECOND}
        return first, guest

    def lab(self, *arguments):
        """Run the command as from the command line; return its exit code."""
        arguments = command_line._parser().parse_args(['compute-2', *arguments])
        return arguments.run(self.settings, arguments)


class FailureTest(SecondComputeTestCase):
    def test_kill_is_a_power_cut_of_this_host_only(self):
        first, guest = self.host()
        other = self.guest('instance-00000002', self.root)
        self.assertEqual(0, self.lab('kill'))
        self.assertEqual(['compute-2'], self.commands)
        self.assertEqual(
            [-signal.SIGKILL] * 2, [first.wait(_TIMEOUT_SEC), guest.wait(_TIMEOUT_SEC)]
        )
        self.assertIsNone(other.poll())
        self.assertEqual(0, self.lab('kill'))

    def test_kill_waits_until_the_links_are_gone(self):
        self.host()
        self.links = [True, True]
        self.assertEqual(0, self.lab('kill'))
        self.assertEqual([], self.links)

    def test_kill_says_what_remains(self):
        self.host()
        clock = mock.Mock()
        clock.monotonic.side_effect = [0, 0, 61]
        self.links = [True, True]
        with mock.patch('driver.processes.of_second_host', side_effect=[[], []]):
            error = self.assertRaises(LabError, second_compute.cut_power, self.settings, clock)
        self.assertIn('the network links c2-services, c2-tunnels remain', str(error))

    def test_frozen_processes_continue_after_a_thaw(self):
        first, guest = self.host()
        self.assertEqual(0, self.lab('freeze'))
        for process in (first, guest):
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        self.assertEqual(0, self.lab('thaw'))
        for process in (first, guest):
            os.waitid(os.P_PID, process.pid, os.WCONTINUED | os.WNOWAIT)

    def test_freeze_stops_processes_that_are_started_meanwhile(self):
        sent = []
        found = iter([[1], [1, 2], [1, 2]])
        with mock.patch('driver.processes.send', side_effect=lambda *signal: sent.append(signal)):
            processes.freeze(lambda: next(found))
        self.assertEqual([(1, signal.SIGSTOP), (2, signal.SIGSTOP)], sent)

    def test_start_runs_the_playbook(self):
        self.host()
        self.assertEqual(0, self.lab('start'))
        arguments = json.loads(self.playbook.read_text())['arguments']
        self.assertIn(str(self.lab_dir / up.SECOND_COMPUTE_PLAYBOOK), arguments)
        self.assertTrue((LAB / up.SECOND_COMPUTE_PLAYBOOK).exists())

    def test_a_lab_with_one_host_has_nothing_to_fail(self):
        self.assertIn('make lab-clean', str(self.assertRaises(LabError, self.lab, 'kill')))
        self.assertEqual([], self.commands)

    def test_a_stopped_lab(self):
        self.host()
        self.supervisord_pid.return_value = None
        self.assertIn('run make lab', str(self.assertRaises(LabError, self.lab, 'freeze')))


class LabTest(SecondComputeTestCase):
    def test_down_cuts_the_power_of_the_host_first(self):
        first, guest = self.host()
        self.supervisord_pid.return_value = None
        with (
            mock.patch('os.geteuid', return_value=0),
            mock.patch('driver.processes.terminate', return_value=[]) as terminate,
        ):
            stop.down(self.settings, argparse.Namespace())
        self.assertEqual(['compute-2', 'nova-compute'], self.commands)
        self.assertEqual(
            [-signal.SIGKILL] * 2, [first.wait(_TIMEOUT_SEC), guest.wait(_TIMEOUT_SEC)]
        )
        self.assertEqual([], [call.args[0] for call in terminate.call_args_list if call.args[0]])

    def test_up_adds_the_host_before_the_main_job(self):
        playbooks = self._up(second_compute=1)
        self.assertEqual(['site.yml', up.SECOND_COMPUTE_PLAYBOOK], playbooks)

    def test_up_without_the_setting_has_one_host(self):
        self.assertEqual(['site.yml'], self._up(second_compute=0))

    def test_up_continues_a_frozen_host(self):
        first, _guest = self.host()
        self.lab('freeze')
        os.waitid(os.P_PID, first.pid, os.WSTOPPED | os.WNOWAIT)
        self._up(second_compute=1)
        os.waitid(os.P_PID, first.pid, os.WCONTINUED | os.WNOWAIT)

    def _up(self, **values):
        self.settings.values.update(values)
        ran = []

        def run(_settings, _started, playbook='site.yml'):
            ran.append(playbook)
            return 0

        with (
            mock.patch('driver.preflight.check'),
            mock.patch('driver.up.run_playbook', side_effect=run),
            mock.patch('driver.up.ensure_tools'),
        ):
            self.assertEqual(0, up.up(self.settings, argparse.Namespace(cloud_only=True)))
        return ran
