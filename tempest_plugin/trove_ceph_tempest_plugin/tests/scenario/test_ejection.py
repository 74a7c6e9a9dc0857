# SPDX-License-Identifier: Apache-2.0
"""The server of a source fails, and the tenant has one of its two replicas take over."""

from tempest.lib import decorators

from trove_ceph_tempest_plugin.tests import base
from trove_ceph_tempest_plugin.tests.scenario import failover, replication

COMMITS, COMMITS_TIMEOUT_SEC = replication.COMMITS, replication.COMMITS_TIMEOUT_SEC


class TestEjection(failover.FailoverTestCase, replication.ReplicationTestCase):
    """The database of the class is the source; the test leaves it ejected."""

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a087')
    def test_ejection_of_a_dead_source(self):
        """One replica accepts writes and has all commits, and the other one follows it."""
        found = self.create_replicas(count=2)
        with self.start_ledger() as entries:
            entries.wait_for_commits(COMMITS, COMMITS_TIMEOUT_SEC)
        # Commits that no replica has received are lost with their source.
        for one in found:
            self.assert_equal(one)
        self.hypervisors.signal('KILL', self.server_id, self.host)

        self.replicas.eject(self.instance_id)

        self.assertEqual([], self.wait_for(lambda: self._unfinished(found)))
        (new_source_id,) = [one for one in found if self.source_of(one) is None]
        (follower_id,) = {*found} - {new_source_id}
        for one in found:
            self.wait_for_instance_status(
                one, expected_op_status=['HEALTHY'], timeout=self.timeout_sec
            )
        self.assert_given_up(new_source_id, follower_id, entries)

    def _unfinished(self, replica_ids):
        """Return the sources of replicas, until one has none and the other ones follow it."""
        sources = {one: self.source_of(one) for one in replica_ids}
        chosen = [one for one, source in sources.items() if source is None]
        is_done = len(chosen) == 1 and {*sources.values()} == {None, chosen[0]}
        return [] if is_done else [sources]


def load_tests(loader, tests, pattern):
    return base.on_volume_types(loader, everywhere=None, first=TestEjection)
