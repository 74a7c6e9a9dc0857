# SPDX-License-Identifier: Apache-2.0
"""The keeper makes guests hot, and keeps or deletes them."""

import dataclasses
import datetime

from trove_ceph.db.guest_record import GuestState
from trove_ceph.guestagent.waiting_messages import LoadState
from trove_ceph.strategies.guests import hot_spec
from trove_ceph.strategies.guests.dependencies import ServerFacts, guest_name
from trove_ceph.tests.unit.strategies import keeper_case

VOLUME = hot_spec.HotVolume('nvme', 10)
HOT, LOADING, READY = GuestState.HOT, GuestState.LOADING, GuestState.READY


class HotGuestsTest(keeper_case.KeeperTestCase):
    def make_hot(self, rounds=5, **settings):
        self.make(rounds, **{'least': 2, 'hot': 1, 'hot_volume': VOLUME} | settings)

    def configure(self, **settings):
        """Restart the taskmanager with other settings."""
        self.world.settings = dataclasses.replace(self.world.settings, **settings)
        self.keeper = self.world.keeper()

    def claim_hot(self, instance_id='instance'):
        guest = self.one(HOT)
        return self.world.store.claim_hot(keeper_case.KEY, guest.hot_digest, instance_id)

    def spec(self):
        return hot_spec.HotSpec(VOLUME, '9.7.4', self.world.contents)

    def test_one_of_two_becomes_hot(self):
        self.make_hot()
        self.assertEqual(['hot', 'ready'], self.world.states())
        guest = self.one(HOT)
        self.assertEqual(self.spec().digest, guest.hot_digest)
        self.assertEqual({guest.volume_id: guest.server_id}, self.world.attached)
        ((_, (guest_id, load)),) = [one for one in self.world.requests if one[0] == 'load']
        self.assertEqual(
            (guest.guest_id, guest.volume_id, '9.7.4', self.world.contents),
            (guest_id, load.volume_id, load.version, load.contents),
        )
        self.assertEqual(1, self.count_in_log('is made hot'))
        self.assertEqual(1, self.count_in_log('is hot'))
        before = self.world.guests()
        self.run_rounds(3)
        self.assertEqual(
            [one.guest_id for one in before], [one.guest_id for one in self.world.guests()]
        )

    def test_off_by_default(self):
        self.make(5, least=2)
        self.assertEqual(['ready', 'ready'], self.world.states())
        self.assertEqual({}, self.world.volumes)

    def test_hot_guest_answers_as_a_warm_one(self):
        self.make_hot(ping_interval_sec=30)
        self.run_rounds(20)
        self.assertLess(
            (self.world.now - self.one(HOT).seen_at).total_seconds(), 41, 'it was not asked'
        )

    def test_claimed_one_is_replaced(self):
        self.make_hot()
        claimed = self.claim_hot()
        self.run_rounds(5)
        self.assertEqual(['claimed', 'hot', 'ready'], self.world.states())
        self.assertNotEqual(claimed.guest_id, self.one(HOT).guest_id)

    def test_waits_before_it_loads_another_one(self):
        self.make_hot(refill_delay=datetime.timedelta(seconds=100))
        self.claim_hot()
        self.run_rounds(5, seconds=15)
        self.assertEqual(['claimed', 'ready'], self.world.states())
        self.run_rounds(5, seconds=15)
        self.assertEqual(['claimed', 'hot', 'ready'], self.world.states())

    def test_without_a_golden_volume_guests_stay_warm(self):
        self.make(0, least=2, hot=1, hot_volume=VOLUME)
        self.world.golden = None
        self.run_rounds(20)
        self.assertEqual(['ready', 'ready'], self.world.states())
        self.assertEqual(1, self.count_in_log('there is none of MySQL 9.7.4 with 10 GiB'))
        self.world.golden = object()
        self.run_rounds(12)
        self.assertEqual(['hot', 'ready'], self.world.states())
        self.assertEqual(1, self.count_in_log('golden volume for hot guests works again'))

    def test_settings_that_golden_volumes_have_not(self):
        self.make(0, least=2, hot=1, hot_volume=VOLUME)
        self.world.contents = '[mysqld]\nlower_case_table_names = 1\n'
        self.run_rounds(10)
        self.assertEqual(['ready', 'ready'], self.world.states())
        self.assertEqual(1, self.count_in_log('other values of lower_case_table_names'))

    def test_guest_without_a_volume_stays_warm(self):
        self.make(0, least=2, hot=1, hot_volume=VOLUME)
        self.world.volume_error = 'no quota'
        self.run_rounds(10)
        self.assertEqual(['ready', 'ready'], self.world.states())
        self.assertEqual({None}, {one.hot_digest for one in self.world.guests()})
        self.assertEqual(1, self.count_in_log('no quota'))
        # After 30 s, and then after a minute.
        self.assertEqual(2, self.count_in_log('is made hot'))
        self.world.volume_error = None
        self.run_rounds(20)
        self.assertEqual(['hot', 'ready'], self.world.states())

    def test_guest_whose_volume_is_to_be_deleted_later_gets_no_other_one(self):
        self.make(0, least=2, hot=1, hot_volume=VOLUME)
        self.world.volume_error, self.world.is_volume_stuck = 'no quota', True
        self.run_rounds(4)
        self.assertEqual(1, self.count_in_log('is retired: it got no volume'))
        self.assertNotIn('loading', self.world.states())

    def test_load_that_fails(self):
        self.make(0, least=2, hot=1, hot_volume=VOLUME)
        self.world.load_ends = LoadState.FAILED
        self.run_rounds(8)
        self.assertNotIn('hot', self.world.states())
        self.assertEqual(
            1,
            self.count_in_log(
                'a guest failed; will retry: its MySQL did not start: its MySQL is failed'
            ),
        )
        self.world.load_ends = LoadState.SERVING
        self.run_rounds(20)
        self.assertEqual(['hot', 'ready'], self.world.states())
        self.assertEqual([self.one(HOT).volume_id], list(self.world.volumes))

    def test_load_that_takes_too_long(self):
        self.make(0, least=2, hot=1, hot_volume=VOLUME)
        self.world.load_ends = LoadState.STARTING
        self.run_rounds(5)
        self.run_rounds(1, 600)
        self.run_rounds(1)
        self.assertEqual(
            1, self.count_in_log('is retired: it was not hot 600 s after its load began')
        )

    def test_load_that_takes_too_long_while_the_settings_cannot_be_read(self):
        self.make(0, least=2, hot=1, hot_volume=VOLUME)
        self.world.load_ends = LoadState.STARTING
        self.run_rounds(5)
        self.assertIn('loading', self.world.states())
        self.world.settings_fail = True
        self.run_rounds(12, 60)
        self.assertNotIn('loading', self.world.states())

    def test_hot_guest_whose_server_ended(self):
        """As after a reboot: its agent answers, but has not started MySQL."""
        self.make_hot()
        guest = self.one(HOT)
        self.world.loads[guest.guest_id] = LoadState.NONE
        self.run_rounds(30)
        self.assertIsNone(self.world.store.find(guest.guest_id))
        self.assertEqual(['hot', 'ready'], self.world.states())
        self.assertEqual([self.one(HOT).volume_id], list(self.world.volumes))

    def test_outdated_hot_guest_is_replaced(self):
        for change in ('configuration', 'golden volume'):
            self.make_hot()
            guest = self.one(HOT)
            if change == 'configuration':
                self.world.contents = '[mysqld]\nmax_connections = 7\n'
            else:
                self.world.golden = None
            self.run_rounds(8)
            self.assertIsNone(self.world.store.find(guest.guest_id), change)
            self.assertNotIn(guest.volume_id, self.world.volumes)
            self.run_rounds(8)
            expected = ['hot', 'ready'] if self.world.golden else ['ready', 'ready']
            self.assertEqual(expected, self.world.states())

    def test_server_ids_are_no_difference(self):
        self.make_hot()
        before = self.one(HOT)
        self.world.contents = '[mysqld]\nserver_id = 2\n'
        self.run_rounds(10)
        self.assertEqual(before.guest_id, self.one(HOT).guest_id)

    def test_fewer_or_none(self):
        self.make_hot(hot=2, least=3)
        self.assertEqual(['hot', 'hot', 'ready'], self.world.states())
        self.configure(hot=1)
        self.run_rounds(6)
        self.assertEqual(['hot', 'ready', 'ready'], self.world.states())
        self.configure(hot=0, hot_volume=None)
        self.run_rounds(6)
        self.assertEqual(['ready', 'ready', 'ready'], self.world.states())
        self.assertEqual({}, self.world.volumes)

    def test_loading_guest_without_a_volume_stays_warm_if_it_is_not_needed(self):
        self.make(4, least=2)
        guest = self.world.guests(READY)[0]
        self.world.store.mark_loading(guest.guest_id, 'digest')
        self.run_rounds()
        self.assertIs(READY, self.world.store.find(guest.guest_id).state)

    def test_pool_that_shrinks_keeps_the_hot_ones(self):
        self.make_hot(least=3)
        hot = self.one(HOT)
        self.configure(least=1)
        self.run_rounds(3)
        self.assertEqual([hot.guest_id], [one.guest_id for one in self.world.guests()])

    def test_hot_guests_count_for_the_size(self):
        self.make_hot(least=2, most=2)
        self.run_rounds(5)
        self.assertEqual(2, len(self.world.servers))

    def test_pool_that_is_no_longer_configured(self):
        self.make_hot()
        self.world.pass_time(3600)
        keeper = self.world.keeper(pools=())
        self.world.run(keeper, 4)
        self.assertEqual([], self.world.guests())
        self.assertEqual(({}, {}), (self.world.volumes, self.world.servers))

    def test_volume_of_an_instance_stays(self):
        """The one of a guest that was bound, and whose instance is deleted."""
        self.make_hot()
        guest = self.claim_hot()
        self.world.volumes[guest.volume_id] = 'trove-instance'
        self.world.store.mark_bound(guest.guest_id, 'instance')
        self.run_rounds(3)
        self.assertIsNone(self.world.store.find(guest.guest_id))
        self.assertEqual('trove-instance', self.world.volumes[guest.volume_id])

    def test_server_is_deleted_before_the_volume(self):
        self.make_hot()
        self.world.deletes_late = True
        guest = self.one(HOT)
        facts = self.world.servers[guest.server_id]
        self.world.servers[guest.server_id] = ServerFacts(facts.server_id, facts.name, 'ERROR')
        self.run_rounds()
        self.assertEqual(guest_name(guest.guest_id), self.world.volumes[guest.volume_id])
        self.run_rounds(2)
        self.assertNotIn(guest.volume_id, self.world.volumes)
