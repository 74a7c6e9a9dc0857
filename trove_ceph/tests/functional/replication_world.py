# SPDX-License-Identifier: Apache-2.0
"""A source and its replicas with real servers; the rest of the cloud is in memory.

A server that is cut off from its volume, or powered off, is killed.
"""

import time

import pymysql

from trove_ceph.tests.functional import replication_servers
from trove_ceph.tests.unit.strategies import source_services, source_world
from trove_ceph.trove_adapter import replication_agents


class World(source_world.World):
    """What is not real of the instances, and the check after each request of a taskmanager.

    :param apps: the applications of the servers by their instances, which may change
    """

    def __init__(self, apps, strategy):
        super().__init__(replicas=())
        self._apps, self._strategy = apps, strategy
        for memory in (self.servers, self.tasks, self.sources):
            memory.clear()

    def add(self, name, source_id=None):
        self.tasks[name], self.sources[name] = 'NONE', source_id
        if source_id is not None:
            self.table[name] = source_id

    def remove(self, name):
        self.deleted.add(name)
        self.paused.discard(name)
        for memory in (self.tasks, self.sources, self.table, self.renewed):
            memory.pop(name, None)

    def clock(self):
        return time.monotonic()

    def sleep(self, seconds):
        time.sleep(seconds)

    def live(self):
        """Do nothing: the clients are real."""

    def writers(self):
        return [name for name, app in self._apps.items() if _accepts_writes(app)]

    def agents(self):
        return replication_agents.ReplicationAgents(
            lambda name: replication_servers.Guest(self._apps[name], self._strategy), None
        )

    def volumes(self):
        return _Volumes(self, self._apps)

    def nova(self):
        return _Servers(self._apps)


def _accepts_writes(app):
    if app.server.pid is None:
        return False
    try:
        return not app.status()['is_read_only']
    except pymysql.MySQLError:
        return False


class _Volumes(source_services.Volumes):
    def __init__(self, world, apps):
        super().__init__(world)
        self._apps = apps

    def fence(self, volume_id, confirm=None):
        if confirm is not None:
            confirm()
        self._apps[volume_id.removeprefix('volume-')].server.kill()


class _Servers:
    def __init__(self, apps):
        self._apps = apps

    def stop(self, server_id):
        self._apps[server_id.removeprefix('vm-')].server.kill()

    def is_off(self, server_id):
        return self._apps[server_id.removeprefix('vm-')].server.pid is None

    def has_host_down(self, _server_id):
        return False

    def find_ram_mib(self, _flavor_id):
        return 1024


class KillAt:
    """Kills a server before one of the requests of a taskmanager."""

    def __init__(self, app, number):
        self._app, self._left = app, number

    def around(self, request, _unavailable):
        if self._left == 0:
            self._app.server.kill()
        self._left -= 1
        return request()
