# SPDX-License-Identifier: Apache-2.0
"""Run the jobs of this copy of the service, record them, and cancel them on request."""

import concurrent.futures
import dataclasses
import datetime
import threading
import time
from collections.abc import Callable
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions, operation_events, waiting
from trove_ceph.storage import tasks
from trove_ceph.storage.tasks import JobState
from trove_ceph.storage_service import executors, job_store, leases

LOG = logging.getLogger(__name__)

#: How long a fence waits for other jobs to end; after that it fences them as any client.
FENCE_GRACE_SEC = 5.0
_POLL_SEC = 0.2
#: How often the result of a job is written again while Ceph refuses writes.
_RETRY_SEC = 1.0
#: How the end of a job is reported; a job in another state may go on.
_PHASES = {
    JobState.DONE: operation_events.Phase.END,
    JobState.FAILED: operation_events.Phase.ERROR,
}


def utc_now() -> datetime.datetime:
    """Return the wall clock time with its time zone."""
    return datetime.datetime.now(datetime.UTC)


class RunningJob:
    """A job that this copy of the service runs."""

    def __init__(
        self, record: job_store.JobRecord, lease: leases.Lease, clock: Callable[[], float]
    ):
        self.record = record
        self.lease = lease
        self.progress = executors.Progress(clock)
        self.cancel = threading.Event()
        self.final_state: JobState | None = None
        #: Done as soon as its thread has ended, or the request for it has failed.
        self.ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.began = clock()
        # Serializes writes of the record, so that none follows that of the result.
        self.writing = threading.Lock()

    def stop(self, state: JobState) -> None:
        """Stop it at its next chunk, in the given state."""
        if self.final_state is None:
            self.final_state = state
        self.cancel.set()

    def now(self) -> tasks.Job:
        return self.progress.onto(self.record.job)


class JobManager:
    """Runs the jobs of this copy of the service, each under its lease.

    :param threads: runs jobs
    :param urgent: returns the threads for the fences of a pool, which must wait neither until a
        copy has ended nor for another pool that does not answer
    :param now: the wall clock
    """

    def __init__(
        self,
        deps: executors.ExecutorDependencies,
        store: job_store.JobStore,
        own_leases: leases.Leases,
        threads: concurrent.futures.Executor,
        urgent: Callable[[str], concurrent.futures.Executor],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime.datetime] = utc_now,
    ):
        self._deps = deps
        self._store = store
        self._leases = own_leases
        self._threads = threads
        self._urgent = urgent
        self._clock = clock
        self._sleep = sleep
        self._now = now
        # By cookie: a lost attempt may still end here while the next one of its operation runs.
        self._running: dict[str, RunningJob] = {}
        self._mutex = threading.Lock()
        self._stopping = False

    def check_not_stopping(self) -> None:
        """Check that this copy of the service accepts jobs.

        :raises ServiceUnavailableError: it is being stopped
        """
        if self._stopping:
            raise exceptions.ServiceUnavailableError(f'{self._leases.name}: is being stopped')

    def begin(self, record: job_store.JobRecord, lease: leases.Lease) -> tasks.Job:
        """Record a job under its lease and run it in a thread.

        If it raises an error, the caller must release the lease.

        :raises StorageError: the record cannot be written
        :raises ServiceUnavailableError: this copy of the service is being stopped
        """
        running = RunningJob(record, lease, self._clock)
        with self._mutex:
            # From now on, ``stop`` waits for it.
            self.check_not_stopping()
            self._running[record.cookie] = running
        try:
            self._store.write(record, lease.guard)
            self._submit(running)
        except Exception:
            self._forget(running)
            running.ended.set_result(None)
            raise
        return running.now()

    def _submit(self, running: RunningJob) -> None:
        job = running.record.job
        LOG.info('%s: starting attempt %d', job, job.attempt)
        is_fence = isinstance(job.work, tasks.FenceTask)
        threads = self._urgent(running.record.lock.pool) if is_fence else self._threads
        try:
            future = threads.submit(self._run, running)
        except RuntimeError as error:
            # The threads are shut down, since ``stop`` has waited for as long as it may.
            self._update(running, state=JobState.INTERRUPTED)
            raise exceptions.ServiceUnavailableError(
                f'{self._leases.name}: cannot run {job}: {error}'
            ) from error
        future.add_done_callback(lambda _: running.ended.set_result(None))

    def _forget(self, running: RunningJob) -> None:
        with self._mutex:
            self._running.pop(running.record.cookie, None)

    def with_progress(self, record: job_store.JobRecord) -> tasks.Job:
        """Return a job, with its current progress if it runs here."""
        running = self._find(record.cookie)
        return running.now() if running and record.job.state.is_active else record.job

    def stop_attempt(self, cookie: str, state: JobState) -> bool:
        """Stop an attempt of a job at its next chunk; return whether it runs here.

        :param cookie: of its lease
        """
        running = self._find(cookie)
        if running is not None:
            running.stop(state)
        return running is not None

    def cancel(self, record: job_store.JobRecord) -> bool:
        """Cancel a job on whichever copy it runs; return whether it runs at all."""
        if self.stop_attempt(record.cookie, JobState.CANCELED):
            return True
        if record.job.state.is_active:
            self._store.request_cancel(record)
        return record.job.state.is_active

    def _find(self, cookie: str) -> RunningJob | None:
        with self._mutex:
            return self._running.get(cookie)

    # In the thread of a job.

    def _run(self, running: RunningJob) -> None:
        work = running.record.job.work
        running.began = self._clock()
        self._report(running, operation_events.Phase.START)
        try:
            self._update(running, state=JobState.RUNNING)
            if running.cancel.is_set() or not running.lease.is_valid():
                raise exceptions.CanceledError(f'{work}: did not start')
            if isinstance(work, tasks.FenceTask):
                self._cancel_others(work)
            result = executors.perform(
                self._deps,
                work,
                running.progress,
                running.cancel,
                running.lease.is_valid,
            )
        except exceptions.CanceledError:
            self._finish(running, state=running.final_state or JobState.INTERRUPTED)
        except exceptions.TroveCephError as error:
            self._finish_failed(running, type(error).__name__, str(error))
        except Exception as error:
            LOG.exception('%s: unexpected error', running.record.job)
            message = f'{work}: {type(error).__name__}: {error}'
            self._finish_failed(running, exceptions.StorageError.__name__, message)
        else:
            running.progress.finish()
            self._finish(running, state=JobState.DONE, result=result)

    def _finish_failed(self, running: RunningJob, error: str, message: str) -> None:
        if running.final_state is not None:
            # A task that is being stopped may fail with another error, such as that of a
            # blocklisted client.
            self._finish(running, state=running.final_state)
        else:
            self._finish(running, state=JobState.FAILED, error=error, message=message)

    def _cancel_others(self, fence: tasks.FenceTask) -> None:
        """Cancel other jobs on the image to fence; the fence would blocklist their clients."""
        lock = tasks.image_lock(fence.image)
        # A job that holds this lock has it as its first one, so its record is in the lock's pool.
        for record in self._store.all_in(lock.pool):
            if lock in record.job.work.locks and record.job.state.is_active:
                LOG.warning(
                    '%s: canceling it, because %s is about to be fenced', record.job, fence.image
                )
                self.cancel(record)
                deadline = waiting.Deadline(FENCE_GRACE_SEC, self._clock, self._sleep)
                while self._store.has_holder(record) and deadline.pause(_POLL_SEC):
                    pass

    def _finish(self, running: RunningJob, **changes: Any) -> None:
        """Record the result of a job, unless its lock is lost, and release its lease."""
        while True:
            try:
                self._update(running, **changes)
                break
            except exceptions.LockLostError as error:
                LOG.warning('%s: %s', running.record.job, error)
                break
            except exceptions.StorageError as error:
                LOG.warning('%s: cannot record its result yet: %s', running.record.job, error)
                if not running.lease.is_valid():
                    break
                self._sleep(_RETRY_SEC)
        self._forget(running)
        self._leases.release(running.lease)
        ended = running.record.job
        level = LOG.info if ended.state is not JobState.FAILED else LOG.error
        level('%s: %s %s', ended, ended.state, ended.message or '')
        self._report(running, _PHASES.get(ended.state, operation_events.Phase.INTERRUPTED))

    def _report(self, running: RunningJob, phase: operation_events.Phase) -> None:
        job = running.record.job
        has_begun = phase is not operation_events.Phase.START
        operation_events.publish(
            operation_events.Event(
                job.work.operation,
                phase,
                {'operation_id': job.operation_id},
                self._clock() - running.began if has_begun else None,
                cause=job.error,
                message=job.message,
            )
        )

    def _update(self, running: RunningJob, **changes: Any) -> None:
        """Record the progress of a job, or its result."""
        with running.writing:
            if not running.record.job.state.is_active:
                return
            changed = dataclasses.replace(running.now(), updated_at=self._now(), **changes)
            record = dataclasses.replace(running.record, job=changed)
            self._store.write(record, running.lease.guard)
            running.record = record

    # Every few seconds.

    def heartbeat(self, pool: str) -> None:
        """Record the progress of the jobs in a pool, and stop those with a cancel request.

        It also detects that a pool does not answer, or answers again.
        """
        canceled = self._store.find_cancel_requests(pool)
        with self._mutex:
            mine = [one for one in self._running.values() if one.record.lock.pool == pool]
        for running in mine:
            if running.record.cookie in canceled:
                running.stop(JobState.CANCELED)
            try:
                self._update(running)
            except exceptions.LockLostError:
                running.lease.mark_lost()

    def stop(self, timeout_sec: float) -> bool:
        """Stop all jobs here at their next chunk; return whether all ended within the time.

        It waits for jobs whose requests are still being answered, and refuses later requests.
        """
        with self._mutex:
            self._stopping = True
            mine = list(self._running.values())
        for running in mine:
            running.stop(JobState.INTERRUPTED)
        waited = concurrent.futures.wait([running.ended for running in mine], timeout_sec)
        return not waited.not_done
