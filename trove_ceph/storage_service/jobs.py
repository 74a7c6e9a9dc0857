# SPDX-License-Identifier: Apache-2.0
"""Long work off the caller's thread, taken up by any copy of the service after any of them died."""

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

#: How long somebody who holds what is asked for is waited for.
PATIENCE_SEC = 3.0
_POLL_SEC = 0.2


class Jobs:
    """The jobs of the service, on whichever copy they run.

    :param keeper: has those of this copy
    :param retention_sec: after which a job that ended is forgotten
    :param now: the time of day
    """

    def __init__(
        self,
        tools: executors.ExecutorDependencies,
        kept: job_store.JobStore,
        held: leases.Leases,
        keeper: job_manager.JobManager,
        retention_sec: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime.datetime] = job_manager.time_of_day,
    ):
        self._tools = tools
        self._records = kept
        self._leases = held
        self._keeper = keeper
        self._retention = datetime.timedelta(seconds=retention_sec)
        self._clock = clock
        self._sleep = sleep
        self._now = now

    def start(self, operation_id: str, work: tasks.Task) -> tasks.Job:
        """Begin work, or carry on with what was interrupted, failed or canceled.

        The same request again returns the same job while it goes on and when it is done. Only a
        fence is proved anew: what was true an hour ago proves nothing.

        :raises InvalidRequestError: the operation's id is known with other work
        :raises BusyError: another operation holds what is worked on
        :raises NotFoundError: what is to be read is not there
        :raises NotThisCopyError: another copy of the service is to do it
        """
        self._keeper.check_not_stopping()
        found = self._find_same(operation_id, work)
        if found is not None and _stands(found):
            return self._keeper.as_seen_here(found)
        if isinstance(work, tasks.InspectTask) and work.avoid == self._leases.name:
            raise exceptions.NotThisCopyError(f'{work}: is not to be done by {work.avoid}')
        if found is None and not isinstance(work, tasks.FenceTask):
            # A fence may not have to wait for any other pool.
            elsewhere = self._records.find_elsewhere(_pool_of(work), operation_id)
            _check_same(elsewhere, work)
        if isinstance(work, tasks.PurgeTask):
            self._check_purge(work, is_new=found is None)
        source_id = self._find_source_id(work)
        deadline = waiting.Deadline(PATIENCE_SEC, self._clock, self._sleep)
        while True:
            try:
                lease = self._take(operation_id, work)
                break
            except exceptions.BusyError:
                # Asked for twice at once, the other request was first; or whoever holds it is about
                # to let go.
                found = self._find_same(operation_id, work)
                if found is not None and found.job.state.is_active:
                    return self._keeper.as_seen_here(found)
                if not deadline.pause(_POLL_SEC):
                    raise
        return self._begin(operation_id, work, lease, source_id)

    def _find_source_id(self, work: tasks.Task) -> str | None:
        if work.source is None:
            return None
        return self._tools.storage.describe(work.source, with_usage=False).image_id

    def _take(self, operation_id: str, work: tasks.Task) -> leases.Lease:
        def on_loss() -> None:
            self._keeper.end(operation_id, JobState.INTERRUPTED)

        return self._leases.take(work.locks, operation_id, str(work), on_loss)

    def _begin(
        self, operation_id: str, work: tasks.Task, lease: leases.Lease, source_id: str | None
    ) -> tasks.Job:
        """Have a job kept under its lease, unless that has become needless meanwhile."""
        try:
            # The copy of the service that held it may just have ended it.
            found = self._find_same(operation_id, work)
            if found is not None and _stands(found):
                self._leases.release(lease)
                return found.job
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
                source_id,
            )
            return self._keeper.begin(record, lease)
        except exceptions.StorageError:
            self._leases.release(lease)
            raise

    def find(self, operation_id: str) -> tasks.Job:
        """Tell how far a job is.

        :raises NotFoundError: there is none, or it is forgotten
        """
        return self._keeper.as_seen_here(self._get(operation_id))

    def all(self) -> list[tasks.Job]:
        """Return all jobs, the latest first; all pools must answer."""
        return self._latest_first(self._records.all())

    def survey(self) -> tuple[list[tasks.Job], list[str]]:
        """Return the jobs of all pools that answer, the latest first, and the pools that do not."""
        found, silent = self._records.survey()
        return self._latest_first(found), silent

    def _latest_first(self, found: Iterable[job_store.JobRecord]) -> list[tasks.Job]:
        seen = [self._keeper.as_seen_here(record) for record in found]
        return sorted(seen, key=lambda one: one.started_at, reverse=True)

    def cancel(self, operation_id: str) -> tasks.Job:
        """Have a job end at its next piece; nothing if it has ended.

        What it did so far stays, and a start of the same operation carries on there.

        :raises NotFoundError: there is none, or it is forgotten
        """
        record = self._get(operation_id)
        if not self._keeper.cancel(record) and record.job.state is JobState.INTERRUPTED:
            return self._end_for_the_dead(record)
        return self._keeper.as_seen_here(record)

    def _end_for_the_dead(self, record: job_store.JobRecord) -> tasks.Job:
        with self._under_its_lock(record) as lease:
            latest = self._records.find_in(record.lock.pool, record.job.operation_id)
            if latest is None:
                raise _none(record.job.operation_id)
            if latest.cookie == record.cookie:
                ended = dataclasses.replace(
                    latest.job, state=JobState.CANCELED, updated_at=self._now()
                )
                latest = job_store.JobRecord(ended, lease.holder.cookie, record.source_id)
                self._records.write(latest, lease.guard)
        return latest.job

    def _under_its_lock(self, record: job_store.JobRecord) -> Any:
        return self._leases.held([record.lock], record.job.operation_id, wait_sec=0)

    def _get(self, operation_id: str) -> job_store.JobRecord:
        found = self._records.find(operation_id)
        if found is None:
            raise _none(operation_id)
        return found

    def _find_same(self, operation_id: str, work: tasks.Task) -> job_store.JobRecord | None:
        found = self._records.find_in(_pool_of(work), operation_id)
        _check_same(found, work)
        return found

    def _check_purge(self, purge: tasks.PurgeTask, is_new: bool) -> None:
        """Refuse to purge what is not there, unless an earlier attempt was, and what is read.

        Whoever reads it opened it before it was moved to the trash, so there will be no more. They
        may be kept in any pool, so all pools must answer.
        """
        trashed = self._tools.storage.list_trash(purge.pool) if is_new else []
        if is_new and purge.image_id not in [one.image_id for one in trashed]:
            raise exceptions.NotFoundError(
                f'image {purge.image_id} in the trash of {purge.pool}: there is none'
            )
        for record in self._records.all():
            if record.source_id == purge.image_id and record.job.state.is_active:
                raise exceptions.BusyError(
                    f'image {purge.image_id} in the trash of {purge.pool}: is read by {record.job}'
                )

    def forget_old(self, pool: str) -> None:
        """Remove what a pool keeps of jobs that ended long ago, or whose holder died then."""
        oldest = self._now() - self._retention
        for record in self._records.all_in(pool):
            if record.job.state.is_active or record.job.updated_at > oldest:
                continue
            try:
                with self._under_its_lock(record) as lease:
                    latest = self._records.find_in(pool, record.job.operation_id)
                    if latest is not None and latest.cookie == record.cookie:
                        self._records.forget(record, lease.guard)
                        LOG.info('%s: forgotten', record.job)
            except exceptions.BusyError:
                # Somebody takes it up just now.
                continue


def _pool_of(work: tasks.Task) -> str:
    """Return the pool where the job of some work is kept."""
    return work.locks[0].pool


def _check_same(found: job_store.JobRecord | None, work: tasks.Task) -> None:
    if found is not None and found.job.work != work:
        raise exceptions.InvalidRequestError(
            f'operation {found.job.operation_id}: is known for other work: {found.job.work}, '
            f'not {work}'
        )


def _none(operation_id: str) -> exceptions.NotFoundError:
    return exceptions.NotFoundError(f'job {operation_id}: there is none')


def _stands(record: job_store.JobRecord) -> bool:
    """Whether a start has nothing to do any more."""
    if record.job.state is JobState.DONE:
        return not isinstance(record.job.work, tasks.FenceTask)
    return record.job.state.is_active
