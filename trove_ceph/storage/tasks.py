# SPDX-License-Identifier: Apache-2.0
"""Long work, and how far it is."""

import abc
import dataclasses
import datetime
import enum
import re
from typing import Any

from trove_ceph import exceptions
from trove_ceph.storage import image_types, lock_store, names

MAX_FENCE_SEC = 600
_OPERATION_ID = re.compile(r'[A-Za-z0-9][A-Za-z0-9._:-]{0,127}')


class JobState(enum.StrEnum):
    """Where a job is in its life.

    Waiting for a thread, or running, it has a holder that is alive. An interrupted one lost it, or
    was stopped with it. The same start carries on with what was interrupted, canceled or failed.
    """

    WAITING = 'waiting'
    RUNNING = 'running'
    DONE = 'done'
    FAILED = 'failed'
    CANCELED = 'canceled'
    INTERRUPTED = 'interrupted'

    @property
    def is_active(self) -> bool:
        return self in (JobState.WAITING, JobState.RUNNING)


def image_lock(image: image_types.ImageRef) -> lock_store.Lock:
    """What somebody holds who changes what an image is."""
    return lock_store.Lock(image.pool, image.name)


def snapshot_lock(snapshot: image_types.SnapshotRef) -> lock_store.Lock:
    """What somebody holds who reads a snapshot for long, or removes it."""
    return lock_store.Lock(snapshot.pool, f'{snapshot.image}@{snapshot.name}')


def limits_lock(image: image_types.ImageRef) -> lock_store.Lock:
    """What somebody holds who sets the limits of an image, which may go on being copied."""
    return lock_store.Lock(image.pool, f'{image.name}/limits')


def fence_lock(image: image_types.ImageRef) -> lock_store.Lock:
    """What somebody holds who fences an image, whatever else is being done to it."""
    return lock_store.Lock(image.pool, f'{image.name}/fence')


def trash_lock(pool: str, image_id: str) -> lock_store.Lock:
    """What somebody holds who restores or purges an image in the trash."""
    return lock_store.Lock(pool, f'trash/{image_id}')


class Task(abc.ABC):
    """What a job does; each kind says what it holds meanwhile."""

    @property
    @abc.abstractmethod
    def locks(self) -> tuple[lock_store.Lock, ...]:
        """The locks it needs; the pool of the first is where the job is kept."""

    @property
    def source(self) -> image_types.ImageRef | None:
        """The image that it reads, which must not be purged meanwhile."""
        return None


@dataclasses.dataclass(frozen=True)
class FlattenTask(Task):
    """Copy into a clone all that it reads from its parent, and part them."""

    image: image_types.ImageRef

    @property
    def locks(self) -> tuple[lock_store.Lock, ...]:
        return (image_lock(self.image),)

    def __str__(self) -> str:
        return f'flatten {self.image}'


@dataclasses.dataclass(frozen=True)
class CopyTask(Task):
    """Make an image hold a complete, compared copy of a snapshot.

    :param since: an earlier snapshot that the image has a copy of; None copies everything
    :param options: how the image is made; None: as its pool's tier says
    :param compare_all: compare everything, not only what the increment moved
    """

    snapshot: image_types.SnapshotRef
    image: image_types.ImageRef
    since: str | None = None
    options: image_types.ImageOptions | None = None
    compare_all: bool = False

    @property
    def locks(self) -> tuple[lock_store.Lock, ...]:
        read = [self.snapshot]
        if self.since is not None:
            read.append(self.snapshot.of.snapshot(self.since))
        return (image_lock(self.image), *map(snapshot_lock, read))

    @property
    def source(self) -> image_types.ImageRef:
        return self.snapshot.of

    def __str__(self) -> str:
        since = f' since {self.since}' if self.since else ''
        return f'copy {self.snapshot} to {self.image}{since}'


@dataclasses.dataclass(frozen=True)
class VerifyTask(Task):
    """Compare a copy with its source, byte for byte."""

    snapshot: image_types.SnapshotRef
    copy: image_types.SnapshotRef

    @property
    def locks(self) -> tuple[lock_store.Lock, ...]:
        return snapshot_lock(self.copy), snapshot_lock(self.snapshot)

    @property
    def source(self) -> image_types.ImageRef:
        return self.snapshot.of

    def __str__(self) -> str:
        return f'verify {self.copy} against {self.snapshot}'


@dataclasses.dataclass(frozen=True)
class InspectTask(Task):
    """Start a real MySQL server on a clone of a snapshot, ask it, and throw the clone away.

    Its result is a :class:`trove_ceph.verification.report.Inspection`. To inspect again takes
    another operation id.

    :param check_id: a UUID that names the clone, such as the backup's
    :param version: of the datastore, such as ``9.7.4``
    :param expected_gtid: transactions that must be there
    :param exact: no others may
    :param deep: check all tables; None: as the service is configured
    :param sample_tables: how many are checked otherwise; None: as the service is configured
    :param time_limit_sec: for all of it; None: as the service is configured
    :param avoid: the copy of the service that must not begin it, by its name: an inspection that
        is to confirm another one is of little worth where the same host may be at fault
    """

    snapshot: image_types.SnapshotRef
    check_id: str
    version: str
    expected_gtid: str | None = None
    exact: bool = False
    deep: bool | None = None
    sample_tables: int | None = None
    time_limit_sec: int | None = None
    avoid: str | None = None

    def __post_init__(self) -> None:
        names.image_name('check', self.check_id)
        for limit in (self.sample_tables, self.time_limit_sec):
            if limit is not None and limit < 1:
                raise ValueError(f'{limit}: must be 1 or more')

    @property
    def clone(self) -> image_types.ImageRef:
        return image_types.ImageRef(self.snapshot.pool, names.image_name('check', self.check_id))

    @property
    def locks(self) -> tuple[lock_store.Lock, ...]:
        return image_lock(self.clone), snapshot_lock(self.snapshot)

    @property
    def source(self) -> image_types.ImageRef:
        return self.snapshot.of

    def __str__(self) -> str:
        return f'inspect {self.snapshot}'


@dataclasses.dataclass(frozen=True)
class FenceTask(Task):
    """Cut off every client that holds an image, and prove it; other work on it is canceled.

    :param timeout_sec: how long clients may keep appearing
    """

    image: image_types.ImageRef
    timeout_sec: int = 60

    def __post_init__(self) -> None:
        if not 1 <= self.timeout_sec <= MAX_FENCE_SEC:
            raise ValueError(f'timeout_sec {self.timeout_sec}: must be 1 to {MAX_FENCE_SEC}')

    @property
    def locks(self) -> tuple[lock_store.Lock, ...]:
        return (fence_lock(self.image),)

    def __str__(self) -> str:
        return f'fence {self.image}'


@dataclasses.dataclass(frozen=True)
class PurgeTask(Task):
    """Delete an image in the trash for good, with its snapshots."""

    pool: str
    image_id: str

    @property
    def locks(self) -> tuple[lock_store.Lock, ...]:
        return (trash_lock(self.pool, self.image_id),)

    def __str__(self) -> str:
        return f'purge image {self.image_id} of the trash of pool {self.pool}'


@dataclasses.dataclass(frozen=True)
class Job:
    """One piece of long work.

    :param operation_id: chosen by the caller; the same for the same work
    :param phase: what is being done, such as ``copying``
    :param done_bytes: how far it is in this phase; what is skipped counts
    :param bytes_per_sec: what is really moved
    :param left_sec: until the end of this phase, at the pace so far
    :param error: the name of a class of trove_ceph.exceptions
    :param holder: the copy of the service that had it last
    :param attempt: counts from 1
    """

    operation_id: str
    work: Any
    state: JobState
    holder: str
    attempt: int
    started_at: datetime.datetime
    updated_at: datetime.datetime
    phase: str = ''
    done_bytes: int = 0
    total_bytes: int = 0
    bytes_per_sec: float = 0.0
    left_sec: float | None = None
    result: Any = None
    error: str | None = None
    message: str | None = None

    def __str__(self) -> str:
        return f'{self.operation_id} ({self.work})'

    def raise_error(self) -> None:
        """Raise what made it fail, as its own class."""
        if self.error is not None:
            raise exceptions.error_class(self.error)(self.message)


def check_operation_id(operation_id: str) -> None:
    """Refuse what cannot be an operation's id.

    :raises InvalidRequestError: it is too long, or holds other than letters, digits and ``._:-``
    """
    if not _OPERATION_ID.fullmatch(operation_id):
        raise exceptions.InvalidRequestError(
            f'operation id {operation_id!r}: must be up to 128 letters, digits and . _ : -'
        )
