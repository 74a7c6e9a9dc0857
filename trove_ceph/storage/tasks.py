# SPDX-License-Identifier: Apache-2.0
"""The tasks of the storage service, and the state of the jobs that execute them."""

import abc
import dataclasses
import datetime
import enum
import hashlib
import re
from typing import Any, ClassVar

from trove_ceph import exceptions
from trove_ceph.operation_events import Operation
from trove_ceph.storage import golden, image_types, lock_store, names

MAX_FENCE_SEC = 600
_OPERATION_ID = re.compile(r'[A-Za-z0-9][A-Za-z0-9._:-]{0,127}')


class JobState(enum.StrEnum):
    """The state of a job.

    A job that waits for a thread or runs has a live holder. An interrupted job lost its holder, or
    was stopped with it. Starting an interrupted, canceled or failed job again resumes it.
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
    """Return the lock for changes of an image."""
    return lock_store.Lock(image.pool, image.name)


def snapshot_lock(snapshot: image_types.SnapshotRef) -> lock_store.Lock:
    """Return the lock for long reads of a snapshot, and for its removal."""
    return lock_store.Lock(snapshot.pool, f'{snapshot.image}@{snapshot.name}')


def limits_lock(image: image_types.ImageRef) -> lock_store.Lock:
    """Return the lock for setting the limits of an image, even while a job uses the image."""
    return lock_store.Lock(image.pool, f'{image.name}/limits')


def fence_lock(image: image_types.ImageRef) -> lock_store.Lock:
    """Return the lock for fencing an image, even while a job uses the image."""
    return lock_store.Lock(image.pool, f'{image.name}/fence')


def trash_lock(pool: str, image_id: str) -> lock_store.Lock:
    """Return the lock for restoring or purging an image in the trash."""
    return lock_store.Lock(pool, f'trash/{image_id}')


class Task(abc.ABC):
    """The work of a job, with the locks that it needs.

    :cvar operation: by which metrics name the kind of work
    """

    operation: ClassVar[Operation]

    @property
    @abc.abstractmethod
    def locks(self) -> tuple[lock_store.Lock, ...]:
        """The locks that it needs; the record of the job is in the pool of the first."""

    @property
    def sources(self) -> tuple[image_types.ImageRef, ...]:
        """The images that it reads without their locks, and that must not be purged meanwhile."""
        return ()


@dataclasses.dataclass(frozen=True)
class FlattenTask(Task):
    """Flatten a clone."""

    operation: ClassVar[Operation] = Operation.STORAGE_FLATTEN

    image: image_types.ImageRef

    @staticmethod
    def operation_id(image_id: str) -> str:
        """Return the id under which all callers flatten an image, so that they wait for one job.

        :param image_id: of the image, whose name may be used again
        """
        return f'flatten.{image_id}'

    @property
    def locks(self) -> tuple[lock_store.Lock, ...]:
        return (image_lock(self.image),)

    def __str__(self) -> str:
        return f'flatten {self.image}'


@dataclasses.dataclass(frozen=True)
class CopyTask(Task):
    """Create a complete, verified copy of a snapshot in an image.

    :param since: an earlier snapshot of which the image has a copy; None copies everything
    :param options: of the new image; None for those of its pool's tier
    :param compare_all: compare everything, not only the increment
    """

    operation: ClassVar[Operation] = Operation.STORAGE_COPY

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
    def sources(self) -> tuple[image_types.ImageRef, ...]:
        return (self.snapshot.of,)

    def __str__(self) -> str:
        since = f' since {self.since}' if self.since else ''
        return f'copy {self.snapshot} to {self.image}{since}'


@dataclasses.dataclass(frozen=True)
class VerifyTask(Task):
    """Compare a copy with its source, byte for byte."""

    operation: ClassVar[Operation] = Operation.STORAGE_COMPARE

    snapshot: image_types.SnapshotRef
    copy: image_types.SnapshotRef

    @property
    def locks(self) -> tuple[lock_store.Lock, ...]:
        return snapshot_lock(self.copy), snapshot_lock(self.snapshot)

    @property
    def sources(self) -> tuple[image_types.ImageRef, ...]:
        return self.snapshot.of, self.copy.of

    def __str__(self) -> str:
        return f'verify {self.copy} against {self.snapshot}'


@dataclasses.dataclass(frozen=True)
class InspectTask(Task):
    """Inspect a snapshot: start a real MySQL server on a clone, query it, remove the clone.

    The result is a :class:`trove_ceph.verification.report.Inspection`. Another inspection needs
    another operation id.

    :param check_id: a UUID for the name of the clone, such as that of the backup
    :param version: of the datastore, such as ``9.7.4``
    :param expected_gtid: transactions that must exist
    :param exact: no other transactions may exist
    :param deep: check all tables; None for the setting of the service
    :param sample_tables: number of tables in a sample; None for the setting of the service
    :param time_limit_sec: for the whole inspection; None for the setting of the service
    :param avoid: name of the copy of the service that must not run it: a second inspection on the
        same host confirms little, since the host may be at fault
    """

    operation: ClassVar[Operation] = Operation.STORAGE_INSPECT

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
                raise ValueError(f'{limit}: sample_tables and time_limit_sec must be 1 or more')

    @property
    def clone(self) -> image_types.ImageRef:
        return image_types.ImageRef(self.snapshot.pool, names.image_name('check', self.check_id))

    @property
    def locks(self) -> tuple[lock_store.Lock, ...]:
        return image_lock(self.clone), snapshot_lock(self.snapshot)

    @property
    def sources(self) -> tuple[image_types.ImageRef, ...]:
        return (self.snapshot.of,)

    def __str__(self) -> str:
        return f'inspect {self.snapshot}'


@dataclasses.dataclass(frozen=True)
class GoldenTask(Task):
    """Build a golden volume: initialise and inspect it; do nothing if it is ready.

    :param image: its name must be that of the golden volume in its pool
    :param version: of MySQL, with three numbers
    """

    operation: ClassVar[Operation] = Operation.STORAGE_GOLDEN

    image: image_types.ImageRef
    version: str
    size_gib: int

    def __post_init__(self) -> None:
        if self.image != self.volume.image:
            raise ValueError(
                f'{self.image}: must be {self.volume.image} for MySQL {self.version} and '
                f'{self.size_gib} GiB'
            )

    @classmethod
    def of(cls, volume: golden.GoldenVolume) -> 'GoldenTask':
        """Return the task that builds a golden volume."""
        return cls(volume.image, volume.version, volume.size_gib)

    @property
    def volume(self) -> golden.GoldenVolume:
        return golden.GoldenVolume(self.image.pool, self.version, self.size_gib)

    @property
    def inspection(self) -> InspectTask:
        """The inspection of what was built: it must have no transaction, and no damaged table."""
        return InspectTask(
            self.volume.snapshot(golden.State.BUILT),
            self.volume.id,
            self.version,
            expected_gtid='',
            exact=True,
            deep=True,
        )

    @property
    def locks(self) -> tuple[lock_store.Lock, ...]:
        return image_lock(self.image), image_lock(self.inspection.clone)

    def __str__(self) -> str:
        return f'build the {self.volume}'


@dataclasses.dataclass(frozen=True)
class FenceTask(Task):
    """Fence an image, and cancel other jobs on it.

    :param timeout_sec: how long clients may keep appearing
    :param only: the clients that may be fenced, see :func:`.fencing.fence`; None: all
    """

    operation: ClassVar[Operation] = Operation.STORAGE_FENCE

    image: image_types.ImageRef
    timeout_sec: int = 60
    only: frozenset[str] | None = None

    @staticmethod
    def operation_id(image_id: str, only: frozenset[str] | None = None) -> str:
        """Return the id under which all callers fence an image, so that they wait for one job.

        :param image_id: of the image, whose name may be used again
        :param only: as that of the task
        """
        if only is None:
            return f'fence.{image_id}'
        digest = hashlib.sha256('\n'.join(sorted(only)).encode()).hexdigest()
        return f'fence.{image_id}.{digest[:16]}'

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
    """Delete an image in the trash permanently, with its snapshots."""

    operation: ClassVar[Operation] = Operation.STORAGE_PURGE

    pool: str
    image_id: str

    @property
    def locks(self) -> tuple[lock_store.Lock, ...]:
        return (trash_lock(self.pool, self.image_id),)

    def __str__(self) -> str:
        return f'purge image {self.image_id} of the trash of pool {self.pool}'


@dataclasses.dataclass(frozen=True)
class Job:
    """The execution of a task by the storage service.

    :param operation_id: chosen by the caller, the same for each attempt
    :param phase: the current phase, such as ``copying``
    :param done_bytes: progress within the phase; skipped bytes count
    :param bytes_per_sec: transfer rate, without skipped bytes
    :param left_sec: estimated time until the end of the phase
    :param error: the name of a class of trove_ceph.exceptions
    :param holder: the copy of the service that held it last
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
        """Raise the error of a failed job, as its own class."""
        if self.error is not None:
            raise exceptions.error_class(self.error)(self.message or '')


def check_operation_id(operation_id: str) -> None:
    """Refuse an invalid operation id.

    :raises InvalidRequestError: it is too long, or has characters other than letters, digits and
        ``._:-``
    """
    if not _OPERATION_ID.fullmatch(operation_id):
        raise exceptions.InvalidRequestError(
            f'operation id {operation_id!r}: must be up to 128 letters, digits and . _ : -'
        )
