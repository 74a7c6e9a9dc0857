# SPDX-License-Identifier: Apache-2.0
"""Long work off the caller's thread, taken up by any copy of the service after any of them died."""

import concurrent.futures
import dataclasses
import datetime
import threading
import time
from collections.abc import Callable
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.storage import job
from trove_ceph.storage.job import State
from trove_ceph.storage.service import leases, records, works

LOG = logging.getLogger(__name__)

#: How long somebody who holds what is asked for is waited for.
PATIENCE_SEC = 3.0
#: How long a fence lets other work end by itself; what is left is cut off as any client.
MAKE_WAY_SEC = 5.0
_POLL_SEC = 0.2
#: How often what a job came to is written again while Ceph does not take it.
_RETRY_SEC = 1.0


class _Running:
    """A job that this copy of the service holds."""

    def __init__(self, record: records.Record, clock: Callable[[], float]):
        self.record = record
        self.progress = works.Progress(clock)
        self.cancel = threading.Event()
        self.ends_as: State | None = None
        self.lease: leases.Lease
        self.future: concurrent.futures.Future[None] | None = None
        # Nothing is written after what it came to.
        self.writing = threading.Lock()

    def end(self, state: State) -> None:
        """Have it end at its next piece, and say that it ended so."""
        if self.ends_as is None:
            self.ends_as = state
        self.cancel.set()

    def now(self) -> job.Job:
        return self.progress.onto(self.record.job)


class Jobs:
    """The jobs of the service, on whichever copy they run.

    :param threads: runs what this copy holds
    :param urgent: runs fences, which must not wait until a copy has ended
    :param retention_sec: after which a job that ended is forgotten
    :param now: the time of day
    """

    def __init__(
        self,
        tools: works.Tools,
        kept: records.Records,
        held: leases.Leases,
        threads: concurrent.futures.Executor,
        urgent: concurrent.futures.Executor,
        retention_sec: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ):
        self._tools = tools
        self._records = kept
        self._leases = held
        self._threads = threads
        self._urgent = urgent
        self._retention = datetime.timedelta(seconds=retention_sec)
        self._clock = clock
        self._sleep = sleep
        self._now = now
        self._running: dict[str, _Running] = {}
        self._mutex = threading.Lock()
        self._stopping = False

    # What callers ask for.

    def start(self, operation_id: str, work: job.Work) -> job.Job:
        """Begin work, or carry on with what was interrupted, failed or canceled.

        The same request again returns the same job while it goes on and when it is done. Only a
        fence is proved anew: what was true an hour ago proves nothing.

        :raises InvalidRequestError: the operation's id is known with other work
        :raises BusyError: another operation holds what is worked on
        :raises NotFoundError: what is to be read is not there
        """
        if self._stopping:
            raise exceptions.ServiceUnavailableError(f'{self._leases.name}: is being stopped')
        found = self._find_same(operation_id, work)
        if found is not None and _stands(found):
            return self._as_seen_here(found)
        if found is None and not isinstance(work, job.Fence):
            # A fence may not have to wait for any other pool.
            elsewhere = self._records.find_elsewhere(_pool_of(work), operation_id)
            _check_same(elsewhere, work)
        if isinstance(work, job.Purge):
            self._check_purge(work, is_new=found is None)
        source_id = self._find_source_id(work)
        deadline = self._clock() + PATIENCE_SEC
        while True:
            try:
                lease = self._take(operation_id, work)
                break
            except exceptions.BusyError:
                # Asked for twice at once, the other request was first; or whoever holds it is about
                # to let go.
                found = self._find_same(operation_id, work)
                if found is not None and found.job.state.is_active:
                    return self._as_seen_here(found)
                if self._clock() >= deadline:
                    raise
                self._sleep(_POLL_SEC)
        return self._begin(operation_id, work, lease, source_id)

    def _find_source_id(self, work: job.Work) -> str | None:
        if work.source is None:
            return None
        return self._tools.storage.describe(work.source, with_usage=False).image_id

    def _take(self, operation_id: str, work: job.Work) -> leases.Lease:
        def on_loss() -> None:
            with self._mutex:
                running = self._running.get(operation_id)
            if running is not None:
                running.end(State.INTERRUPTED)

        return self._leases.take(work.locks, operation_id, str(work), on_loss)

    def _begin(
        self, operation_id: str, work: job.Work, lease: leases.Lease, source_id: str | None
    ) -> job.Job:
        """Remember a job under its lease, and have a thread run it."""
        try:
            # The copy of the service that held it may just have ended it.
            found = self._find_same(operation_id, work)
            if found is not None and _stands(found):
                self._leases.release(lease)
                return found.job
            record = records.Record(
                job.Job(
                    operation_id=operation_id,
                    work=work,
                    state=State.WAITING,
                    holder=self._leases.name,
                    attempt=found.job.attempt + 1 if found else 1,
                    started_at=self._now(),
                    updated_at=self._now(),
                ),
                lease.holder.cookie,
                source_id,
            )
            running = _Running(record, self._clock)
            running.lease = lease
            with self._mutex:
                self._running[operation_id] = running
            self._records.write(record, lease.guard)
        except exceptions.StorageError:
            with self._mutex:
                self._running.pop(operation_id, None)
            self._leases.release(lease)
            raise
        LOG.info('%s: attempt %d begins', record.job, record.job.attempt)
        threads = self._urgent if isinstance(work, job.Fence) else self._threads
        running.future = threads.submit(self._run, running)
        return running.now()

    def find(self, operation_id: str) -> job.Job:
        """Tell how far a job is.

        :raises NotFoundError: there is none, or it is forgotten
        """
        return self._as_seen_here(self._get(operation_id))

    def all(self) -> list[job.Job]:
        """Return all jobs, the latest first."""
        found = [self._as_seen_here(record) for record in self._records.all()]
        return sorted(found, key=lambda one: one.started_at, reverse=True)

    def cancel(self, operation_id: str) -> job.Job:
        """Have a job end at its next piece; nothing if it has ended.

        What it did so far stays, and a start of the same operation carries on there.

        :raises NotFoundError: there is none, or it is forgotten
        """
        record = self._get(operation_id)
        with self._mutex:
            running = self._running.get(operation_id)
        if running is not None:
            running.end(State.CANCELED)
        elif record.job.state.is_active:
            self._records.ask_to_cancel(record)
        elif record.job.state is State.INTERRUPTED:
            return self._end_for_the_dead(record)
        return self._as_seen_here(record)

    def _end_for_the_dead(self, record: records.Record) -> job.Job:
        with self._under_its_lock(record) as lease:
            latest = self._records.find_in(record.lock.pool, record.job.operation_id)
            if latest is None:
                raise _none(record.job.operation_id)
            if latest.cookie == record.cookie:
                ended = dataclasses.replace(
                    latest.job, state=State.CANCELED, updated_at=self._now()
                )
                latest = records.Record(ended, lease.holder.cookie, record.source_id)
                self._records.write(latest, lease.guard)
        return latest.job

    def _under_its_lock(self, record: records.Record) -> Any:
        return self._leases.held([record.lock], record.job.operation_id, wait_sec=0)

    def _get(self, operation_id: str) -> records.Record:
        found = self._records.find(operation_id)
        if found is None:
            raise _none(operation_id)
        return found

    def _find_same(self, operation_id: str, work: job.Work) -> records.Record | None:
        found = self._records.find_in(_pool_of(work), operation_id)
        _check_same(found, work)
        return found

    def _as_seen_here(self, record: records.Record) -> job.Job:
        with self._mutex:
            running = self._running.get(record.job.operation_id)
        return running.now() if running and record.job.state.is_active else record.job

    def _check_purge(self, purge: job.Purge, is_new: bool) -> None:
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

    # What a job's thread does.

    def _run(self, running: _Running) -> None:
        work = running.record.job.work
        try:
            self._change(running, state=State.RUNNING)
            if running.cancel.is_set() or not running.lease.is_good():
                raise exceptions.CanceledError(f'{work}: was not begun')
            if isinstance(work, job.Fence):
                self._make_way(work)
            result = works.perform(
                self._tools,
                work,
                running.progress,
                running.cancel,
                running.lease.is_good,
            )
        except exceptions.CanceledError:
            self._end(running, state=running.ends_as or State.INTERRUPTED)
        except exceptions.TroveCephError as error:
            self._end_failed(running, type(error).__name__, str(error))
        except Exception as error:
            LOG.exception('%s: failed in a way that nobody thought of', running.record.job)
            message = f'{work}: {type(error).__name__}: {error}'
            self._end_failed(running, exceptions.StorageError.__name__, message)
        else:
            running.progress.finish()
            self._end(running, state=State.DONE, result=result)

    def _end_failed(self, running: _Running, error: str, message: str) -> None:
        if running.ends_as is not None:
            # Flattening is ended by cutting it off from Ceph, which it then says.
            self._end(running, state=running.ends_as)
        else:
            self._end(running, state=State.FAILED, error=error, message=message)

    def _make_way(self, fence: job.Fence) -> None:
        """End other work on an image that is to be fenced; it would be a client to be cut off."""
        lock = job.image_lock(fence.image)
        # What holds this lock has it first, and is kept beside it.
        for record in self._records.all_in(lock.pool):
            if lock in record.job.work.locks and record.job.state.is_active:
                LOG.warning('%s: ends for the fencing of %s', record.job, fence.image)
                self.cancel(record.job.operation_id)
                deadline = self._clock() + MAKE_WAY_SEC
                while self._records.is_held(record) and self._clock() < deadline:
                    self._sleep(_POLL_SEC)

    def _end(self, running: _Running, **changes: Any) -> None:
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
        level = LOG.info if ended.state is not State.FAILED else LOG.error
        level('%s: %s %s', ended, ended.state, ended.message or '')

    def _change(self, running: _Running, **changes: Any) -> None:
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
                running.end(State.CANCELED)
            try:
                self._change(running)
            except exceptions.LockLostError:
                running.lease.lose()

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

    def stop(self, timeout_sec: float) -> bool:
        """Have all that runs here end at its next piece; return whether it did within the time."""
        self._stopping = True
        with self._mutex:
            mine = list(self._running.values())
        for running in mine:
            running.end(State.INTERRUPTED)
        begun = [running.future for running in mine if running.future]
        ended = concurrent.futures.wait(begun, timeout_sec)
        return not ended.not_done


def _pool_of(work: job.Work) -> str:
    """Return the pool where the job of some work is kept."""
    return work.locks[0].pool


def _check_same(found: records.Record | None, work: job.Work) -> None:
    if found is not None and found.job.work != work:
        raise exceptions.InvalidRequestError(
            f'operation {found.job.operation_id}: is known for other work: {found.job.work}, '
            f'not {work}'
        )


def _none(operation_id: str) -> exceptions.NotFoundError:
    return exceptions.NotFoundError(f'job {operation_id}: there is none')


def _stands(record: records.Record) -> bool:
    """Whether a start has nothing to do any more."""
    if record.job.state is State.DONE:
        return not isinstance(record.job.work, job.Fence)
    return record.job.state.is_active
