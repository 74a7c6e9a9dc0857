# SPDX-License-Identifier: Apache-2.0
import os
import subprocess

import fixtures
from oslotest import base

from trove_ceph.db import workers

OWN = workers.Worker('host', 'b007', '4026', 100, 5000)


class WorkerTest(base.BaseTestCase):
    def test_name(self):
        self.assertEqual('host/b007/4026/100/5000', str(OWN))
        self.assertEqual(OWN, workers.Worker.parse(str(OWN)))
        for name in ('host:1', 'host', 'a/b/c/d/e', ''):
            self.assertIsNone(workers.Worker.parse(name))


class ProcessesTest(base.BaseTestCase):
    """Processes in a directory that stands in for ``/proc``."""

    def setUp(self):
        super().setUp()
        self.proc = self.useFixture(fixtures.TempDir()).path
        self.processes = workers.Processes(self.proc)

    def run_process(self, pid, started, state='S', name='trove (a) b'):
        os.makedirs(os.path.join(self.proc, str(pid)), exist_ok=True)
        fields = ' '.join(['1'] * 18 + [str(started), '9'])
        with open(os.path.join(self.proc, str(pid), 'stat'), 'w') as stat:
            stat.write(f'{pid} ({name}) {state} {fields}\n')

    def is_dead(self, **facts):
        values = {'host': 'host', 'boot': 'b007', 'namespace': '4026', 'pid': 90, 'started': 400}
        name = str(workers.Worker(**values | facts))
        return self.processes.is_dead(name, OWN)

    def test_predecessors_on_the_same_host(self):
        self.assertTrue(self.is_dead())
        self.run_process(90, 400)
        self.assertFalse(self.is_dead())
        # Another process has the id now.
        self.run_process(90, 401)
        self.assertTrue(self.is_dead())
        self.run_process(90, 400, state='Z')
        self.assertTrue(self.is_dead())
        self.assertTrue(self.is_dead(boot='b006'))

    def test_workers_on_other_hosts_count_as_alive(self):
        self.assertFalse(self.is_dead(host='other'))
        self.assertFalse(self.is_dead(host='other', boot='b006'))
        # A container on the same host.
        self.assertFalse(self.is_dead(namespace='4027'))
        self.assertFalse(self.processes.is_dead('host:90', OWN))
        self.assertFalse(self.processes.is_dead(str(OWN), OWN))

    def test_real_processes(self):
        real = workers.Processes()
        own = real.describe_self('host')
        self.assertEqual(own, real.describe_self('host'))
        with subprocess.Popen(['sleep', '600']) as child:
            started = real.find_start(child.pid)
            other = workers.Worker('host', own.boot, own.namespace, child.pid, started)
            self.assertFalse(real.is_dead(str(other), own))
            child.kill()
        self.assertTrue(real.is_dead(str(other), own))
