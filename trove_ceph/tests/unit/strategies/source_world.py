# SPDX-License-Identifier: Apache-2.0
"""A source and its replicas in memory: their servers with GTID sets, and Trove's rows of them.

A client writes to each server before each request of a taskmanager. What a server has acknowledged
must never get lost, and two servers must never acknowledge at a time.
"""

import collections
import dataclasses
import types

from trove_ceph import exceptions
from trove_ceph.db.claims import Claim, Claimant
from trove_ceph.db.roles import Role
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.replication.source_dependencies import SourceDependencies
from trove_ceph.taskmanager import choices, instance_operations, source_changes, source_work
from trove_ceph.tests.unit.strategies import replacement_world, source_services
from trove_ceph.tests.unit.strategies import world as worlds
from trove_ceph.tests.unit.strategies.source_servers import Server, gtids

SOURCE = 'source'


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
        self.marked_at = {}
        #: Why deletions were refused.
        self.refused = []
        #: The memory that is counted again.
        self.counted_mib = []
        self.on_one_copy, self.on_no_tier = set(), set()
        #: The replicas whose accounts were kept when others were dropped last, by source.
        self.kept_users = {}
        self.flattened, self.stopped, self.renewed = set(), [], {}
        #: What is left to do, by instance.
        self.marks = {}
        #: The instances that no policy fails over.
        self.without_failover = set()
        #: Whether Nova refuses to power servers off.
        self.refuses_stop = False
        #: How long Nova takes to power a server off, and when one is off.
        self.stop_takes_sec, self.off_at = 0, {}
        self.last_known, self.source_seen_at = GtidSet(), None
        #: The replicas that were told to receive no more.
        self.paused = set()
        #: The replicas of which it was noted that they may have commits of their own.
        self.with_surplus = set()
        self.acknowledged = GtidSet()
        self.semi_sync_timeout_ms = 10000
        self.writes = True
        self.may_have_two_writers = False
        #: The requests to agents that did not answer; the long ones take a taskmanager minutes.
        self.waits, self.long_waits = [], []
        #: The servers whose hosts are down for Nova, and the time limits of requests for a status.
        self.on_failed_hosts, self.time_limits = set(), []
        self.store = Store()
        #: Called right before a fence is confirmed, and when a server is fenced.
        self.before_confirmed = self.at_cut_off = lambda: None
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

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds
        self.live()

    # The services that a subclass may have in reality.

    def agents(self):
        return source_services.Agents(self)

    def volumes(self):
        return source_services.Volumes(self)

    def nova(self):
        return source_services.Servers(self)

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
            types.SimpleNamespace(is_deleting=self.is_deleting, find_source_id=self.sources.get),
            claimant,
            beating,
            lambda seconds: deps.deadline(seconds),
        )
        noted = choices.Choices(self.store, claimant, operations.finish)
        nova = client(self.nova(), 'nova')
        deps = SourceDependencies(
            rows=client(source_services.Rows(self), 'rows'),
            agents=client(self.agents(), 'agents'),
            replicas=client(source_services.Replicas(self), 'replicas'),
            volumes=client(self.volumes(), 'volumes'),
            choices=noted,
            marks=client(source_services.Marks(self), 'marks'),
            find_task=self.other_tasks.get,
            is_blocked=self.blocked.__contains__,
            is_reprovisioning=self.is_reprovisioning,
            disable_failover=lambda member: self.without_failover.add(member.instance_id),
            stop_server=nova.stop,
            is_server_off=nova.is_off,
            has_host_down=nova.has_host_down,
            find_ram_mib=nova.find_ram_mib,
            semi_sync_timeout_ms=self.semi_sync_timeout_ms,
            clock=self.clock,
            sleep=self.sleep,
        )
        work = source_work.SourceWork(deps, operations, self.store, beating)
        return source_changes.SourceChanges(work), operations

    def is_reprovisioning(self, instance_id):
        is_open = self.other_tasks.get(instance_id) == 'MIGRATING'
        return is_open and instance_id not in self.blocked

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
            changes.handle_marks(dict(self.marks), worlds.AtOnce())
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
        self.check_nothing_left()
        for name in self.writers():
            if not self.acknowledged <= self.servers[name].executed:
                missing = self.acknowledged - self.servers[name].executed
                raise AssertionError(f'{name} lacks {missing}')

    def check_nothing_left(self):
        """Check that no operation is under way."""
        if self.broken:
            raise self.broken[0]
        under_way = {'PROMOTING', 'EJECTING', 'DETACHING'} & set(self.tasks.values())
        unfinished = [one for one, mark in self.marks.items() if mark.is_unfinished]
        if under_way or self.store.rows or unfinished:
            raise AssertionError(f'not ended: {self.tasks}, {self.store.rows}, {self.marks}')

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
        if claim.resource_id in self.rows and self.rows[claim.resource_id][1] == claim:
            self.rows[claim.resource_id] = (role, None)
        self.drop(claim)

    def finish(self, claim):
        if claim.resource_id in self.rows and self.rows[claim.resource_id][1] == claim:
            del self.rows[claim.resource_id]

    def drop(self, claim):
        self._live.discard(claim)

    def forget_workers(self):
        self._live.clear()
