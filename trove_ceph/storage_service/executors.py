# SPDX-License-Identifier: Apache-2.0
"""Do what a job says."""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable
from typing import Any

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.storage import backend, copying, fencing, tasks, throttle, verify
from trove_ceph.storage_service import pools
from trove_ceph.verification import inspection


@dataclasses.dataclass(frozen=True)
class Limits:
    """How much of the machine and of Ceph one copy may take.

    :param bytes_per_sec: None is no limit
    """

    in_flight_bytes: int = 64 * units.Mi
    bytes_per_sec: int | None = None


@dataclasses.dataclass(frozen=True)
class ExecutorDependencies:
    """What work is done with, and on.

    :param inspector: None where nothing is inspected
    :param name: of this copy of the service
    """

    storage: backend.Backend
    ours: pools.Pools
    limits: Limits
    inspector: inspection.Inspector | None = None
    name: str | None = None


class Progress:
    """How far a job is, as its thread tells it and others read it."""

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
        """Tell how far a phase is.

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
        """Tell that all of the phase is done."""
        with self._mutex:
            self._done_bytes = self._total_bytes

    def onto(self, found: tasks.Job) -> tasks.Job:
        """Return a job with its progress filled in."""
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
    tools: ExecutorDependencies,
    work: tasks.Task,
    progress: Progress,
    cancel: threading.Event,
    is_allowed: Callable[[], bool],
) -> Any:
    """Do it, from wherever an earlier attempt left it, and return its result.

    :param is_allowed: asked before each piece; once it says no, nothing more is begun
    :raises CanceledError: ``cancel`` was set, or it is not allowed any more
    """

    def note(phase: str, done_bytes: int, total_bytes: int, moved_bytes: int) -> None:
        progress.note(phase, done_bytes, total_bytes, moved_bytes)
        if not is_allowed():
            raise exceptions.CanceledError(f'{work}: not allowed to go on')

    def note_copy(now: throttle.Progress) -> None:
        note(now.phase, now.position_bytes, now.size_bytes, now.moved_bytes)

    storage, limits = tools.storage, tools.limits
    flowing = throttle.Throttle(limits.in_flight_bytes, limits.bytes_per_sec, cancel, note_copy)
    match work:
        case tasks.FlattenTask(image):
            storage.flatten(
                image, lambda done, total: note('flattening', done, total, done), cancel
            )
            return None
        case tasks.CopyTask(snapshot, image, since, options, compare_all):
            return copying.copy(
                storage,
                snapshot,
                storage,
                image,
                since=since,
                options=tools.ours.options_for(image, options),
                limits=flowing,
                compare_all=compare_all,
            )
        case tasks.VerifyTask(snapshot, copy):
            with storage.open_reader(snapshot) as source, storage.open_reader(copy) as copied:
                return verify.compare(source, copied, None, flowing, str(copy))
        case tasks.InspectTask():
            if tools.inspector is None:
                raise exceptions.NotInspectableError(
                    f'{work}: nothing is inspected here; [trove_ceph_verification] mysqld_roots '
                    'is not set'
                )
            found = tools.inspector.inspect(
                work,
                tools.ours.options_for(work.clone, None),
                cancel,
                is_allowed,
                lambda phase, done, total: note(phase, done, total, done),
            )
            return dataclasses.replace(found, inspected_by=tools.name)
        case tasks.FenceTask(image, timeout_sec):
            progress.note('fencing', 0, 0, 0)
            return fencing.fence(storage, image, timeout_sec)
        case tasks.PurgeTask(pool, image_id):
            progress.note('purging', 0, 0, 0)
            # It was there when the job was first asked for.
            with contextlib.suppress(exceptions.NotFoundError):
                storage.purge(pool, image_id)
            return None
    raise exceptions.InvalidRequestError(f'{work}: is no work of this service')
