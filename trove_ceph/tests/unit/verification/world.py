# SPDX-License-Identifier: Apache-2.0
"""A cluster with a backup, and hosts on which it is inspected by a server that tests decide."""

from trove_ceph import exceptions
from trove_ceph.storage import image_types, tasks
from trove_ceph.storage.fake import backend, cluster
from trove_ceph.verification import inspection, server
from trove_ceph.verification import report as verification

CHECK_ID = '6b4a3f5e-0d0c-4c7f-9d39-2a6b8e1f7c55'
SOURCE = 'c80376c9-e5db-11f1-a9a9-02fc00000001'
POSITION = f'{SOURCE}:1-303'
SETTINGS = verification.InspectionSettings(
    roots={},
    directory=None,
    memory_bytes=2**30,
    bytes_per_sec=5 * image_types.MIB,
    time_limit_sec=60,
    deep=False,
    sample_tables=2,
    sample_bytes=500,
)
TABLES = [
    server.Table('mysql', 'user', 10),
    *(server.Table('shop', f'orders{number}', 100) for number in range(5)),
]


class World:
    """What outlives a process: the cluster, and what a host holds."""

    def __init__(self):
        self.storage = backend.FakeBackend(cluster.Cluster({'volumes': 1024 * image_types.MIB}))
        image = image_types.ImageRef('volumes', 'image')
        self.storage.create_image(image, 8 * image_types.MIB, image_types.ImageOptions())
        self.storage.create_snapshot(image.snapshot('s'))
        self.work = tasks.InspectTask(image.snapshot('s'), CHECK_ID, '9.7.4')
        self.hosts = {}
        #: What a method of the server raises, by its name; of a list, one after the other.
        self.raises = {}
        self.checked = []
        #: Bytes that were read, by table.
        self.read_in_part = {}
        self.tables = TABLES

    def inspector(self, host='one'):
        return inspection.Inspector(self.storage, lambda: self.sandbox(host), SETTINGS)

    def sandbox(self, host='one'):
        return FakeSandbox(self, self.hosts.setdefault(host, []))

    def clones(self):
        return [one.ref for one in self.storage.cluster.images if one.parent]

    def held(self):
        return [held for host in self.hosts.values() for held in host]


class FakeSandbox:
    """A host whose processes die with it, and whose storage daemons do not."""

    def __init__(self, world, held):
        self._world = world
        self._held = held
        self._writer = None

    def clear_killed(self):
        while self._held:
            self._held.pop().close()

    def open(self, clone):
        if error := self._world.raises.get('open'):
            raise error
        self._writer = self._world.storage.open_writer(clone)
        self._held.append(self._writer)

    def serve(self, version):
        if error := self._world.raises.get('serve'):
            raise error
        return FakeServer(self._world)

    def close(self):
        if self._writer is not None:
            self._held.remove(self._writer)
            self._writer.close()
            self._writer = None


class FakeServer:
    data_version = '9.7.3'
    recovery_sec = 1.5

    def __init__(self, world):
        self._world = world

    def _do(self, name):
        error = self._world.raises.get(name)
        if isinstance(error, list):
            error = error.pop(0) if error else None
        if error:
            raise error

    def start(self, timeout_sec):
        self._do('start')

    def kill(self):
        self._do('kill')

    def version(self):
        return '9.7.4'

    def gtid_executed(self):
        self._do('gtid_executed')
        return POSITION

    def missing_and_extra(self, expected, found):
        last = int(expected.rpartition('-')[2])
        return (
            f'{SOURCE}:304-{last}' if last > 303 else '',
            f'{SOURCE}:{last + 1}-303' if last < 303 else '',
        )

    def tables(self):
        return self._world.tables

    def check(self, table):
        self._do(f'check {table}')
        self._world.checked.append(table)

    def read_ends(self, table, limit_bytes):
        self._do(f'read_ends {table}')
        self._world.read_in_part[table.name] = limit_bytes


def corrupt(reason):
    return verification.Finding(verification.CORRUPT, reason)


def refused():
    return exceptions.NotInspectableError('no server')
