# SPDX-License-Identifier: Apache-2.0
"""A fake cluster on which golden volumes are built, by hosts without a MySQL."""

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.golden import build
from trove_ceph.storage import golden, image_types, tasks
from trove_ceph.storage.fake import backend, cluster
from trove_ceph.verification import report

VOLUME = golden.GoldenVolume('volumes', '9.7.4', 1)
DATA = b'data of a new server'


class World:
    """The state that outlives a process: the cluster, and the directories of a host."""

    def __init__(self):
        self.storage = backend.FakeBackend(cluster.Cluster({'volumes': 1024 * units.Mi}))
        self.work = tasks.GoldenTask.of(VOLUME)
        #: The directories that exist on the host.
        self.directories = []
        #: By name of a method: the error that it raises.
        self.raises = {}
        #: What the inspection finds.
        self.found = report.Inspection(report.SOUND)
        self.inspected = []
        self.phases = []

    def do(self, name):
        if name in self.raises:
            raise self.raises[name]

    def builder(self, storage=None):
        found = storage or self.storage
        return build.Builder(found, FakeInspector(self, found), lambda: FakeContent(self))

    def build(self, **options):
        self.builder().build(
            self.work,
            image_types.ImageOptions(),
            note=lambda phase, *_: self.phases.append(phase),
            **options,
        )

    def operation(self):
        """Return the steps of a build by a new process."""
        return self.builder().plan(self.work, image_types.ImageOptions()).steps()

    def state(self):
        """Return the state of the golden volume; None if it does not exist."""
        try:
            return golden.state_of(self.storage.describe(VOLUME.image))
        except exceptions.NotFoundError:
            return None

    def images(self):
        return [one.ref for one in self.storage.cluster.images]

    def content(self, state=golden.State.READY):
        with self.storage.open_reader(VOLUME.snapshot(state)) as reader:
            return reader.read(0, len(DATA)).result()


class FakeInspector:
    def __init__(self, world, storage):
        self._world = world
        self._storage = storage

    def inspect(self, work, options, cancel, is_allowed, note):
        """Clone and remove the clone, as an inspection does."""
        self._storage.clone(work.snapshot, work.clone, options)
        self._world.inspected.append(work)
        self._world.do('inspect')
        self._storage.remove(work.clone)
        return self._world.found


class FakeContent:
    """Content in a directory of the host, which a killed process leaves."""

    def __init__(self, world):
        self._world = world
        self._own = []

    def clear_killed(self):
        self._world.do('clear_killed')
        self._world.directories.clear()

    def open(self):
        directory = {}
        self._own.append(directory)
        self._world.directories.append(directory)

    def initialise(self, version, check):
        check()
        self._world.do('initialise')
        self._own[0]['version'] = version

    def format(self, size_bytes):
        self._world.do('format')
        self._own[0]['bytes'] = size_bytes

    def write(self, writer, note):
        note(0, self._own[0]['bytes'])
        self._world.do('write')
        writer.write(0, DATA).result()
        return len(DATA)

    def close(self):
        while self._own:
            directory = self._own.pop()
            if directory in self._world.directories:
                self._world.directories.remove(directory)
