# SPDX-License-Identifier: Apache-2.0
"""On which hosts the keeper of a pool has guests booted."""

import dataclasses
import datetime

from trove_ceph.db.guest_record import GuestState
from trove_ceph.strategies.guests import hot_spec
from trove_ceph.tests.unit.strategies import guest_world, keeper_case

MINUTE = 60


class SpreadCase(keeper_case.KeeperTestCase):
    def make(self, hosts=('a', 'b'), rounds=4, full=(), **settings):
        self.world = guest_world.World(**settings)
        self.world.hosts, self.world.full = hosts, set(full)
        self.keeper = self.world.keeper()
        self.run_rounds(rounds)

    def hosts(self):
        """Return the hosts of the waiting guests."""
        waiting = self.world.guests(GuestState.BOOTING, GuestState.READY)
        return sorted(one.host or '' for one in waiting)

    def stop_host(self, host):
        """Delete the servers of a host, which works no more."""
        self.world.hosts = tuple(one for one in self.world.hosts if one != host)
        for server_id, facts in list(self.world.servers.items()):
            if facts.host == host:
                del self.world.servers[server_id]

    def configure(self, **settings):
        """Restart the taskmanager with other settings."""
        self.world.settings = dataclasses.replace(self.world.settings, **settings)
        self.keeper = self.world.keeper()
        self.run_rounds(3)


class SpreadTest(SpreadCase):
    def test_fills_an_empty_pool_on_two_hosts(self):
        self.make(hosts=('a', 'b', 'c'), least=4)
        self.assertEqual(2, len(set(self.hosts())))
        # Nova places all guests but one.
        self.assertEqual(3, self.hosts().count('a'))
        self.assertEqual(4, len(self.world.requests))

    def test_no_guest_waits_on_a_disabled_host(self):
        self.make(least=3)
        kept = {one.guest_id for one in self.world.guests(GuestState.READY) if one.host == 'b'}
        self.assertEqual(1, len(kept))
        # Nova leaves it out, too.
        self.world.hosts, self.world.disabled_hosts = ('b',), {'a'}
        self.run_rounds(6)
        self.assertEqual(['b'] * 3, self.hosts())
        self.assertLessEqual(kept, {one.guest_id for one in self.world.guests()})

    def test_waits_for_the_place_of_the_first_guest(self):
        self.make(rounds=1, least=3)
        self.assertEqual(1, len(self.world.servers))
        self.run_rounds()
        self.assertEqual(3, len(self.world.servers))

    def test_does_not_wait_long_for_a_place(self):
        self.make(rounds=0, least=2)
        self.world.is_place_shown = False
        self.run_rounds(2)
        self.assertEqual(1, len(self.world.servers))
        self.run_rounds(7)
        self.assertEqual(['ready'] * 2, self.world.states())

    def test_one_guest_is_where_nova_places_it(self):
        self.make(least=1)
        self.assertEqual(['a'], self.hosts())
        self.claim()
        self.run_rounds(3)
        self.assertEqual(['a'], self.hosts())

    def test_refills_a_pool_on_another_host(self):
        self.make(least=2)
        self.claim()
        before = self.hosts()
        self.run_rounds(3)
        self.assertEqual(['a', 'b'], self.hosts())
        self.assertEqual(1, len(before))

    def test_a_guest_that_boots_on_another_host_is_enough(self):
        """Nova chooses for the second of two that boot at once."""
        self.make(hosts=('a', 'b', 'c'), least=1)
        self.configure(least=3)
        self.assertEqual((3, 2), (len(self.hosts()), self.hosts().count('a')))

    def test_guests_that_are_about_to_go_do_not_count(self):
        self.make(least=2, most=3, max_age=datetime.timedelta(days=1))
        self.run_rounds(1, 2 * 24 * 60 * MINUTE)
        self.run_rounds(12)
        self.assertEqual(['a', 'b'], self.hosts())

    def test_one_host(self):
        self.make(hosts=('a',), rounds=1, least=3)
        self.assertEqual(3, len(self.world.servers))
        self.run_rounds(2)
        self.assertEqual(['a'] * 3, self.hosts())
        self.assertNotIn('WARNING', self.log.output)

    def test_host_that_fails(self):
        self.make(least=2)
        self.stop_host('b')
        self.run_rounds(5)
        self.assertEqual(['a', 'a'], self.hosts())

    def test_nova_chooses_when_no_other_host_has_room(self):
        self.make(full=('b',), least=2)
        self.assertEqual(['a'], self.hosts())
        self.run_rounds(6)
        self.assertEqual(['a', 'a'], self.hosts())
        self.assertEqual(3, len(self.world.requests))
        # Not each guest fails at first.
        self.claim()
        self.run_rounds(3)
        self.assertEqual(['a', 'a'], self.hosts())
        self.assertEqual(4, len(self.world.requests))

    def test_requests_other_hosts_again_after_a_while(self):
        self.make(full=('b',), least=2, rounds=10)
        self.world.full.clear()
        self.run_rounds(1, 31 * MINUTE)
        self.claim()
        self.run_rounds(4)
        self.assertEqual(['a', 'b'], self.hosts())

    def test_nova_that_refuses_to_boot_on_a_given_host(self):
        self.make(rounds=0, least=2)
        self.world.request_error = 'requested_destination is forbidden'
        self.run_rounds(10)
        self.assertEqual(['a', 'a'], self.hosts())
        self.assertEqual(1, self.count_in_log('is forbidden'))

    def test_nova_that_does_not_list_its_hosts(self):
        self.make(rounds=0, least=2)
        self.world.hosts_error = 'services:list is forbidden'
        self.run_rounds(3)
        self.assertEqual(['a', 'a'], self.hosts())
        self.assertEqual(1, self.count_in_log('services:list is forbidden'))

    def test_smaller_pool_stays_on_two_hosts(self):
        self.make(least=4)
        guests = self.world.guests()
        self.assertEqual(['a', 'a', 'a', 'b'], self.hosts())
        self.configure(least=2)
        self.assertEqual(['a', 'b'], self.hosts())
        newest = [one for one in guests if one.host == 'a'][-1]
        self.assertIn(newest.guest_id, {one.guest_id for one in self.world.guests()})


class HotTest(SpreadCase):
    """A failover takes no hot guest, so that the warm ones are to be on two hosts."""

    def make(self, **settings):
        super().make(rounds=8, hot=1, hot_volume=hot_spec.HotVolume('nvme', 10), **settings)
        (self.hot,) = self.world.guests(GuestState.HOT)

    def test_hot_guests_do_not_count(self):
        self.make(least=2)
        self.assertEqual(('a', ['b']), (self.hot.host, self.hosts()))
        self.world.hosts = ('b', 'a')
        self.configure(least=3)
        self.assertEqual(['a', 'b'], self.hosts())

    def test_guest_of_the_fullest_host_becomes_hot(self):
        self.make(least=3)
        self.assertEqual(('a', ['a', 'b']), (self.hot.host, self.hosts()))

    def test_smaller_pool_keeps_warm_guests_on_two_hosts(self):
        self.make(least=4)
        self.assertEqual(('a', ['a', 'a', 'b']), (self.hot.host, self.hosts()))
        self.configure(least=3)
        self.assertEqual(['a', 'b'], self.hosts())
