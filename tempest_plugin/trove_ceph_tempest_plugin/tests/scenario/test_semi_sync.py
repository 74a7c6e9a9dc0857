# SPDX-License-Identifier: Apache-2.0
"""Commits on a source with semi-synchronous replication wait until a replica has received them."""

import time

from tempest.lib import decorators

from trove_ceph_tempest_plugin.tests import base
from trove_ceph_tempest_plugin.tests.scenario import failover, replication

#: How many commits a replica has received in time, and how many not.
RECEIVED, NOT_RECEIVED = 'Rpl_semi_sync_source_yes_tx', 'Rpl_semi_sync_source_no_tx'
TIMEOUT_MS = 'rpl_semi_sync_source_timeout'
#: A commit must have waited for this share of the time limit; clocks and threads differ a bit.
SHARE = 0.9


class TestSemiSync(failover.FailoverTestCase, replication.ReplicationTestCase):
    """The database of the class is the source."""

    @decorators.idempotent_id('0d5a4d5e-6a3f-4f0f-9f0b-6f5a53f7a088')
    def test_commits_wait_for_a_replica(self):
        """While the server of the only replica does nothing, a commit waits for the time limit.

        The next ones do not, until the replica has caught up.
        """
        (replica_id,) = self.create_replicas()
        self.replicas.set_policy(self.instance_id, semi_sync=True)
        self.wait_until_commits_wait()
        received = int(self.database.status(RECEIVED))
        rows = self.write_rows()
        self.assertGreater(int(self.database.status(RECEIVED)), received)
        not_received = int(self.database.status(NOT_RECEIVED))

        self._signal_replica(replica_id, 'STOP')
        began = time.monotonic()
        self.database.query('INSERT INTO kept_rows VALUES (%s)', 'while the replica is stopped')
        waited_sec = time.monotonic() - began
        limit_sec = int(self.database.variable(TIMEOUT_MS)) / 1000
        self.record('commit', {'waited_sec': round(waited_sec, 1), 'limit_sec': limit_sec})
        self.assertGreaterEqual(waited_sec, limit_sec * SHARE)
        self.assertEqual('OFF', self.database.status(replication.SEMI_SYNC_STATUS))
        self.assertGreater(int(self.database.status(NOT_RECEIVED)), not_received)

        self._signal_replica(replica_id, 'CONT')
        self.wait_until_commits_wait()
        received = int(self.database.status(RECEIVED))
        self.assertEqual(len(rows) + 1 + base.ROWS, len(self.write_rows()))
        self.assertGreater(int(self.database.status(RECEIVED)), received)
        self.assert_equal(replica_id)

    def _signal_replica(self, replica_id, signal):
        server_id, host = self._server(replica_id)
        if signal == 'STOP':
            self.addCleanup(self.hypervisors.signal, 'CONT', server_id, host)
        self.hypervisors.signal(signal, server_id, host)


def load_tests(loader, tests, pattern):
    return base.on_volume_types(loader, everywhere=None, first=TestSemiSync)
