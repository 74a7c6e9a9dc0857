# SPDX-License-Identifier: Apache-2.0
"""A server or its host fails under load, and the cloud fails the database over by itself.

Nothing is lost, as in a failover that somebody requested, and the tenant reads what happened. How
long the cloud takes to notice is reported, and not checked.
"""

import unittest

from tempest import config
from tempest.lib import decorators, exceptions

from trove_ceph_tempest_plugin import management
from trove_ceph_tempest_plugin.tests import base
from trove_ceph_tempest_plugin.tests.scenario import failover, replication

CONF = config.CONF
#: How long nothing must happen during maintenance: twice the rounds in which all signs must agree.
HELD_SEC = 60
#: Within which the agents of all databases that serve have reported.
REPORT_SEC = 120
#: What the tenant must read of it.
REASON = 'its guest agent was silent'


class AutomaticFailoverTestCase(failover.FailoverTestCase):
    """The database of the class has a failover policy of its tenant.

    Another database must report, on any host: a cloud with one has no automatic failover.
    """

    #: What the policy prefers.
    prefer = 'volume'

    @classmethod
    def skip_checks(cls):
        super().skip_checks()
        if not CONF.trove_ceph.manage_command:
            raise cls.skipException('[trove_ceph] manage_command is not set')

    @classmethod
    def resource_setup(cls):
        cls.management = management.Management(CONF.trove_ceph.manage_command)
        status = cls.management.wait_for_reports(REPORT_SEC)
        if status['watched_by'] is None:
            raise cls.skipException(
                'no taskmanager watches the databases: [trove_ceph_failover] enabled is not set'
            )
        if status['hold'] is not None:
            raise cls.skipException(f'automatic failovers are held: {status["hold"]}')
        if not status['reporting']:
            raise cls.skipException(
                'automatic failover needs another database, whose agent reports'
            )
        super().resource_setup()

    def setUp(self):
        super().setUp()
        self.assertEqual([], self.failovers.of_instance(self.instance_id))
        policy_id = self.failovers.set_policy(self.instance_id, self.prefer)
        self.addCleanup(self.failovers.delete_policy, policy_id)

    def await_request(self):
        """Wait until the cloud has requested the failover, and return its id."""
        try:
            return self.failovers.wait_until_requested(self.instance_id)
        except exceptions.TimeoutException:
            # It says why there is none.
            self.record('status', self.management.failover_status())
            raise

    def assert_explained(self, completed, cause):
        """Assert that the tenant reads that the cloud requested the only failover, and why."""
        self.assertEqual(('automatic', cause), (completed['requested_by'], completed['cause']))
        self.assertIn(REASON, completed['reason'])
        listed = self.failovers.of_instance(self.instance_id)
        self.assertEqual([completed['id']], [one['id'] for one in listed])


class ServerScenario(AutomaticFailoverTestCase):
    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a090')
    def test_killed_server_after_maintenance(self):
        """During maintenance nothing is moved; after its end the failed database is."""
        self.management.begin_maintenance(self.id())
        self.addCleanup(self.management.end_maintenance)
        completed = self.survive(
            lambda: self.hypervisors.signal('KILL', self.server_id, self.host),
            request=self._end_maintenance_and_await_request,
        )
        self.assert_explained(completed, 'server-down')

    def _end_maintenance_and_await_request(self):
        timeout_sec = CONF.trove_ceph.failover_timeout_sec
        suspected = self.management.wait_until_suspected(self.instance_id, timeout_sec)
        held = self.management.wait_until_suspected(
            self.instance_id, timeout_sec, suspected['silent_sec'] + HELD_SEC
        )
        self.record('held', {name: held[name] for name in ('silent_sec', 'rounds', 'reason')})
        self.assertEqual([], self.failovers.of_instance(self.instance_id))
        self.management.end_maintenance()
        return self.await_request()


class HostScenario(failover.FailingHostTestCase, AutomaticFailoverTestCase):
    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a091')
    def test_killed_host(self):
        """The power of the host is cut; the host returns after the failover."""
        self.addCleanup(self._fail, 'start')
        completed = self.survive(
            lambda: self._fail('kill'),
            request=self.await_request,
            recover_after=lambda: self._fail('start'),
        )
        self.assert_explained(completed, 'host-down')


class TakeOverScenario(AutomaticFailoverTestCase, replication.ReplicationTestCase):
    """The database of the class is a source; the test leaves it ejected."""

    prefer = 'replica'

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a092')
    def test_replica_takes_over(self):
        """Commits wait for a replica, so no acknowledged one is lost; the other one follows it."""
        # A replica in a pool with one copy, where a tier may place it, does not take over.
        self.replicas.set_policy(
            self.instance_id, semi_sync=True, replica_volume_type=self.volume_type
        )
        found = self.create_replicas(count=2)
        self.wait_until_commits_wait()
        commits, timeout_sec = replication.COMMITS, replication.COMMITS_TIMEOUT_SEC
        with self.start_ledger() as entries:
            entries.wait_for_commits(commits, timeout_sec)
            self.hypervisors.signal('KILL', self.server_id, self.host)
        completed = self.failovers.wait_until_completed(self.await_request())

        names = ('attempts', 'state', 'cause', 'reason', 'promoted_id')
        self.record('failover', {name: completed[name] for name in names})
        self.assert_explained(completed, 'server-down')
        new_source_id = completed['promoted_id']
        self.assertIn(new_source_id, found)
        (follower_id,) = {*found} - {new_source_id}
        self.wait_for_source(new_source_id, None)
        self.wait_for_source(follower_id, new_source_id)
        self.assert_given_up(new_source_id, follower_id, entries)


class TestAutomaticFailover(ServerScenario):
    """A failed server, during maintenance and after it."""


class TestAutomaticFailoverOfHost(HostScenario):
    """A power cut of a compute host."""


class TestTakeOver(TakeOverScenario):
    """A failed source whose policy prefers a replica."""


def load_tests(loader, tests, pattern):
    suites = (TestAutomaticFailover, TestAutomaticFailoverOfHost, TestTakeOver)
    return unittest.TestSuite(base.on_volume_types(loader, None, suite) for suite in suites)
