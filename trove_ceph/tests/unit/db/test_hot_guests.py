# SPDX-License-Identifier: Apache-2.0
"""The store of warm guests: those that are hot."""

import dataclasses

from trove_ceph import exceptions
from trove_ceph.db.guest_record import GuestState
from trove_ceph.tests.unit.db import guest_helpers
from trove_ceph.tests.unit.db.guest_helpers import FRESH_SEC, HOT_DIGEST, KEY, POOL, SECOND


class HotGuestsTest(guest_helpers.GuestStoreTestCase):
    def claim_hot(self, digest=HOT_DIGEST, **facts):
        return self.store.claim_hot(dataclasses.replace(KEY, **facts), digest, 'i')

    def test_life_of_a_hot_guest(self):
        self.make('g')
        self.now += SECOND
        self.store.mark_loading('g', HOT_DIGEST)
        found = self.store.find('g')
        self.assertEqual(
            (GuestState.LOADING, HOT_DIGEST, None, self.now),
            (found.state, found.hot_digest, found.volume_id, found.updated_at),
        )
        self.store.set_volume('g', 'volume')
        self.now += SECOND
        self.store.mark_hot('g')
        hot_at = self.now
        self.now += SECOND
        self.store.mark_hot('g')
        found = self.store.find('g')
        self.assertEqual(
            (GuestState.HOT, 'volume', hot_at, self.now),
            (found.state, found.volume_id, found.updated_at, found.seen_at),
        )
        claimed = self.claim_hot()
        self.assertEqual(claimed, self.store.find('g'))
        self.assertEqual((GuestState.CLAIMED, 'i'), (claimed.state, claimed.instance_id))
        self.assertEqual('volume', claimed.volume_id)
        self.store.mark_bound('g', 'i')
        # It is that of the instance.
        self.assertIsNone(self.store.find('g').volume_id)

    def test_volume_of_a_retired_guest_stays_known(self):
        self.make('g', GuestState.HOT)
        self.store.retire('g', 'why')
        self.assertEqual('volume', self.store.find('g').volume_id)

    def test_claims_of_each_kind_take_their_own(self):
        self.make('hot', GuestState.HOT)
        self.make('loading', GuestState.LOADING)
        self.assertIsNone(self.store.claim(KEY, 'i'))
        self.make('ready')
        self.assertEqual('hot', self.claim_hot().guest_id)
        self.assertIsNone(self.claim_hot())
        self.assertEqual('ready', self.store.claim(KEY, 'i').guest_id)

    def test_claim_of_another_kind(self):
        self.make('g', GuestState.HOT)
        self.assertIsNone(self.claim_hot('another'))
        for facts in (
            {'flavor_id': 'another'},
            {'image_id': 'another'},
            {'config_digest': 'another'},
            {'availability_zone': 'another'},
        ):
            self.assertIsNone(self.claim_hot(**facts), facts)
        self.assertIsNotNone(self.claim_hot())

    def test_silent_guest_is_not_claimed(self):
        self.make('g', GuestState.HOT)
        self.now += (FRESH_SEC + 1) * SECOND
        self.assertIsNone(self.claim_hot())
        self.assertIs(GuestState.HOT, self.store.find('g').state)

    def test_only_a_claim_that_succeeds_is_a_request(self):
        began = self.now
        self.assertIsNone(self.claim_hot())
        self.assertEqual(0, self.store.requests_since(POOL, began))
        self.make('g', GuestState.HOT)
        self.claim_hot()
        self.assertEqual(1, self.store.requests_since(POOL, began))

    def test_guest_with_a_volume_cannot_stay_warm(self):
        self.make('g', GuestState.LOADING)
        self.store.set_volume('g', 'volume')
        self.assertRaises(exceptions.RecordNotFoundError, self.store.keep_warm, 'g')
        self.assertIs(GuestState.LOADING, self.store.find('g').state)

    def test_guest_that_stays_warm_is_as_before(self):
        before = self.make('g')
        self.store.mark_loading('g', HOT_DIGEST)
        self.store.keep_warm('g')
        self.assertEqual(before, self.store.find('g'))

    def test_only_a_loading_guest_gets_a_volume(self):
        for state in set(GuestState) - {GuestState.LOADING}:
            self.make(f'g-{state}', state)
            self.assertRaises(
                exceptions.RecordNotFoundError, self.store.set_volume, f'g-{state}', 'volume'
            )
