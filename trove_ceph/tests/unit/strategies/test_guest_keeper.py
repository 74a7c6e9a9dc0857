# SPDX-License-Identifier: Apache-2.0
"""The keeper of the pools of warm guests, round by round."""

import datetime

import fixtures

from trove_ceph import exceptions
from trove_ceph.db import claims
from trove_ceph.db.guest_record import GuestState
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.guests import dependencies, keeper
from trove_ceph.strategies.guests.dependencies import ServerFacts
from trove_ceph.tests.unit.strategies import guest_world, keeper_case
from trove_ceph.tests.unit.strategies.guest_world import POOL
from trove_ceph.tests.unit.strategies.keeper_case import KEY

MINUTE = 60
DAY = datetime.timedelta(days=1)


class PoolTest(keeper_case.KeeperTestCase):
    def test_fills_a_pool(self):
        self.make(rounds=1, least=2)
        booting = self.world.guests()
        self.assertEqual(['booting'] * 2, self.world.states())
        names = sorted(dependencies.guest_name(one.guest_id) for one in booting)
        self.assertEqual((names, names), self.world.names())
        self.run_rounds()
        for one in self.world.guests():
            self.assertEqual(
                (GuestState.READY, 'flavor', 'image'), (one.state, one.flavor_id, one.image_id)
            )
            self.assertIn(one.server_id, self.world.servers)
            self.assertIn(one.port_id, self.world.ports)
        self.run_rounds(50)
        self.assertEqual(['ready'] * 2, self.world.states())
        self.assertEqual(2, len(self.world.requests))
        self.assertEqual({'host'}, {one.host for one in self.world.guests()})

    def test_replaces_a_claimed_guest(self):
        self.make()
        self.claim()
        self.run_rounds(2)
        self.assertEqual(['claimed', 'ready'], self.world.states())

    def test_waits_before_it_replaces_a_claimed_guest(self):
        self.make(refill_delay=datetime.timedelta(seconds=100))
        self.claim()
        self.run_rounds(5, seconds=15)
        self.assertEqual(['claimed'], self.world.states())
        self.run_rounds(4, seconds=15)
        self.assertEqual(['claimed', 'ready'], self.world.states())

    def test_follows_the_demand(self):
        self.make(most=3)
        for number in range(4):
            self.world.store.claim(KEY, f'i{number}')
        self.run_rounds(2)
        self.assertEqual(3, len(self.world.guests(GuestState.READY)))
        # The requests are forgotten; the oldest guests go.
        kept = self.world.guests(GuestState.READY)[-1]
        self.run_rounds(2, 400)
        self.run_rounds(2)
        self.assertEqual(kept.guest_id, self.one(GuestState.READY).guest_id)
        self.run_rounds(2, 1000)
        self.assertEqual(0, self.world.store.requests_since(POOL, datetime.datetime.min))

    def test_never_more_than_most(self):
        self.make(rounds=1, least=5, most=3)
        self.world.deletes_late = True
        for _ in range(40):
            self.world.image = f'image {self.world.now}'
            self.run_rounds(1, 25)
            self.assertLessEqual(len(self.world.servers), 3)
            self.assertLessEqual(len(self.world.ports), 3)

    def test_keeps_a_retired_guest_until_nova_knows_whether_its_host_works(self):
        self.make(least=1, most=2)
        retired = self.one(GuestState.READY)
        self.world.store.retire(retired.guest_id, 'its binding failed')
        self.world.is_host_unknown = True
        self.run_rounds(3)
        self.assertIn(retired.server_id, self.world.servers)
        self.assertNotEqual(retired.guest_id, self.one(GuestState.READY).guest_id)
        self.world.is_host_unknown = False
        self.run_rounds(2)
        self.assertNotIn(retired.server_id, self.world.servers)
        self.assertIsNone(self.world.store.find(retired.guest_id))

    def test_disabled(self):
        self.make(pools=(), rounds=3)
        self.assertEqual([], self.world.guests())
        self.assertEqual('', self.log.output)

    def test_pool_that_is_no_longer_configured(self):
        self.make(least=2)
        bound = self.claim(is_building=False)
        self.world.store.mark_bound(bound.guest_id, 'instance')
        self.run_rounds(2)
        self.keeper = self.world.keeper(pools=())
        self.run_rounds(3, keeper.FORGET_AFTER.total_seconds())
        # An instance keeps its server.
        self.assertEqual(['bound'], self.world.states())
        self.assertEqual([bound.server_id], list(self.world.servers))
        self.assertEqual([bound.port_id], list(self.world.ports))
        del self.world.instances['instance'], self.world.servers[bound.server_id]
        self.run_rounds(2)
        self.assertEqual([], self.world.guests())
        # Its claim is released.
        self.assertIsNotNone(self.world.store.begin_keeping(POOL, claims.Claimant('another')))

    def test_configuration_that_refuses_guests_to_all_instances(self):
        self.make(least=2)
        self.run_rounds(2)
        self.world.refuses_guests = True
        self.run_rounds(8, 60)
        self.assertEqual([], self.world.guests())
        self.assertEqual([], list(self.world.servers))
        self.world.refuses_guests = False
        self.run_rounds(8, 60)
        self.assertEqual(['ready', 'ready'], self.world.states())

    def test_pings(self):
        self.make()
        self.world.pings.clear()
        self.run_rounds(6)
        # Every 30 s; the rounds are 10 s apart.
        self.assertEqual(2, len(self.world.pings))


class UnfitTest(keeper_case.KeeperTestCase):
    def assert_replaced(self, before, reason, rounds=3):
        self.run_rounds(rounds)
        after = self.one()
        self.assertNotEqual(before.guest_id, after.guest_id)
        self.assertEqual(GuestState.READY, after.state)
        name = dependencies.guest_name(after.guest_id)
        self.assertEqual(([name], [name]), self.world.names())
        self.assertIn(reason, self.log.output)

    def test_other_image_or_configuration(self):
        for name in ('image', 'digest'):
            self.make()
            before = self.one()
            setattr(self.world, name, 'another')
            self.run_rounds(6)
            self.assert_replaced(before, f'is {name}, and that of new instances is another')

    def test_server_that_is_gone(self):
        self.make()
        before = self.one()
        del self.world.servers[before.server_id]
        self.assert_replaced(before, f'its server {before.server_id} is gone')

    def test_server_that_nova_keeps_for_a_while_before_it_deletes_it(self):
        self.make()
        before = self.one()
        facts = self.world.servers[before.server_id]
        kept = ServerFacts(facts.server_id, facts.name, 'SOFT_DELETED')
        self.world.servers[before.server_id] = kept
        self.assert_replaced(before, f'its server {before.server_id} was deleted in Nova')

    def test_server_that_the_list_lacks(self):
        """A cell of Nova that does not answer."""
        self.make()
        before = self.one()
        self.patch_list({})
        self.run_rounds(3)
        self.assertEqual(before.guest_id, self.one().guest_id)

    def patch_list(self, found):
        target = 'trove_ceph.tests.unit.strategies.guest_world.Servers.list_servers'
        self.useFixture(fixtures.MonkeyPatch(target, lambda _servers: found))

    def test_silent_agent(self):
        self.make()
        before = self.one()
        self.world.silent.add(before.guest_id)
        self.run_rounds(9, 20)
        self.assertEqual(before.guest_id, self.one().guest_id)
        self.assert_replaced(before, 'its agent does not answer')

    def test_guest_that_cannot_be_bound_any_more(self):
        self.make()
        before = self.one()
        self.world.refusals[before.guest_id] = 'docker\nstopped'
        self.run_rounds(9, 20)
        self.assert_replaced(before, 'its agent says: docker stopped')

    def test_all_agents_are_silent(self):
        """Perhaps the message bus is down: do not replace all guests at once."""
        self.make(least=3)
        before = {one.guest_id for one in self.world.guests()}
        self.world.agents_error = 'the bus is down'
        self.run_rounds(40)
        left = {one.guest_id for one in self.world.guests(GuestState.READY)}
        self.assertEqual(2, len(left & before))
        self.world.agents_error = None
        self.run_rounds(10)
        self.assertEqual(3, len(self.world.guests(GuestState.READY)))
        self.assertEqual(left, left & {one.guest_id for one in self.world.guests()})

    def test_one_host_is_down(self):
        """All its guests are replaced at once."""
        self.make(least=3, most=6)
        first, *others = [one.guest_id for one in self.world.guests()]
        self.world.silent.update(others)
        self.run_rounds(25)
        self.assertIn(first, [one.guest_id for one in self.world.guests(GuestState.READY)])
        self.assertEqual(3, len(self.world.guests()))
        self.assertEqual(set(), {one.guest_id for one in self.world.guests()} & set(others))

    def test_agents_are_asked_before_they_are_judged(self):
        """All taskmanagers were down for an hour."""
        self.make(least=2)
        before = self.world.guests()
        self.world.pass_time(60 * MINUTE)
        self.keeper = self.world.keeper()
        self.run_rounds()
        self.assertEqual(
            [one.guest_id for one in before], [one.guest_id for one in self.world.guests()]
        )

    def test_boot_that_takes_too_long(self):
        self.world = guest_world.World()
        self.keeper = self.world.keeper()
        self.run_rounds()
        before = self.one()
        self.world.refusals[before.guest_id] = 'docker starts'
        self.run_rounds(16, MINUTE)
        self.assert_replaced(before, 'its agent says: docker starts', rounds=8)

    def test_old_guest_is_replaced_before_it_goes(self):
        self.make()
        before = self.one()
        self.run_rounds(1, 7 * DAY.total_seconds())
        self.assertEqual(['booting', 'ready'], self.world.states())
        self.run_rounds(2)
        self.assertNotIn(before.guest_id, [one.guest_id for one in self.world.guests()])
        self.assertIn('it is too old', self.log.output)


class FollowTest(keeper_case.KeeperTestCase):
    def test_bound_guest_goes_with_its_instance(self):
        guest = self.bound()
        self.run_rounds(3)
        self.assertEqual(GuestState.BOUND, self.one().state)
        del self.world.servers[guest.server_id], self.world.instances['instance']
        self.run_rounds()
        self.assertEqual([], self.world.guests())

    def bound(self):
        self.make()
        self.world.settings = dependencies.PoolSettings(least=0, demand_share=0)
        self.keeper = self.world.keeper()
        guest = self.claim(is_building=False)
        self.world.store.mark_bound(guest.guest_id, 'instance')
        return guest

    def test_bound_guest_goes_when_its_instance_has_another_server(self):
        guest = self.bound()
        # The other server is not shown before the operation ends.
        for facts in ({'is_building': True, 'server_id': 'other'}, {'server_id': guest.server_id}):
            self.world.instances['instance'] = backup_types.Instance('i', 'p', None, **facts)
            self.run_rounds()
            self.assertEqual(['bound'], self.world.states())
        self.world.instances['instance'] = backup_types.Instance('i', 'p', None, server_id='other')
        # An operator may reset the task of an instance while the guest is about to be shown.
        self.world.replaced.add('instance')
        self.run_rounds(2)
        self.assertEqual(['bound'], self.world.states())
        self.world.replaced.clear()
        self.run_rounds(2)
        self.assertEqual([], self.world.guests())
        self.assertIn('has server other', self.log.output)

    def test_instances_of_all_bound_guests_are_read_at_once(self):
        self.make(least=3)
        for name in 'abc':
            guest = self.claim(name, is_building=False)
            self.world.store.mark_bound(guest.guest_id, name)
        self.run_rounds()
        self.assertEqual([{'a', 'b', 'c'}], self.world.instance_lists)

    def test_claimed_guest_of_a_replacement(self):
        """It is claimed long before it is bound; until then the instance has its old server."""
        self.make()
        self.claim(is_building=False, server_id='old')
        self.world.replaced.add('instance')
        self.run_rounds(40)
        self.assertEqual(['claimed', 'ready'], self.world.states())
        self.world.replaced.clear()
        self.run_rounds(2)
        self.assertEqual(['ready'], self.world.states())

    def test_server_that_outlives_its_instance(self):
        guest = self.bound()
        self.world.instances.clear()
        # It has the name of the instance, and so has its port.
        self.world.servers[guest.server_id] = ServerFacts(guest.server_id, 'db1', 'ACTIVE')
        self.world.ports[guest.port_id] = 'trove-instance'
        self.run_rounds(3)
        self.assertEqual(([], [], []), (self.world.guests(), *self.world.names()))

    def test_binding_whose_taskmanager_died(self):
        for facts, expected in (
            ({'is_building': True}, ['claimed']),
            ({'is_building': True, 'server_id': 'other'}, []),
            ({'is_building': False}, []),
            ({'is_building': False, 'is_deleted': True}, []),
            ({'is_building': False, 'server_id': 'own'}, ['bound']),
        ):
            self.make()
            self.world.settings = dependencies.PoolSettings(least=0, demand_share=0)
            self.keeper = self.world.keeper()
            guest = self.claim()
            if facts.get('server_id') == 'own':
                facts['server_id'] = guest.server_id
            self.world.instances['instance'] = backup_types.Instance('i', 'p', None, **facts)
            self.run_rounds(17)
            # It may still be bound.
            self.assertEqual(['claimed'], self.world.states())
            self.run_rounds(4)
            self.assertEqual(expected, self.world.states(), facts)
            self.assertEqual(len(expected), len(self.world.servers))


class FailureTest(keeper_case.KeeperTestCase):
    def test_quota(self):
        self.world = guest_world.World(least=3)
        self.keeper = self.world.keeper()
        self.world.boot_error = 'Quota exceeded (Request-ID: req-%s)'
        attempts = []
        for _ in range(60):
            before = self.world.new_id('x')
            self.world.boot_error = (
                f'Quota exceeded (req-0123abcd-0000-0000-0000-{len(attempts):012})'
            )
            attempts.append(before)
            self.run_rounds()
        self.assertEqual(1, self.count_in_log('booting a guest failed'))
        self.assertIn('Quota exceeded', self.log.output)
        self.assertEqual({}, self.world.servers)
        self.world.boot_error = None
        self.run_rounds(3, 15 * MINUTE)
        self.run_rounds(3)
        self.assertEqual(['ready'] * 3, self.world.states())
        self.assertEqual(1, self.count_in_log('booting a guest works again'))
        self.assertEqual(3, len(self.world.ports))

    def test_no_valid_host(self):
        self.world = guest_world.World()
        self.keeper = self.world.keeper()
        self.world.boot_status = 'ERROR'
        self.run_rounds(60)
        # After 10 s, 30 s, 1 min, 2 min, 4 min.
        self.assertLess(len(self.world.requests), 8)
        self.assertEqual(1, self.count_in_log('booting a guest failed'))
        self.assertIn('No valid host was found', self.log.output)

    def test_nova_does_not_answer(self):
        self.make()
        before = self.one()
        self.world.nova_error = 'Nova is down'
        self.run_rounds(60)
        self.assertEqual(GuestState.READY, self.one().state)
        self.assertEqual(before.guest_id, self.one().guest_id)
        # The two steps that need it.
        self.assertEqual(2, self.count_in_log('Nova is down'))
        self.assertIsNotNone(self.claim())
        self.world.nova_error = None
        self.run_rounds(3)
        self.assertIn('works again', self.log.output)

    def test_unexpected_error(self):
        self.make()

        def fail(*_arguments):
            raise RuntimeError('a defect')

        target = 'trove_ceph.strategies.guests.pool_round.PoolRound._follow_claimed'
        self.useFixture(fixtures.MonkeyPatch(target, fail))
        self.claim()
        self.keeper = self.world.keeper()
        self.run_rounds(3)
        # The other steps run.
        self.assertEqual(1, self.count_in_log('a defect'))
        self.assertEqual(1, len(self.world.guests(GuestState.READY)))

    def test_database_does_not_answer(self):
        self.make()

        def fail(*_arguments):
            raise exceptions.ServiceUnavailableError('the database failed')

        store = 'trove_ceph.db.guests.GuestStore'
        with (
            fixtures.MonkeyPatch(f'{store}.list', fail),
            fixtures.MonkeyPatch(f'{store}.pools', fail),
        ):
            self.run_rounds(5)
        self.assertEqual(1, self.count_in_log('the database failed'))
        self.run_rounds()
        self.assertIn('reading the records of guests works again', self.log.output)


class DrainTest(keeper_case.KeeperTestCase):
    def test_operator_drains_a_pool(self):
        self.make(least=2)
        before = {one.guest_id for one in self.world.guests()}
        for guest_id in before:
            self.world.store.retire(guest_id, 'drained')
        self.run_rounds(4)
        self.assertEqual(['ready'] * 2, self.world.states())
        self.assertEqual(before, set(self.world.forgotten))
        self.assertEqual(set(), before & {one.guest_id for one in self.world.guests()})
        self.assertEqual((2, 2), tuple(map(len, self.world.names())))
