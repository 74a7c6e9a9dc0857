# SPDX-License-Identifier: Apache-2.0
"""The replication with which the new server of a source or a replica is started."""

import uuid

from oslotest import base

from trove_ceph.db import replicas, replication_policies
from trove_ceph.tests.unit.taskmanager import trove_database
from trove_ceph.trove_adapter import start_replication
from trove_ceph.trove_adapter.start_replication import StartReplication

TIMEOUT_MS = 500


class ReplicationOfStartsTest(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        trove_database.path()
        self.project = f'project-{uuid.uuid4()}'
        self.source = trove_database.add_instance(self.project, 'volume').id
        self.replica = trove_database.add_instance(
            self.project, 'volume-2', slave_of_id=self.source
        ).id
        self.replicas = replicas.ReplicaStore()
        self.policies = replication_policies.ReplicationPolicyStore()
        self.starts = start_replication.ReplicationOfStarts(
            self.replicas, self.policies, TIMEOUT_MS
        )

    def semi_sync(self, as_source, as_replica):
        return {'as_source': as_source, 'as_replica': as_replica, 'timeout_ms': TIMEOUT_MS}

    def test_without_a_policy(self):
        self.assertEqual(StartReplication(False), self.starts.find(self.source))
        self.assertEqual(StartReplication(True), self.starts.find(self.replica))
        self.assertEqual(StartReplication(False), self.starts.find('unknown'))

    def test_asynchronous_replication(self):
        self.policies.set(self.source, max_lag_sec=5)
        self.assertEqual(StartReplication(True), self.starts.find(self.replica))

    def test_semi_synchronous_replication(self):
        self.replicas.register(self.replica, self.project, self.source, 'volume-2', None)
        self.policies.set(self.source, semi_sync=True)
        self.assertEqual(
            StartReplication(False, self.semi_sync(True, False)), self.starts.find(self.source)
        )
        self.assertEqual(
            StartReplication(True, self.semi_sync(False, True)), self.starts.find(self.replica)
        )

    def test_a_source_without_replicas_waits_for_none(self):
        self.policies.set(self.source, semi_sync=True)
        self.assertEqual(self.semi_sync(False, False), self.starts.find(self.source).semi_sync)
