# SPDX-License-Identifier: Apache-2.0
"""Interrupt a round of a pool at each step and each request; nothing may be left behind."""

import functools
import itertools

from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db.guest_record import GuestState, PoolKey
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.guests import dependencies, hot_spec
from trove_ceph.strategies.guests.dependencies import ServerFacts, guest_name
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.strategies import guest_world
from trove_ceph.tests.unit.strategies.world import Strike

#: Guests of the pool after the round, of more before it.
LEAST = 4
HOT = {'hot': 1, 'hot_volume': hot_spec.HotVolume('nvme', 10)}


def make_world():
    """Return a pool in which each step of a round has something to do; it ends earlier ones."""
    return _saved_world()()


@functools.cache
def _saved_world():
    world = guest_world.World(least=9, most=9, **HOT)
    world.run(world.keeper(), 5)
    world.settings = dependencies.PoolSettings(least=LEAST, most=11, **HOT)
    # The hot guest does not fit new instances any more.
    world.contents = '[mysqld]\nmax_connections = 7\n'
    key = PoolKey('flavor', 'image', 'digest', None, guest_world.POOL)
    for instance_id in ('bound', 'outlived', 'abandoned'):
        guest = world.store.claim(key, instance_id)
        if instance_id != 'abandoned':
            world.store.mark_bound(guest.guest_id, instance_id)
        # The server has the name of the instance, and so has its port.
        world.servers[guest.server_id] = ServerFacts(guest.server_id, instance_id, 'ACTIVE')
        world.ports[guest.port_id] = f'trove-{instance_id}'
    world.instances['bound'] = backup_types.Instance('bound', 'p', None)
    world.pass_time(600)
    broken, silent, retired, leaving, _healthy = (
        one.guest_id for one in world.guests(GuestState.READY)
    )
    # As the other guests.
    world.store.mark_hot(world.guests(GuestState.HOT)[0].guest_id)
    facts = world.servers[world.store.find(broken).server_id]
    world.servers[facts.server_id] = ServerFacts(facts.server_id, facts.name, 'ERROR')
    world.silent.add(silent)
    world.store.retire(retired, 'drained')
    # Its host is about to be switched off.
    world.disabled_hosts = {'closed'}
    found = world.store.find(leaving)
    facts = world.servers[found.server_id]
    world.servers[facts.server_id] = ServerFacts(facts.server_id, facts.name, 'ACTIVE', 'closed')
    world.store.set_server(leaving, facts.server_id, found.port_id, 'closed')
    # One boots: its taskmanager died after the request for the server.
    guest_id = world.new_id('guest')
    world.store.add(guest_record(world, guest_id))
    world.ports['its-port'] = guest_name(guest_id)
    world.servers['its-server'] = ServerFacts('its-server', guest_name(guest_id), 'ACTIVE')
    return world.saved()


def guest_record(world, guest_id):
    template = world.guests()[0]
    values = {'guest_id': guest_id, 'state': GuestState.BOOTING, 'instance_id': None}
    times = {'created_at': world.now, 'updated_at': world.now, 'seen_at': None}
    return type(template)(
        **vars(template) | values | times | {'server_id': None, 'port_id': None, 'host': None}
    )


class RoundInterruptionTest(interruption.InterruptionTests, base.BaseTestCase):
    def make_world(self):
        return make_world()

    def make_operation(self, world, strike=None):
        return world.round(strike).steps()

    def check_undone(self, world):
        """A round undoes nothing; see ``check_done``."""

    def check_done(self, world):
        """Later rounds fill the pool, and only the server of the instance is left beside it."""
        world.silent &= {one.guest_id for one in world.guests()}
        keeper = world.keeper()
        for _ in range(20):
            world.run(keeper)
            if world.states() == ['bound', 'hot', *['ready'] * (LEAST - 1)]:
                break
        bound = [one for one in world.guests() if one.state is GuestState.BOUND]
        ready = world.guests(GuestState.READY, GuestState.HOT)
        (hot,) = world.guests(GuestState.HOT)
        self.assertEqual((1, LEAST), (len(bound), len(ready)), world.states())
        self.assertEqual(LEAST + 1, len(world.guests()))
        self.assertEqual([hot.volume_id], list(world.volumes))
        self.assertEqual(hot.server_id, world.attached[hot.volume_id])
        names = sorted(guest_name(one.guest_id) for one in ready)
        self.assertEqual((['bound', *names], [*['trove-bound'], *names]), self.names(world))
        self.assertIn('its-server', {one.server_id for one in ready})
        boots = [name for verb, name in world.requests if verb == 'boot']
        self.assertEqual(len(set(boots)), len(boots), 'a guest was booted twice')

    def names(self, world):
        servers, ports = world.names()
        return servers, sorted(ports, key=lambda name: (name != 'trove-bound', name))

    def test_each_step_has_work(self):
        world = make_world()
        for step in world.round().steps():
            before = self.state(world)
            step.do()
            self.assertNotEqual(before, self.state(world), step.name)

    def state(self, world):
        return world.guests(), dict(world.servers), dict(world.ports), dict(world.volumes)

    def test_killed_at_each_request(self):
        self._strike_each(lost=False)

    def test_each_answer_is_lost(self):
        self._strike_each(lost=True)

    def _strike_each(self, lost):
        for number in itertools.count():
            world = make_world()
            strike = Strike(number, after=True, lost=lost)
            keeper = world.keeper(strike)
            with interruption.annotated(f'lost={lost} at request {number}'):
                try:
                    keeper.keep()
                except (interruption.Kill, exceptions.TroveCephError):
                    self.assertTrue(strike.struck)
                if not strike.struck:
                    self.assertGreater(number, 40)
                    return
                # The pause after a boot that failed.
                world.pass_time(40)
                self.check_done(world)
