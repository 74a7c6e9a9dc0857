# SPDX-License-Identifier: Apache-2.0
"""Copy snapshots to another pool or cluster: what ``rbd export-diff | rbd import-diff`` does.

Never by ``deep_copy`` or migration, which gave wrong data without an error where a snapshot had
been removed and not yet trimmed.

A copy counts once the destination has the snapshot *and* an entry in its metadata says that it was
verified: read back at the snapshot, and held against the checksum of what was read of the source.
Until then another entry says what is being copied, up to where it is on disk, and the checksum so
far. A difference can be applied again over a part of itself, so a copy that was interrupted goes on
from there. What is left of another difference is rolled back first.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Callable
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.storage import backend, difference, image_types, throttle, transfer, verify

LOG = logging.getLogger(__name__)

_COPYING = 'trove_ceph.copying'
_COPIED = 'trove_ceph.copied.'


@dataclasses.dataclass(frozen=True)
class Origin:
    """What is copied: a snapshot by ids that are never used twice.

    :param since_id: the snapshot on which an increment stands; None for a full copy
    """

    cluster_id: str
    image_id: str
    snapshot_id: int
    since_id: int | None


@dataclasses.dataclass(frozen=True)
class CopyReport:
    """What one run of a copy did; all zero where it had been complete before.

    :param resumed_at: from which byte of the image it went on
    :param compared_bytes: how much of the copy was read back and found right
    :param copy_sec: how long the moving took
    :param compare_sec: how long making the snapshot and verifying it took
    :param used_bytes: what the snapshot holds, in whole objects
    """

    snapshot: image_types.SnapshotRef
    copied_bytes: int = 0
    zeroed_bytes: int = 0
    compared_bytes: int = 0
    resumed_at: int = 0
    copy_sec: float = 0.0
    compare_sec: float = 0.0
    used_bytes: int = 0


def complete_copies(facts: image_types.ImageFacts) -> dict[str, Origin]:
    """Return the snapshots of an image that are complete copies, in their order."""
    found = {}
    for snapshot in sorted(facts.snapshots, key=lambda one: one.snapshot_id):
        entry = _load(facts, _COPIED + snapshot.name)
        if entry and not snapshot.removed:
            found[snapshot.name] = Origin(**entry['origin'])
    return found


def copy(
    source: backend.Backend,
    snapshot: image_types.SnapshotRef,
    target: backend.Backend,
    image: image_types.ImageRef,
    *,
    since: str | None = None,
    options: image_types.ImageOptions | None = None,
    limits: throttle.Throttle | None = None,
    compare_all: bool = False,
) -> CopyReport:
    """Make ``image`` hold a complete copy of a snapshot, under the snapshot's name.

    Called again it carries on where it ended; when the copy is complete it changes nothing. The
    image is held exclusively meanwhile.

    :param since: an earlier snapshot of which the image holds a complete copy: only what changed
        after it is moved. None makes the image, and moves everything
    :param options: how the image is made
    :param compare_all: at the end read all of both and compare it byte for byte
    :raises AlreadyExistsError: the image holds something else
    :raises NotFoundError: there is no complete copy of ``since``, or the source is not there, or
        was removed meanwhile
    :raises BusyError: another client holds the image
    :raises NoSpaceError: the target is full; the message carries the fill
    :raises CorruptCopyError: the copy is not what its source is; the next call starts over
    :raises CanceledError: it was asked to stop
    """
    limits = limits or throttle.Throttle()
    origin = _origin(source, snapshot, since)
    if since is None:
        _ensure_image(source, snapshot, target, image, options or image_types.ImageOptions())
    LOG.info('Copying %s to %s, since %s', snapshot, image, since or 'the beginning')
    try:
        with target.open_writer(image) as writer, source.open_reader(snapshot) as reader:
            destination = _Destination(
                target,
                image,
                writer,
                origin,
                snapshot.name,
                since,
                lambda: _origin(source, snapshot, since) == origin,
            )
            if destination.is_complete():
                return CopyReport(image.snapshot(snapshot.name))
            report = destination.receive(reader, limits, compare_all)
    except exceptions.NoSpaceError as error:
        raise _with_fill(target, image, error) from error
    LOG.info('Copied %s: %s', snapshot, report)
    return report


def _with_fill(
    target: backend.Backend, image: image_types.ImageRef, error: exceptions.NoSpaceError
) -> exceptions.NoSpaceError:
    data_pool = target.describe(image, with_usage=False).data_pool
    fills = [str(target.usage(pool)) for pool in (image.pool, data_pool) if pool]
    return exceptions.NoSpaceError('; '.join([str(error), *fills]))


def _origin(
    source: backend.Backend, snapshot: image_types.SnapshotRef, since: str | None
) -> Origin:
    facts = source.describe(snapshot.of, with_usage=False)

    def snapshot_id(name: str) -> int:
        found = facts.find_snapshot(name)
        if found is None:
            raise exceptions.NotFoundError(f'{snapshot.of.snapshot(name)}: there is none')
        return found.snapshot_id

    return Origin(
        source.cluster_id,
        facts.image_id,
        snapshot_id(snapshot.name),
        None if since is None else snapshot_id(since),
    )


def _ensure_image(
    source: backend.Backend,
    snapshot: image_types.SnapshotRef,
    target: backend.Backend,
    image: image_types.ImageRef,
    options: image_types.ImageOptions,
) -> None:
    with source.open_reader(snapshot) as reader:
        size_bytes = reader.size_bytes
    try:
        target.create_image(image, size_bytes, options)
    except exceptions.AlreadyExistsError:
        # Whose it is, is found out under its lock.
        LOG.debug('%s exists', image)


class _Destination:
    """The image that becomes the copy, under our lock, and what it remembers."""

    def __init__(
        self,
        target: backend.Backend,
        image: image_types.ImageRef,
        writer: backend.ImageWriter,
        origin: Origin,
        name: str,
        since: str | None,
        is_source_there: Callable[[], bool],
    ):
        self._is_source_there = is_source_there
        self._target = target
        self._image = image
        self._writer = writer
        self._origin = origin
        self._name = name
        self._since = since
        self._facts = writer.facts()
        self._copies = complete_copies(self._facts)
        begun = _load(self._facts, _COPYING)
        # Killed at the very end, a complete copy is still remembered as begun.
        self._begun = None if begun and begun['name'] in self._copies else begun

    def is_complete(self) -> bool:
        """Whether there is nothing to do.

        :raises AlreadyExistsError: a complete copy of something else has the name
        """
        found = self._copies.get(self._name)
        if found is None:
            return False
        if _snapshot_of(found) != _snapshot_of(self._origin):
            raise exceptions.AlreadyExistsError(
                f'{self._image.snapshot(self._name)}: is the copy of another snapshot'
            )
        if self._begun is None and _COPYING in self._facts.metadata:
            self._writer.set_metadata(_COPYING, None)
        return True

    def receive(
        self, reader: backend.ImageReader, limits: throttle.Throttle, compare_all: bool
    ) -> CopyReport:
        """Go on from what is there until the copy is complete."""
        start = self._prepare(reader.size_bytes)
        began = time.monotonic()
        moving = transfer.Transfer(reader, self._writer, self._since, limits, self._mark)
        end = moving.run(start)
        moved = time.monotonic()
        compared_bytes = self._complete(reader, limits, None if compare_all else end.checksum)
        return CopyReport(
            snapshot=self._image.snapshot(self._name),
            copied_bytes=moving.copied_bytes,
            zeroed_bytes=moving.zeroed_bytes,
            compared_bytes=compared_bytes,
            resumed_at=start.position_bytes,
            copy_sec=moved - began,
            compare_sec=time.monotonic() - moved,
            used_bytes=sum(
                extent.length for extent in difference.extents(reader, None) if extent.exists
            ),
        )

    def _prepare(self, size_bytes: int) -> transfer.Mark:
        """Bring the image into the state on which the copy stands; return where to go on."""
        begun = self._begun
        if begun and begun['origin'] == dataclasses.asdict(self._origin):
            reached = transfer.Mark(**begun['mark'])
            LOG.info('%s: going on at byte %d', self._image, reached.position_bytes)
            return reached
        if begun and self._facts.find_snapshot(begun['name']):
            self._writer.remove_snapshot(begun['name'])
        if self._since is None:
            self._ensure_empty(ours=begun is not None)
        else:
            self._ensure_at_base(clean=begun is None)
        self._writer.resize(size_bytes)
        self._forget_removed()
        self._mark(transfer.Mark())
        return transfer.Mark()

    def _ensure_empty(self, ours: bool) -> None:
        if self._copies or (not ours and self._target.describe(self._image).used_bytes):
            raise exceptions.AlreadyExistsError(f'{self._image}: holds something else')
        if ours:
            self._writer.resize(0)

    def _ensure_at_base(self, clean: bool) -> None:
        base = self._copies.get(self._since or '')
        if base is None or _snapshot_of(base) != (
            self._origin.cluster_id,
            self._origin.image_id,
            self._origin.since_id,
        ):
            raise exceptions.NotFoundError(
                f'{self._image}: holds no complete copy of the snapshot {self._since}'
            )
        if not clean or list(self._copies)[-1] != self._since:
            self._writer.roll_back(self._since or '')

    def _forget_removed(self) -> None:
        """Remove what is remembered of copies whose snapshots were removed since."""
        for key in self._facts.metadata:
            if key.startswith(_COPIED) and key.removeprefix(_COPIED) not in self._copies:
                self._writer.set_metadata(key, None)

    def _mark(self, reached: transfer.Mark) -> None:
        """Remember that everything before is on disk."""
        self._remember(dataclasses.asdict(self._origin), reached)

    def _remember(self, origin: dict[str, Any] | None, reached: transfer.Mark) -> None:
        entry = {'origin': origin, 'name': self._name, 'mark': dataclasses.asdict(reached)}
        self._writer.set_metadata(_COPYING, self._entry(entry))

    def _entry(self, entry: dict[str, Any]) -> str:
        # A clone inherits the metadata: what it says then is of another image.
        return json.dumps(entry | {'image_id': self._facts.image_id})

    def _complete(
        self, reader: backend.ImageReader, limits: throttle.Throttle, expected: int | None
    ) -> int:
        """Make the snapshot, verify it, and let it count; return how many bytes were compared.

        :param expected: the checksum of what was moved; None compares everything
        """
        if not self._facts.find_snapshot(self._name):
            self._writer.create_snapshot(self._name)
        made = self._image.snapshot(self._name)
        label = str(made)
        try:
            with self._target.open_reader(made) as copied:
                if expected is None:
                    compared = verify.compare(reader, copied, None, limits, label)
                else:
                    compared = verify.verify(reader, copied, self._since, expected, limits, label)
            self._check_source()
        except (exceptions.CorruptCopyError, exceptions.NotFoundError):
            # Forget how far it was: the next attempt starts from the base.
            self._remember(None, transfer.Mark())
            self._writer.remove_snapshot(self._name)
            raise
        entry = self._entry({'origin': dataclasses.asdict(self._origin)})
        self._writer.set_metadata(_COPIED + self._name, entry)
        self._writer.set_metadata(_COPYING, None)
        return compared

    def _check_source(self) -> None:
        """Demand that the source was there until now: a removed snapshot is trimmed as we read."""
        with contextlib.suppress(exceptions.NotFoundError):
            if self._is_source_there():
                return
        raise exceptions.NotFoundError(
            f'{self._image.snapshot(self._name)}: what it was copied from was removed meanwhile'
        )


def _load(facts: image_types.ImageFacts, key: str) -> dict[str, Any] | None:
    text = facts.metadata.get(key)
    entry = json.loads(text) if text else None
    return entry if entry and entry.pop('image_id') == facts.image_id else None


def _snapshot_of(origin: Origin) -> tuple[str, str, int | None]:
    return origin.cluster_id, origin.image_id, origin.snapshot_id
