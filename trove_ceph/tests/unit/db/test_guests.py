# SPDX-License-Identifier: Apache-2.0
"""The store of warm guests: one instance gets a guest, and one taskmanager keeps a pool."""

import dataclasses
import datetime

from trove_ceph import exceptions
from trove_ceph.db import claims, guests
from trove_ceph.db.guest_record import GuestState, PoolKey
from trove_ceph.db.roles import Role
from trove_ceph.db.transactions import Transactions
from trove_ceph.tests.unit.db import database, guest_helpers
from trove_ceph.tests.unit.db.guest_helpers import FRESH_SEC, KEY, POOL, SECOND

HOUR = datetime.timedelta(hours=1)


class GuestsTest(guest_helpers.GuestStoreTestCase):
    def test_life_of_a_guest(self):
        begun = self.now
        record = guest_helpers.record('g', self.now, availability_zone='zone')
        self.store.add(record)
        self.assertEqual(record, self.store.find('g'))
        self.store.set_server('g', None, 'port')
        self.store.set_server('g', 'server', 'port', 'host')
        self.store.set_server('g', 'server', 'port')
        found = self.store.find('g')
        self.assertEqual(
            ('server', 'port', 'host', None),
            (found.server_id, found.port_id, found.host, found.seen_at),
        )
        self.now += SECOND
        self.store.mark_seen('g')
        self.now += SECOND
        self.store.mark_ready('g', None)
        ready_at = self.now
        self.now += SECOND
        self.store.mark_ready('g', 'host 2')
        found = self.store.find('g')
        self.assertEqual(
            (GuestState.READY, begun, ready_at, self.now, 'host 2'),
            (found.state, found.created_at, found.updated_at, found.seen_at, found.host),
        )
        claimed = self.store.claim(dataclasses.replace(KEY, availability_zone='zone'), 'i')
        self.assertEqual(claimed, self.store.find('g'))
        self.assertEqual((GuestState.CLAIMED, 'i'), (claimed.state, claimed.instance_id))
        self.store.mark_bound('g', 'i')
        self.store.mark_bound('g', 'i')
        self.assertEqual(GuestState.BOUND, self.store.find('g').state)
        self.store.retire('g', 'its instance was deleted')
        self.store.delete('g')
        self.store.delete('g')
        self.assertIsNone(self.store.find('g'))

    def test_keys_are_not_shown(self):
        self.assertNotIn(
            'secret', repr(guest_helpers.record('g', self.now, encrypted_key='secret'))
        )

    def test_guests_are_listed_by_pool_and_state(self):
        self.make('a')
        self.make('b', pool='other')
        self.now += SECOND
        self.make('0', GuestState.RETIRED)
        self.assertEqual(['a', 'b', '0'], [one.guest_id for one in self.store.list()])
        self.assertEqual({one.pool for one in self.store.list()}, self.store.pools())
        self.assertEqual(['a', '0'], [one.guest_id for one in self.store.list(POOL)])
        found = self.store.list(POOL, [GuestState.RETIRED])
        self.assertEqual(['0'], [one.guest_id for one in found])

    def test_guest_without_a_row(self):
        gone = exceptions.RecordNotFoundError
        self.assertRaises(gone, self.store.set_server, 'g', 's', 'p')
        self.assertRaises(gone, self.store.mark_ready, 'g', 'host')
        self.assertRaises(gone, self.store.mark_bound, 'g', 'i')
        self.store.mark_seen('g')
        self.assertFalse(self.store.retire('g', 'why'))

    def test_only_a_booting_guest_is_added(self):
        record = dataclasses.replace(guest_helpers.record('g', self.now), state=GuestState.READY)
        self.assertRaises(exceptions.InvalidTransitionError, self.store.add, record)

    def test_retirement_keeps_the_first_reason(self):
        self.make('g')
        self.assertTrue(self.store.retire('g', 'too old'))
        self.now += SECOND
        self.assertFalse(self.store.retire('g', 'another'))
        found = self.store.find('g')
        self.assertEqual(('too old', self.now - SECOND), (found.reason, found.updated_at))

    def test_retirement_spares_a_guest_that_was_claimed_meanwhile(self):
        self.make('g')
        self.store.claim(KEY, 'i')
        self.assertFalse(self.store.retire('g', 'too old', only_in=GuestState.READY))
        self.store.mark_bound('g', 'i')
        self.assertFalse(self.store.retire('g', 'timeout', only_in=GuestState.CLAIMED))
        self.assertTrue(self.store.retire('g', 'deleted', only_in=GuestState.BOUND))

    def test_answers_of_claimed_and_retired_guests_change_nothing(self):
        for state in (GuestState.CLAIMED, GuestState.BOUND, GuestState.RETIRED):
            before = self.make(f'{state}', state)
            self.now += SECOND
            self.store.mark_seen(f'{state}')
            self.assertEqual(before, self.store.find(f'{state}'))

    def test_other_instance_cannot_bind_a_claimed_guest(self):
        self.make('g')
        self.store.claim(KEY, 'i')
        self.assertRaises(exceptions.RecordNotFoundError, self.store.mark_bound, 'g', 'another')

    def test_released_guest_can_be_claimed_again(self):
        before = self.make('g')
        self.store.claim(KEY, 'i')
        self.store.release('g', 'i')
        released = self.store.find('g')
        self.assertEqual((GuestState.READY, None), (released.state, released.instance_id))
        self.assertEqual(before.seen_at, released.seen_at)
        self.assertEqual('another', self.store.claim(KEY, 'another').instance_id)

    def test_guests_that_are_not_released(self):
        gone = exceptions.RecordNotFoundError
        self.make('g')
        self.store.claim(KEY, 'i')
        self.assertRaises(gone, self.store.release, 'g', 'another')
        self.store.mark_bound('g', 'i')
        self.assertRaises(exceptions.InvalidTransitionError, self.store.release, 'g', 'i')
        self.store.retire('g', 'deleted')
        self.assertRaises(exceptions.InvalidTransitionError, self.store.release, 'g', 'i')
        self.make('was-hot', GuestState.CLAIMED, instance_id='i', volume_id='volume')
        self.assertRaises(gone, self.store.release, 'was-hot', 'i')

    def test_database_without_the_tables(self):
        store = guests.GuestStore(Transactions(database.facade(':memory:')))
        for verb in (store.list, lambda: store.claim(KEY, 'i'), lambda: store.find('g')):
            error = self.assertRaises(exceptions.ServiceUnavailableError, verb)
            self.assertIn('db sync', str(error))


class ClaimGuestTest(guest_helpers.GuestStoreTestCase):
    def test_guest_that_answered_last_is_claimed(self):
        for guest_id in ('c', 'a', 'b'):
            self.make(guest_id)
        self.now += SECOND
        self.store.mark_seen('a')
        claimed = [self.store.claim(KEY, f'i{number}') for number in range(4)]
        self.assertEqual(['a', 'b', 'c'], [one.guest_id for one in claimed[:3]])
        self.assertIsNone(claimed[3])
        self.assertEqual('i1', self.store.find('b').instance_id)

    def test_only_a_guest_that_fits_is_claimed(self):
        self.make('g', availability_zone='zone')
        fits = dataclasses.replace(KEY, availability_zone='zone')
        for name in ('flavor_id', 'image_id', 'config_digest', 'availability_zone'):
            for value in ('another', None):
                key = dataclasses.replace(fits, **{name: value})
                self.assertIsNone(self.store.claim(key, 'i'), name)
        self.assertIsNotNone(self.store.claim(fits, 'i'))

    def test_silent_guest_is_not_claimed(self):
        self.make('g')
        self.now += FRESH_SEC * SECOND
        self.assertIsNotNone(self.store.claim(KEY, 'i'))
        self.make('h')
        self.now += (FRESH_SEC + 1) * SECOND
        self.assertIsNone(self.store.claim(KEY, 'i'))

    def test_guest_of_another_host(self):
        for guest_id in ('here', 'there', 'unknown'):
            self.make(guest_id, GuestState.BOOTING)
        self.store.mark_ready('there', 'other host')
        self.now += SECOND
        self.store.mark_ready('here', 'host')
        # Nova had not said yet where it is; it may be the same host.
        self.store.mark_ready('unknown', None)
        claimed = self.store.claim(KEY, 'i', not_on_host='host')
        self.assertEqual('there', claimed.guest_id)
        self.assertIsNone(self.store.claim(KEY, 'i', not_on_host='host'))
        self.assertEqual('here', self.store.claim(KEY, 'i', not_on_host='third host').guest_id)
        self.assertEqual('unknown', self.store.claim(KEY, 'i').guest_id)

    def test_clocks_of_hosts_do_not_count(self):
        for number, skew in enumerate((-HOUR, HOUR)):
            self.make(f'g{number}')
            self.assertIsNotNone(self.connect(skew=skew).claim(KEY, 'i'))

    def test_two_interleaved_claimants(self):
        """The second one claims after the first one has read, and before it writes."""
        self.make('a')
        self.make('b')
        taken = []

        def clock():
            taken.append(self.connect().claim(KEY, 'second').guest_id)
            return self.now

        first = self.connect(clock).claim(KEY, 'first')
        self.assertEqual(['a'], taken)
        self.assertEqual('b', first.guest_id)
        self.assertEqual(
            {'a': 'second', 'b': 'first'},
            {one.guest_id: one.instance_id for one in self.store.list()},
        )

    def test_interleaved_claim_of_the_last_guest(self):
        self.make('a')

        def clock():
            self.connect().claim(KEY, 'second')
            return self.now

        self.assertIsNone(self.connect(clock).claim(KEY, 'first'))
        self.assertEqual('second', self.store.find('a').instance_id)

    def test_interleaved_retirement(self):
        self.make('a')

        def clock():
            self.connect().retire('a', 'too old')
            return self.now

        self.assertIsNone(self.connect(clock).claim(KEY, 'first'))
        self.assertEqual(GuestState.RETIRED, self.store.find('a').state)

    def test_requests_are_counted(self):
        begun = self.store.now()
        self.make('g')
        self.store.claim(KEY, 'i')
        self.now += HOUR
        self.store.claim(KEY, 'j')
        self.store.claim(PoolKey('other', 'image', 'digest', None, 'other'), 'k')
        self.assertEqual(2, self.store.requests_since(POOL, begun))
        self.assertEqual(1, self.store.requests_since(POOL, begun + SECOND))
        self.assertEqual(1, self.store.requests_since('other', begun))
        self.store.prune_requests(begun + SECOND)
        self.assertEqual(1, self.store.requests_since(POOL, begun))


class PoolTest(guest_helpers.GuestStoreTestCase):
    def test_one_taskmanager_keeps_a_pool(self):
        one, two = claims.Claimant('one'), claims.Claimant('two')
        mine = self.store.begin_keeping(POOL, one)
        self.assertEqual((Role.KEEP_GUESTS, POOL), (mine.role, mine.resource_id))
        self.assertIsNone(self.store.begin_keeping(POOL, two))
        self.assertIsNotNone(self.store.begin_keeping('other', two))
        self.assertEqual({mine}, self.store.claims.heartbeat_all([mine]))
        self.store.claims.release(mine)
        self.assertIsNotNone(self.store.begin_keeping(POOL, two))
        self.assertFalse(self.store.claims.heartbeat(mine))

    def test_configured_pools(self):
        begun = self.now
        self.store.begin_keeping('drained', claims.Claimant('one'))
        self.store.note_configured([POOL, 'other'])
        self.now += SECOND
        self.store.note_configured([POOL])
        self.assertEqual({POOL, 'other'}, self.store.configured_since(begun))
        self.assertEqual({POOL}, self.store.configured_since(self.now))
        # The claim on a pool is not affected.
        claim = self.store.begin_keeping(POOL, claims.Claimant('one'))
        self.store.note_configured([POOL])
        self.assertTrue(self.store.claims.heartbeat(claim))

    def test_pool_of_a_dead_taskmanager(self):
        self.store.begin_keeping(POOL, claims.Claimant('one'))
        self.now += claims.DEFAULT_EXPIRY + SECOND
        self.assertIsNotNone(self.store.begin_keeping(POOL, claims.Claimant('two')))
