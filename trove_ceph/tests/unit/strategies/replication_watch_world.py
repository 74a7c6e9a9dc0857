# SPDX-License-Identifier: Apache-2.0
"""A world for the watch over replicas: Trove, agents and Ceph in memory; our tables.

Source ``s`` has the replicas ``r-0``, ``r-1``, ..., which all work.
"""

import dataclasses
import datetime
import itertools

from oslo_utils import units
from oslotest import base

from trove_ceph import exceptions
from trove_ceph.db import claims, heartbeat, replicas, replication_policies, transactions
from trove_ceph.db import replication_watch as watch_store
from trove_ceph.mysql.gtid import GtidSet
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.replication import watch_dependencies, watcher
from trove_ceph.strategies.replication.replication_types import ReplicationStatus, ThreadState
from trove_ceph.strategies.replication.watch_dependencies import VolumeUsage, WatchSettings
from trove_ceph.tests.unit.db import database, replacement_helpers

INTERVAL_SEC = 30
#: The server of the source, and another one.
SERVER = '3e11fa47-71ca-11e1-9e33-c80aa9429562'
OTHER_SERVER = 'aaaaaaaa-71ca-11e1-9e33-c80aa9429562'
#: Values of the status of a replica that does not execute, and an error of Ceph.
STOPPED = {'sql_state': ThreadState.OFF, 'sql_error_number': 1062, 'sql_error': 'Duplicate'}
UNREACHABLE = exceptions.CephUnreachableError('no answer')
_DATABASE = database.Shared()


def executed(last, other=''):
    """Return the transactions of the source up to a number, and others."""
    return GtidSet.parse(f'{SERVER}:1-{last},{other}')


def source_status(**values):
    return ReplicationStatus(SERVER, values.pop('gtid_executed', executed(100)), **values)


def replica_status(**values):
    """Return the status of a replica that works."""
    working = {'gtid_executed': executed(100), 'is_replica': True, 'source_uuid': SERVER}
    working |= {'io_state': ThreadState.ON, 'sql_state': ThreadState.ON, 'lag_sec': 0.0}
    return ReplicationStatus(OTHER_SERVER, **working | values)


class World:
    """What outlives a taskmanager.

    :ivar instances: those of Trove that are not deleted, by id
    :ivar statuses: what the agents answer, by instance; None: they are silent; a text: an error
    :ivar usages: what Ceph answers, by volume; an error is raised
    :ivar asked: the instances whose agents were asked
    :ivar measured: the volumes whose own space was measured
    :ivar switched: the calls of set_semi_sync
    :ivar refusing: the instances whose agents refuse these
    :ivar resumed: the sources whose replicas were to receive again
    :ivar waiting: the looks that no thread has run yet; None: each runs at once
    :ivar free_threads: how many more looks find a thread
    """

    def __init__(self, count=1, **settings):
        self.now = datetime.datetime(2026, 1, 1)
        self._began = self.now
        self.settings = WatchSettings(**settings)
        facade = _DATABASE.emptied()
        self.trove = replacement_helpers.TroveTable(facade)
        access = transactions.Transactions(facade, lambda: self.now)
        self.watch = watch_store.ReplicationWatchStore(access)
        self.store = replicas.ReplicaStore(access)
        self.policies = replication_policies.ReplicationPolicyStore(access)
        self._claims = claims.Claims(access)
        self.instances, self.statuses, self.usages = {}, {}, {}
        self.asked, self.measured, self.switched, self.refusing = [], [], [], set()
        self.waiting, self.free_threads = None, 1000
        self._workers = itertools.count()
        self.resumed = []
        self.add_source('s')
        for number in range(count):
            self.add_replica(f'r-{number}', 's')

    def add_source(self, instance_id):
        self._add(instance_id, source_status(), VolumeUsage(units.Gi, 0, units.Gi))

    def add_replica(self, instance_id, source_id):
        self._add(instance_id, replica_status(), VolumeUsage(units.Gi, 1, units.Mi), source_id)
        self.store.register(instance_id, 'p', source_id, f'v-{instance_id}', self.now)

    def _add(self, instance_id, status, usage, source_id=None):
        self.trove.add(instance_id)
        self.trove.set(instance_id, slave_of_id=source_id)
        self.instances[instance_id] = backup_types.Instance(
            instance_id, 'p', f'v-{instance_id}', source_id=source_id
        )
        self.statuses[instance_id] = status
        self.usages[f'v-{instance_id}'] = usage

    def follow(self, instance_id, source_id):
        """Have Trove show another source of an instance; None: none."""
        self.trove.set(instance_id, slave_of_id=source_id)
        found = self.instances[instance_id]
        self.instances[instance_id] = dataclasses.replace(found, source_id=source_id)

    def watcher(self, is_dead=lambda _name: True):
        """Return the watcher of a new taskmanager.

        :param is_dead: whether it knows that another taskmanager is dead
        """
        name = f'host/boot/1/{next(self._workers)}/0'
        self.heartbeat = heartbeat.Heartbeat(self._claims, 5, 45, self.clock)
        return watcher.Watcher(
            watch_dependencies.WatchDependencies(
                watch=self.watch,
                store=self.store,
                policies=self.policies,
                databases=self,
                agents=self,
                volumes=self,
                start=self.start,
                worker=claims.Claimant(name, is_dead=is_dead),
                heartbeat=self.heartbeat,
                resume_replicas=self.resumed.append,
                settings=self.settings,
                clock=self.clock,
            )
        )

    def run(self, one, rounds):
        """Let time pass, with the rounds of a watcher."""
        for _round in range(rounds):
            self.now += datetime.timedelta(seconds=INTERVAL_SEC)
            self.heartbeat.beat()
            one.watch()

    def clock(self):
        return (self.now - self._began).total_seconds()

    def change(self, instance_id, **values):
        """Change what an agent answers."""
        self.statuses[instance_id] = dataclasses.replace(self.statuses[instance_id], **values)

    def requested(self):
        """Return the ids of the replicas that are being re-provisioned, with the causes."""
        found = self.store.list(is_reprovisioning=True)
        return {one.instance_id: one.cause for one in found}

    # Threads.

    def start(self, function):
        if not self.free_threads:
            return False
        self.free_threads -= 1
        if self.waiting is None:
            function()
        else:
            self.waiting.append(function)
        return True

    # Trove, the agents, and Ceph.

    def has_replicas(self):
        return any(one.source_id for one in self.instances.values())

    def list_instances(self):
        return list(self.instances.values())

    def status(self, instance_id):
        self.asked.append(instance_id)
        found = self.statuses.get(instance_id)
        if found is None:
            raise exceptions.GuestSilentError(f'{instance_id}: does not answer')
        if isinstance(found, str):
            raise exceptions.GuestUnavailableError(found)
        return found

    def set_semi_sync(self, instance_id, as_source, as_replica, timeout_ms):
        if instance_id in self.refusing:
            raise exceptions.GuestUnavailableError(f'{instance_id}: refuses')
        self.switched.append((instance_id, as_source, as_replica, timeout_ms))
        self.change(instance_id, semi_sync_source=as_source, semi_sync_replica=as_replica)

    def find_usage(self, volume_id, with_own_bytes):
        found = self.usages[volume_id]
        if isinstance(found, Exception):
            raise found
        if with_own_bytes:
            self.measured.append(volume_id)
        if with_own_bytes or found is None:
            return found
        return dataclasses.replace(found, own_bytes=None)


class WatcherTestCase(base.BaseTestCase):
    def start(self, count=1, **settings):
        """Create a world and the watcher of its only taskmanager."""
        self.world = World(count, **settings)
        self.watcher = self.world.watcher()

    def run_rounds(self, rounds=1):
        self.world.run(self.watcher, rounds)
