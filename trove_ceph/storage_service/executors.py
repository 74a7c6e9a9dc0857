# SPDX-License-Identifier: Apache-2.0
"""Execute the tasks of jobs."""

import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.golden import build
from trove_ceph.storage import backend, copying, fencing, tasks, throttle, verify
from trove_ceph.storage_service import pools, silent_owners
from trove_ceph.verification import inspection


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of one copy.

    :param in_flight_bytes: memory for data that is read and not yet written
    :param bytes_per_sec: None is no limit
    """

    in_flight_bytes: int = 64 * units.Mi
    bytes_per_sec: int | None = None


@dataclasses.dataclass(frozen=True)
class ExecutorDependencies:
    """The clients and settings that tasks need.

    :param owners: of locks that a flatten must not take
    :param inspector: None if this copy of the service runs no inspections
    :param builder: of golden volumes; None as for the inspector
    :param name: of this copy of the service
    """

    storage: backend.Backend
    own_pools: pools.Pools
    limits: Limits
    owners: silent_owners.SilentOwners
    inspector: inspection.Inspector | None = None
    name: str | None = None
    builder: build.Builder | None = None


class Progress:
    """The progress of a job, written by its thread and read by others."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._mutex = threading.Lock()
        self._began = clock()
        self._began_at_bytes = 0
        self._phase = ''
        self._done_bytes = 0
        self._total_bytes = 0
        self._moved_bytes = 0

    def note(self, phase: str, done_bytes: int, total_bytes: int, moved_bytes: int) -> None:
        """Record the progress of a phase.

        :param moved_bytes: since the phase began in this attempt
        """
        with self._mutex:
            if phase != self._phase:
                self._phase = phase
                self._began = self._clock()
                self._began_at_bytes = done_bytes
            self._done_bytes, self._total_bytes = done_bytes, total_bytes
            self._moved_bytes = moved_bytes

    def finish(self) -> None:
        """Record that the phase is complete."""
        with self._mutex:
            self._done_bytes = self._total_bytes

    def onto(self, found: tasks.Job) -> tasks.Job:
        """Return a job with this progress filled in."""
        with self._mutex:
            elapsed = self._clock() - self._began
            advanced = self._done_bytes - self._began_at_bytes
            left = self._total_bytes - self._done_bytes
            return dataclasses.replace(
                found,
                phase=self._phase,
                done_bytes=self._done_bytes,
                total_bytes=self._total_bytes,
                bytes_per_sec=round(self._moved_bytes / elapsed) if elapsed > 0 else 0.0,
                left_sec=round(left * elapsed / advanced, 1) if advanced > 0 else None,
            )


def perform(
    deps: ExecutorDependencies,
    work: tasks.Task,
    progress: Progress,
    cancel: threading.Event,
    is_allowed: Callable[[], bool],
) -> Any:
    """Execute a task, resuming an earlier attempt, and return its result.

    :param is_allowed: called before each chunk; once it returns False, the task stops
    :raises CanceledError: ``cancel`` was set, or ``is_allowed`` returned False
    """

    def note(phase: str, done_bytes: int, total_bytes: int, moved_bytes: int) -> None:
        progress.note(phase, done_bytes, total_bytes, moved_bytes)
        if not is_allowed():
            raise exceptions.CanceledError(f'{work}: its locks are lost')

    def record_copy(now: throttle.Progress) -> None:
        note(now.phase, now.position_bytes, now.size_bytes, now.moved_bytes)

    storage, limits = deps.storage, deps.limits
    limiter = throttle.Throttle(limits.in_flight_bytes, limits.bytes_per_sec, cancel, record_copy)
    match work:
        case tasks.FlattenTask(image):
            with deps.owners.checked(image, cancel) as stop:
                storage.flatten(
                    image, lambda done, total: note('flattening', done, total, done), stop
                )
            return None
        case tasks.CopyTask(snapshot, image, since, options, compare_all):
            return copying.copy(
                storage,
                snapshot,
                storage,
                image,
                since=since,
                options=deps.own_pools.options_for(image, options),
                limits=limiter,
                compare_all=compare_all,
            )
        case tasks.VerifyTask(snapshot, copy):
            with storage.open_reader(snapshot) as source, storage.open_reader(copy) as copied:
                return verify.compare(source, copied, None, limiter, str(copy))
        case tasks.InspectTask():
            if deps.inspector is None:
                raise exceptions.NotInspectableError(
                    f'{work}: this copy of the service runs no inspections; set '
                    '[trove_ceph_verification] mysqld_roots'
                )
            found = deps.inspector.inspect(
                work,
                deps.own_pools.options_for(work.clone, None),
                cancel,
                is_allowed,
                lambda phase, done, total: note(phase, done, total, done),
            )
            return dataclasses.replace(found, inspected_by=deps.name)
        case tasks.GoldenTask(image):
            if deps.builder is None:
                raise exceptions.NotInspectableError(
                    f'{work}: this copy of the service has no MySQL; set [trove_ceph_verification] '
                    'mysqld_roots'
                )
            deps.builder.build(
                work,
                deps.own_pools.options_for(image, None),
                cancel,
                is_allowed,
                lambda phase, done, total: note(phase, done, total, done),
            )
            return None
        case tasks.FenceTask(image, timeout_sec, only):
            progress.note('fencing', 0, 0, 0)
            return fencing.fence(storage, image, timeout_sec, only)
        case tasks.PurgeTask(pool, image_id):
            progress.note('purging', 0, 0, 0)
            _purge(storage, pool, image_id)
            return None
    raise exceptions.InvalidRequestError(f'{work}: unknown kind of task')


def _purge(storage: backend.Backend, pool: str, image_id: str) -> None:
    """Purge an image that was in the trash when the job was first requested.

    :raises StorageError: it still is, since Ceph misses a part of it
    """
    try:
        storage.purge(pool, image_id)
    except exceptions.NotFoundError as error:
        # Mostly, an earlier attempt has removed it.
        if any(one.image_id == image_id for one in storage.list_trash(pool)):
            raise exceptions.StorageError(
                f'{error}; the image is still in the trash. Ceph misses a part of it, such as its '
                'parent or its data pool, so that an operator must remove it'
            ) from error
