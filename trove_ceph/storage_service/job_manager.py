# SPDX-License-Identifier: Apache-2.0
"""What this copy of the service holds: run, written down, and ended when that is wanted."""

import concurrent.futures
import dataclasses
import datetime
import threading
import time
from collections.abc import Callable
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions, waiting
from trove_ceph.storage import tasks
from trove_ceph.storage.tasks import JobState
from trove_ceph.storage_service import executors, job_store, leases

LOG = logging.getLogger(__name__)

#: How long a fence lets other work end by itself; what is left is cut off as any client.
MAKE_WAY_SEC = 5.0
_POLL_SEC = 0.2
#: How often what a job came to is written again while Ceph does not take it.
_RETRY_SEC = 1.0


def time_of_day() -> datetime.datetime:
    """Return the time with its zone, as records have it."""
    return datetime.datetime.now(datetime.UTC)


class Running:
    """A job that this copy of the service holds."""

    def __init__(
        self, record: job_store.JobRecord, lease: leases.Lease, clock: Callable[[], float]
    ):
        self.record = record
        self.lease = lease
        self.progress = executors.Progress(clock)
        self.cancel = threading.Event()
        self.ends_as: JobState | None = None
        self.future: concurrent.futures.Future[None] | None = None
        # Nothing is written after what it came to.
        self.writing = threading.Lock()

    def end(self, state: JobState) -> None:
        """Have it end at its next piece, and say that it ended so."""
        if self.ends_as is None:
            self.ends_as = state
        self.cancel.set()

    def now(self) -> tasks.Job:
        return self.progress.onto(self.record.job)


class JobManager:
    """The jobs that this copy of the service holds, each under its lease.

    :param threads: runs them
    :param urgent: runs fences, which must not wait until a copy has ended
    :param now: the time of day
    """

    def __init__(
        self,
        tools: executors.ExecutorDependencies,
        kept: job_store.JobStore,
        held: leases.Leases,
        threads: concurrent.futures.Executor,
        urgent: concurrent.futures.Executor,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime.datetime] = time_of_day,
    ):
        self._tools = tools
        self._records = kept
        self._leases = held
        self._threads = threads
        self._urgent = urgent
        self._clock = clock
        self._sleep = sleep
        self._now = now
        self._running: dict[str, Running] = {}
        self._mutex = threading.Lock()
        self._stopping = False

    def check_not_stopping(self) -> None:
        """Refuse to begin anything once all is to end.

        :raises ServiceUnavailableError: it is
        """
        if self._stopping:
            raise exceptions.ServiceUnavailableError(f'{self._leases.name}: is being stopped')

    def begin(self, record: job_store.JobRecord, lease: leases.Lease) -> tasks.Job:
        """Remember a job under its lease, and have a thread run it.

        :raises StorageError: it could not be remembered; the lease is still the caller's
        """
        running, operation_id = Running(record, lease, self._clock), record.job.operation_id
        with self._mutex:
            self._running[operation_id] = running
        try:
            self._records.write(record, lease.guard)
        except exceptions.StorageError:
            with self._mutex:
                self._running.pop(operation_id, None)
            raise
        LOG.info('%s: attempt %d begins', record.job, record.job.attempt)
        threads = self._urgent if isinstance(record.job.work, tasks.FenceTask) else self._threads
        running.future = threads.submit(self._run, running)
        return running.now()

    def as_seen_here(self, record: job_store.JobRecord) -> tasks.Job:
        """Return a job with the progress of this moment, if it runs here."""
        running = self._find(record.job.operation_id)
        return running.now() if running and record.job.state.is_active else record.job

    def end(self, operation_id: str, state: JobState) -> bool:
        """Have a job end at its next piece; return whether it runs here."""
        running = self._find(operation_id)
        if running is not None:
            running.end(state)
        return running is not None

    def cancel(self, record: job_store.JobRecord) -> bool:
        """Have a job end wherever it runs; return whether it runs anywhere."""
        if self.end(record.job.operation_id, JobState.CANCELED):
            return True
        if record.job.state.is_active:
            self._records.ask_to_cancel(record)
        return record.job.state.is_active

    def _find(self, operation_id: str) -> Running | None:
        with self._mutex:
            return self._running.get(operation_id)

    # What a job's thread does.

    def _run(self, running: Running) -> None:
        work = running.record.job.work
        try:
            self._change(running, state=JobState.RUNNING)
            if running.cancel.is_set() or not running.lease.is_good():
                raise exceptions.CanceledError(f'{work}: was not begun')
            if isinstance(work, tasks.FenceTask):
                self._make_way(work)
            result = executors.perform(
                self._tools,
                work,
                running.progress,
                running.cancel,
                running.lease.is_good,
            )
        except exceptions.CanceledError:
            self._end(running, state=running.ends_as or JobState.INTERRUPTED)
        except exceptions.TroveCephError as error:
            self._end_failed(running, type(error).__name__, str(error))
        except Exception as error:
            LOG.exception('%s: failed in a way that nobody thought of', running.record.job)
            message = f'{work}: {type(error).__name__}: {error}'
            self._end_failed(running, exceptions.StorageError.__name__, message)
        else:
            running.progress.finish()
            self._end(running, state=JobState.DONE, result=result)

    def _end_failed(self, running: Running, error: str, message: str) -> None:
        if running.ends_as is not None:
            # Flattening is ended by cutting it off from Ceph, which it then says.
            self._end(running, state=running.ends_as)
        else:
            self._end(running, state=JobState.FAILED, error=error, message=message)

    def _make_way(self, fence: tasks.FenceTask) -> None:
        """End other work on an image that is to be fenced; it would be a client to be cut off."""
        lock = tasks.image_lock(fence.image)
        # What holds this lock has it first, and is kept beside it.
        for record in self._records.all_in(lock.pool):
            if lock in record.job.work.locks and record.job.state.is_active:
                LOG.warning('%s: ends for the fencing of %s', record.job, fence.image)
                self.cancel(record)
                deadline = waiting.Deadline(MAKE_WAY_SEC, self._clock, self._sleep)
                while self._records.is_held(record) and deadline.pause(_POLL_SEC):
                    pass

    def _end(self, running: Running, **changes: Any) -> None:
        """Remember what it came to, as long as that is ours to say, and let go."""
        while True:
            try:
                self._change(running, **changes)
                break
            except exceptions.LockLostError as error:
                LOG.warning('%s: %s', running.record.job, error)
                break
            except exceptions.StorageError as error:
                LOG.warning('%s: could not be written down: %s', running.record.job, error)
                if not running.lease.is_good():
                    break
                self._sleep(_RETRY_SEC)
        with self._mutex:
            self._running.pop(running.record.job.operation_id, None)
        self._leases.release(running.lease)
        ended = running.record.job
        level = LOG.info if ended.state is not JobState.FAILED else LOG.error
        level('%s: %s %s', ended, ended.state, ended.message or '')

    def _change(self, running: Running, **changes: Any) -> None:
        """Write down how far a job is, or that it ended."""
        with running.writing:
            if not running.record.job.state.is_active:
                return
            changed = dataclasses.replace(running.now(), updated_at=self._now(), **changes)
            record = dataclasses.replace(running.record, job=changed)
            self._records.write(record, running.lease.guard)
            running.record = record

    # What is done every few seconds.

    def beat(self, pool: str) -> None:
        """Write down how far all is that a pool keeps, and see who is to be canceled.

        This is also how a pool is noticed that does not answer, or does again.
        """
        canceled = self._records.asked_to_cancel(pool)
        with self._mutex:
            mine = [one for one in self._running.values() if one.record.lock.pool == pool]
        for running in mine:
            if running.record.cookie in canceled:
                running.end(JobState.CANCELED)
            try:
                self._change(running)
            except exceptions.LockLostError:
                running.lease.lose()

    def stop(self, timeout_sec: float) -> bool:
        """Have all that runs here end at its next piece; return whether it did within the time."""
        self._stopping = True
        with self._mutex:
            mine = list(self._running.values())
        for running in mine:
            running.end(JobState.INTERRUPTED)
        begun = [running.future for running in mine if running.future]
        ended = concurrent.futures.wait(begun, timeout_sec)
        return not ended.not_done
