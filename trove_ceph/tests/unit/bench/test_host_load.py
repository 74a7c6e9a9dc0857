# SPDX-License-Identifier: Apache-2.0
import os
from unittest import mock

import psutil
from oslotest import base

from trove_ceph_bench import host_load


class HostLoadTest(base.BaseTestCase):
    """A host with four cores and fake CPU times."""

    def setUp(self):
        super().setUp()
        self.client = self.busy = self.idle = self.server = 0.0
        self.gone = False
        for name, value in (
            ('cpu_count', lambda: 4),
            ('cpu_times', self.cpu_times),
            ('Process', self.process),
        ):
            self.patch_object(psutil, name, value)
        self.patch_object(os, 'sched_getaffinity', lambda _: {0, 1, 2, 3})
        self.now = 50.0
        self.patch_object(host_load.time, 'monotonic', lambda: self.now)

    def patch_object(self, target, name, value):
        patcher = mock.patch.object(target, name, value)
        patcher.start()
        self.addCleanup(patcher.stop)

    def cpu_times(self):
        fields = mock.Mock(idle=self.idle, iowait=0.0, guest=0.0, guest_nice=0.0)
        fields.__iter__ = lambda _: iter((self.busy, self.idle))
        return fields

    def process(self, pid):
        if self.gone:
            raise psutil.NoSuchProcess(pid)
        return mock.Mock(cpu_times=lambda: mock.Mock(user=self.client, system=0.0))

    def second(self, load, client, others, server=0.0):
        """Advance by one second with the given numbers of cores in use."""
        self.now += 1
        self.client += client
        self.busy += client + others
        self.idle += 4 - client - others
        self.server += server
        load.read()
        load.read_servers()

    def load(self, threads=100, server=True):
        load = host_load.HostLoad([1], threads, lambda: self.server if server else None)
        load.read()
        load.read_servers()
        return load

    def test_use_of_cores(self):
        load = self.load()
        self.second(load, client=0.5, others=1.5, server=1.2)
        self.second(load, client=1.5, others=1.5, server=1.4)

        cpu = load.cpu()

        self.assertEqual(
            (4, 1.0, 1.3, 0.625),
            tuple(
                cpu[name] for name in ('host_cores', 'client_cores', 'server_cores', 'host_busy')
            ),
        )
        self.assertEqual(
            [
                {'second': 1, 'client_cores': 0.5, 'host_busy': 0.5},
                {'second': 2, 'client_cores': 1.5, 'host_busy': 0.75},
            ],
            cpu['seconds'],
        )
        self.assertFalse(load.client_saturated())

    def test_unknown_server_usage(self):
        load = self.load(server=False)
        self.second(load, client=1, others=0)
        self.assertIsNone(load.cpu()['server_cores'])
        load = host_load.HostLoad([1], 100, lambda: self.server)
        load.read_servers()
        # Without a reading at the end.
        self.assertIsNone(load.cpu()['server_cores'])

    def test_servers_are_not_asked_in_between(self):
        asked = mock.Mock(return_value=1.0)
        load = host_load.HostLoad([1], 100, asked)
        for _ in range(3):
            load.read()
        asked.assert_not_called()

    def test_exited_process_counts_with_its_last_reading(self):
        load = self.load()
        self.second(load, client=1, others=0)
        self.gone = True
        self.second(load, client=0, others=0)
        self.assertEqual(0.5, load.cpu()['client_cores'])

    def test_no_figures_before_the_second_reading(self):
        load = self.load()
        self.assertIsNone(load.cpu()['client_cores'])
        self.assertEqual([], load.cpu()['seconds'])
        self.assertFalse(load.client_saturated())

    def assert_saturated(self, expected, client, others, threads=100):
        load = self.load(threads)
        self.second(load, client, others)
        self.assertEqual(expected, load.client_saturated(), (client, others, threads))

    def test_saturated_with_the_whole_host(self):
        self.assert_saturated(True, client=3.7, others=0.1)
        self.assert_saturated(False, client=3.0, others=0.1)

    def test_saturated_with_all_cores_that_others_leave(self):
        self.assert_saturated(True, client=2.9, others=1.0)

    def test_not_saturated_by_a_small_share_of_a_busy_host(self):
        self.assert_saturated(False, client=0.4, others=3.6)
        self.assert_saturated(True, client=1.9, others=2.1)

    def test_saturated_with_as_many_cores_as_threads(self):
        self.assert_saturated(True, client=0.95, others=0.0, threads=1)
        self.assert_saturated(False, client=0.95, others=0.0, threads=2)
