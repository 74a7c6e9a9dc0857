# SPDX-License-Identifier: Apache-2.0
import socket
import subprocess
from unittest import mock

import fixtures
from oslotest import base

from trove_ceph.guestagent import volume_watch


class VolumeWatchTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.now = 1000.0
        self.started = []
        self.watch = volume_watch.VolumeWatch(self.start, clock=lambda: self.now)

    def start(self):
        ours, its = socket.socketpair()
        self.addCleanup(ours.close)
        self.addCleanup(its.close)
        process = mock.Mock(pid=7)
        process.poll.return_value = None
        self.started.append((process, its))
        return process, ours

    def is_closed(self, number):
        """Return whether the standard input of a started process has ended."""
        its = self.started[number][1]
        its.setblocking(False)
        try:
            return its.recv(1) == b''
        except BlockingIOError:
            return False

    def test_one_process(self):
        self.watch.ensure_running()
        self.watch.ensure_running()
        self.assertEqual(1, len(self.started))
        self.assertFalse(self.is_closed(0))

    def test_reports_are_logged(self):
        self.watch.ensure_running()
        its = self.started[0][1]
        its.sendall(b'watching\nlost 3 wri')
        self.watch.ensure_running()
        its.sendall(b'tes failed: x; killed mysqld, process 9\nback\n')
        self.watch.ensure_running()
        for expected in ('watching', 'lost 3 writes failed: x; killed mysqld, process 9', 'back'):
            self.assertIn(f'reports: {expected}\n', self.log.output)
        self.assertEqual(1, len(self.started))

    def test_a_process_that_has_ended_is_replaced(self):
        self.watch.ensure_running()
        process, its = self.started[0]
        its.sendall(b'failed it is not mounted\n')
        its.close()
        process.poll.return_value = process.returncode = 1
        self.watch.ensure_running()
        self.assertIn('reports: failed it is not mounted', self.log.output)
        self.assertEqual(2, len(self.started))
        self.assertFalse(self.is_closed(1))

    def test_no_process_during_a_pause(self):
        self.watch.ensure_running()
        self.watch.pause(120)
        self.assertTrue(self.is_closed(0))
        self.started[0][0].wait.assert_called_once()
        self.now += 119
        self.watch.ensure_running()
        self.assertEqual(1, len(self.started))
        self.now += 1
        self.watch.ensure_running()
        self.assertEqual(2, len(self.started))

    def test_pause_without_a_process(self):
        self.watch.pause(120)
        self.watch.ensure_running()
        self.assertEqual([], self.started)

    def test_a_process_that_hangs_with_the_volume_is_left(self):
        self.watch.ensure_running()
        self.started[0][0].wait.side_effect = subprocess.TimeoutExpired(['x'], 10)
        self.watch.pause(0)
        self.assertIn('process 7, has not ended', self.log.output)
        self.watch.ensure_running()
        self.assertEqual(2, len(self.started))
