# SPDX-License-Identifier: Apache-2.0
"""A world for the watcher of automatic failover: Trove, Nova and Ceph in memory; our tables.

Its databases are on two hosts, and their agents report every 30 s.
"""

import datetime
import itertools

from trove_ceph import exceptions
from trove_ceph.db import (
    claims,
    failover_policies,
    failover_watch,
    heartbeat,
    replacements,
    source_marks,
    transactions,
)
from trove_ceph.db.policy_record import Scope
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.failover import dependencies, watcher
from trove_ceph.strategies.failover.facts import FailoverSettings, HostState, ServerState
from trove_ceph.strategies.replacement.dependencies import InstanceFacts
from trove_ceph.tests.unit.db import database, replacement_helpers

INTERVAL_SEC = 30
CLIENT = '10.0.0.1:0/1'
_REPORT_SEC = 30
_DATABASE = database.Shared()


class World:
    """What outlives a taskmanager.

    :ivar dead: the instances whose servers do not run
    :ivar without_clients: the instances that have no client in Ceph although they run
    :ivar facts: changes of the facts of instances, by instance
    :ivar servers: changes of the state of servers, by instance
    :ivar without_server: the instances that have none
    :ivar asked: the requests to Nova and Ceph
    :ivar down: the services that do not answer: trove, conductor, nova or ceph
    :ivar answer_sec: how long Ceph takes to answer
    :ivar error_sec: how long it takes until an error is known
    :ivar errors: what Ceph says of volumes, and Trove's tables of instances, by id
    """

    def __init__(self, count=10, **settings):
        self.now = datetime.datetime(2026, 1, 1)
        self._began = self.now
        self.settings = FailoverSettings(interval_sec=INTERVAL_SEC, **settings)
        facade = _DATABASE.emptied()
        self.trove = replacement_helpers.TroveTable(facade)
        access = transactions.Transactions(facade, lambda: self.now)
        self.watch = failover_watch.FailoverWatchStore(access)
        self.policies = failover_policies.FailoverPolicyStore(access)
        self.replacements = replacements.ReplacementStore(access)
        self.marks = source_marks.SourceMarkStore(access)
        self.hosts = {'one': HostState(is_up=True), 'two': HostState(is_up=True)}
        self.ids = [f'db-{number}' for number in range(count)]
        self.dead, self.without_clients, self.facts, self.servers = set(), set(), {}, {}
        self.reports, self.asked, self.down, self.errors = {}, [], set(), {}
        self.answer_sec, self.error_sec = 0, 0
        self.without_server, self.without_tier = set(), set()
        self._workers = itertools.count()
        for instance_id in self.ids:
            self.trove.add(instance_id)

    def cover(self, datastore='mysql', **values):
        """Add a policy for all databases."""
        return self.policies.add(Scope.DATASTORE, datastore, **values)

    def clock(self):
        return (self.now - self._began).total_seconds()

    def watcher(self, is_dead=lambda _name: True):
        """Return the watcher of a new taskmanager.

        :param is_dead: whether it knows that another taskmanager is dead
        """
        name = f'host/boot/1/{next(self._workers)}/0'
        self.heartbeat = heartbeat.Heartbeat(self.watch.claims, 5, 45, self.clock)
        return watcher.Watcher(
            dependencies.FailoverDependencies(
                watch=self.watch,
                policies=self.policies,
                replacements=self.replacements,
                marks=self.marks,
                databases=_Databases(self),
                servers=_Servers(self),
                volumes=_Volumes(self),
                worker=claims.Claimant(name, is_dead=is_dead),
                heartbeat=self.heartbeat,
                settings=self.settings,
                clock=self.clock,
            )
        )

    def run(self, one, seconds):
        """Let time pass, with the rounds of a watcher."""
        for _round in range(seconds // INTERVAL_SEC):
            self.pass_time(INTERVAL_SEC)
            self.heartbeat.beat()
            one.watch()

    def pass_time(self, seconds):
        self.now += datetime.timedelta(seconds=seconds)
        report = float(self.clock() // _REPORT_SEC)
        if 'conductor' not in self.down:
            self.reports |= {one: report for one in self.ids if one not in self.dead}

    def kill(self, *ids, host='one'):
        """Kill servers with their host, as a power cut does."""
        self.dead |= set(ids)
        self.hosts[host] = HostState(is_up=False)
        for instance_id in ids:
            self.servers[instance_id] = {'host': host}

    def requested(self):
        """Return the ids of the instances whose failover was requested."""
        return sorted(one.instance_id for one in self.replacements.list())

    def report(self):
        return self.watch.read().report

    def finding(self, instance_id):
        """Return what the last round found of a database."""
        (found,) = [one for one in self.report()['findings'] if one['instance_id'] == instance_id]
        return found

    def answer(self, service, subject=None):
        if subject in self.errors:
            raise self.errors[subject]
        if service in self.down:
            raise exceptions.ServiceUnavailableError(f'{service} does not answer')


class _Databases:
    def __init__(self, world):
        self._world = world

    def list_instances(self):
        self._world.answer('trove')
        return [
            backup_types.Instance(
                one, 'project', f'volume-{one}', self._server(one), 'mysql', '8.4'
            )
            for one in self._world.ids
        ]

    def _server(self, instance_id):
        return None if instance_id in self._world.without_server else f'server-{instance_id}'

    def list_reports(self):
        return dict(self._world.reports)

    def find_facts(self, instance_id):
        self._world.answer('trove', instance_id)
        task = self._world.trove.task(instance_id)
        values = {
            'instance_id': instance_id,
            'project_id': 'project',
            'name': instance_id,
            'volume_id': f'volume-{instance_id}',
            'server_id': f'server-{instance_id}',
            'flavor_id': 'flavor',
            'version_id': 'version',
            'task': 'NONE' if task == replacement_helpers.NONE else 'MIGRATING',
            'service_status': 'HEALTHY',
        }
        return InstanceFacts(**values | self._world.facts.get(instance_id, {}))


class _Servers:
    def __init__(self, world):
        self._world = world

    def find(self, server_id):
        self._world.answer('nova')
        self._world.asked.append(server_id)
        instance_id = server_id.removeprefix('server-')
        changes = self._world.servers.get(instance_id, {})
        return ServerState(server_id, **{'status': 'ACTIVE', 'host': 'two'} | changes)

    def list_hosts(self):
        self._world.answer('nova')
        return self._world.hosts

    def list_on_host(self, host):
        self._world.answer('nova')
        hosts = {
            one: self._world.servers.get(one, {}).get('host', 'two') for one in self._world.ids
        }
        return {f'server-{one}' for one, its_host in hosts.items() if its_host == host}


class _Volumes:
    def __init__(self, world):
        self._world = world

    def find_clients(self, volume_id):
        world, instance_id = self._world, volume_id.removeprefix('volume-')
        if instance_id in world.without_tier:
            return None
        is_lost = volume_id in world.errors
        for _tick in range((world.error_sec if is_lost else world.answer_sec) // 10):
            world.now += datetime.timedelta(seconds=10)
            world.heartbeat.beat()
        world.answer('ceph', volume_id)
        world.asked.append(volume_id)
        return () if instance_id in world.dead | world.without_clients else (CLIENT,)
