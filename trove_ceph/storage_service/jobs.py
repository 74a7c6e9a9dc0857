# SPDX-License-Identifier: Apache-2.0
"""Start, find and cancel jobs; any copy of the service resumes the jobs of a dead one."""

import dataclasses
import datetime
import time
from collections.abc import Callable, Iterable
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions, waiting
from trove_ceph.storage import tasks
from trove_ceph.storage.tasks import JobState
from trove_ceph.storage_service import executors, job_manager, job_store, leases

LOG = logging.getLogger(__name__)

#: How long a request waits for a lock that another operation holds.
BUSY_WAIT_SEC = 3.0
#: After how many consecutive deaths of copies of the service an inspection is given up.
MAX_DEATHS = 3
_POLL_SEC = 0.2


class Jobs:
    """The jobs of all copies of the service.

    :param manager: runs the jobs of this copy
    :param retention_sec: how long the record of a job is kept after it ended
    :param now: the wall clock
    :param max_deaths: give an inspection up when this many copies of the service in a row died
        while they ran it
    """

    def __init__(
        self,
        deps: executors.ExecutorDependencies,
        store: job_store.JobStore,
        own_leases: leases.Leases,
        manager: job_manager.JobManager,
        retention_sec: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime.datetime] = job_manager.utc_now,
        max_deaths: int = MAX_DEATHS,
    ):
        self._deps = deps
        self._store = store
        self._leases = own_leases
        self._manager = manager
        self._retention = datetime.timedelta(seconds=retention_sec)
        self._clock = clock
        self._sleep = sleep
        self._now = now
        self._max_deaths = max_deaths

    def start(self, operation_id: str, work: tasks.Task) -> tasks.Job:
        """Start a job, or resume one that was interrupted, failed or canceled.

        Repeating the request returns the same job while it runs and when it is done. Only a fence
        runs again after it is done, since an old proof is worth nothing.

        :raises InvalidRequestError: the operation id exists with another task
        :raises BusyError: another operation holds a lock of the task
        :raises NotFoundError: the source of the task does not exist
        :raises NotThisCopyError: the task must run on another copy of the service
        :raises ServiceUnavailableError: this copy of the service is being stopped
        """
        self._manager.check_not_stopping()
        found = self._find_same(operation_id, work)
        if found is not None and self._needs_no_start(found):
            return self._manager.with_progress(found)
        if isinstance(work, tasks.InspectTask) and work.avoid == self._leases.name:
            raise exceptions.NotThisCopyError(f'{work}: must not run on {work.avoid}')
        if found is None and not isinstance(work, tasks.FenceTask):
            # A fence must not wait for any other pool.
            other = self._store.find_in_other_pools(_pool_of(work), operation_id)
            _check_same(other, work)
        if isinstance(work, tasks.PurgeTask):
            self._check_purge(work, is_new=found is None)
        source_ids = self._find_source_ids(work)
        deadline = waiting.Deadline(BUSY_WAIT_SEC, self._clock, self._sleep)
        while True:
            try:
                lease = self._take(operation_id, work)
                break
            except exceptions.BusyError:
                # The same request may have come first in another thread, or the holder may be about
                # to release the lock.
                found = self._find_same(operation_id, work)
                if found is not None and found.job.state.is_active:
                    return self._manager.with_progress(found)
                if not deadline.pause(_POLL_SEC):
                    raise
        return self._begin(operation_id, work, lease, source_ids)

    def _find_source_ids(self, work: tasks.Task) -> tuple[str, ...]:
        describe = self._deps.storage.describe
        return tuple(describe(image, with_usage=False).image_id for image in work.sources)

    def _take(self, operation_id: str, work: tasks.Task) -> leases.Lease:
        def on_loss(cookie: str) -> None:
            self._manager.stop_attempt(cookie, JobState.INTERRUPTED)

        return self._leases.take(work.locks, operation_id, str(work), on_loss)

    def _begin(
        self,
        operation_id: str,
        work: tasks.Task,
        lease: leases.Lease,
        source_ids: tuple[str, ...],
    ) -> tasks.Job:
        """Start a job under its lease, unless it was completed meanwhile."""
        try:
            # The previous holder may just have completed it.
            found = self._find_same(operation_id, work)
            if found is not None and self._needs_no_start(found):
                self._leases.release(lease)
                return found.job
            deaths = found.deaths if found and found.job.state is JobState.INTERRUPTED else 0
            record = job_store.JobRecord(
                tasks.Job(
                    operation_id=operation_id,
                    work=work,
                    state=JobState.WAITING,
                    holder=self._leases.name,
                    attempt=found.job.attempt + 1 if found else 1,
                    started_at=self._now(),
                    updated_at=self._now(),
                ),
                lease.holder.cookie,
                source_ids,
                deaths,
            )
            if isinstance(work, tasks.InspectTask) and deaths >= self._max_deaths:
                return self._give_up(record, lease)
            return self._manager.begin(record, lease)
        except Exception:
            self._leases.release(lease)
            raise

    def _give_up(self, record: job_store.JobRecord, lease: leases.Lease) -> tasks.Job:
        """Record that a job is not attempted again: the data that it reads may kill the service."""
        message = (
            f'{record.job.work}: given up, because the service died in {record.deaths} attempts '
            'in a row; find out why before you request it again'
        )
        ended = dataclasses.replace(
            record.job,
            state=JobState.FAILED,
            attempt=record.job.attempt - 1,
            error=exceptions.NotInspectableError.__name__,
            message=message,
        )
        self._store.write(dataclasses.replace(record, job=ended), lease.guard)
        self._leases.release(lease)
        LOG.error('%s', message)
        return ended

    def _needs_no_start(self, record: job_store.JobRecord) -> bool:
        """Return whether the job runs or is complete, so that there is nothing to start."""
        if record.job.state is JobState.DONE:
            return not isinstance(record.job.work, tasks.FenceTask)
        if record.job.state is JobState.FAILED and isinstance(record.job.work, tasks.InspectTask):
            return record.deaths >= self._max_deaths
        return record.job.state.is_active

    def find(self, operation_id: str) -> tasks.Job:
        """Return a job with its progress.

        :raises NotFoundError: there is no record of the job, or it has expired
        """
        return self._manager.with_progress(self._get(operation_id))

    def all(self) -> list[tasks.Job]:
        """Return all jobs, latest first.

        :raises CephUnreachableError: a pool does not answer
        """
        return self._latest_first(self._store.all())

    def survey(self) -> tuple[list[tasks.Job], list[str]]:
        """Return the jobs of all pools that answer, latest first, and the pools that do not."""
        found, silent = self._store.survey()
        return self._latest_first(found), silent

    def _latest_first(self, found: Iterable[job_store.JobRecord]) -> list[tasks.Job]:
        found_jobs = [self._manager.with_progress(record) for record in found]
        return sorted(found_jobs, key=lambda one: one.started_at, reverse=True)

    def cancel(self, operation_id: str) -> tasks.Job:
        """Cancel a job at its next chunk; do nothing if it has ended.

        Its work so far stays, and starting the same operation again resumes it.

        :raises NotFoundError: there is no record of the job, or it has expired
        """
        record = self._get(operation_id)
        if not self._manager.cancel(record) and record.job.state is JobState.INTERRUPTED:
            return self._cancel_interrupted(record)
        return self._manager.with_progress(record)

    def _cancel_interrupted(self, record: job_store.JobRecord) -> tasks.Job:
        with self._hold_lock_of(record) as lease:
            latest = self._store.find_in(record.lock.pool, record.job.operation_id)
            if latest is None:
                raise _not_found(record.job.operation_id)
            if latest.cookie == record.cookie:
                ended = dataclasses.replace(
                    latest.job, state=JobState.CANCELED, updated_at=self._now()
                )
                latest = job_store.JobRecord(ended, lease.holder.cookie, record.source_ids)
                self._store.write(latest, lease.guard)
        return latest.job

    def _hold_lock_of(self, record: job_store.JobRecord) -> Any:
        return self._leases.hold([record.lock], record.job.operation_id, wait_sec=0)

    def _get(self, operation_id: str) -> job_store.JobRecord:
        found = self._store.find(operation_id)
        if found is None:
            raise _not_found(operation_id)
        return found

    def _find_same(self, operation_id: str, work: tasks.Task) -> job_store.JobRecord | None:
        found = self._store.find_in(_pool_of(work), operation_id)
        _check_same(found, work)
        return found

    def _check_purge(self, purge: tasks.PurgeTask, is_new: bool) -> None:
        """Check that the image is in the trash and that no job reads it.

        Its readers opened it before it was moved to the trash, so there are no new ones. Their
        records may be in any pool, so all pools must answer.

        :param is_new: False when an earlier attempt of the purge may have removed the image
        """
        trashed = self._deps.storage.list_trash(purge.pool) if is_new else []
        if is_new and purge.image_id not in [one.image_id for one in trashed]:
            raise exceptions.NotFoundError(
                f'image {purge.image_id} in the trash of {purge.pool}: does not exist'
            )
        for record in self._store.all():
            if purge.image_id in record.source_ids and record.job.state.is_active:
                raise exceptions.BusyError(
                    f'image {purge.image_id} in the trash of {purge.pool}: {record.job} reads it'
                )

    def delete_expired(self, pool: str) -> None:
        """Delete the records of a pool whose jobs ended, or lost their holder, long ago."""
        oldest = self._now() - self._retention
        for record in self._store.all_in(pool):
            if record.job.state.is_active or record.job.updated_at > oldest:
                continue
            try:
                with self._hold_lock_of(record) as lease:
                    latest = self._store.find_in(pool, record.job.operation_id)
                    if latest is not None and latest.cookie == record.cookie:
                        self._store.delete(record, lease.guard)
                        LOG.info('%s: deleted its record', record.job)
            except exceptions.BusyError:
                # Another copy of the service just resumes it.
                continue


def _pool_of(work: tasks.Task) -> str:
    """Return the pool with the record of a task's job."""
    return work.locks[0].pool


def _check_same(found: job_store.JobRecord | None, work: tasks.Task) -> None:
    if found is not None and found.job.work != work:
        raise exceptions.InvalidRequestError(
            f'operation {found.job.operation_id}: is in use for another task: {found.job.work}, '
            f'not {work}'
        )


def _not_found(operation_id: str) -> exceptions.NotFoundError:
    return exceptions.NotFoundError(f'job {operation_id}: does not exist')
