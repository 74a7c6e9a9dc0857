# SPDX-License-Identifier: Apache-2.0
"""Finding and ending processes, with real ones."""

import os
import re

from driver import processes

from trove_ceph.tests.unit.lab import LAB
from trove_ceph.tests.unit.lab.lab_process import LabTestCase

_STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('up', flush=True)
time.sleep(60)
"""


class BelongingTest(LabTestCase):
    def test_children_of_this_lab_alone(self):
        ours = self.sleep(root=self.root)
        self.assertTrue(processes.belongs_to_lab(ours.pid, self.settings))
        for other in (None, f'{self.root}2', '/opt/other'):
            process = self.sleep(root=other)
            self.assertFalse(processes.belongs_to_lab(process.pid, self.settings), other)
        self.assertEqual([ours.pid], processes.lab_pids(self.settings))

    def test_unknown_process(self):
        self.assertFalse(processes.belongs_to_lab(0, self.settings))

    def test_titles_do_not_hide_the_mark(self):
        # A service that sets its title would overwrite the environment that shows whose it is.
        text = (LAB / 'roles/base/templates/supervisord.conf.j2').read_text()
        environment = re.search(r'^environment = (.*)$', text, re.MULTILINE)[1]
        self.assertIn('SPT_NOENV="1"', environment.split(','))


class SupervisordTest(LabTestCase):
    def _record(self, *words):
        process = self.sleep(*words)
        self.write('run/supervisord.pid', f'{process.pid}\n')
        return process

    def test_alive(self):
        process = self._record('supervisord', '-c', f'{self.root}/etc/supervisord.conf')
        self.assertEqual(process.pid, processes.supervisord_pid(self.settings))

    def test_ended(self):
        process = self._record('supervisord', '-c', f'{self.root}/etc/supervisord.conf')
        process.kill()
        process.wait()
        self.assertIsNone(processes.supervisord_pid(self.settings))

    def test_number_given_to_another_process(self):
        self._record('anything')
        self.assertIsNone(processes.supervisord_pid(self.settings))

    def test_number_given_to_the_supervisord_of_somebody_else(self):
        self._record('supervisord', '-c', '/etc/supervisor/supervisord.conf')
        self.assertIsNone(processes.supervisord_pid(self.settings))

    def test_no_or_broken_record(self):
        self.assertIsNone(processes.supervisord_pid(self.settings))
        self.write('run/supervisord.pid', '')
        self.assertIsNone(processes.supervisord_pid(self.settings))


class ListenersTest(LabTestCase):
    def test_port_and_holder(self):
        process, port = self.listen()
        self.assertEqual(process.pid, processes.listeners()[port])
        process.kill()
        process.wait()
        self.assertNotIn(port, processes.listeners())


class EndTest(LabTestCase):
    def test_kind_first_and_hard_at_the_deadline(self):
        obedient, stubborn = self.sleep(), self.spawn(_STUBBORN)
        pids = [obedient.pid, stubborn.pid]
        self.assertEqual([stubborn.pid], processes.end(pids, timeout_sec=0.5))
        self.assertEqual((-15, -9), (obedient.wait(), stubborn.wait()))

    def test_processes_that_are_gone(self):
        process = self.sleep()
        process.kill()
        process.wait()
        self.assertEqual([], processes.end([process.pid], timeout_sec=5))

    def test_facts_of_processes(self):
        process = self.sleep()
        self.assertTrue(processes.name_of(process.pid).startswith('python'))
        self.assertGreater(processes.rss_mib(process.pid), 1)
        process.kill()
        process.wait()
        self.assertEqual(('?', 0), (processes.name_of(process.pid), processes.rss_mib(process.pid)))

    def test_own_process_is_not_among_the_labs(self):
        self.assertNotIn(os.getpid(), processes.lab_pids(self.settings))
