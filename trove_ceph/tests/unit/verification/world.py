# SPDX-License-Identifier: Apache-2.0
"""A fake cluster with a backup, and hosts that inspect it with a scripted server."""

from oslo_utils import units

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
    bytes_per_sec=5 * units.Mi,
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
    """The state that outlives a process: the cluster, and the clones that a host has open."""

    def __init__(self):
        self.storage = backend.FakeBackend(cluster.Cluster({'volumes': 1024 * units.Mi}))
        image = image_types.ImageRef('volumes', 'image')
        self.storage.create_image(image, 8 * units.Mi, image_types.ImageOptions())
        self.storage.create_snapshot(image.snapshot('s'))
        self.work = tasks.InspectTask(image.snapshot('s'), CHECK_ID, '9.7.4')
        self.hosts = {}
        #: By name of a method of the sandbox or the server: the exception that it raises, or the
        #: function that it calls; the items of a list are used one after the other.
        self.raises = {}
        self.checked = []
        #: Bytes read, by table.
        self.read_in_part = {}
        self.tables = TABLES
        #: The server's ``gtid_executed``.
        self.position = POSITION
        #: Called when a clone is opened.
        self.on_open = None
        self.prepared = []
        #: Number of calls of ``abort``.
        self.aborted = 0
        #: Called before every call of the cluster, the host or the server.
        self.before = lambda name: None

    def do(self, name):
        """Run the hook and raise or call what the test set for this method."""
        self.before(name)
        found = self.raises.get(name)
        if isinstance(found, list):
            found = found.pop(0) if found else None
        if isinstance(found, BaseException):
            raise found
        if found:
            found()

    def inspector(self, host='one'):
        return inspection.Inspector(self.storage, lambda: self.sandbox(host), SETTINGS)

    def sandbox(self, host='one'):
        return FakeSandbox(self, self.hosts.setdefault(host, []))

    def clones(self):
        return [one.ref for one in self.storage.cluster.images if one.parent]

    def open_clones(self):
        return [writer for host in self.hosts.values() for writer in host]


class FakeSandbox:
    """A sandbox on a host; a killed process leaves its storage daemons behind."""

    isolation = 'namespace'
    memory_limit = 'cgroup'

    def __init__(self, world, writers):
        self._world = world
        self._writers = writers
        self._writer = None

    def clear_killed(self):
        self._world.do('clear_killed')
        while self._writers:
            self._writers.pop().close()

    def open(self, clone):
        if self._world.on_open:
            self._world.on_open()
        self._writer = self._world.storage.open_writer(clone)
        self._writers.append(self._writer)
        self._world.do('open')

    def serve(self, version):
        self._world.do('serve')
        return FakeServer(self._world)

    def prove_healthy(self):
        self._world.do('prove_healthy')

    def abort(self):
        self._world.aborted += 1
        self._world.do('abort')

    def close(self):
        self._world.do('close')
        if self._writer is not None:
            self._writers.remove(self._writer)
            self._writer.close()
            self._writer = None


class FakeServer:
    data_version = '9.7.3'
    recovery_sec = 1.5

    def __init__(self, world):
        self._world = world

    def _do(self, name):
        self._world.do(name)

    def check_undisturbed(self):
        self._do('check_undisturbed')

    def prepared_transactions(self):
        self._do('prepared_transactions')
        return self._world.prepared, len(self._world.prepared)

    def start(self, timeout_sec):
        self._do('start')

    def kill(self):
        self._do('kill')

    def version(self):
        self._do('version')
        return '9.7.4'

    def gtid_executed(self):
        self._do('gtid_executed')
        return self._world.position

    def missing_and_extra(self, expected, found):
        last = int(expected.rpartition('-')[2])
        return (
            f'{SOURCE}:304-{last}' if last > 303 else '',
            f'{SOURCE}:{last + 1}-303' if last < 303 else '',
        )

    def tables(self):
        self._do('tables')
        return self._world.tables

    def check(self, table):
        self._do(f'check {table}')
        self._world.checked.append(table)

    def read_ends(self, table, limit_bytes):
        self._do(f'read_ends {table}')
        self._world.read_in_part[table.name] = limit_bytes


def corrupt(reason):
    return verification.NotSoundError(verification.CORRUPT, reason)


def fault(reason='the storage daemon has ended'):
    return exceptions.InspectionFaultError(reason)


def refused():
    return exceptions.NotInspectableError('no server')
