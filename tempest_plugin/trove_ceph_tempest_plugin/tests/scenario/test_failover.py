# SPDX-License-Identifier: Apache-2.0
"""A server or its host fails under load; the database continues on another server.

No acknowledged commit is lost, the addresses stay, and the old server changes nothing, also when it
runs again.
"""

import random
import time
import unittest
from concurrent import futures

from tempest import config
from tempest.lib import decorators

from trove_ceph_tempest_plugin import ledger
from trove_ceph_tempest_plugin.tests import base
from trove_ceph_tempest_plugin.tests.scenario import failover, replication

CONF = config.CONF
COMMITS, COMMITS_TIMEOUT_SEC = failover.COMMITS, failover.COMMITS_TIMEOUT_SEC
#: The services that do the steps of a failover.
SERVICES = ('trove-taskmanager', 'trove-ceph-storage')
#: The time within which a service is killed, from the request of the failover.
LATEST_KILL_SEC = 120


class FailoverScenario(failover.FailoverTestCase):
    """The hypervisor process of a server fails; its host works."""

    def _signal(self, signal):
        self.hypervisors.signal(signal, self.server_id, self.host)

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a060')
    def test_killed_server(self):
        self.survive(lambda: self._signal('KILL'))

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a061')
    def test_stopped_server_runs_again(self):
        """It runs again while the failover fences it and deletes it."""
        self.survive(lambda: self._signal('STOP'), recover_during=lambda: self._signal('CONT'))


class ReplicatedFailoverScenario(failover.FailoverTestCase, replication.ReplicationTestCase):
    """The hypervisor process of a source or of its replica fails under load.

    Each keeps its role and its data, and the replica gets no fresh clone.
    """

    def setUp(self):
        super().setUp()
        (self.replica_id,) = self.create_replicas()
        self.reprovisioned_at = self.replicas.show(self.replica_id)['reprovisioned_at']

    def assert_follows(self):
        self.assertEqual(self.instance_id, self.source_of(self.replica_id))
        self.assert_equal(self.replica_id)
        shown = self.replicas.show(self.replica_id)
        self.assertEqual(self.reprovisioned_at, shown['reprovisioned_at'])

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a065')
    def test_killed_source(self):
        self.survive(lambda: self.hypervisors.signal('KILL', self.server_id, self.host))
        self.assert_follows()

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a066')
    def test_killed_replica(self):
        """The source serves as if nothing had happened."""
        options = CONF.trove_ceph
        server_id, host = self._server(self.replica_id)
        addresses = self._addresses(self.replica_id)
        mixed = self.prepare_load('mixed-70-30')
        with futures.ThreadPoolExecutor() as executor, self.start_ledger() as entries:
            running = executor.submit(mixed.run, options.sysbench_threads, options.sysbench_seconds)
            entries.wait_for_commits(COMMITS, COMMITS_TIMEOUT_SEC)
            self.hypervisors.signal('KILL', server_id, host)
            failover_id = self.failovers.create(self.replica_id, self.id())
            self.failovers.wait_until_completed(failover_id)
            entries.wait_for_commits(COMMITS, COMMITS_TIMEOUT_SEC)
            self.record('load', running.result())
        self.record('client', entries.figures())
        self.wait_for_instance_status(self.replica_id, expected_op_status=['HEALTHY'])
        self.assertNotEqual(server_id, self._server(self.replica_id)[0])
        self.assertEqual(addresses, self._addresses(self.replica_id))
        self.assert_follows()
        self.assertEqual([], entries.faults(self.database_of(self.replica_id)))

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a067')
    def test_killed_source_and_replica(self):
        """Both fail over at the same time, each by itself."""
        failed = [self._server(one) for one in (self.instance_id, self.replica_id)]
        requested = []

        def fail():
            for server_id, host in failed:
                self.hypervisors.signal('KILL', server_id, host)
            requested.append(self.failovers.create(self.replica_id, self.id()))

        self.survive(fail)
        self.failovers.wait_until_completed(requested[0])
        self.wait_for_instance_status(self.replica_id, expected_op_status=['HEALTHY'])
        self.assert_follows()


class RepeatedFailoverScenario(failover.FailoverTestCase):
    """One failure after the other, and services that are killed during the failovers."""

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        if not CONF.trove_ceph.service_command:
            raise cls.skipException('[trove_ceph] service_command is not set')

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a064')
    def test_interrupted_failovers(self):
        """A failover goes on when the process of a service that works on it is killed.

        One ledger has the commits of all rounds.
        """
        options = CONF.trove_ceph
        mixed = self.prepare_load('mixed-70-30')
        entries = ledger.Ledger(self.database)
        done = []
        with futures.ThreadPoolExecutor() as executor, entries:
            for number in range(options.failover_rounds):
                running = executor.submit(
                    mixed.run, options.sysbench_threads, options.sysbench_seconds
                )
                entries.wait_for_commits(COMMITS, COMMITS_TIMEOUT_SEC)
                done.append(self._fail_over(executor, SERVICES[number % 2]))
                self.record('rounds', {'completed': len(done), 'each': done})
                entries.wait_for_commits(COMMITS, COMMITS_TIMEOUT_SEC)
                failover.raise_if_unexpected(running.exception())
                self.assert_moved()
                self.server_id, self.host = self._server()
        self.record('client', entries.figures())
        self.assertEqual([], entries.faults())
        self.assert_nothing_leaked()

    def _fail_over(self, executor, service):
        """Kill the server, and a service during the failover; return what happened."""
        # Half of the kills are within the short first steps.
        delay_sec = LATEST_KILL_SEC ** random.random()
        self.hypervisors.signal('KILL', self.server_id, self.host)
        failover_id = self.failovers.create_once_unhealthy(self.instance_id, self.id())
        began = time.monotonic()
        killing = executor.submit(self._kill_later, delay_sec, service)
        completed = self.failovers.wait_until_completed(failover_id)
        seconds = round(time.monotonic() - began, 1)
        # A service that is killed after the failover must not matter to the next one.
        killing.result()
        return {
            'killed': service,
            'after_sec': round(delay_sec, 1),
            'seconds': seconds,
            'attempts': completed['attempts'],
        }

    def _kill_later(self, delay_sec, service):
        time.sleep(delay_sec)
        self.hypervisors.kill_service(service)


class KilledHostScenario(failover.FailingHostTestCase):
    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a062')
    def test_killed_host(self):
        """Nova deletes the server of a host that is down; the host returns later."""
        self.addCleanup(self._fail, 'start')
        self.survive(lambda: self._fail('kill'), recover_after=lambda: self._fail('start'))


class FrozenHostScenario(failover.FailingHostTestCase):
    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a063')
    def test_frozen_host(self):
        """The old server continues after the failover, as if nothing had happened to it."""
        self.addCleanup(self._fail, 'thaw')
        self.survive(lambda: self._fail('freeze'), recover_after=lambda: self._fail('thaw'))


class TestFailover(FailoverScenario):
    """Failures of a server."""


class TestReplicatedFailover(ReplicatedFailoverScenario):
    """Failures of the servers of a source and of its replica."""


class TestRepeatedFailover(RepeatedFailoverScenario):
    """Failures of a server, one after the other, and of services."""


class TestKilledHost(KilledHostScenario):
    """A power cut of a compute host."""


class TestFrozenHost(FrozenHostScenario):
    """A compute host that does nothing for a while."""


def load_tests(loader, tests, pattern):
    suites = (
        *(TestFailover, TestReplicatedFailover, TestRepeatedFailover),
        *(TestKilledHost, TestFrozenHost),
    )
    return unittest.TestSuite(base.on_volume_types(loader, None, suite) for suite in suites)
