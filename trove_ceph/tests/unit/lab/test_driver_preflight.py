# SPDX-License-Identifier: Apache-2.0
"""The requirements on the machine, checked before anything is changed."""

import os
import subprocess
from unittest import mock

import fixtures
from driver import preflight
from driver.errors import LabError

from trove_ceph.tests.unit.lab.lab_process import LabTestCase

_os_release = preflight._os_release
_DEBIAN = 'PRETTY_NAME="Debian GNU/Linux 12"\nID=debian\nVERSION_ID="12"\n'
_ADDRESSES = """\
1: lo    inet 127.0.0.1/8 scope host lo\\       valid_lft forever preferred_lft forever
2: eth0    inet {address} brd 10.255.255.255 scope global eth0\\       valid_lft forever
7: {ours}    inet 10.20.0.1/24 scope global {ours}\\       valid_lft forever
9: tun0    inet 192.0.2.1 peer 192.0.2.2/32 scope global tun0\\       valid_lft forever
"""


class Clock:
    """A clock on which a sleep takes no time."""

    def __init__(self):
        self.now = 1000.0
        self.on_sleep = lambda: None

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.on_sleep()


class PreflightTest(LabTestCase):
    """A suitable machine, of which a test breaks a part."""

    def setUp(self):
        super().setUp()
        self._patch('os.geteuid', lambda: 0)
        self._memory(64)
        self._disk(500)
        self._distribution(_DEBIAN)
        self._addresses('192.168.1.5/24')
        self._patch('driver.preflight.DEVICES', ('/dev/null',))
        # The default ports may be taken on this machine, for instance by a lab.
        for number, name in enumerate(self.settings.ports, start=1):
            self.settings.ports[name] = number
        self.clock = Clock()
        self.output = self.useFixture(fixtures.StringStream('stdout')).stream
        self._patch('sys.stdout', self.output)

    def _patch(self, name, value):
        self.useFixture(fixtures.MonkeyPatch(name, value))

    def _memory(self, gib):
        self._patch('driver.preflight._available_memory_gib', lambda: gib)

    def _disk(self, gib):
        usage = mock.Mock(return_value=mock.Mock(free=gib * 1024**3))
        self._patch('shutil.disk_usage', usage)
        return usage

    def _distribution(self, text):
        path = self.directory / 'os-release'
        path.write_text(text)
        self._patch('driver.preflight._os_release', lambda: _os_release(path))

    def _addresses(self, address, ours='br-mgmt'):
        done = mock.Mock(stdout=_ADDRESSES.format(address=address, ours=ours))
        self._patch('subprocess.run', mock.Mock(return_value=done))

    def _problems(self):
        text = str(self.assertRaises(LabError, preflight.check, self.settings, self.clock))
        return [line[4:] for line in text.splitlines() if line.startswith('  - ')]

    def test_accepts_a_suitable_machine(self):
        self.assertIsNone(preflight.check(self.settings))

    def test_ubuntu_needs_a_mirror_of_debian(self):
        self._distribution('ID=ubuntu\nVERSION_ID="24.04"\n')
        (problem,) = self._problems()
        self.assertIn('TROVE_CEPH_LAB_DEBIAN_MIRROR', problem)
        self.settings.values['debian_mirror'] = 'http://mirror.example.org/debian'
        self.assertIsNone(preflight.check(self.settings))

    def test_a_lab_of_two_hosts_keeps_both(self):
        """Otherwise its guests lose their network."""
        self.write('.trove-ceph-lab')
        self.write('compute-2/etc/supervisord.conf')
        self.settings.values['second_compute'] = 0
        (problem,) = self._problems()
        self.assertIn('set second_compute = 1, or run make lab-clean', problem)
        self.settings.values['second_compute'] = 1
        self.assertIsNone(preflight.check(self.settings))

    def test_lists_every_problem(self):
        process, port = self._listening()
        self.root.mkdir()
        (self.root / 'precious').touch()
        self._memory(9.5)
        self._disk(24)
        self._distribution('ID=fedora\nVERSION_ID=40\n')
        self._addresses('10.20.1.2/8')
        self._patch('driver.preflight.DEVICES', ('/dev/null', '/dev/absent'))
        problems = self._problems()
        expected = (
            'distribution fedora 40 is not supported (supported: debian 12, ',
            f'{self.root} contains other files',
            '9.5 GiB of memory are free, 10 GiB are needed',
            f'24.0 GiB of disk are free at {self.root}, 25 GiB',
            '/dev/absent is missing',
            'management_cidr 10.20.0.0/24 overlaps 10.20.1.2/8 of eth0',
            'public_cidr 10.21.0.0/24 overlaps 10.20.1.2/8 of eth0',
            f'port {port} (glance) is taken by process {process.pid} (python',
        )
        self.assertEqual(len(expected), len(problems), problems)
        for start, problem in zip(expected, problems, strict=True):
            self.assertTrue(problem.startswith(start), problem)

    def test_without_root_checks_nothing_else(self):
        # The other checks would see only a part, and report wrongly.
        self._patch('os.geteuid', lambda: 1000)
        self._memory(1)
        self._patch('driver.processes.listeners', mock.Mock(side_effect=PermissionError))
        (problem,) = self._problems()
        self.assertIn('root is needed', problem)

    def _listening(self, root=None):
        process, port = self.listen(root)
        self.settings.ports['glance'] = port
        return process, port

    def test_error_of_a_taken_port_names_the_setting(self):
        self._listening(root='/opt/other-lab')
        (problem,) = self._problems()
        self.assertIn('set TROVE_CEPH_LAB_PORTS_GLANCE', problem)

    def test_port_with_an_unknown_holder(self):
        self._patch('driver.processes.listeners', lambda: {self.settings.ports['nova']: 0})
        (problem,) = self._problems()
        self.assertIn('(nova) is taken by another process;', problem)
        self.assertEqual(preflight.PORTS_TIMEOUT_SEC, round(self.clock.now - 1000))

    def test_waits_for_ports_of_dying_processes(self):
        zombie = self.sleep()
        zombie.kill()
        self.wait_for_zombie(zombie)
        ports = self.settings.ports
        taken = {ports['nova']: zombie.pid, ports['trove']: 0}
        self._patch('driver.processes.listeners', lambda: dict(taken))
        releases = iter([ports['trove'], ports['nova']])
        self.clock.on_sleep = lambda: taken.pop(next(releases))

        self.assertIsNone(preflight.check(self.settings, self.clock))

        self.assertEqual({}, taken)
        self.output.seek(0)
        message = self.output.read()
        self.assertIn('lab: waiting at most 30 s for dying processes', message)
        self.assertIn(f'{ports["nova"]} (nova), {ports["trove"]} (trove)', message)

    def test_does_not_wait_for_a_live_process(self):
        self._listening()
        self.assertEqual(1, len(self._problems()))
        self.assertEqual(1000.0, self.clock.now)

    def test_does_not_wait_if_another_requirement_is_missing(self):
        self._memory(1)
        self._patch('driver.processes.listeners', lambda: {self.settings.ports['nova']: 0})
        self.assertEqual(2, len(self._problems()))
        self.assertEqual(1000.0, self.clock.now)

    def test_does_not_report_own_ports(self):
        self._listening(root=self.root)
        self.assertIsNone(preflight.check(self.settings))

    def test_does_not_report_own_bridges(self):
        self._addresses('192.168.1.5/24', ours='br-other')
        (problem,) = self._problems()
        self.assertIn('overlaps 10.20.0.1/24 of br-other', problem)
        self.assertIn('TROVE_CEPH_LAB_MANAGEMENT_CIDR', problem)

    def test_without_the_ip_program(self):
        self._patch('subprocess.run', mock.Mock(side_effect=FileNotFoundError))
        self.assertIsNone(preflight.check(self.settings))
        self._patch('subprocess.run', mock.Mock(side_effect=subprocess.CalledProcessError(1, 'ip')))
        self.assertIsNone(preflight.check(self.settings))

    def test_installed_lab_needs_little_disk(self):
        usage = self._disk(4)
        self.assertIn('25 GiB are needed', self._problems()[0])
        usage.assert_called_with(self.directory)
        self.write('state/installed')
        self.assertIsNone(preflight.check(self.settings))
        usage.assert_called_with(self.root)
        self._disk(2)
        self.assertIn('3 GiB are needed', self._problems()[0])

    def test_running_lab_uses_the_memory_itself(self):
        self._memory(1)
        self.assertIn('10 GiB are needed', self._problems()[0])
        process = self.sleep('supervisord', '-c', f'{self.root}/etc/supervisord.conf')
        self.write('run/supervisord.pid', str(process.pid))
        self.assertIsNone(preflight.check(self.settings))

    def test_counts_memory_of_orphans_of_supervisord(self):
        self._memory(1)
        self.sleep(root='/opt/another')
        self.assertIn('10 GiB are needed', self._problems()[0])
        self.sleep(root=self.root)
        self.assertIsNone(preflight.check(self.settings))

    def test_refuses_a_directory_with_other_files(self):
        self.root.mkdir()
        self.assertIsNone(preflight.check(self.settings))
        (self.root / 'precious').touch()
        (problem,) = self._problems()
        self.assertIn(f'{self.root} contains other files', problem)
        self.assertIn('TROVE_CEPH_LAB_ROOT', problem)
        self.settings.mark.touch()
        self.assertIsNone(preflight.check(self.settings))

    def test_refuses_a_root_that_is_a_file(self):
        self.root.touch()
        self.assertIn('contains other files', self._problems()[0])

    def test_unreadable_release(self):
        self.assertEqual({}, _os_release(self.directory / 'absent'))
        self._distribution('')
        self.assertIn('distribution ? ? is not supported', self._problems()[0])


class MemoryTest(LabTestCase):
    def test_kernel_figure(self):
        total = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1024**3
        self.assertGreater(preflight._available_memory_gib(), 0)
        self.assertLess(preflight._available_memory_gib(), total)
