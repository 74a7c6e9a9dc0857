# SPDX-License-Identifier: Apache-2.0
"""Finding and terminating real processes."""

import os
import re
import subprocess
import sys

import fixtures
import yaml
from driver import processes

from trove_ceph.tests.unit.lab import LAB, lab_process
from trove_ceph.tests.unit.lab.lab_process import LabTestCase

_STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('up', flush=True)
time.sleep(60)
"""


# A process, its child without environment, and the child's child.
_GENERATIONS = """
import subprocess, sys, time
if len(sys.argv) < 3:
    code = open('/proc/self/cmdline').read().split('\\0')[2]
    child = subprocess.Popen(
        [sys.executable, '-c', code, *sys.argv[1:], 'x'], env={}, stdout=subprocess.PIPE, text=True
    )
    print(child.pid, child.stdout.readline().strip(), flush=True)
else:
    print('', flush=True)
time.sleep(60)
"""

_PRINT_LAB_PIDS = """
import sys, types, pathlib
from driver import processes
lab = types.SimpleNamespace(root=pathlib.Path(sys.argv[1]), ports={'memcached': 11211})
print(processes.lab_pids(lab))
"""


class BelongingTest(LabTestCase):
    def test_only_children_of_this_lab_belong_to_it(self):
        ours = self.sleep(root=self.root)
        self.assertTrue(processes.belongs_to_lab(ours.pid, self.settings))
        for other in (None, f'{self.root}2', '/opt/other'):
            process = self.sleep(root=other)
            self.assertFalse(processes.belongs_to_lab(process.pid, self.settings), other)
        self.assertEqual([ours.pid], processes.lab_pids(self.settings))

    def test_recognises_a_title_instead_of_the_mark(self):
        def titled(text):
            return self.sleep(title=text)

        ours = [
            titled(f'nova-conductor: master process [{self.root}/venv/bin/nova-conductor'),
            titled(f'neutron-server: worker ({self.root}/venv/bin/python {self.root}/venv/x)'),
        ]
        titled('nova-conductor: master process [/opt/another/venv/bin/nova-conductor')
        titled(f'nova-conductor: master process [/mnt{self.root}/venv/bin/nova-conductor')
        # A user of the lab's clients is not part of the lab.
        titled(f'{self.root}/venv/bin/openstack')
        self.sleep(f'{self.root}/venv/bin/openstack')
        self.assertEqual(sorted(p.pid for p in ours), processes.lab_pids(self.settings))

    def test_includes_descendants_without_the_mark(self):
        # A worker that has overwritten its environment, and its child.
        ours = self.spawn(_GENERATIONS, root=self.root)
        other = self.spawn(_GENERATIONS)
        family = [ours.pid, *map(int, ours.first_line.split())]
        self.addCleanup(processes.terminate, list(map(int, other.first_line.split())), 5)
        self.addCleanup(processes.terminate, family[1:], 5)
        self.assertEqual(3, len(family))
        self.assertFalse(processes.belongs_to_lab(family[2], self.settings))
        self.assertEqual(sorted(family), processes.lab_pids(self.settings))

    def test_excludes_the_caller_and_its_ancestors(self):
        # Otherwise a shell that a service started could not stop the lab.
        sibling = self.sleep(root=self.root)
        program = [sys.executable, '-c', _PRINT_LAB_PIDS, str(self.root)]
        done = subprocess.run(
            ['/bin/sh', '-c', '"$@"; exit $?', 'sh', *program],
            env={
                'SUPERVISOR_SERVER_URL': f'unix://{self.root}/run/supervisor.sock',
                'PYTHONPATH': str(LAB),
            },
            capture_output=True,
            text=True,
        )
        self.assertEqual(f'[{sibling.pid}]\n', done.stdout, done.stderr)

    def test_checks_all_processes_of_the_machine(self):
        self.assertLessEqual({1, os.getpid()}, set(lab_process.machine_pids()))
        # But not in these tests, which terminate real processes.
        self.assertNotIn(1, processes.pids())

    def test_unknown_process(self):
        self.assertFalse(processes.belongs_to_lab(0, self.settings))

    def _memcached(self, port):
        """Start a process with the command line of memcached and a hidden environment."""
        command = f'-u memcache -l 127.0.0.1 -p {port} -m 64'
        process = self.sleep()
        self.useFixture(
            fixtures.MonkeyPatch(
                'driver.processes._cmdline',
                lambda pid: f'/usr/bin/memcached {command} ' if pid == process.pid else '',
            )
        )
        environ = processes._environ
        self.useFixture(
            fixtures.MonkeyPatch(
                'driver.processes._environ',
                lambda pid: b'' if pid == process.pid else environ(pid),
            )
        )
        return process

    def test_recognises_memcached_with_a_hidden_environment(self):
        ours = self._memcached(self.settings.ports['memcached'])
        self.assertTrue(processes.belongs_to_lab(ours.pid, self.settings))
        self.assertEqual([ours.pid], processes.lab_pids(self.settings))

    def test_ignores_memcached_on_another_port(self):
        other = self._memcached(self.settings.ports['memcached'] + 1)
        self.assertFalse(processes.belongs_to_lab(other.pid, self.settings))

    def test_ignores_memcached_with_the_mark_of_another_lab(self):
        other = self._memcached(self.settings.ports['memcached'])
        mark = b'SUPERVISOR_SERVER_URL=unix:///opt/other/run/supervisor.sock'
        self.useFixture(fixtures.MonkeyPatch('driver.processes._environ', lambda _pid: mark))
        self.assertFalse(processes.belongs_to_lab(other.pid, self.settings))

    def test_command_of_memcached_matches_its_role(self):
        services = yaml.safe_load((LAB / 'roles/base/vars/main.yml').read_text())['base_services']
        (command,) = [one['command'] for one in services if one['name'] == 'memcached']
        port = str(self.settings.ports['memcached'])
        command = command.replace('{{ lab_ports.memcached }}', port)
        self.assertEqual(command, processes._memcached_command(self.settings))

    def test_titles_do_not_hide_the_mark(self):
        # A service that sets its title would overwrite the environment with the mark.
        text = (LAB / 'roles/base/templates/supervisord.conf.j2').read_text()
        environment = re.search(r'^environment = (.*)$', text, re.MULTILINE)[1]
        self.assertIn('SPT_NOENV="1"', environment.split(','))


class SupervisordTest(LabTestCase):
    def _record(self, *arguments):
        process = self.sleep(*arguments)
        self.write('run/supervisord.pid', f'{process.pid}\n')
        return process

    def test_finds_a_live_supervisord(self):
        process = self._record('supervisord', '-c', f'{self.root}/etc/supervisord.conf')
        self.assertEqual(process.pid, processes.supervisord_pid(self.settings))

    def test_ignores_a_dead_supervisord(self):
        process = self._record('supervisord', '-c', f'{self.root}/etc/supervisord.conf')
        process.kill()
        process.wait()
        self.assertIsNone(processes.supervisord_pid(self.settings))

    def test_ignores_another_process_with_the_same_id(self):
        self._record('anything')
        self.assertIsNone(processes.supervisord_pid(self.settings))

    def test_ignores_a_foreign_supervisord_with_the_same_id(self):
        self._record('supervisord', '-c', '/etc/supervisor/supervisord.conf')
        self.assertIsNone(processes.supervisord_pid(self.settings))

    def test_ignores_a_missing_or_broken_pid_file(self):
        self.assertIsNone(processes.supervisord_pid(self.settings))
        self.write('run/supervisord.pid', '')
        self.assertIsNone(processes.supervisord_pid(self.settings))


class DyingTest(LabTestCase):
    def test_killed_process_is_dying(self):
        process = self.sleep()
        self.assertFalse(processes.is_dying(process.pid))
        process.kill()
        self.wait_for_zombie(process)
        self.assertTrue(processes.is_dying(process.pid))
        process.wait()
        self.assertTrue(processes.is_dying(process.pid))

    def test_process_without_environment_is_not_dying(self):
        # Children of these tests have none; their command line shows that they live.
        process = self.spawn(_STUBBORN)
        self.assertEqual(b'', processes._environ(process.pid).strip(b'\0'))
        self.assertFalse(processes.is_dying(process.pid))


class ListenersTest(LabTestCase):
    def test_port_and_holder(self):
        process, port = self.listen()
        self.assertEqual(process.pid, processes.listeners()[port])
        process.kill()
        process.wait()
        self.assertNotIn(port, processes.listeners())


class TerminateTest(LabTestCase):
    def test_sends_sigterm_and_at_the_deadline_sigkill(self):
        obedient, stubborn = self.sleep(), self.spawn(_STUBBORN)
        pids = [obedient.pid, stubborn.pid]
        self.assertEqual([stubborn.pid], processes.terminate(pids, timeout_sec=3))
        self.assertEqual((-15, -9), (obedient.wait(), stubborn.wait()))

    def test_ignores_dead_processes(self):
        process = self.sleep()
        process.kill()
        process.wait()
        self.assertEqual([], processes.terminate([process.pid], timeout_sec=5))

    def test_name_and_memory_of_a_process(self):
        process = self.sleep()
        self.assertTrue(processes.name_of(process.pid).startswith('python'))
        self.assertGreater(processes.rss_mib(process.pid), 1)
        process.kill()
        process.wait()
        self.assertEqual(('?', 0), (processes.name_of(process.pid), processes.rss_mib(process.pid)))


class GuestsTest(LabTestCase):
    def test_lists_only_guests_of_this_lab(self):
        ours = self.guest('instance-0000000a', self.root)
        self.guest('instance-0000000b', '/var/lib')
        self.guest('instance-0000000c', f'{self.root}-two')
        self.guest('instance-0000000d', f'/mnt{self.root}')
        self.guest('windows', self.root)
        self.sleep('-name', 'guest=instance-0000000e', f'{self.root}/state/disk')
        self.assertEqual({ours.pid: 'instance-0000000a'}, processes.guests(self.settings))
