# SPDX-License-Identifier: Apache-2.0
"""A store of replicas beside Trove's table of instances."""

import datetime

from oslotest import base

from trove_ceph.db import claims, replicas, replication_policies, transactions
from trove_ceph.db.replica_record import ReplicaState, Requester
from trove_ceph.db.replica_states import Event
from trove_ceph.tests.unit.db import replacement_helpers

CLAIMANT = claims.Claimant('one')
#: How a re-provisioning gets into each state.
_WAY = (
    (Event.CLONE, ReplicaState.CLONING),
    (Event.EXCHANGE, ReplicaState.EXCHANGING),
    (Event.EXCHANGED, ReplicaState.CATCHING_UP),
    (Event.GIVE_BACK, ReplicaState.RETURNING),
    (Event.BLOCK, ReplicaState.BLOCKED),
)


class ReplicaStoreTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = datetime.datetime(2026, 1, 1)
        self.facade = replacement_helpers.empty_database()
        self.trove = replacement_helpers.TroveTable(self.facade)
        self.store = self.connect()
        self.policies = replication_policies.ReplicationPolicyStore(self.transactions())

    def transactions(self):
        return transactions.Transactions(self.facade, lambda: self.now)

    def connect(self):
        """Return the store of another process."""
        return replicas.ReplicaStore(self.transactions())

    def add(self, instance_id, source_id='source'):
        """Add an idle instance and its row of a replica."""
        self.trove.add(instance_id)
        return self.store.register(instance_id, 'p', source_id, f'v-{instance_id}', self.now)

    def make(self, instance_id, state):
        """Add a replica and bring it into a state; return it and the claim on it."""
        found = self.add(instance_id)
        if state is ReplicaState.FOLLOWING:
            return found, claims.Claim(claims.Role.REPROVISION_REPLICA, instance_id, 'one', 'none')
        self.store.request(instance_id, Requester.TENANT, 'why')
        claim = self.store.claim(instance_id, CLAIMANT)
        for event, after in _WAY:
            if self.store.find(instance_id).state is state:
                break
            assert self.store.advance(claim, event).state is after
        return self.store.find(instance_id), claim
