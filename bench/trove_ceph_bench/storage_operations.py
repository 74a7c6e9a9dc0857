# SPDX-License-Identifier: Apache-2.0
"""Operations of storage as commands, for plans of operations: what is timed, and what it needs.

They do on a cluster, with an operator's key, what the storage service does, and nothing to images
whose names do not begin with ``bench-``. Figures that a plan keeps beside the time are written into
files of its directory, one for each.
"""

import argparse
import collections
import dataclasses
import functools
import os
import random
import re
import resource
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent import futures
from pathlib import Path
from typing import Any

from oslo_config import cfg
from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.conf import verification
from trove_ceph.mysql import installation
from trove_ceph.storage import backend, copying, image_types, malloc, tasks, throttle
from trove_ceph.verification import inspection, on_host, report
from trove_ceph_bench.targets import specification

PREFIX = 'bench-'
#: How much a change writes at once: a page of InnoDB.
PAGE_BYTES = 16 * 1024
# Changes overlap by multiples of this; what lies within a sector of it counts once.
_STEP_BYTES = 4096
# What stands for data that lies here and there, one to each object or fewer.
_CRUMB_BYTES = 64 * 1024
_WRITES_AT_ONCE = 16
#: Of a datastore that has one server, whatever its version is.
VERSION = '0.0.0'
#: A client that was killed counts as one for 30 s.
BUSY_TIMEOUT_SEC = 45
_POLL_SEC = 1

_ANY_SNAPSHOT = re.compile(r'([^/@]+)/([^/@]+)@([^/@]+)')
_PLACE = re.compile(rf'(?P<pool>[^/@]+)/(?P<image>{PREFIX}[^/@]*)(@(?P<snapshot>[^/@]+))?')


class Operations:
    """The verbs; each prints what it did.

    :param phase: called with the name of each part when it is done
    :param keep: called with the name of a figure and the figure
    :param inspector: given a root file system with a mysqld, and whether to check all tables
    """

    def __init__(
        self,
        storage: backend.Backend,
        phase: Callable[[str], None],
        keep: Callable[[str, int], None],
        inspector: Callable[[Path | None, bool], inspection.Inspector],
    ):
        self._storage = storage
        self._phase = phase
        self._keep = keep
        self._inspector = inspector

    def make(
        self, image: image_types.ImageRef, size_mib: int, data_mib: int, snapshot: str
    ) -> None:
        """Make an image with data that is always the same, and a snapshot of it.

        :param data_mib: as much as the size is data without a hole; less lies scattered evenly
        """
        size_bytes = size_mib * units.Mi
        if data_mib >= size_mib:
            offsets, length = range(0, size_bytes, units.Mi), units.Mi
        else:
            count, length = data_mib * units.Mi // _CRUMB_BYTES, _CRUMB_BYTES
            step = size_bytes // max(count, 1) // length * length
            offsets = range(0, size_bytes, step)[:count]
        self._storage.create_image(image, size_bytes, image_types.ImageOptions())
        with self._storage.open_writer(image) as writer:
            _write(writer, offsets, length)
            writer.create_snapshot(snapshot)

    def change(
        self, image: image_types.ImageRef, writes: int, overlapping: bool, snapshot: str
    ) -> None:
        """Write pages into an image, always at the same random places, and make a snapshot.

        :param overlapping: within an eighth of the image, each part of a page aside of others
        """
        with self._storage.open_writer(image) as writer:
            size_bytes = writer.facts().size_bytes
            step, end = (_STEP_BYTES, size_bytes // 8) if overlapping else (PAGE_BYTES, size_bytes)
            places = random.Random(writes)
            offsets = [places.randrange((end - PAGE_BYTES) // step) * step for _ in range(writes)]
            _write(writer, offsets, PAGE_BYTES)
            writer.create_snapshot(snapshot)
        steps = {at + number for at in offsets for number in range(0, PAGE_BYTES, _STEP_BYTES)}
        self._keep('changed_bytes', len(steps) * _STEP_BYTES)

    def copy(
        self,
        snapshot: image_types.SnapshotRef,
        image: image_types.ImageRef,
        since: str | None = None,
    ) -> None:
        """Copy a snapshot as the storage service does; its parts are moving and verifying."""
        # The service runs already, and is connected.
        self._storage.describe(snapshot.of, with_usage=False)
        self._phase('connected')
        before_bytes = _peak_bytes()
        phases = _Phases(self._phase, 'copying')
        limits = throttle.Throttle(progress=lambda progress: phases.begin(progress.phase))
        report = copying.copy(
            self._storage, snapshot, self._storage, image, since=since, limits=limits
        )
        phases.end()
        self._keep('moved_bytes', report.copied_bytes)
        self._keep('compared_bytes', report.compared_bytes)
        self._keep('memory_bytes', _peak_bytes() - before_bytes)

    def verify(self, snapshot: image_types.SnapshotRef, root: Path | None, deep: bool) -> None:
        """Verify a backup as the storage service does; its parts are those of an inspection.

        :raises LoadFailedError: it is not sound
        """
        phases = _Phases(self._phase, inspection.FIRST_PHASE)
        found = self._inspector(root, deep).inspect(
            tasks.InspectTask(snapshot, str(uuid.uuid4()), VERSION),
            image_types.ImageOptions(),
            note=lambda phase, *_: phases.begin(phase),
        )
        phases.end()
        self._keep('tables_checked', found.tables_checked)
        self._keep('tables_in_part', found.tables_in_part)
        if not found.ok:
            raise exceptions.LoadFailedError(f'{snapshot} is {found}: {"; ".join(found.reasons)}')

    def snapshot(self, image: image_types.ImageRef, count: int) -> None:
        """Make so many snapshots of an image, one after another."""
        for number in range(count):
            self._storage.create_snapshot(image.snapshot(f'{PREFIX}{number}'))
        self._phase('snapshots')

    def clone(
        self, snapshot: image_types.SnapshotRef, image: image_types.ImageRef, count: int
    ) -> None:
        """Make so many clones of a snapshot, one after another; their names are numbered."""
        for number in range(count):
            clone = image_types.ImageRef(image.pool, f'{image.name}-{number}')
            self._storage.clone(snapshot, clone, image_types.ImageOptions())
        self._phase('clones')

    def populate(
        self, image: image_types.ImageRef, images: int, snapshots: int, size_mib: int, at_once: int
    ) -> None:
        """Have exactly so many empty images with so many snapshots; their names are numbered.

        Those that are there stay, so that a larger number costs its difference alone.
        """
        names = [f'{image.name}-{number:05}' for number in range(images)]
        wanted = {image_types.ImageRef(image.pool, name) for name in names}
        kept, surplus = set(), []
        for facts in self._found([image_types.ImageRef(image.pool, f'{image.name}-')]):
            as_wanted = (
                facts.size_bytes == size_mib * units.Mi and len(facts.snapshots) == snapshots
            )
            if facts.image in wanted and as_wanted:
                kept.add(facts.image)
            else:
                surplus.append(facts)

        def make(made: image_types.ImageRef) -> None:
            self._storage.create_image(made, size_mib * units.Mi, image_types.ImageOptions())
            with self._storage.open_writer(made) as writer:
                for number in range(snapshots):
                    writer.create_snapshot(f's{number}')

        _at_once(self._remove, surplus, at_once)
        _at_once(make, sorted(wanted - kept), at_once)

    def describe_pool(self, pool: str) -> None:
        """Describe all images of a pool in one sweep, and keep what was found until its end."""
        # What the first image costs is not the sweep's: connecting, threads, buffers.
        next(self._storage.describe_pool(pool), None)
        self._phase('connected')
        before_bytes = _peak_bytes()
        found = list(self._storage.describe_pool(pool))
        self._phase('described')
        self._keep('images', len(found))
        self._keep('snapshots', sum(len(facts.snapshots) for facts in found))
        self._keep('memory_bytes', _peak_bytes() - before_bytes)

    def limit(self, image: image_types.ImageRef, iops: int) -> None:
        """Limit an image as a tier does whose limits are the image's."""
        self._storage.set_qos(image, image_types.Qos(iops=iops))

    def used(self, image: image_types.ImageRef) -> None:
        """Print how many bytes an image occupies with its snapshots."""
        print(self._storage.describe(image).used_bytes)

    def remove(self, images: Iterable[image_types.ImageRef], at_once: int) -> None:
        """Remove all images whose names begin with those given, clones first; none is fine."""
        found = self._found(images)
        for is_clone in (True, False):
            chosen = [facts for facts in found if bool(facts.parent) == is_clone]
            _at_once(self._remove, chosen, at_once)

    def _found(self, images: Iterable[image_types.ImageRef]) -> list[image_types.ImageFacts]:
        """Return all images whose names begin with those given."""
        # The places may be the same, or overlap.
        found = {
            facts.image: facts
            for image in images
            for facts in self._storage.describe_pool(image.pool)
            if facts.image.name.startswith(image.name)
        }
        return list(found.values())

    def _remove(self, facts: image_types.ImageFacts) -> None:
        for snapshot in facts.snapshots:
            if not snapshot.removed:
                self._storage.remove_snapshot(facts.image.snapshot(snapshot.name))
        deadline = time.monotonic() + BUSY_TIMEOUT_SEC
        while True:
            try:
                self._storage.remove(facts.image)
                return
            except exceptions.BusyError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SEC)


class _Phases:
    """Tells of parts at their ends, by those who tell when they begin."""

    def __init__(self, tell: Callable[[str], None], first: str):
        self._tell = tell
        self._current = first

    def begin(self, name: str) -> None:
        if name != self._current:
            self.end()
            self._current = name

    def end(self) -> None:
        self._tell(self._current)


def _write(writer: backend.ImageWriter, offsets: Iterable[int], length: int) -> None:
    """Write data that cannot be compressed, the same at the same place."""
    begun: collections.deque[futures.Future[None]] = collections.deque()
    for offset in offsets:
        if len(begun) == _WRITES_AT_ONCE:
            begun.popleft().result()
        begun.append(writer.write(offset, random.Random(offset).randbytes(length)))
    for write in begun:
        write.result()


def _at_once(work: Callable[[Any], None], items: Iterable[Any], count: int) -> None:
    with futures.ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(work, item) for item in items]:
            done.result()


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _image(text: str) -> image_types.ImageRef:
    found = _PLACE.fullmatch(text)
    if not found or found['snapshot']:
        raise argparse.ArgumentTypeError(f'{text!r} is not POOL/{PREFIX}NAME')
    return image_types.ImageRef(found['pool'], found['image'])


def _snapshot(text: str) -> image_types.SnapshotRef:
    found = _PLACE.fullmatch(text)
    if not found or not found['snapshot']:
        raise argparse.ArgumentTypeError(f'{text!r} is not POOL/{PREFIX}NAME@SNAPSHOT')
    return image_types.SnapshotRef(found['pool'], found['image'], found['snapshot'])


def _any_snapshot(text: str) -> image_types.SnapshotRef:
    found = _ANY_SNAPSHOT.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(f'{text!r} is not POOL/IMAGE@SNAPSHOT')
    return image_types.SnapshotRef(*found.groups())


_COUNT = {'type': int, 'required': True, 'metavar': 'N'}
_AT_ONCE = {'type': int, 'default': 16, 'metavar': 'N', 'help': 'in parallel (%(default)s)'}
_SNAPSHOT_NAME = {'default': 's', 'help': 'its name (%(default)s)'}
#: What each verb is for, and its arguments.
_VERBS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    'make': (
        'make an image with data that is always the same, and a snapshot of it',
        {
            'image': {'type': _image},
            '--size-mib': _COUNT,
            '--data-mib': {**_COUNT, 'help': 'less than its size lies scattered evenly'},
            '--snapshot': _SNAPSHOT_NAME,
        },
    ),
    'change': (
        'write 16 KiB at so many random places, always the same, and make a snapshot',
        {
            'image': {'type': _image},
            '--writes': _COUNT,
            '--overlapping': {'action': 'store_true', 'help': 'with each other'},
            '--snapshot': _SNAPSHOT_NAME,
        },
    ),
    'copy': (
        'copy a snapshot, or what changed after another, and verify the copy',
        {'snapshot': {'type': _snapshot}, 'image': {'type': _image}, '--since': {}},
    ),
    'verify': (
        'have a mysqld start on a clone of a snapshot, and check its tables',
        {
            'snapshot': {'type': _any_snapshot},
            '--root': {
                'type': Path,
                'metavar': 'DIR',
                'help': 'with a mysqld (the newest one in TROVE_CEPH_CACHE)',
            },
            '--deep': {'action': 'store_true', 'help': 'all tables, not a sample'},
        },
    ),
    'snapshot': (
        'make snapshots one after another',
        {'image': {'type': _image}, '--count': _COUNT},
    ),
    'clone': (
        'make clones one after another',
        {'snapshot': {'type': _snapshot}, 'image': {'type': _image}, '--count': _COUNT},
    ),
    'populate': (
        'have exactly so many empty images with snapshots: make what lacks, remove the others',
        {
            'image': {'type': _image},
            '--images': _COUNT,
            '--snapshots': _COUNT,
            '--size-mib': _COUNT,
            '--at-once': _AT_ONCE,
        },
    ),
    'describe-pool': ('describe all images of a pool in one sweep', {'pool': {}}),
    'limit': (
        'limit how many requests a second an image takes, as a tier of "qos: image" does',
        {'image': {'type': _image}, '--iops': _COUNT},
    ),
    'used': ('print how many bytes an image occupies', {'image': {'type': _image}}),
    'remove': (
        'remove all images whose names begin with these',
        {'images': {'type': _image, 'nargs': '+'}, '--at-once': _AT_ONCE},
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the verbs and their arguments."""
    environment = os.environ.get
    parser.add_argument(
        '--conf',
        default=environment('BENCH_CEPH_CONF') or specification.DEFAULT_CEPH_CONF,
        help="the cluster's configuration (%(default)s)",
    )
    parser.add_argument(
        '--user',
        default=environment('BENCH_CEPH_USER') or specification.DEFAULT_CEPH_USER,
        help='cephx user without "client." (%(default)s)',
    )
    parser.add_argument(
        '--figures',
        type=Path,
        default=environment('BENCH_DIRECTORY'),
        metavar='DIR',
        help='where figures such as moved_bytes are written, a file for each (%(default)s)',
    )
    verbs = parser.add_subparsers(dest='verb', required=True, metavar='VERB')
    for verb, (text, given) in _VERBS.items():
        command = verbs.add_parser(verb, help=text, description=text)
        actions = [command.add_argument(name, **options) for name, options in given.items()]
        command.set_defaults(parameters=[action.dest for action in actions])


def main(arguments: argparse.Namespace) -> None:
    """Carry out the verb that was parsed.

    :raises StorageError: Ceph refused, or did not answer
    """
    # The other commands do without Ceph's libraries.
    from trove_ceph.storage.ceph import backend as ceph_backend
    from trove_ceph.storage.ceph import connection

    malloc.share()
    link = connection.Connection(arguments.conf, f'client.{arguments.user}')
    storage = ceph_backend.CephBackend(link)
    operations = Operations(
        storage,
        _print_phase,
        functools.partial(keep, arguments.figures),
        functools.partial(_inspector, storage, arguments.conf, arguments.user),
    )
    verb = getattr(operations, arguments.verb.replace('-', '_'))
    try:
        verb(**{name: getattr(arguments, name) for name in arguments.parameters})
    finally:
        link.close()


def _inspector(
    storage: backend.Backend, ceph_conf: str, ceph_user: str, root: Path | None, deep: bool
) -> inspection.Inspector:
    """Return an inspector with the service's own defaults.

    :raises NotInspectableError: there is no mysqld
    """
    root = root or installation.find_newest_rootfs(specification.Settings().cache)
    if root is None:
        raise exceptions.NotInspectableError('TROVE_CEPH_CACHE has no MySQL root file system')
    options = cfg.ConfigOpts()
    verification.register(options)
    options([])
    settings = dataclasses.replace(
        report.settings_of(options.trove_ceph_verification),
        roots={VERSION: root},
        directory=Path(tempfile.gettempdir()) / 'trove-ceph-bench-verify',
        deep=deep,
    )
    return inspection.Inspector(
        storage, lambda: on_host.HostSandbox(ceph_conf, ceph_user, settings), settings
    )


def _print_phase(name: str) -> None:
    print(f'phase {name}', flush=True)


def keep(directory: Path | None, name: str, figure: int) -> None:
    """Print a figure, and write it into a file of its own where a plan finds it."""
    print(f'{name} {figure}')
    if directory:
        (directory / name).write_text(f'{figure}\n')
