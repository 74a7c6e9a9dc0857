# SPDX-License-Identifier: Apache-2.0
"""Storage operations as commands for plans of operations, and commands that prepare for them.

With an operator's key they do on a cluster what the storage service does, and change only images
whose names begin with ``bench-``. Figures that a plan records beside the time are written to its
directory, one file for each.
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
from trove_ceph_bench import operation_output
from trove_ceph_bench.targets import specification

PREFIX = 'bench-'
#: Size of one write of a change: a page of InnoDB.
PAGE_BYTES = 16 * 1024
# Overlapping changes are aligned to this size; a step that is written twice counts once.
_STEP_BYTES = 4096
# Size of one extent of scattered data, at most one per object.
_EXTENT_BYTES = 64 * 1024
_CONCURRENT_WRITES = 16
#: Version of the only server of the datastore, whatever its real version is.
VERSION = '0.0.0'
#: Ceph lists a killed client as a watcher for 30 s.
BUSY_TIMEOUT_SEC = 45
_POLL_SEC = 1

_ANY_SNAPSHOT = re.compile(r'([^/@]+)/([^/@]+)@([^/@]+)')
_BENCH_IMAGE = re.compile(rf'(?P<pool>[^/@]+)/(?P<image>{PREFIX}[^/@]*)(@(?P<snapshot>[^/@]+))?')


class Operations:
    """The verbs of ``trove-ceph-bench storage``.

    :param phase: called with the name of each phase when it ends
    :param record: called with the name of a figure and the figure
    :param inspector: returns an inspector for a root file system with a mysqld; its second argument
        is whether to check all tables
    """

    def __init__(
        self,
        storage: backend.Backend,
        phase: Callable[[str], None],
        record: Callable[[str, int], None],
        inspector: Callable[[Path | None, bool], inspection.Inspector],
    ):
        self._storage = storage
        self._phase = phase
        self._record = record
        self._inspector = inspector

    def make(
        self, image: image_types.ImageRef, size_mib: int, data_mib: int, snapshot: str
    ) -> None:
        """Create an image with data that is the same each time, and a snapshot of it.

        :param data_mib: equal to the size for an image without holes; less is scattered evenly
        """
        size_bytes = size_mib * units.Mi
        if data_mib >= size_mib:
            offsets, length = range(0, size_bytes, units.Mi), units.Mi
        else:
            count, length = data_mib * units.Mi // _EXTENT_BYTES, _EXTENT_BYTES
            step = size_bytes // max(count, 1) // length * length
            offsets = range(0, size_bytes, step)[:count]
        self._storage.create_image(image, size_bytes, image_types.ImageOptions())
        with self._storage.open_writer(image) as writer:
            _write(writer, offsets, length)
            writer.create_snapshot(snapshot)

    def change(
        self, image: image_types.ImageRef, writes: int, overlapping: bool, snapshot: str
    ) -> None:
        """Write pages to an image, at the same random offsets each time, and create a snapshot.

        :param overlapping: write within the first eighth of the image, at offsets where pages
            overlap in part
        """
        with self._storage.open_writer(image) as writer:
            size_bytes = writer.facts().size_bytes
            step, end = (_STEP_BYTES, size_bytes // 8) if overlapping else (PAGE_BYTES, size_bytes)
            generator = random.Random(writes)
            offsets = [
                generator.randrange((end - PAGE_BYTES) // step) * step for _ in range(writes)
            ]
            _write(writer, offsets, PAGE_BYTES)
            writer.create_snapshot(snapshot)
        steps = {
            offset + number for offset in offsets for number in range(0, PAGE_BYTES, _STEP_BYTES)
        }
        self._record('changed_bytes', len(steps) * _STEP_BYTES)

    def copy(
        self,
        snapshot: image_types.SnapshotRef,
        image: image_types.ImageRef,
        since: str | None = None,
    ) -> None:
        """Copy a snapshot as the storage service does; the phases are copying and verifying."""
        # The service is already connected when it copies.
        self._storage.describe(snapshot.of, with_usage=False)
        self._phase('connected')
        before_bytes = _peak_bytes()
        phases = _Phases(self._phase, 'copying')
        limits = throttle.Throttle(progress=lambda progress: phases.begin(progress.phase))
        report = copying.copy(
            self._storage, snapshot, self._storage, image, since=since, limits=limits
        )
        phases.end()
        self._record('moved_bytes', report.copied_bytes)
        self._record('compared_bytes', report.compared_bytes)
        self._record('memory_bytes', _peak_bytes() - before_bytes)

    def verify(self, snapshot: image_types.SnapshotRef, root: Path | None, deep: bool) -> None:
        """Verify a backup as the storage service does; the phases are those of an inspection.

        :raises LoadFailedError: the backup does not pass
        """
        phases = _Phases(self._phase, inspection.FIRST_PHASE)
        found = self._inspector(root, deep).inspect(
            tasks.InspectTask(snapshot, str(uuid.uuid4()), VERSION),
            image_types.ImageOptions(),
            note=lambda phase, *_: phases.begin(phase),
        )
        phases.end()
        self._record('tables_checked', found.tables_checked)
        self._record('tables_in_part', found.tables_in_part)
        if not found.ok:
            raise exceptions.LoadFailedError(f'{snapshot} is {found}: {"; ".join(found.reasons)}')

    def snapshot(self, image: image_types.ImageRef, count: int) -> None:
        """Create ``count`` snapshots of an image, one after another."""
        for number in range(count):
            self._storage.create_snapshot(image.snapshot(f'{PREFIX}{number}'))
        self._phase('snapshots')

    def clone(
        self, snapshot: image_types.SnapshotRef, image: image_types.ImageRef, count: int
    ) -> None:
        """Create ``count`` clones of a snapshot, one after another; their names are numbered."""
        for number in range(count):
            clone = image_types.ImageRef(image.pool, f'{image.name}-{number}')
            self._storage.clone(snapshot, clone, image_types.ImageOptions())
        self._phase('clones')

    def populate(
        self, image: image_types.ImageRef, images: int, snapshots: int, size_mib: int, at_once: int
    ) -> None:
        """Ensure that exactly ``images`` empty images exist, each with ``snapshots`` snapshots.

        Their names are numbered. Matching images stay, so that a larger number creates only the
        difference.

        :param at_once: number of images to create or remove in parallel
        """
        names = [f'{image.name}-{number:05}' for number in range(images)]
        desired = {image_types.ImageRef(image.pool, name) for name in names}
        existing, surplus = set(), []
        for facts in self._list_images([image_types.ImageRef(image.pool, f'{image.name}-')]):
            matches = facts.size_bytes == size_mib * units.Mi and len(facts.snapshots) == snapshots
            if facts.image in desired and matches:
                existing.add(facts.image)
            else:
                surplus.append(facts)

        def create(missing: image_types.ImageRef) -> None:
            self._storage.create_image(missing, size_mib * units.Mi, image_types.ImageOptions())
            with self._storage.open_writer(missing) as writer:
                for number in range(snapshots):
                    writer.create_snapshot(f's{number}')

        _run_parallel(self._remove, surplus, at_once)
        _run_parallel(create, sorted(desired - existing), at_once)

    def describe_pool(self, pool: str) -> None:
        """Describe all images of a pool in one sweep, and hold all results in memory."""
        # The first image pays for the connection, threads and buffers; exclude it.
        next(self._storage.describe_pool(pool), None)
        self._phase('connected')
        before_bytes = _peak_bytes()
        found = list(self._storage.describe_pool(pool))
        self._phase('described')
        self._record('images', len(found))
        self._record('snapshots', sum(len(facts.snapshots) for facts in found))
        self._record('memory_bytes', _peak_bytes() - before_bytes)

    def limit(self, image: image_types.ImageRef, iops: int) -> None:
        """Limit the IOPS of an image, as a tier with ``qos: image`` does."""
        self._storage.set_qos(image, image_types.Qos(iops=iops))

    def used(self, image: image_types.ImageRef) -> None:
        """Print the number of bytes that an image and its snapshots occupy."""
        print(self._storage.describe(image).used_bytes)

    def remove(self, images: Iterable[image_types.ImageRef], at_once: int) -> None:
        """Ensure that no image exists whose name begins with one of these; clones go first."""
        found = self._list_images(images)
        for is_clone in (True, False):
            chosen = [facts for facts in found if bool(facts.parent) == is_clone]
            _run_parallel(self._remove, chosen, at_once)

    def _list_images(self, images: Iterable[image_types.ImageRef]) -> list[image_types.ImageFacts]:
        """Return all images whose names begin with one of these."""
        # The prefixes may be equal or overlap.
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
    """Report a phase when the next one begins."""

    def __init__(self, report: Callable[[str], None], first: str):
        self._report = report
        self._current = first

    def begin(self, name: str) -> None:
        if name != self._current:
            self.end()
            self._current = name

    def end(self) -> None:
        self._report(self._current)


def _write(writer: backend.ImageWriter, offsets: Iterable[int], length: int) -> None:
    """Write data that does not compress, the same data at the same offset."""
    pending: collections.deque[futures.Future[None]] = collections.deque()
    for offset in offsets:
        if len(pending) == _CONCURRENT_WRITES:
            pending.popleft().result()
        pending.append(writer.write(offset, random.Random(offset).randbytes(length)))
    for write in pending:
        write.result()


def _run_parallel(function: Callable[[Any], None], items: Iterable[Any], count: int) -> None:
    with futures.ThreadPoolExecutor(count) as pool:
        for future in [pool.submit(function, item) for item in items]:
            future.result()


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _image(text: str) -> image_types.ImageRef:
    found = _BENCH_IMAGE.fullmatch(text)
    if not found or found['snapshot']:
        raise argparse.ArgumentTypeError(f'{text!r} is not POOL/{PREFIX}NAME')
    return image_types.ImageRef(found['pool'], found['image'])


def _snapshot(text: str) -> image_types.SnapshotRef:
    found = _BENCH_IMAGE.fullmatch(text)
    if not found or not found['snapshot']:
        raise argparse.ArgumentTypeError(f'{text!r} is not POOL/{PREFIX}NAME@SNAPSHOT')
    return image_types.SnapshotRef(found['pool'], found['image'], found['snapshot'])


def _any_snapshot(text: str) -> image_types.SnapshotRef:
    found = _ANY_SNAPSHOT.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(f'{text!r} is not POOL/IMAGE@SNAPSHOT')
    return image_types.SnapshotRef(*found.groups())


_COUNT = {'type': int, 'required': True, 'metavar': 'N'}
_AT_ONCE = {
    'type': int,
    'default': 16,
    'metavar': 'N',
    'help': 'images to process in parallel (%(default)s)',
}
_SNAPSHOT_NAME = {'default': 's', 'help': 'name of the snapshot (%(default)s)'}
#: The help text of each verb, and its arguments.
_VERBS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    'make': (
        'create an image with data that is the same each time, and a snapshot of it',
        {
            'image': {'type': _image},
            '--size-mib': _COUNT,
            '--data-mib': {**_COUNT, 'help': 'amount of data; less than the size is scattered'},
            '--snapshot': _SNAPSHOT_NAME,
        },
    ),
    'change': (
        'write 16 KiB at each of N random offsets, the same each time, and create a snapshot',
        {
            'image': {'type': _image},
            '--writes': _COUNT,
            '--overlapping': {'action': 'store_true', 'help': 'let the writes overlap in part'},
            '--snapshot': _SNAPSHOT_NAME,
        },
    ),
    'copy': (
        'copy a snapshot, or the changes since another one, and verify the copy',
        {'snapshot': {'type': _snapshot}, 'image': {'type': _image}, '--since': {}},
    ),
    'verify': (
        'start a mysqld on a clone of a snapshot, and check its tables',
        {
            'snapshot': {'type': _any_snapshot},
            '--root': {
                'type': Path,
                'metavar': 'DIR',
                'help': 'root file system with a mysqld (the newest in TROVE_CEPH_CACHE)',
            },
            '--deep': {'action': 'store_true', 'help': 'check all tables, not a sample'},
        },
    ),
    'snapshot': (
        'create snapshots one after another',
        {'image': {'type': _image}, '--count': _COUNT},
    ),
    'clone': (
        'create clones one after another',
        {'snapshot': {'type': _snapshot}, 'image': {'type': _image}, '--count': _COUNT},
    ),
    'populate': (
        'create or remove empty images until exactly this many exist, each with snapshots',
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
        'limit the requests per second of an image, as a tier with "qos: image" does',
        {'image': {'type': _image}, '--iops': _COUNT},
    ),
    'used': ('print the number of bytes that an image occupies', {'image': {'type': _image}}),
    'remove': (
        'remove all images whose names begin with these',
        {'images': {'type': _image, 'nargs': '+'}, '--at-once': _AT_ONCE},
    ),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verbs and their arguments to a parser."""
    environment = os.environ.get
    parser.add_argument(
        '--conf',
        default=environment('BENCH_CEPH_CONF') or specification.DEFAULT_CEPH_CONF,
        help='path of the ceph.conf (%(default)s)',
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
        help='directory for figures such as moved_bytes, one file for each (%(default)s)',
    )
    verbs = parser.add_subparsers(dest='verb', required=True, metavar='VERB')
    for verb, (text, accepted) in _VERBS.items():
        command = verbs.add_parser(verb, help=text, description=text)
        actions = [command.add_argument(name, **options) for name, options in accepted.items()]
        command.set_defaults(parameters=[action.dest for action in actions])


def main(arguments: argparse.Namespace) -> None:
    """Run the parsed verb.

    :raises StorageError: Ceph refused or did not answer
    """
    # The other commands need no Ceph libraries.
    from trove_ceph.storage.ceph import backend as ceph_backend
    from trove_ceph.storage.ceph import connection

    malloc.share()
    link = connection.Connection(arguments.conf, f'client.{arguments.user}')
    storage = ceph_backend.CephBackend(link)
    operations = Operations(
        storage,
        operation_output.print_phase,
        functools.partial(operation_output.record_figure, arguments.figures),
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
    """Return an inspector with the service's defaults.

    :raises NotInspectableError: the cache has no root file system with a mysqld
    """
    root = root or installation.find_newest_rootfs(specification.Settings().cache)
    if root is None:
        raise exceptions.NotInspectableError(
            'TROVE_CEPH_CACHE has no MySQL root file system; build one with '
            'lab/images/build mysql-rootfs, or name one with --root'
        )
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
