# SPDX-License-Identifier: Apache-2.0
"""A world for the keeper of pools: Nova, Neutron, agents and instances in memory; our tables."""

import copy
import dataclasses
import datetime
import uuid

from trove_ceph import exceptions
from trove_ceph.db import claims, guests, heartbeat, transactions
from trove_ceph.db.guest_record import GuestState, PoolKey
from trove_ceph.guestagent.waiting_messages import LoadState
from trove_ceph.strategies.guests import dependencies, keeper, pool_memory, pool_round, pool_spec
from trove_ceph.strategies.guests.dependencies import PingAnswer, PoolSettings, ServerFacts
from trove_ceph.tests.unit.db import database
from trove_ceph.tests.unit.strategies.world import Strike

POOL = 'mysql/8.4:small'
FRESH_SEC = 90


_DATABASE = database.Shared()


def volume_of(guest_id):
    """Return the id of the volume that a guest gets."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, guest_id))


class Thread:
    """Runs at once what a thread would run."""

    def start(self, function):
        function()
        return True


class World:
    """What outlives a taskmanager.

    :ivar servers: the servers in Nova by id
    :ivar ports: the names of the ports in Neutron by id
    :ivar replaced: ids of instances whose server is being replaced
    :ivar silent: ids of guests whose agents do not answer
    :ivar refusals: what agents say that cannot be bound, by guest
    :ivar hosts: the compute hosts that work; Nova places a server on the first one that has room
    :ivar full: those of them that have no room
    """

    def __init__(self, pools=(POOL,), **settings):
        self.now = datetime.datetime(2026, 1, 1)
        self._began = self.now
        database_access = transactions.Transactions(_DATABASE.emptied(), lambda: self.now)
        self.store = guests.GuestStore(database_access, FRESH_SEC)
        self.specs = pool_spec.parse(pools)
        self.settings = PoolSettings(**settings)
        self.servers, self.ports, self.instances = {}, {}, {}
        # Guests whose queues on the message bus were deleted.
        self.forgotten = []
        self.silent, self.refusals, self.replaced = set(), {}, set()
        self.image, self.digest = 'image', 'digest'
        # Whether the configuration of Trove refuses guests to all instances.
        self.refuses_guests = False
        # The error of all requests to boot a server, or to all of Nova.
        self.boot_error = self.nova_error = self.agents_error = None
        # Servers are ACTIVE at once, or fail.
        self.boot_status = 'ACTIVE'
        self.hosts, self.full, self.disabled_hosts = ('host',), set(), set()
        # The error of a request to list the hosts, or to boot on a given one.
        self.hosts_error = self.request_error = None
        # Nova shows late on which host a server is; by the ids of servers.
        self._places, self.is_place_shown = {}, True
        # Nova deletes a server some time after the request.
        self.deletes_late = self.is_host_unknown = False
        self.pings, self.requests, self.instance_lists = [], [], []
        # The rendered configuration of MySQL, and the golden volume; None: none is ready.
        self.settings_fail = False
        self.contents, self.golden = '[mysqld]\nserver_id = 1\n', object()
        # Volumes by id: the name of their guest or instance, and the server that has them.
        self.volumes, self.attached = {}, {}
        self.volume_error = None
        # Cinder cannot delete volumes now; the taskmanagers do later.
        self.is_volume_stuck = False
        # What runs on the guests, by their ids; a load ends with this state.
        self.loads, self.load_ends = {}, LoadState.SERVING
        self._next_id = self._next_worker = 0

    def saved(self):
        """Return a function that restores this world as it is now, which is faster than making it.

        :returns: a function that returns this world
        """
        rows = _DATABASE.rows()
        # The store is the same in every state, and has this world's clock. A heartbeat ends.
        store, ends = self.store, ('store', 'heartbeat')
        state = copy.deepcopy({k: v for k, v in vars(self).items() if k not in ends})

        def restore():
            vars(self).clear()
            vars(self).update(copy.deepcopy(state), store=store)
            _DATABASE.refill(rows)
            return self

        return restore

    def new_id(self, kind):
        number, self._next_id = self._next_id, self._next_id + 1
        return f'{kind}-{number}'

    def pass_time(self, seconds):
        self.now += datetime.timedelta(seconds=seconds)

    def clock(self):
        return (self.now - self._began).total_seconds()

    def deps(self, strike=None, pools=None):
        """Return the dependencies of a new taskmanager, which knows that the others are dead."""
        strike = strike or Strike(None)
        name = f'host/boot/1/{self._next_worker}/0'
        self._next_worker += 1
        worker = claims.Claimant(name, is_dead=lambda other: other != name)
        store = Struck(self.store, strike)
        self.heartbeat = heartbeat.Heartbeat(self.store.claims, 5, 45, self.clock)
        return dependencies.KeeperDependencies(
            store=store,
            servers=Struck(Servers(self), strike),
            agents=Struck(Agents(self), strike),
            trove=Struck(Instances(self), strike),
            hot=Volumes(self, strike),
            forget_agent=self.forgotten.append,
            is_replacing=self.replaced.__contains__,
            worker=worker,
            heartbeat=self.heartbeat,
            pools=self.specs if pools is None else pools,
            settings=self.settings,
            clock=self.clock,
        )

    def keeper(self, strike=None, pools=None, make_thread=Thread):
        """Return the keeper of a new taskmanager."""
        return keeper.Keeper(self.deps(strike, pools), make_thread)

    def round(self, strike=None):
        """Return a round of the first pool by a new taskmanager."""
        memory = pool_memory.PoolMemory(f'Pool {POOL}')
        return pool_round.PoolRound(self.deps(strike), POOL, self.specs[0], memory)

    def run(self, one, rounds=1, seconds=10):
        """Run rounds of a keeper, some seconds apart, with heartbeats and deletions."""
        for _ in range(rounds):
            self.pass_time(seconds)
            self.heartbeat.beat()
            one.keep()
            self.finish_placements()
            self.finish_deletions()
            self.finish_loads()

    def place(self, server_id, name, host):
        """Boot a server on a host, or fail; None: on the first one that has room."""
        fit = [one for one in self.hosts if one not in self.full and host in (None, one)]
        status, fault = self.boot_status, ''
        if not fit or status == 'ERROR':
            status, fault = 'ERROR', 'No valid host was found.'
        self.servers[server_id] = ServerFacts(server_id, name, status, None, fault)
        self._places[server_id] = fit[0] if fit else None

    def finish_placements(self):
        for server_id, facts in self.servers.items():
            if self.is_place_shown and facts.host is None:
                host = self._places.get(server_id)
                self.servers[server_id] = dataclasses.replace(facts, host=host)

    def finish_loads(self):
        for guest_id, state in self.loads.items():
            if state is LoadState.STARTING:
                self.loads[guest_id] = self.load_ends

    def finish_deletions(self):
        for server_id in [one for one, facts in self.servers.items() if facts.status == 'GONE']:
            del self.servers[server_id]

    # For assertions.

    def guests(self, *states):
        return list(self.store.list(states=states or None))

    def states(self):
        return sorted(str(one.state) for one in self.guests())

    def names(self):
        """Return the names of all servers and of all ports."""
        servers = sorted(one.name for one in self.servers.values())
        return servers, sorted(self.ports.values())


class Struck:
    """A client whose requests a strike may interrupt."""

    def __init__(self, client, strike):
        self._client, self._strike = client, strike

    def __getattr__(self, name):
        found = getattr(self._client, name)
        if not callable(found):
            return found
        lost = exceptions.ServiceUnavailableError('the answer was lost')
        return lambda *arguments, **named: self._strike.around(
            lambda: found(*arguments, **named), lost
        )


class Servers:
    """Nova and Neutron."""

    def __init__(self, world):
        self._world = world

    def pool_key(self, spec):
        self._check()
        world = self._world
        if world.refuses_guests:
            raise exceptions.GuestsNotAllowedError('[network] network_isolation: is on')
        return PoolKey('flavor', world.image, world.digest, spec.zone, spec.name)

    def start_settings(self, _spec):
        self._check()
        if self._world.settings_fail:
            raise exceptions.ServiceUnavailableError('Nova does not show the flavor')
        return dependencies.StartSettings('9.7.4', self._world.contents)

    def make_keys(self):
        return 'encrypted'

    def list_servers(self):
        self._check()
        found = {}
        for one in self._world.servers.values():
            if one.name.startswith('trove-guest-'):
                found.setdefault(one.name, []).append(one)
        return found

    def find_server(self, server_id):
        self._check()
        return self._world.servers.get(server_id)

    def find_other_hosts(self, _guest, host):
        self._check()
        if self._world.hosts_error:
            raise exceptions.ServiceUnavailableError(self._world.hosts_error)
        return [one for one in self._world.hosts if one != host]

    def list_disabled_hosts(self):
        self._check()
        return self._world.disabled_hosts

    def create_server(self, _spec, guest, host):
        self._check()
        world = self._world
        if world.boot_error:
            raise exceptions.ServiceUnavailableError(world.boot_error)
        if host is not None and world.request_error:
            raise exceptions.ServiceUnavailableError(world.request_error)
        assert guest.port_id in world.ports
        server_id = world.new_id('server')
        name = dependencies.guest_name(guest.guest_id)
        world.place(server_id, name, host)
        world.requests.append(('boot', name))
        return server_id

    def delete_server(self, server_id):
        self._check()
        servers = self._world.servers
        if server_id not in servers:
            return
        if self._world.is_host_unknown:
            raise exceptions.InProgressError('its host last reported to Nova 30 s ago')
        if self._world.deletes_late:
            facts = servers[server_id]
            servers[server_id] = ServerFacts(server_id, facts.name, 'GONE')
        else:
            del servers[server_id]

    def list_ports(self, guest_id):
        name = dependencies.guest_name(guest_id)
        return sorted(one for one, found in self._world.ports.items() if found == name)

    def create_port(self, guest_id):
        port_id = self._world.new_id('port')
        self._world.ports[port_id] = dependencies.guest_name(guest_id)
        return port_id

    def delete_ports(self, port_ids):
        for port_id in port_ids:
            used = [one for one in self._world.servers.values() if one.name == port_id]
            assert not used
            self._world.ports.pop(port_id, None)

    def _check(self):
        if self._world.nova_error:
            raise exceptions.ServiceUnavailableError(self._world.nova_error)


class Agents:
    """The agents of waiting guests."""

    def __init__(self, world):
        self._world = world

    def ping(self, guest):
        world = self._world
        world.pings.append(guest.guest_id)
        server = world.servers.get(guest.server_id)
        if server is None or server.status != 'ACTIVE' or guest.guest_id in world.silent:
            raise exceptions.GuestUnavailableError('it did not answer')
        if world.agents_error:
            raise exceptions.GuestUnavailableError(world.agents_error)
        load = world.loads.get(guest.guest_id, LoadState.NONE)
        if guest.guest_id in world.refusals:
            return PingAnswer(False, world.refusals[guest.guest_id], load=load)
        if load in (LoadState.STARTING, LoadState.FAILED):
            return PingAnswer(False, f'its MySQL is {load}', load=load)
        return PingAnswer(True, version='1.0', load=load)

    def load(self, guest, load):
        world = self._world
        assert world.volumes[load.volume_id] == dependencies.guest_name(guest.guest_id)
        assert world.attached[load.volume_id] == guest.server_id
        world.requests.append(('load', (guest.guest_id, load)))
        world.loads.setdefault(guest.guest_id, LoadState.STARTING)


class Volumes:
    """The volumes of hot guests."""

    def __init__(self, world, strike):
        self._world, self._strike = world, strike

    def guarded(self, _heartbeat, _claim):
        return Struck(self, self._strike)

    def find_source(self, _spec):
        return self._world.golden

    def create(self, guest, _spec, source):
        assert source is self._world.golden
        if self._world.volume_error:
            raise exceptions.QuotaExceededError(self._world.volume_error)
        volume_id = volume_of(guest.guest_id)
        self._world.volumes[volume_id] = dependencies.guest_name(guest.guest_id)
        return volume_id

    def ensure_attached(self, server_id, volume_id):
        assert self._world.store.list(states=[GuestState.LOADING])
        assert volume_id in self._world.volumes
        self._world.attached[volume_id] = server_id

    def remove(self, guest):
        volume_id = volume_of(guest.guest_id)
        assert self._world.attached.get(volume_id) not in self._world.servers
        if self._world.is_volume_stuck:
            return False
        if self._world.volumes.get(volume_id) == dependencies.guest_name(guest.guest_id):
            del self._world.volumes[volume_id]
        return True


class Instances:
    """Trove's table."""

    def __init__(self, world):
        self._world = world

    def find_instance(self, instance_id):
        return self._world.instances.get(instance_id)

    def list_servers(self, instance_ids):
        self._world.instance_lists.append(set(instance_ids))
        return {
            one: None if found.is_building else found.server_id
            for one, found in self._world.instances.items()
            if one in instance_ids and not found.is_deleted
        }
