# SPDX-License-Identifier: Apache-2.0
"""The store of replicas in memory behaves as the real one, as far as workers use it."""

import dataclasses

from trove_ceph import exceptions
from trove_ceph.db.replica_record import Requester
from trove_ceph.db.replica_states import Event
from trove_ceph.tests.unit.db import replacement_memory, replica_helpers, replica_memory

_TO_EXCHANGING = (Event.CLONE, Event.EXCHANGE)
#: The events before each end of a re-provisioning.
_WAYS = {
    'fail': (Event.CLONE,),
    'complete': (*_TO_EXCHANGING, Event.EXCHANGED),
    'give_up': (*_TO_EXCHANGING, Event.EXCHANGED),
    'finish_return': (*_TO_EXCHANGING, Event.GIVE_BACK),
    'cancel': _TO_EXCHANGING,
}
_WITH_REASON = ('fail', 'give_up')


class ReplicaMemoryTest(replica_helpers.ReplicaStoreTestCase):
    def setUp(self):
        super().setUp()
        self.memory_trove = replacement_memory.MemoryTrove()
        memory = replica_memory.MemoryStore(self.memory_trove, lambda: self.now)
        self.stores = {self.store: self.trove, memory: self.memory_trove}

    def facts(self, store, instance_id):
        """Return what both stores must have alike."""
        record = store.find(instance_id)
        task = self.stores[store].task(instance_id)
        if record is None:
            return None, task
        values = dataclasses.asdict(record)
        for name in ('request_id', 'heartbeat_at'):
            # One is random, the other one is not renewed here.
            del values[name]
        return values, task

    def compare(self, instance_id):
        real, memory = (self.facts(store, instance_id) for store in self.stores)
        self.assertEqual(real, memory)

    def test_each_way(self):
        for end, events in _WAYS.items():
            claims = {}
            for store, trove in self.stores.items():
                trove.add(end)
                store.register(end, 'p', 'source', 'volume', self.now)
                store.request(end, Requester.TENANT, 'why')
            self.compare(end)
            for store in self.stores:
                claims[store] = store.claim(end, replica_helpers.CLAIMANT)
                self.assertIsNone(store.claim(end, replica_helpers.claims.Claimant('two')))
            self.compare(end)
            for event in events:
                for store in self.stores:
                    store.note(claims[store], step='step', attempts=2, new_volume_id='new')
                    store.note(claims[store], former_own_bytes=2, fresh_own_bytes=1)
                    store.advance(claims[store], event, error='an error')
                self.compare(end)
            for store in self.stores:
                self.assertRaises(
                    exceptions.InvalidTransitionError,
                    *(store.advance, claims[store], Event.REGISTER),
                )
                getattr(store, end)(claims[store], *(('why',) if end in _WITH_REASON else ()))
            self.compare(end)
            for store in self.stores:
                self.assertRaises(exceptions.ClaimLostError, store.note, claims[store], step='x')
                self.assertIsNone(store.claim(end, replica_helpers.CLAIMANT))

    def test_refused(self):
        for store, trove in self.stores.items():
            trove.add('i', replica_helpers.replacement_helpers.RESIZING)
            store.register('i', 'p', 'source', 'volume', self.now)
            self.assertRaises(
                exceptions.ReprovisioningRefusedError,
                *(store.request, 'i', Requester.TENANT, 'why'),
            )
        self.compare('i')

    def test_released_claim(self):
        for store, trove in self.stores.items():
            trove.add('i')
            store.register('i', 'p', 'source', 'volume', self.now)
            store.request('i', Requester.TENANT, 'why')
            claim = store.claim('i', replica_helpers.CLAIMANT)
            self.assertEqual({claim}, store.claims.heartbeat_all([claim]))
            store.claims.release(claim)
            self.assertEqual(set(), store.claims.heartbeat_all([claim]))
            self.assertIsNotNone(store.claim('i', replica_helpers.claims.Claimant('two')))
