# SPDX-License-Identifier: Apache-2.0
"""Store the records of jobs in Ceph, where every copy of the service can read them.

The record of a job is an entry beside its first lock, and is written only under that lock. So a
holder that lost the lock cannot overwrite the record of its successor. If a record has an active
state and no process holds the lock with the record's cookie, the holder of the job has died.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.storage import lock_store, tasks
from trove_ceph.storage_service import serializer

LOG = logging.getLogger(__name__)

_JOB = 'job/'
_CANCEL = 'cancel/'
#: A pool that does not answer for this long is queried last, so that it does not delay others.
SILENT_SEC = 5.0


@dataclasses.dataclass(frozen=True)
class JobRecord:
    """The record of a job.

    :param cookie: of the lock under which it was written
    :param source_ids: the ids of the images that it reads
    :param deaths: number of consecutive latest attempts during which the copy of the service died
    """

    job: tasks.Job
    cookie: str
    source_ids: tuple[str, ...] = ()
    deaths: int = 0

    @property
    def lock(self) -> lock_store.Lock:
        """The lock beside which the record is stored."""
        return self.job.work.locks[0]


class JobStore:
    """The records of all jobs.

    :param pools: all pools that may have records
    """

    def __init__(
        self,
        entries: lock_store.LockStore,
        pools: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._lock_store = entries
        self._pools = pools
        self._clock = clock
        # The time of the first unanswered request, by pool.
        self._requested_at: dict[str, float] = {}

    def find(self, operation_id: str) -> JobRecord | None:
        """Return the record of an operation from any pool.

        :raises StorageError: no other pool has it, and a pool does not answer
        """
        failure = None
        for pool in sorted(self._pools, key=self._is_silent):
            try:
                found = self.find_in(pool, operation_id)
            except exceptions.StorageError as error:
                failure = error
            else:
                if found is not None:
                    return found
        if failure is not None:
            raise failure
        return None

    def find_in(self, pool: str, operation_id: str) -> JobRecord | None:
        """Return the record of an operation, if this pool has it."""
        key = _JOB + operation_id
        found = self._read(pool, key).get(key)
        return self._with_actual_state(_load(found)) if found is not None else None

    def find_in_other_pools(self, pool: str, operation_id: str) -> JobRecord | None:
        """Return the record of an operation, if another pool has it; skip silent pools."""
        for other in self._pools:
            if other != pool and not self._is_silent(other):
                found = self.find_in(other, operation_id)
                if found is not None:
                    return found
        return None

    def all(self) -> Iterator[JobRecord]:
        """Yield all records."""
        for pool in self._pools:
            yield from self.all_in(pool)

    def survey(self) -> tuple[list[JobRecord], list[str]]:
        """Return the records of all pools that answer, and the pools that do not."""
        found: list[JobRecord] = []
        silent = []
        for pool in self._pools:
            try:
                # Do not wait for a pool that is known to be silent.
                if self._is_silent(pool):
                    silent.append(pool)
                else:
                    found += self.all_in(pool)
            except exceptions.StorageError as error:
                LOG.warning('Cannot list the jobs of pool %s: %s', pool, error)
                silent.append(pool)
        return found, silent

    def all_in(self, pool: str) -> Iterator[JobRecord]:
        """Yield the records of a pool."""
        for key, text in self._read(pool, _JOB).items():
            try:
                yield self._with_actual_state(_load(text))
            except exceptions.InvalidRequestError as error:
                LOG.warning('Skipped the unreadable record %s of pool %s: %s', key, pool, error)

    def _read(self, pool: str, prefix: str) -> dict[str, str]:
        self._requested_at.setdefault(pool, self._clock())
        found = self._lock_store.read(pool, prefix)
        self._requested_at.pop(pool, None)
        return found

    def _is_silent(self, pool: str) -> bool:
        now = self._clock()
        return now - self._requested_at.get(pool, now) >= SILENT_SEC

    def _with_actual_state(self, record: JobRecord) -> JobRecord:
        """Return the record, as interrupted if the holder of the job has died."""
        if not record.job.state.is_active or self.has_holder(record):
            return record
        # It may have ended, or been resumed, since the record was read.
        key = _JOB + record.job.operation_id
        text = self._read(record.lock.pool, key).get(key)
        if text is None:
            return _interrupted(record)
        latest = _load(text)
        return _interrupted(latest) if latest.cookie == record.cookie else latest

    def has_holder(self, record: JobRecord) -> bool:
        """Return whether the writer of a record still holds its lock."""
        holder = self._lock_store.find_holder(record.lock)
        return holder is not None and holder.cookie == record.cookie

    def write(self, record: JobRecord, guard: tuple[lock_store.Lock, lock_store.Holder]) -> None:
        """Write the record of a job; delete its cancel request if it is not active.

        :raises LockLostError: this client does not hold the lock
        """
        operation_id = record.job.operation_id
        entries: dict[str, str | None] = {_JOB + operation_id: _dump(record)}
        if not record.job.state.is_active:
            entries[_CANCEL + operation_id] = None
        self._lock_store.write(record.lock.pool, entries, guard)

    def delete(self, record: JobRecord, guard: tuple[lock_store.Lock, lock_store.Holder]) -> None:
        """Delete the record of a job."""
        operation_id = record.job.operation_id
        keys = (_JOB + operation_id, _CANCEL + operation_id)
        self._lock_store.write(record.lock.pool, dict.fromkeys(keys), guard)

    def request_cancel(self, record: JobRecord) -> None:
        """Request that the current holder of a job cancels it; a later attempt is not affected."""
        key = _CANCEL + record.job.operation_id
        self._lock_store.write(record.lock.pool, {key: record.cookie})

    def find_cancel_requests(self, pool: str) -> frozenset[str]:
        """Return the cookies of the jobs of a pool that have a cancel request."""
        return frozenset(self._read(pool, _CANCEL).values())


def _dump(record: JobRecord) -> str:
    return json.dumps(
        {
            'job': serializer.encode(record.job),
            'cookie': record.cookie,
            # Of which copies of the service of earlier releases know only the first.
            'source_id': next(iter(record.source_ids), None),
            'source_ids': record.source_ids,
            'deaths': record.deaths,
        }
    )


def _load(text: str) -> JobRecord:
    content = json.loads(text)
    return JobRecord(
        serializer.decode(content['job']),
        content['cookie'],
        _source_ids(content),
        # Records of earlier releases have no count.
        content.get('deaths', 0),
    )


def _source_ids(content: dict[str, Any]) -> tuple[str, ...]:
    if 'source_ids' in content:
        return tuple(content['source_ids'])
    # The record of an earlier release.
    return (content['source_id'],) if content['source_id'] is not None else ()


def _interrupted(record: JobRecord) -> JobRecord:
    found = dataclasses.replace(record.job, state=tasks.JobState.INTERRUPTED, left_sec=None)
    return dataclasses.replace(record, job=found, deaths=record.deaths + 1)
