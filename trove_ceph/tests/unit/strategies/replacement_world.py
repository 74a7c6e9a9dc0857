# SPDX-License-Identifier: Apache-2.0
"""A world for replacements: a cloud in memory, our tables, and taskmanagers that come and go."""

import dataclasses
import datetime
import itertools
import math

from trove_ceph import exceptions
from trove_ceph.db import claims, heartbeat, replacements, transactions
from trove_ceph.db.guest_record import GuestState
from trove_ceph.db.replacement_record import ReplacementKind, ReplacementState
from trove_ceph.strategies.replacement.dependencies import ReplacementDependencies
from trove_ceph.strategies.replacement.replacement import Replacement
from trove_ceph.tests import interruption
from trove_ceph.tests.unit.db import replacement_helpers, replacement_memory
from trove_ceph.tests.unit.strategies import replacement_agents as agents
from trove_ceph.tests.unit.strategies import replacement_cloud as cloud
from trove_ceph.tests.unit.strategies.replacement_cloud import INSTANCE, OLD, VOLUME
from trove_ceph.tests.unit.strategies.world import Strike

_REPLACEMENT = 'replacement'
PROMOTING, UPDATING = 8, 12
_PROMOTION_SEC = 20
_OWN_TASKS = {
    ReplacementKind.FAILOVER: replacement_helpers.MIGRATING,
    ReplacementKind.RESIZE: replacement_helpers.RESIZING,
    ReplacementKind.REBUILD: replacement_helpers.MIGRATING,
}
#: What Trove's API has set with the request.
_REQUESTED_TASKS = {
    ReplacementKind.FAILOVER: replacement_helpers.NONE,
    ReplacementKind.RESIZE: replacement_helpers.RESIZING,
    ReplacementKind.REBUILD: replacement_helpers.BUILDING,
}
_MOST_ATTEMPTS = 100


class World:
    """What outlives a taskmanager.

    :param kind: of the replacement that is requested
    :param guest_hosts: the hosts of the warm guests that are ready
    :param is_host_down: whether the host of the old server is down for Nova, while its process runs
    :param is_running: whether MySQL runs on the old server
    :param cause: of a failover
    :param is_healthy: whether the guest agent reports that MySQL serves
    :param source_id: of the instance that it follows; None: it is no replica
    :param prefers_replica: whether the policy prefers that a replica takes over
    :param has_database: use the real store, not the one in memory
    """

    DELETING = replacement_helpers.DELETING
    TASKS = {
        replacement_helpers.NONE: 'NONE',
        replacement_helpers.MIGRATING: 'MIGRATING',
        replacement_helpers.RESIZING: 'RESIZING',
        replacement_helpers.BUILDING: 'BUILDING',
        DELETING: 'DELETING',
        PROMOTING: 'PROMOTING',
        UPDATING: 'UPDATING',
    }

    def __init__(
        self,
        kind=ReplacementKind.FAILOVER,
        guest_hosts=(),
        is_host_down=False,
        is_running=True,
        has_database=False,
        cause=None,
        is_healthy=False,
        source_id=None,
        prefers_replica=False,
    ):
        self.now = datetime.datetime(2026, 1, 1)
        self._began = self.now
        self.trove, self.store = self._tables(has_database)
        self._ids, self._workers = itertools.count(), itertools.count()
        self.is_host_down = is_host_down
        # The cloud.
        self.ceph = cloud.Ceph()
        self.servers = {OLD: cloud.Server(OLD, 'host-1')}
        self.attached, self.has_volume = {OLD}, True
        self.ports = {
            'port-instance': cloud.Port('instance', OLD),
            'port-management': cloud.Port('management', OLD),
        }
        #: How many ports the quota and the networks have room for.
        self.most_ports = math.inf
        self.guests, self.serving = {}, set()
        #: The guest image; None: it was deleted, and no other one is registered.
        self.image, self.gone_flavors = 'image', set()
        # Servers whose agents hear nothing; whether the queues of the old agent were deleted.
        self.deaf, self.has_forgotten = set(), False
        if is_running:
            self.ceph.open(OLD)
            self.serving.add(OLD)
        for host in guest_hosts:
            self.add_guest(host, 'large' if kind is ReplacementKind.RESIZE else 'small')
        # Trove's table.
        self.shown, self.flavor, self.service_status, self.fault = OLD, 'small', 'SHUTDOWN', None
        self.agent_seen_at, self.is_being_backed_up = None, False
        self.source_id, self.source_serves, self.source_change = source_id, True, None
        self._promotion_ends_at = None
        if is_healthy:
            self.service_status, self.agent_seen_at = 'HEALTHY', self.now
        #: Whether a MySQL that served was cut off from its volume, and must recover.
        self.is_crashed = False
        #: Why the agent cannot stop MySQL.
        self.stop_error = None
        # What goes wrong, and how long things take.
        self.agent_error = exceptions.GuestUnavailableError
        #: The hosts, and the flavors, for which Nova has no room.
        self.full_hosts = set()
        #: The flavors with which MySQL does not start.
        self.unfit_flavors = set()
        #: The hosts that are down for Nova.
        self.down_hosts = set()
        self.other_hosts, self.chosen_host = ['host-3'], 'host-3'
        self.is_in_group = False
        #: On which hosts servers were requested; None: Nova chose.
        self.requested_hosts = []
        self.needs_error, self.is_on_tier, self.restarts_once = None, True, False
        self.boot_refusals = 0
        self.unproved = self.boot_errors = self.bind_errors = self.agent_looks = 0
        self.deletion_looks = self.boot_looks = 0
        #: How often Nova is asked until it knows whether the host of the old server works.
        self.host_looks = 0
        #: Since when the host must have reported, in the last request for a deletion.
        self.reported_since = None
        self.start_answers, self.down, self.broken = [], set(), []
        self.at_bind = self.at = lambda _place: None
        # The replicas of the instance, and what became of an attempt to have one take over.
        self.has_replicas = self.is_replica_fit = self.is_taking_over = True
        self.is_replica_lost = self.is_unfinished = self.is_successor_silent = False
        self.has_taken_over = self.is_given_up = self.has_followed_again = False
        self._request(kind, cause, prefers_replica)

    def _tables(self, has_database):
        if not has_database:
            trove = replacement_memory.MemoryTrove()
            return trove, replacement_memory.MemoryStore(trove, lambda: self.now)
        facade = replacement_helpers.empty_database()
        store = replacements.ReplacementStore(transactions.Transactions(facade, lambda: self.now))
        return replacement_helpers.TroveTable(facade), store

    def _request(self, kind, cause, prefers_replica):
        is_resize = kind is ReplacementKind.RESIZE
        task = _REQUESTED_TASKS[kind]
        self.trove.add(INSTANCE, task)
        record = replacement_helpers.record(
            _REPLACEMENT,
            self.now,
            kind,
            instance_id=INSTANCE,
            volume_id=VOLUME,
            old_server_id=OLD,
            flavor_id='large' if is_resize else 'small',
            former_flavor_id='small' if is_resize else None,
            cause=cause,
            is_forced=cause is not None,
            prefers_replica=prefers_replica,
        )
        self.store.request(record, self.TASKS[task])

    # The cloud.

    def new_id(self, kind):
        return f'{kind}-{next(self._ids)}'

    def add_guest(self, host, flavor='small'):
        guest = cloud.ready_guest(self.new_id('guest'), self.now, host, self.image, flavor)
        self.guests[guest.guest_id] = guest
        self.servers[guest.server_id] = cloud.Server(guest.server_id, host, flavor=flavor)
        self.ports[f'port-{guest.guest_id}'] = cloud.Port('guest', guest.server_id)

    def set_guest(self, guest, **values):
        found = dataclasses.replace(self.guests[guest.guest_id], **values)
        self.guests[guest.guest_id] = found
        return found

    def finish_deletion(self, server):
        """Delete a server as Nova does; its process outlives it if its host is down."""
        server_id = server.server_id
        if self.servers.pop(server_id, None) is None:
            return
        if server_id in self.attached and server.deletes_volume:
            self.has_volume = False
        if not (self.is_host_down and server_id == OLD):
            self.ceph.close(server_id)
        self.serving.discard(server_id)
        for port in self.ports.values():
            if port.device == server_id and not self.is_host_down:
                port.device = None

    def keep_guests(self):
        """Delete retired guests, and what claimed guests have left, as the keeper of pools does."""
        for guest in list(self.guests.values()):
            is_left = guest.state is GuestState.CLAIMED and self.record().ended_at is not None
            if guest.state is GuestState.RETIRED or is_left:
                if guest.server_id in self.servers:
                    self.finish_deletion(self.servers[guest.server_id])
                self.ports.pop(f'port-{guest.guest_id}', None)
                del self.guests[guest.guest_id]

    def delete_instance(self):
        """Delete the instance as Trove does, once its replacement has ended."""
        self.serving.discard(self.shown)
        if self.shown in self.servers:
            server = self.servers[self.shown]
            server.deletes_volume = False
            self.finish_deletion(server)
            self.attached.discard(self.shown)
        for port_id in [
            one for one, port in self.ports.items() if port.kind in ('instance', 'management')
        ]:
            del self.ports[port_id]
        if self.shown and self.shown != OLD:
            # The port of the new server also has the name of the instance.
            self.ports = {one: port for one, port in self.ports.items() if port.kind != 'created'}
        for guest in self.guests.values():
            if guest.state is GuestState.BOUND:
                self.set_guest(guest, state=GuestState.RETIRED)
        self.keep_guests()
        if self.attached:
            raise AssertionError(f'the volume cannot be deleted: attached to {self.attached}')
        self.has_volume = False

    # Taskmanagers.

    def record(self):
        return self.store.find(_REPLACEMENT)

    def pass_time(self, seconds):
        self.now += datetime.timedelta(seconds=seconds)
        if self._promotion_ends_at is not None and self.now >= self._promotion_ends_at:
            self._promotion_ends_at = None
            record = self.record()
            own = _OWN_TASKS[record.kind] if record.state.is_open else replacement_helpers.NONE
            self.trove.set(INSTANCE, task_id=own)

    def request_promotion(self):
        """Set the task as Trove's API does for all replicas of a source.

        Some seconds later the promotion is refused, because of the record of the replacement, and
        ends its task.
        """
        self.trove.set(INSTANCE, task_id=PROMOTING)
        self._promotion_ends_at = self.now + datetime.timedelta(seconds=_PROMOTION_SEC)

    def clock(self):
        return (self.now - self._began).total_seconds()

    def attempt(self, strike=None):
        """Return an attempt of a new taskmanager, which knows that the others are dead."""
        strike = strike or Strike(None)
        name = f'worker-{next(self._workers)}'
        worker = claims.Claimant(name, is_dead=lambda other: other != name)
        beating = heartbeat.Heartbeat(self.store.claims, 5, 45, self.clock)
        claim = beating.acquire(lambda: self.store.claim(_REPLACEMENT, worker))
        deps = ReplacementDependencies(
            store=Client(self, self.store, strike, 'store'),
            heartbeat=beating,
            instances=Client(self, cloud.Instances(self), strike, 'instances'),
            servers=Client(self, cloud.Servers(self), strike, 'servers'),
            network=Client(self, cloud.Network(self), strike, 'network'),
            volumes=Client(self, cloud.Volumes(self), strike, 'volumes'),
            guests=Client(self, cloud.Guests(self), strike, 'guests'),
            agents=Client(self, agents.Agents(self), strike, 'agents'),
            successors=Client(self, agents.Successors(self), strike, 'successors'),
            clock=self.clock,
            sleep=self.pass_time,
        )
        return Replacement(deps, claim, self.record())

    def finish(self, strike=None, most=_MOST_ATTEMPTS):
        """Make attempts until the replacement ends; return its record and the last error."""
        error = None
        for _ in range(most):
            record = self.record()
            if not record.state.is_open:
                return record, error
            try:
                self.attempt(strike).run()
            except interruption.Kill:
                strike = None
            except exceptions.ClaimLostError:
                # The answer to the last write was lost.
                if self.record().state.is_open:
                    raise
            except exceptions.TroveCephError as failure:
                error = failure
            self.pass_time(5)
            self.check_always()
        raise AssertionError(f'not ended after {most} attempts: {self.record()}, {error}')

    # Invariants.

    def check_always(self):
        """Check what must hold after each request."""
        if self.broken:
            raise AssertionError(f'an invariant was broken: {self.broken[0]}')
        if not self.has_volume:
            raise AssertionError('the volume of the tenant was deleted')
        if len(self.ceph.writers()) > 1:
            raise AssertionError(f'several servers can write: {self.ceph.writers()}')

    def check_serves(self, server_id):
        """Check that one server has everything, and that nothing else is left."""
        self.check_always()
        self.keep_guests()
        waiting = {one.server_id for one in self.guests.values() if one.state is GuestState.READY}
        facts = {
            'servers': set(self.servers) - waiting,
            'attached': self.attached,
            'writers': self.ceph.writers(),
            'serving': self.serving,
            'shown': {self.shown},
            'devices': {port.device for port in self.ports.values()} - waiting,
        }
        for name, found in facts.items():
            if found != {server_id}:
                raise AssertionError(f'{name}: expected {server_id}, found {found}')
        ports = sorted(port.kind for port in self.ports.values() if port.device == server_id)
        if len(ports) != 2 or 'instance' not in ports:
            raise AssertionError(f'expected one management port and one other, found {ports}')
        if not all(port.is_up for port in self.ports.values()):
            raise AssertionError('a port of the server is cut off')
        for one in self.guests.values():
            if one.state is not GuestState.READY and one.server_id != server_id:
                raise AssertionError(f'{one} is left')

    def check_completed(self):
        record = self.record()
        if record.state is not ReplacementState.COMPLETED:
            raise AssertionError(f'{record} ended {record.state}: {record.error}')
        if self.trove.task(INSTANCE) != replacement_helpers.NONE:
            raise AssertionError('the instance has a task')
        if self.shown == OLD or self.service_status != 'HEALTHY':
            raise AssertionError('Trove does not show the new server')
        self.check_serves(self.shown)

    def check_returned(self):
        """Check that a resize has failed, and that the instance serves with its former flavor."""
        record = self.record()
        if record.state is not ReplacementState.FAILED or not record.returned_because:
            raise AssertionError(f'{record} ended {record.state}: {record.error}')
        if self.trove.task(INSTANCE) != replacement_helpers.NONE:
            raise AssertionError('the instance has a task')
        if self.shown == OLD or (self.flavor, self.service_status) != ('small', 'HEALTHY'):
            raise AssertionError(f'{self.shown}: {self.flavor}, {self.service_status}')
        if self.servers[self.shown].flavor != 'small' or self.fault != record.error:
            raise AssertionError(f'{self.servers[self.shown]}: {self.fault}')
        self.check_serves(self.shown)

    def check_taken_over(self):
        """Check that a replica is the source, and that the old server only cannot write."""
        self.check_always()
        record = self.record()
        if record.state is not ReplacementState.COMPLETED or record.promoted_id != 'replica':
            raise AssertionError(f'{record} ended {record.state}: {record.error}')
        if self.trove.task(INSTANCE) != replacement_helpers.EJECTION_ERROR:
            raise AssertionError('the instance can be used again')
        if not (self.has_taken_over and self.is_given_up) or self.ceph.writers():
            raise AssertionError(f'not given up, or writes: {self.ceph.writers()}')
        waiting = {one.server_id for one in self.guests.values()}
        if record.fenced_at is None or record.moved_at or set(self.servers) - waiting != {OLD}:
            raise AssertionError(f'{record}: fenced {record.fenced_at}, moved {record.moved_at}')

    def check_deleted(self):
        """Check that nothing is left of a deleted instance but guests that wait."""
        if self.broken:
            raise AssertionError(f'an invariant was broken: {self.broken[0]}')
        waiting = {f'port-{one}' for one in self.guests}
        left = set(self.servers) - {one.server_id for one in self.guests.values()}
        left |= set(self.ports) - waiting
        left |= {one for one in self.guests.values() if one.state is not GuestState.READY}
        if left or self.has_volume:
            raise AssertionError(f'left behind: {left}')


class Client:
    """A service, whose requests a strike may interrupt, and which may be down.

    :param name: the service is down if this is in ``World.down``
    """

    def __init__(self, world, client, strike, name):
        self._world, self._client, self._strike, self._name = world, client, strike, name

    def __getattr__(self, name):
        found = getattr(self._client, name)
        if not callable(found):
            return found

        def call(*arguments, **named):
            def request():
                if self._name in self._world.down:
                    raise exceptions.ServiceUnavailableError(f'{self._name} is down')
                try:
                    answer = found(*arguments, **named)
                    self._world.check_always()
                except AssertionError as error:
                    # An attempt would only count it.
                    self._world.broken.append(error)
                    raise
                return answer

            lost = exceptions.ServiceUnavailableError('the answer was lost')
            return self._strike.around(request, lost)

        return call
