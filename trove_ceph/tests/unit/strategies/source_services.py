# SPDX-License-Identifier: Apache-2.0
"""What a change of the source asks: agents, the tables of Trove and ours, Ceph and Nova in memory.

Each class is a view of one :class:`.source_world.World`.
"""

import datetime
import math

from trove_ceph import exceptions
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.replication.replication_types import ReplicationStatus, ThreadState
from trove_ceph.strategies.replication.source_dependencies import Member
from trove_ceph.tests.unit.strategies.source_servers import uuid_of

_BEGAN = datetime.datetime(2026, 1, 1)


class Agents:
    """The guest agents, as :class:`.replication_agents.ReplicationAgents`."""

    def __init__(self, world):
        self._world = world

    def _server(self, name):
        server = self._world.servers.get(name)
        is_up = server and not server.is_down and not server.is_fenced
        if not is_up or server.is_silent or name in self._world.deleted:
            self._world.waits.append(name)
            raise exceptions.GuestUnavailableError(f'guest agent of instance {name}: no answer')
        return server

    def _server_of_long(self, name):
        try:
            return self._server(name)
        except exceptions.GuestUnavailableError:
            self._world.long_waits.append(name)
            raise

    def status(self, name, timeout_sec=None):
        self._world.time_limits.append(timeout_sec)
        server = self._server(name)
        source = self._world.servers.get(server.source_id)
        is_connected = source is not None and not source.is_down and not source.is_fenced
        io = ThreadState.ON if is_connected else ThreadState.CONNECTING
        return ReplicationStatus(
            server_uuid=uuid_of(name),
            gtid_executed=server.executed,
            gtid_received=server.received,
            is_replica=server.source_id is not None,
            source_uuid=uuid_of(server.source_id) if server.source_id else '',
            io_state=io if server.receives else ThreadState.OFF,
            sql_state=self._sql_state(server),
            sql_error=server.sql_error,
            is_read_only=server.is_read_only,
            uptime_sec=server.uptime_sec,
            semi_sync_source=server.semi_sync[0],
            semi_sync_replica=server.semi_sync[1],
        )

    def _sql_state(self, server):
        is_applying = server.source_id and not server.sql_error
        return ThreadState.ON if is_applying else ThreadState.OFF

    def make_read_only(self, name, read_only):
        server = self._server_of_long(name)
        if server.source_id is not None and not read_only:
            raise exceptions.GuestUnavailableError(f'guest agent of instance {name}: a replica')
        server.is_read_only = read_only
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

    def set_semi_sync(self, name, as_source, as_replica, timeout_ms):
        self._server(name).semi_sync = as_source, as_replica, timeout_ms

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

    def replace_task(self, name, before, after):
        if self._world.tasks[name] in before:
            self._world.tasks[name] = after

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

    def promote(self, source_id, candidate_id, keeps_source, source_volume_id=None):
        table = self._world.table
        self._world.paused -= {candidate_id, *self.known(source_id)}
        if table.pop(candidate_id, None) is None:
            return
        for name, source in table.items():
            table[name] = candidate_id if source == source_id else source
        if keeps_source:
            table[source_id] = candidate_id

    def remove(self, name):
        # The mark is in its row.
        self._world.table.pop(name, None)
        self._world.paused.discard(name)
        self._world.with_surplus.discard(name)

    def known(self, source_id):
        return [name for name, source in self._world.table.items() if source == source_id]

    def last_known(self, source_id):
        return self._world.last_known

    def source_seen_at(self, source_id):
        return self._world.source_seen_at

    def now(self):
        return _BEGAN + datetime.timedelta(seconds=self._world.now)

    def note_stopped(self, name):
        self._world.paused.add(name)

    def note_surplus(self, name):
        self._world.with_surplus.add(name)

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
            self._world.before_confirmed()
            confirm()
        if 'ceph' in self._world.down:
            raise exceptions.NotFencedError(f'{volume_id}: no proof')
        self._world.servers[volume_id.removeprefix('volume-')].is_fenced = True
        self._world.at_cut_off()

    def has_one_copy(self, volume_id):
        name = volume_id.removeprefix('volume-')
        return None if name in self._world.on_no_tier else name in self._world.on_one_copy

    def flatten(self, volume_id):
        self._world.flattened.add(volume_id.removeprefix('volume-'))

    def is_to_be_flattened(self, volume_id):
        return volume_id.removeprefix('volume-') in self._world.flattened

    def withdraw_flatten(self, volume_id):
        self._world.flattened.remove(volume_id.removeprefix('volume-'))


class Marks:
    """The marks of instances."""

    def __init__(self, world):
        self._world = world

    def set(self, name, mark):
        self._world.marks[name] = mark
        self._world.marked_at[name] = self._world.now

    def age_sec(self, name):
        return self._world.now - self._world.marked_at[name] if self.find(name) else None

    def find(self, name):
        return self._world.marks.get(name)

    def remove(self, name):
        self._world.marks.pop(name, None)


class Servers:
    """The servers in Nova."""

    def __init__(self, world):
        self._world = world

    def stop(self, server_id):
        self._world.stopped.append(server_id)
        if self._world.refuses_stop:
            raise exceptions.ServiceUnavailableError(f'server {server_id}: is being rebooted')
        if not self._world.stop_takes_sec:
            self._server(server_id).is_down = True
        self._world.off_at.setdefault(server_id, self._world.now + self._world.stop_takes_sec)

    def find_ram_mib(self, flavor_id):
        return {'small': 2048}[flavor_id]

    def is_off(self, server_id):
        is_off = self._world.now >= self._world.off_at.get(server_id, math.inf)
        self._server(server_id).is_down |= is_off
        return is_off

    def has_host_down(self, server_id):
        return server_id in self._world.on_failed_hosts

    def _server(self, server_id):
        return self._world.servers[server_id.removeprefix('vm-')]
