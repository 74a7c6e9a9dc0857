# SPDX-License-Identifier: Apache-2.0
"""The life of a cluster created by lab/bin/ceph-cluster, with power cuts and interruptions."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import rbd
import testscenarios

from trove_ceph.host import workspace
from trove_ceph.tests.functional import base, ceph

TIERS = {'tiers': {'ssd': ceph.tier('data', 'ssd', 'p', 2, 8)}}
PATTERN = bytes(range(256)) * 4096
LAB = str(base.CHECKOUT / 'lab')
# The tool; it kills itself when it reports a given point.
DYING = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from cephcluster import cli

class Progress:
    def __call__(self, text):
        if sys.argv[2] in text:
            os.kill(os.getpid(), signal.SIGKILL)

cli.Progress = Progress
sys.exit(cli.main(sys.argv[3:]))
"""


class PrivateClusterTestCase(base.FunctionalTestCase):
    def setUp(self):
        super().setUp()
        self.cluster = ceph.Cluster(self.directory / 'c', {'ssd': 2}, osd_gib=3)
        self.addCleanup(self.cluster.try_tool, 'destroy')

    def _write(self):
        self.cluster.create_image('p', 'image', 16)
        with self.cluster.pool('p') as context, rbd.Image(context, 'image') as image:
            image.write(PATTERN, 3)
            image.flush()

    def _read(self):
        with self.cluster.pool('p') as context, rbd.Image(context, 'image') as image:
            return image.read(3, len(PATTERN))

    def _assert_nothing_left(self):
        self.assertFalse(self.cluster.root.exists())
        self.assertEqual([], workspace.loop_devices(self.cluster.root))
        conf = str(self.cluster.conf)
        result = subprocess.run(['pgrep', '--full', conf], capture_output=True, check=False)
        self.assertEqual(b'', result.stdout)


class LifecycleTest(PrivateClusterTestCase):
    def test_data_survives_the_death_of_every_daemon(self):
        self.cluster.create()
        self.assertEqual({}, self.cluster.pids(), 'a new cluster is stopped')
        self.cluster.start()
        self.assertTrue(self.cluster.apply(TIERS)['changed'])
        self._write()
        pids = self.cluster.pids()
        self.assertEqual({'mon.a', 'mgr.x', 'osd.0', 'osd.1'}, set(pids))
        devices = workspace.loop_devices(self.cluster.root)
        self.assertEqual(2, len(devices))

        ceph.kill_all(pids.values())
        self.assertEqual({}, self.cluster.pids())
        self.cluster.start()

        self.assertEqual(PATTERN, self._read())
        self.assertEqual(sorted(devices), sorted(workspace.loop_devices(self.cluster.root)))
        self.assertNotEqual(pids, self.cluster.pids())
        self.cluster.tool('stop')
        self.assertEqual({}, self.cluster.pids())
        self.cluster.tool('destroy')
        self._assert_nothing_left()

    def test_repeated_create_changes_nothing_and_refuses_other_settings(self):
        self.cluster.create()
        fsid = self.cluster.status()['fsid']
        self.cluster.create()
        self.assertEqual(fsid, self.cluster.status()['fsid'])
        result = self.cluster.try_tool(*self.cluster.create_arguments, '--osd', 'hdd=1')
        self.assertEqual(2, result.returncode)
        self.assertIn('has other settings: osd_classes', result.stderr)
        self.assertEqual(fsid, self.cluster.status()['fsid'])

    def test_osd_in_the_foreground_reuses_its_loop_device(self):
        self.cluster.create()
        self.cluster.start()
        pid = self.cluster.pids()['osd.1']
        devices = workspace.loop_devices(self.cluster.root)
        refused = self.cluster.try_tool('run', 'osd.1')
        self.assertEqual(1, refused.returncode)
        self.assertIn(f'osd.1 runs already, as pid {pid}', refused.stderr)

        ceph.kill_all([pid])
        process = self._spawn(*self.cluster.command('run', 'osd.1'))
        self._wait_for(lambda: self.cluster.pids().get('osd.1') == process.pid)
        # start leaves running daemons alone and waits until all OSDs are active.
        self.cluster.start()
        self.assertEqual(process.pid, self.cluster.pids()['osd.1'])
        self.assertEqual(sorted(devices), sorted(workspace.loop_devices(self.cluster.root)))
        self.cluster.tool('stop')
        self.assertIsNotNone(process.wait(ceph.START_TIMEOUT_SEC))

    def test_osd_with_cpus_and_memory_of_its_own(self):
        self.cluster.create()
        self.cluster.start()
        ceph.kill_all([self.cluster.pids()['osd.1']])
        cpu = max(os.sched_getaffinity(0))
        options = ('--cpus', str(cpu), '--memory-target-mib', '1024')
        process = self._spawn(*self.cluster.command('run', 'osd.1', *options))
        self._wait_for(lambda: self.cluster.pids().get('osd.1') == process.pid)
        # It returns when all OSDs are active, with all of their threads.
        self.cluster.start()
        threads = [int(name) for name in os.listdir(f'/proc/{process.pid}/task')]
        self.assertGreater(len(threads), 10)
        for thread in threads:
            # A thread may have ended since.
            with contextlib.suppress(ProcessLookupError):
                self.assertEqual({cpu}, os.sched_getaffinity(thread))
        self.assertEqual(str(1024**3), self._option('osd.1', 'osd_memory_target'))
        self.assertEqual('true', self._option('osd.1', 'bluestore_cache_autotune'))
        self.assertEqual('false', self._option('osd.0', 'bluestore_cache_autotune'))

    def _option(self, daemon, name):
        """Return an option as a running daemon has it."""
        command = ['ceph', '--conf', str(self.cluster.conf), 'tell', daemon, 'config', 'get', name]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)[name]

    def _spawn(self, *command):
        """Start a process that never outlives the test."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def _wait_for(self, condition, timeout_sec=ceph.START_TIMEOUT_SEC):
        deadline = time.monotonic() + timeout_sec
        while not condition():
            self.assertLess(time.monotonic(), deadline, f'not within {timeout_sec} s')
            time.sleep(0.05)

    def test_does_not_kill_the_process_named_by_a_stale_pid_file(self):
        self.cluster.create()
        foreign = self._spawn('sleep', '600')
        pid_file = self.cluster.root / 'run' / 'osd.0.pid'
        pid_file.write_text(f'{foreign.pid}\n')
        self.assertEqual({}, self.cluster.pids())
        self.cluster.start()
        self.assertNotEqual(foreign.pid, self.cluster.pids()['osd.0'])
        pid_file.write_text(f'{foreign.pid}\n')
        self.cluster.tool('destroy')
        self.assertIsNone(foreign.poll(), 'a foreign process was killed')
        self._assert_nothing_left()

    def test_two_clusters_run_side_by_side(self):
        other = ceph.Cluster(self.directory / 'other', {'hdd': 1}, osd_gib=3)
        self.addCleanup(other.try_tool, 'destroy')
        for cluster in (self.cluster, other):
            cluster.create()
            cluster.start()
        other.tool('destroy')
        status = self.cluster.status()
        self.assertTrue(all(osd['up'] for osd in status['osds']), status)
        self.assertEqual(4, len(self.cluster.pids()))

    def test_bad_requests_leave_nothing_behind(self):
        for arguments, message in (
            (['start'], 'there is no cluster'),
            (['run', 'osd.0'], 'there is no cluster'),
            (['create', '--osd', 'nvme'], 'is not CLASS=COUNT'),
            (['create', '--osd', 'nvme=1', '--mon-ports', '3300'], 'is not two ports'),
            (['create', '--osd', 'nvme=1', '--mon-addr', '192.0.2.1'], 'cannot use 192.0.2.1'),
        ):
            result = self.cluster.try_tool(*arguments)
            self.assertEqual(2, result.returncode, result.stderr)
            self.assertIn(message, result.stderr)
            self.assertFalse(self.cluster.root.exists())


@base.long
class InterruptedCreateTest(testscenarios.WithScenarios, PrivateClusterTestCase):
    """A creation killed at any point is started over by the next one."""

    scenarios = [
        ('settings written', {'point': None}),
        ('monitor created', {'point': 'monitor created'}),
        ('stores partly created', {'point': 'OSDs registered'}),
        ('stores created', {'point': 'OSD stores created'}),
    ]

    def test_rerun_completes(self):
        self._create_until(self.point)
        self.assertEqual(2, self.cluster.try_tool('start').returncode)
        self.cluster.create()
        devices = workspace.loop_devices(self.cluster.root)
        self.assertEqual(2, len(devices), devices)
        self.cluster.start()
        self.assertEqual({'mon.a', 'mgr.x', 'osd.0', 'osd.1'}, set(self.cluster.pids()))
        classes = [osd['device_class'] for osd in self.cluster.status()['osds']]
        self.assertEqual(['ssd', 'ssd'], classes)
        self.cluster.tool('destroy')
        self._assert_nothing_left()

    def test_destroy_completes(self):
        self._create_until(self.point)
        self.cluster.tool('destroy')
        self._assert_nothing_left()

    def _create_until(self, point):
        """Run create and kill it with SIGKILL when it reports a point."""
        arguments = [str(self.cluster.root), *self.cluster.create_arguments]
        with subprocess.Popen(
            [sys.executable, '-c', DYING, LAB, str(point), '--root', *arguments],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            if point is None:
                while not (self.cluster.root / 'cluster.json').exists():
                    self.assertIsNone(process.poll())
                process.kill()
            _, errors = process.communicate(timeout=ceph.TOOL_TIMEOUT_SEC)
        self.assertEqual(-signal.SIGKILL, process.returncode, errors)
