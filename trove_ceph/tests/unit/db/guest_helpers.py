# SPDX-License-Identifier: Apache-2.0
"""A store of warm guests in a database of its own."""

import datetime

import fixtures
from oslotest import base

from trove_ceph.db import guests, transactions
from trove_ceph.db.guest_record import GuestRecord, GuestState, PoolKey
from trove_ceph.tests.unit.db import database

SECOND = datetime.timedelta(seconds=1)
POOL = 'mysql/8.4:small'
KEY = PoolKey('flavor', 'image', 'digest', None, POOL)
FRESH_SEC = 90
HOT_DIGEST = 'of-volume-and-settings'


def record(guest_id, now, state=GuestState.BOOTING, **values):
    """Return the record of a guest; by default of one that is about to be booted."""
    known = {'pool': POOL, 'flavor_id': 'flavor', 'image_id': 'image', 'config_digest': 'digest'}
    known |= {'created_at': now, 'updated_at': now, 'encrypted_key': 'key'}
    return GuestRecord(guest_id, state=state, **known | values)


class GuestStoreTestCase(base.BaseTestCase):
    def setUp(self):
        super().setUp()
        self.now = datetime.datetime(2026, 1, 1)
        path = self.useFixture(fixtures.TempDir()).join('trove.sqlite')
        self.facade = database.with_tables(path)
        self.store = self.connect()

    def connect(self, clock=None, skew=datetime.timedelta(0)):
        """Return the store on a host whose own clock is wrong by ``skew``.

        :param clock: the clock of the database; by default the one of the test
        """
        return guests.GuestStore(
            transactions.Transactions(
                self.facade, lambda: self.now + skew, clock or (lambda: self.now)
            ),
            FRESH_SEC,
        )

    def make(self, guest_id, state=GuestState.READY, **values):
        """Create a guest in a state; return its record."""
        self.store.add(record(guest_id, self.now, **values))
        if state not in (GuestState.BOOTING, GuestState.RETIRED):
            self.store.mark_ready(guest_id, 'host')
        if state in (GuestState.LOADING, GuestState.HOT):
            self.store.mark_loading(guest_id, HOT_DIGEST)
        if state is GuestState.HOT:
            self.store.set_volume(guest_id, 'volume')
            self.store.mark_hot(guest_id)
        if state in (GuestState.CLAIMED, GuestState.BOUND):
            found = self.store.find(guest_id)
            zone = found.availability_zone
            claimed = self.store.claim(
                PoolKey(found.flavor_id, found.image_id, found.config_digest, zone, found.pool),
                'instance',
            )
            assert claimed.guest_id == guest_id
        if state is GuestState.BOUND:
            self.store.mark_bound(guest_id, 'instance')
        if state is GuestState.RETIRED:
            self.store.retire(guest_id, 'why')
        return self.store.find(guest_id)

    def remove(self, guest_id):
        """Delete a guest in any state; idempotent."""
        self.store.retire(guest_id, 'the test ends')
        self.store.delete(guest_id)
