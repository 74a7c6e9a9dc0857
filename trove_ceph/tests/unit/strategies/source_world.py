# SPDX-License-Identifier: Apache-2.0
"""A source and its replicas in memory: their servers with GTID sets, and Trove's rows of them.

A client writes to each server before each request of a taskmanager. What a server has acknowledged
must never get lost, and two servers must never acknowledge at a time.
"""

import collections
import dataclasses
import math
import types

from trove_ceph import exceptions
from trove_ceph.db.claims import Claim, Claimant
from trove_ceph.db.roles import Role
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.replication.replication_types import ReplicationStatus, ThreadState
from trove_ceph.strategies.replication.source_dependencies import Member, SourceDependencies
from trove_ceph.taskmanager import instance_operations, source_changes, source_work
from trove_ceph.tests.unit.strategies import replacement_world
from trove_ceph.tests.unit.strategies import world as worlds

SOURCE = 'source'


def gtids(server, first, last=None):
    """Return transactions that a server has committed."""
    return GtidSet.parse(f'{_uuid(server)}:{first}-{last or first}')


def _uuid(server):
    digits = f'{server.encode().hex():0<32.32}'
    return '-'.join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _first(gtid_set):
    origin, intervals = gtid_set.origins[0]
    return GtidSet(((origin, ((intervals[0][0],) * 2,)),))


@dataclasses.dataclass
class Server:
    """A MySQL server.

    :param source_id: of the server that it follows
    :param is_down: it is dead, and so is its agent
    :param is_silent: its agent does not answer
    :param is_stuck: it receives transactions, and does not execute them
    :param sql_error: why it does not execute them; with a text, it is stuck
    :param pace_sec: how long it takes for one; 0: it executes all at once
    """

    executed: GtidSet
    received: GtidSet = dataclasses.field(default_factory=GtidSet)
    source_id: str | None = None
    receives: bool = False
    is_read_only: bool = False
    is_fenced: bool = False
    is_down: bool = False
    is_silent: bool = False
    is_stuck: bool = False
    sql_error: str = ''
    pace_sec: float = 0
    next_at: float = 0
    written: int = 0

    def execute(self, now):
        """Execute what it has received, or as much of it as it can until now."""
        if self.is_stuck or self.sql_error:
            return
        if not self.pace_sec:
            self.executed |= self.received
        while self.next_at <= now and (waiting := self.received - self.executed):
            self.executed |= _first(waiting)
            self.next_at += self.pace_sec

    def restart(self):
        """Discard the relay log, which the server fetches from its source again."""
        self.received, self.receives = GtidSet(), False

    @property
    def accepts_writes(self):
        is_up = not self.is_down and not self.is_fenced
        return is_up and self.source_id is None and not self.is_read_only


class World:
    """A source with replicas, on which Trove's API has requested an operation.

    :ivar acknowledged: the commits that clients know of
    :ivar down: the services that do not answer, for :class:`.replacement_world.Client`
    """

    def __init__(self, replicas=('one', 'two')):
        self.now = 0.0
        self.broken, self.down = [], set()
        history = gtids(SOURCE, 1, 10)
        self.servers = {SOURCE: Server(history)}
        self.servers[SOURCE].written = 10
        for name in replicas:
            self.servers[name] = Server(history, source_id=SOURCE, receives=True, is_read_only=True)
        self.tasks = dict.fromkeys(self.servers, 'NONE')
        self.sources = dict.fromkeys(replicas, SOURCE)
        self.sources[SOURCE] = None
        self.table = dict.fromkeys(replicas, SOURCE)
        self.other_tasks, self.deleted = {}, set()
        #: The replicas whose re-provisioning waits for an operator.
        self.blocked = set()
        self.faults = collections.defaultdict(list)
        #: Why deletions were refused.
        self.refused = []
        #: The memory that is counted again.
        self.counted_mib = []
        self.on_one_copy, self.on_no_tier = set(), set()
        #: The replicas whose accounts were kept when others were dropped last, by source.
        self.kept_users = {}
        self.flattened, self.stopped, self.renewed = set(), [], {}
        #: How long Nova takes to power a server off, and when one is off.
        self.stop_takes_sec, self.off_at = 0, {}
        self.last_known, self.source_seen_at = GtidSet(), None
        #: The replicas that were told to receive no more.
        self.paused = set()
        self.acknowledged = GtidSet()
        self.writes = True
        self.may_have_two_writers = False
        #: Long requests to agents that did not answer: a taskmanager waits for minutes.
        self.long_waits = []
        self.store = Store()
        #: Called when a server was made read-only, or writable.
        self.at_read_only = lambda: None

    # What happens by itself.

    def live(self):
        """Have clients write, and the replicas receive and execute."""
        for name, server in self.servers.items():
            if self.writes and server.accepts_writes:
                server.written += 1
                commit = gtids(name, server.written)
                server.executed |= commit
                self.acknowledged |= commit
        for server in self.servers.values():
            source = self.servers.get(server.source_id)
            if server.is_down or source is None:
                continue
            if server.receives and not source.is_down and not source.is_fenced:
                server.received |= source.executed
            server.execute(self.now)

    def sleep(self, seconds):
        self.now += seconds
        self.live()

    # The taskmanager.

    def changes(self, strike=None, worker='worker'):
        """Return the changes of a new taskmanager, with its claims."""
        strike = strike or worlds.Strike(None)
        claimant = Claimant(worker)
        beating = types.SimpleNamespace(
            acquire=lambda take: take(), drop=self.store.drop, check=lambda _claim: None
        )

        def client(service, name):
            return replacement_world.Client(self, service, strike, name)

        operations = instance_operations.InstanceOperations(
            self.store,
            types.SimpleNamespace(is_deleting=self.is_deleting),
            claimant,
            beating,
            lambda seconds: deps.deadline(seconds),
        )
        choices = source_changes.Choices(self.store, claimant, operations.finish)
        deps = SourceDependencies(
            rows=client(Rows(self), 'rows'),
            agents=client(Agents(self), 'agents'),
            replicas=client(Replicas(self), 'replicas'),
            volumes=client(Volumes(self), 'volumes'),
            choices=choices,
            find_task=self.other_tasks.get,
            is_blocked=self.blocked.__contains__,
            stop_server=client(Servers(self), 'nova').stop,
            is_server_off=client(Servers(self), 'nova').is_off,
            find_ram_mib=client(Servers(self), 'nova').find_ram_mib,
            clock=lambda: self.now,
            sleep=self.sleep,
        )
        work = source_work.SourceWork(deps, operations, self.store, beating)
        return source_changes.SourceChanges(work), operations

    def is_deleting(self, instance_id):
        return self.tasks.get(instance_id) == 'DELETING'

    def request(self, task, *instance_ids):
        """Set the tasks that Trove's API sets before it calls the taskmanager."""
        for instance_id in instance_ids or self.servers:
            self.tasks[instance_id] = task

    def recover(self, rounds=5, strike=None):
        """Have other taskmanagers continue what is left, until nothing is."""
        self.store.forget_workers()
        for number in range(rounds):
            changes, operations = self.changes(strike, worker=f'recovery-{number}')
            operations.recover(
                {**changes.resumptions, Role.DELETE_INSTANCE: self._resume_deletion(changes)},
                worlds.AtOnce(),
            )
            self.store.forget_workers()

    def _resume_deletion(self, changes):
        def resume(claim):
            if self.is_deleting(claim.resource_id):
                try:
                    changes.forget(claim.resource_id)
                except exceptions.DeletionRefusedError as error:
                    self.refused.append(str(error))
                else:
                    self.end_deletion(claim.resource_id)

        return resume

    def end_deletion(self, name):
        """Delete an instance that :meth:`.SourceChanges.forget` has released."""
        if name in self.deleted:
            return
        self.servers[name].is_down = True
        self.deleted.add(name)
        del self.tasks[name]
        # Its own commits end with it.
        self.acknowledged = self.acknowledged - self.servers[name].executed

    # Invariants.

    def check_always(self):
        self.live()
        writers = self.writers()
        if len(writers) > 1 and not self.may_have_two_writers:
            raise AssertionError(f'two servers accept writes: {writers}')

    def writers(self):
        return [name for name, server in self.servers.items() if server.accepts_writes]

    def check_ended(self):
        """Check that nothing is left to do, and that no acknowledged commit is lost."""
        if self.broken:
            raise self.broken[0]
        under_way = {'PROMOTING', 'EJECTING', 'DETACHING'} & set(self.tasks.values())
        if under_way or self.store.rows:
            raise AssertionError(f'not ended: {self.tasks}, {self.store.rows}')
        for name in self.writers():
            if not self.acknowledged <= self.servers[name].executed:
                missing = self.acknowledged - self.servers[name].executed
                raise AssertionError(f'{name} lacks {missing}')

    def check_source(self, name, followers):
        """Check that a server is the source of others, in Trove and in fact."""
        self.writes = False
        self.live()
        self.check_ended()
        found = {one: self.sources[one] for one in (name, *followers)}
        following = {one: self.servers[one].source_id for one in (name, *followers)}
        expected = {name: None, **dict.fromkeys(followers, name)}
        if not found == following == expected or self.writers() != [name]:
            raise AssertionError(f'{found}, {following}, {self.writers()}, expected {expected}')
        for one in followers:
            if self.servers[one].executed != self.servers[name].executed:
                raise AssertionError(f'{one} differs')


class Store:
    """Rows of :class:`.InstanceOperationStore`; a worker is alive until it is forgotten."""

    def __init__(self):
        self.rows, self._live = {}, set()

    def begin(self, role, instance_id, claimant, over=()):
        before = self.find_role(instance_id)
        if before is not None and before not in over:
            return None
        claim = self.resume(role, instance_id, claimant)
        return claim and dataclasses.replace(claim, former_role=before)

    def resume(self, role, instance_id, claimant):
        if instance_id in self.rows and self.rows[instance_id][1] in self._live:
            return None
        claim = Claim(role, instance_id, claimant.name, object())
        self.rows[instance_id] = (role, claim)
        self._live.add(claim)
        return claim

    def find_role(self, instance_id):
        return self.rows[instance_id][0] if instance_id in self.rows else None

    def list_interrupted(self, _claimant):
        return [
            (role, name) for name, (role, claim) in self.rows.items() if claim not in self._live
        ]

    def set_role(self, claim, role):
        if claim.resource_id in self.rows and self.rows[claim.resource_id][1] == claim:
            self.rows[claim.resource_id] = (role, claim)

    def hand_over(self, claim, role):
        self.set_role(claim, role)
        self.drop(claim)

    def finish(self, claim):
        if claim.resource_id in self.rows and self.rows[claim.resource_id][1] == claim:
            del self.rows[claim.resource_id]

    def drop(self, claim):
        self._live.discard(claim)

    def forget_workers(self):
        self._live.clear()


class Agents:
    """The guest agents, as :class:`.replication_agents.ReplicationAgents`."""

    def __init__(self, world):
        self._world = world

    def _server(self, name):
        server = self._world.servers.get(name)
        is_up = server and not server.is_down and not server.is_fenced
        if not is_up or server.is_silent or name in self._world.deleted:
            raise exceptions.GuestUnavailableError(f'guest agent of instance {name}: no answer')
        return server

    def _server_of_long(self, name):
        try:
            return self._server(name)
        except exceptions.GuestUnavailableError:
            self._world.long_waits.append(name)
            raise

    def status(self, name):
        server = self._server(name)
        source = self._world.servers.get(server.source_id)
        is_connected = source is not None and not source.is_down and not source.is_fenced
        io = ThreadState.ON if is_connected else ThreadState.CONNECTING
        return ReplicationStatus(
            server_uuid=_uuid(name),
            gtid_executed=server.executed,
            gtid_received=server.received,
            is_replica=server.source_id is not None,
            source_uuid=_uuid(server.source_id) if server.source_id else '',
            io_state=io if server.receives else ThreadState.OFF,
            sql_state=self._sql_state(server),
            sql_error=server.sql_error,
            is_read_only=server.is_read_only,
        )

    def _sql_state(self, server):
        is_applying = server.source_id and not server.sql_error
        return ThreadState.ON if is_applying else ThreadState.OFF

    def make_read_only(self, name, read_only):
        self._server_of_long(name).is_read_only = read_only
        self._world.at_read_only()

    def wait_for_gtid(self, name, gtid_set, timeout_sec):
        server = self._server(name)
        if gtid_set <= server.executed:
            return True
        self._world.sleep(timeout_sec)
        return gtid_set <= server.executed

    def stop_receiving(self, name):
        self._server(name).receives = False

    def replica_context(self, name, replica_id=None):
        if self._server(name).is_read_only:
            raise exceptions.GuestUnavailableError(f'guest agent of instance {name}: read-only')
        return {'source': name}

    def attach(self, name, context):
        server = self._server(name)
        server.is_read_only = server.receives = True
        server.source_id, server.received = context['source'], GtidSet()

    def detach(self, name, for_failover=False):
        server = self._server(name)
        server.source_id, server.receives, server.received = None, False, GtidSet()
        server.is_read_only = server.is_read_only and for_failover

    def enable_as_source(self, name):
        server = self._server(name)
        if server.source_id is not None:
            raise exceptions.GuestUnavailableError(f'guest agent of instance {name}: a replica')
        server.is_read_only = False

    def drop_replication_users(self, name, keep_replica_ids):
        self._server_of_long(name)
        self._world.kept_users[name] = set(keep_replica_ids)


class Rows:
    """Trove's table of instances."""

    def __init__(self, world):
        self._world = world

    def find(self, name):
        world = self._world
        if name not in world.tasks or name in world.deleted:
            return None
        return Member(
            name,
            'project',
            f'volume-{name}',
            f'vm-{name}',
            world.tasks[name],
            world.sources[name],
            'small',
        )

    def list_replicas(self, source_id):
        found = sorted(one for one, source in self._world.sources.items() if source == source_id)
        return [self.find(one) for one in found if one not in self._world.deleted]

    def record(self, changes):
        for change in changes:
            self._world.sources[change.instance_id] = change.source_id
        self.end_tasks({one.instance_id: one.task for one in changes})

    def begin_ejection(self, instance_ids):
        if {self._world.tasks[one] for one in instance_ids} - {'NONE', 'EJECTING'}:
            return False
        self._world.tasks |= dict.fromkeys(instance_ids, 'EJECTING')
        return True

    def end_tasks(self, tasks):
        for name, task in tasks.items():
            if self._world.tasks[name] in ('PROMOTING', 'EJECTING', 'DETACHING'):
                self._world.tasks[name] = task

    def refuse_deletion(self, name, task, ram_mib):
        if self._world.tasks[name] == 'DELETING':
            self._world.tasks[name] = task
            self._world.counted_mib.append(ram_mib)

    def add_fault(self, name, text):
        self._world.faults[name].append(text)


class Replicas:
    """Our table of replicas."""

    def __init__(self, world):
        self._world = world

    def promote(self, source_id, candidate_id, keeps_source):
        table = self._world.table
        self._world.paused -= {candidate_id, *self.known(source_id)}
        if table.pop(candidate_id, None) is None:
            return
        for name, source in table.items():
            table[name] = candidate_id if source == source_id else source
        if keeps_source:
            table[source_id] = candidate_id

    def remove(self, name):
        self._world.table.pop(name, None)

    def known(self, source_id):
        return [name for name, source in self._world.table.items() if source == source_id]

    def last_known(self, source_id):
        return self._world.last_known

    def source_seen_at(self, source_id):
        return self._world.source_seen_at

    def note_stopped(self, name):
        self._world.paused.add(name)

    def forget_stopped(self, name):
        self._world.paused.discard(name)

    def stopped(self, source_id):
        return self._world.paused & set(self.known(source_id))

    def request(self, name, reason):
        self._world.renewed[name] = reason


class Volumes:
    """The data volumes; each is that of one server."""

    def __init__(self, world):
        self._world = world

    def fence(self, volume_id, confirm=None):
        if confirm is not None:
            confirm()
        if 'ceph' in self._world.down:
            raise exceptions.NotFencedError(f'{volume_id}: no proof')
        self._world.servers[volume_id.removeprefix('volume-')].is_fenced = True

    def has_one_copy(self, volume_id):
        name = volume_id.removeprefix('volume-')
        return None if name in self._world.on_no_tier else name in self._world.on_one_copy

    def flatten(self, volume_id):
        self._world.flattened.add(volume_id.removeprefix('volume-'))


class Servers:
    """The servers in Nova."""

    def __init__(self, world):
        self._world = world

    def stop(self, server_id):
        self._world.stopped.append(server_id)
        if not self._world.stop_takes_sec:
            self._server(server_id).is_down = True
        self._world.off_at.setdefault(server_id, self._world.now + self._world.stop_takes_sec)

    def find_ram_mib(self, flavor_id):
        return {'small': 2048}[flavor_id]

    def is_off(self, server_id):
        is_off = self._world.now >= self._world.off_at.get(server_id, math.inf)
        self._server(server_id).is_down |= is_off
        return is_off

    def _server(self, server_id):
        return self._world.servers[server_id.removeprefix('vm-')]
