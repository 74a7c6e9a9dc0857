# SPDX-License-Identifier: Apache-2.0
"""Copy snapshots to another pool or cluster, as ``rbd export-diff | rbd import-diff`` does.

``deep_copy`` and migration are not used: they give wrong data without an error when a snapshot was
removed and is not yet trimmed.

A copy is complete when the target image has the snapshot *and* an entry in its metadata shows that
it was verified: read back at the snapshot and compared with the checksum of the data read from the
source. Until then another entry holds the origin of the copy, the position up to which data is on
disk, and the checksum so far. A difference can be applied again over a part of itself, so an
interrupted copy resumes at that position. A partial copy of another difference is rolled back
first.
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
    """The source of a copy: a snapshot, by ids that are never reused.

    :param since_id: the base snapshot of an increment; None for a full copy
    """

    cluster_id: str
    image_id: str
    snapshot_id: int
    since_id: int | None


@dataclasses.dataclass(frozen=True)
class CopyReport:
    """The result of one run of a copy.

    If the copy was complete before, all is zero but ``used_bytes`` and ``total_bytes``.

    :param resumed_at: the byte of the image at which this run resumed
    :param compared_bytes: how much of the copy was read back and verified
    :param copy_sec: duration of the data transfer
    :param compare_sec: duration of creating and verifying the snapshot
    :param used_bytes: size of the snapshot's objects
    :param total_bytes: the bytes that all runs of the copy have copied; 0 if an earlier release has
        completed it
    """

    snapshot: image_types.SnapshotRef
    copied_bytes: int = 0
    zeroed_bytes: int = 0
    compared_bytes: int = 0
    resumed_at: int = 0
    copy_sec: float = 0.0
    compare_sec: float = 0.0
    used_bytes: int = 0
    total_bytes: int = 0


def complete_copies(facts: image_types.ImageFacts) -> dict[str, Origin]:
    """Return the snapshots of an image that are complete copies, oldest first."""
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
    """Create a complete copy of a snapshot in ``image``, with the snapshot's name.

    A repetition resumes the copy; if the copy is complete, it changes nothing. The exclusive lock
    of the image is held meanwhile.

    :param since: an earlier snapshot of which the image has a complete copy, so that only later
        changes are copied. None creates the image and copies everything
    :param options: of the new image
    :param compare_all: finally compare source and copy completely, byte for byte
    :raises AlreadyExistsError: the image has other content
    :raises NotFoundError: there is no complete copy of ``since``, or the source does not exist or
        was removed meanwhile
    :raises BusyError: another client holds the lock of the image
    :raises NoSpaceError: the target is full; the message has the usage of its pools
    :raises CorruptCopyError: the copy differs from its source; the next call starts again
    :raises CanceledError: the copy was canceled
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
            if complete := destination.find_complete():
                return complete
            report = destination.receive(reader, limits, compare_all)
    except exceptions.NoSpaceError as error:
        raise _with_usage(target, image, error) from error
    LOG.info('Copied %s: %s', snapshot, report)
    return report


def _with_usage(
    target: backend.Backend, image: image_types.ImageRef, error: exceptions.NoSpaceError
) -> exceptions.NoSpaceError:
    data_pool = target.describe(image, with_usage=False).data_pool
    usages = [str(target.usage(pool)) for pool in (image.pool, data_pool) if pool]
    return exceptions.NoSpaceError('; '.join([str(error), *usages]))


def _origin(
    source: backend.Backend, snapshot: image_types.SnapshotRef, since: str | None
) -> Origin:
    facts = source.describe(snapshot.of, with_usage=False)

    def snapshot_id(name: str) -> int:
        found = facts.find_snapshot(name)
        if found is None:
            raise exceptions.NotFoundError(f'{snapshot.of.snapshot(name)}: does not exist')
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
        # Its content is checked later, under its lock.
        LOG.debug('%s exists', image)


class _Destination:
    """The target image, under our lock, with its record of copies."""

    def __init__(
        self,
        target: backend.Backend,
        image: image_types.ImageRef,
        writer: backend.ImageWriter,
        origin: Origin,
        name: str,
        since: str | None,
        has_source: Callable[[], bool],
    ):
        self._has_source = has_source
        self._target = target
        self._image = image
        self._writer = writer
        self._origin = origin
        self._name = name
        self._since = since
        self._facts = writer.facts()
        self._copies = complete_copies(self._facts)
        partial = _load(self._facts, _COPYING)
        # After a kill at the very end, a complete copy still has the entry of a partial one.
        self._partial = None if partial and partial['name'] in self._copies else partial

    def find_complete(self) -> CopyReport | None:
        """Return the report of a copy that is complete already; None: it is not complete.

        :raises AlreadyExistsError: the name belongs to a complete copy of another snapshot
        """
        found = self._copies.get(self._name)
        if found is None:
            return None
        if _snapshot_of(found) != _snapshot_of(self._origin):
            raise exceptions.AlreadyExistsError(
                f'{self._image.snapshot(self._name)}: is the copy of another snapshot'
            )
        if self._partial is None and _COPYING in self._facts.metadata:
            self._writer.set_metadata(_COPYING, None)
        entry = _load(self._facts, _COPIED + self._name) or {}
        figures = {name: entry.get(name, 0) for name in ('used_bytes', 'total_bytes')}
        return CopyReport(self._image.snapshot(self._name), **figures)

    def receive(
        self, reader: backend.ImageReader, limits: throttle.Throttle, compare_all: bool
    ) -> CopyReport:
        """Resume or start the copy, and complete it."""
        start = self._prepare(reader.size_bytes)
        began = time.monotonic()
        mover = transfer.Transfer(reader, self._writer, self._since, limits, self._save)
        end = mover.run(start)
        moved = time.monotonic()
        used_bytes = sum(
            extent.length for extent in difference.extents(reader, None) if extent.exists
        )
        figures = {'used_bytes': used_bytes, 'total_bytes': end.copied_bytes}
        expected = None if compare_all else end.checksum
        compared_bytes = self._complete(reader, limits, expected, figures)
        return CopyReport(
            snapshot=self._image.snapshot(self._name),
            copied_bytes=mover.copied_bytes,
            zeroed_bytes=mover.zeroed_bytes,
            compared_bytes=compared_bytes,
            resumed_at=start.position_bytes,
            copy_sec=moved - began,
            compare_sec=time.monotonic() - moved,
            **figures,
        )

    def _prepare(self, size_bytes: int) -> transfer.Checkpoint:
        """Bring the image into the base state of the copy; return where to start."""
        partial = self._partial
        if partial and partial['origin'] == dataclasses.asdict(self._origin):
            reached = transfer.Checkpoint(
                **partial['mark'], copied_bytes=partial.get('copied_bytes', 0)
            )
            LOG.info('%s: resuming at byte %d', self._image, reached.position_bytes)
            return reached
        if partial and self._facts.find_snapshot(partial['name']):
            self._writer.remove_snapshot(partial['name'])
        if self._since is None:
            self._ensure_empty(has_partial_copy=partial is not None)
        else:
            self._ensure_at_base(clean=partial is None)
        self._writer.resize(size_bytes)
        self._delete_stale_entries()
        self._save(transfer.Checkpoint())
        return transfer.Checkpoint()

    def _ensure_empty(self, has_partial_copy: bool) -> None:
        if self._copies or (not has_partial_copy and self._target.describe(self._image).used_bytes):
            raise exceptions.AlreadyExistsError(f'{self._image}: has other content')
        if has_partial_copy:
            self._writer.resize(0)

    def _ensure_at_base(self, clean: bool) -> None:
        base = self._copies.get(self._since or '')
        if base is None or _snapshot_of(base) != (
            self._origin.cluster_id,
            self._origin.image_id,
            self._origin.since_id,
        ):
            raise exceptions.NotFoundError(
                f'{self._image}: has no complete copy of the snapshot {self._since}'
            )
        if not clean or list(self._copies)[-1] != self._since:
            self._writer.roll_back(self._since or '')

    def _delete_stale_entries(self) -> None:
        """Delete the entries of copies whose snapshots were removed."""
        for key in self._facts.metadata:
            if key.startswith(_COPIED) and key.removeprefix(_COPIED) not in self._copies:
                self._writer.set_metadata(key, None)

    def _save(self, reached: transfer.Checkpoint) -> None:
        """Record a checkpoint: all data before it is on disk."""
        self._write_partial(dataclasses.asdict(self._origin), reached)

    def _write_partial(self, origin: dict[str, Any] | None, reached: transfer.Checkpoint) -> None:
        mark = dataclasses.asdict(reached)
        # Beside the mark, in which earlier releases accept no other value.
        copied = {'copied_bytes': mark.pop('copied_bytes')}
        entry = {'origin': origin, 'name': self._name, 'mark': mark} | copied
        self._writer.set_metadata(_COPYING, self._entry(entry))

    def _entry(self, entry: dict[str, Any]) -> str:
        # A clone inherits the metadata, which then describes another image.
        return json.dumps(entry | {'image_id': self._facts.image_id})

    def _complete(
        self,
        reader: backend.ImageReader,
        limits: throttle.Throttle,
        expected: int | None,
        figures: dict[str, int],
    ) -> int:
        """Create the snapshot, verify it and mark it complete; return the bytes compared.

        :param expected: the checksum of the copied data; None compares everything
        :param figures: of the report of a later run, which finds the copy complete
        """
        # One of an interrupted attempt may not be usable before it is created again.
        with contextlib.suppress(exceptions.AlreadyExistsError):
            self._writer.create_snapshot(self._name)
        created = self._image.snapshot(self._name)
        label = str(created)
        try:
            with self._target.open_reader(created) as copied:
                if expected is None:
                    compared = verify.compare(reader, copied, None, limits, label)
                else:
                    compared = verify.verify(reader, copied, self._since, expected, limits, label)
            self._check_source()
        except (exceptions.CorruptCopyError, exceptions.NotFoundError):
            # Discard the checkpoint, so that the next attempt starts from the base.
            self._write_partial(None, transfer.Checkpoint())
            self._writer.remove_snapshot(self._name)
            raise
        entry = self._entry({'origin': dataclasses.asdict(self._origin)} | figures)
        self._writer.set_metadata(_COPIED + self._name, entry)
        self._writer.set_metadata(_COPYING, None)
        return compared

    def _check_source(self) -> None:
        """Check that the source still exists: Ceph trims a removed snapshot while we read it."""
        with contextlib.suppress(exceptions.NotFoundError):
            if self._has_source():
                return
        raise exceptions.NotFoundError(
            f'{self._image.snapshot(self._name)}: its source was removed meanwhile'
        )


def _load(facts: image_types.ImageFacts, key: str) -> dict[str, Any] | None:
    text = facts.metadata.get(key)
    entry = json.loads(text) if text else None
    return entry if entry and entry.pop('image_id') == facts.image_id else None


def _snapshot_of(origin: Origin) -> tuple[str, str, int | None]:
    return origin.cluster_id, origin.image_id, origin.snapshot_id
