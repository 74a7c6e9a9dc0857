# SPDX-License-Identifier: Apache-2.0
"""What is remembered of jobs, in Ceph: readable from any copy of the service, outliving them all.

The record of a job is an entry beside its first lock, and is written only under that lock. Whoever
lost the lock can therefore not write over what its successor remembers. A record that says running
while nobody holds the lock with the record's cookie is that of a job whose holder died.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Iterator, Sequence

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.storage import lock_store, tasks
from trove_ceph.storage_service import serializer

LOG = logging.getLogger(__name__)

_JOB = 'job/'
_CANCEL = 'cancel/'
#: How long an answer of a pool may take before others are not held up by it.
SILENT_SEC = 5.0


@dataclasses.dataclass(frozen=True)
class JobRecord:
    """A job as it is kept.

    :param cookie: that of the lock under which it was written
    :param source_id: the id of the image that it reads
    """

    job: tasks.Job
    cookie: str
    source_id: str | None = None

    @property
    def lock(self) -> lock_store.Lock:
        """The lock beside which it is kept."""
        return self.job.work.locks[0]


class JobStore:
    """The records of all jobs.

    :param pools: all in which there may be some
    """

    def __init__(
        self,
        entries: lock_store.LockStore,
        pools: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._ledger = entries
        self._pools = pools
        self._clock = clock
        # Since when those have been asked that have not answered yet.
        self._asked_at: dict[str, float] = {}

    def find(self, operation_id: str) -> JobRecord | None:
        """Return the record of an operation, wherever it is kept.

        :raises StorageError: it is nowhere else, and a pool does not answer
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
        """Return the record of an operation, if it is kept in this pool."""
        key = _JOB + operation_id
        found = self._read(pool, key).get(key)
        return self._as_it_is(_load(found)) if found is not None else None

    def find_elsewhere(self, pool: str, operation_id: str) -> JobRecord | None:
        """Return the record of an operation, if another pool keeps it; silent ones are left out."""
        for other in self._pools:
            if other != pool and not self._is_silent(other):
                found = self.find_in(other, operation_id)
                if found is not None:
                    return found
        return None

    def all(self) -> Iterator[JobRecord]:
        """Return each of them."""
        for pool in self._pools:
            yield from self.all_in(pool)

    def survey(self) -> tuple[list[JobRecord], list[str]]:
        """Return the records of all pools that answer, and the pools that do not."""
        found: list[JobRecord] = []
        silent = []
        for pool in self._pools:
            try:
                # One that is known to be silent is not waited for.
                if self._is_silent(pool):
                    silent.append(pool)
                else:
                    found += self.all_in(pool)
            except exceptions.StorageError as error:
                LOG.warning('The jobs of pool %s are left out: %s', pool, error)
                silent.append(pool)
        return found, silent

    def all_in(self, pool: str) -> Iterator[JobRecord]:
        """Return each of those that are kept in a pool."""
        for key, text in self._read(pool, _JOB).items():
            try:
                yield self._as_it_is(_load(text))
            except exceptions.InvalidRequestError as error:
                LOG.warning('%s of pool %s is left out: %s', key, pool, error)

    def _read(self, pool: str, prefix: str) -> dict[str, str]:
        self._asked_at.setdefault(pool, self._clock())
        found = self._ledger.read(pool, prefix)
        self._asked_at.pop(pool, None)
        return found

    def _is_silent(self, pool: str) -> bool:
        now = self._clock()
        return now - self._asked_at.get(pool, now) >= SILENT_SEC

    def _as_it_is(self, record: JobRecord) -> JobRecord:
        """Tell of a job whose holder died that it is interrupted."""
        if not record.job.state.is_active or self.is_held(record):
            return record
        # It may have ended, or been taken up, between the two looks.
        key = _JOB + record.job.operation_id
        again = self._read(record.lock.pool, key).get(key)
        if again is None:
            return _interrupted(record)
        latest = _load(again)
        return _interrupted(latest) if latest.cookie == record.cookie else latest

    def is_held(self, record: JobRecord) -> bool:
        """Whether whoever wrote a record still has its lock."""
        holder = self._ledger.find_holder(record.lock)
        return holder is not None and holder.cookie == record.cookie

    def write(self, record: JobRecord, guard: tuple[lock_store.Lock, lock_store.Holder]) -> None:
        """Remember a job; one that is not active cannot be canceled any more.

        :raises LockLostError: the lock is not ours
        """
        operation_id = record.job.operation_id
        entries: dict[str, str | None] = {_JOB + operation_id: _dump(record)}
        if not record.job.state.is_active:
            entries[_CANCEL + operation_id] = None
        self._ledger.write(record.lock.pool, entries, guard)

    def forget(self, record: JobRecord, guard: tuple[lock_store.Lock, lock_store.Holder]) -> None:
        """Remove what is remembered of a job."""
        operation_id = record.job.operation_id
        keys = (_JOB + operation_id, _CANCEL + operation_id)
        self._ledger.write(record.lock.pool, dict.fromkeys(keys), guard)

    def ask_to_cancel(self, record: JobRecord) -> None:
        """Leave word for whoever runs a job now, and for nobody who takes it up later."""
        key = _CANCEL + record.job.operation_id
        self._ledger.write(record.lock.pool, {key: record.cookie})

    def asked_to_cancel(self, pool: str) -> frozenset[str]:
        """Return the cookies of the jobs that are to be canceled, of those kept in a pool."""
        return frozenset(self._read(pool, _CANCEL).values())


def _dump(record: JobRecord) -> str:
    return json.dumps(
        {
            'job': serializer.encode(record.job),
            'cookie': record.cookie,
            'source_id': record.source_id,
        }
    )


def _load(text: str) -> JobRecord:
    content = json.loads(text)
    return JobRecord(serializer.decode(content['job']), content['cookie'], content['source_id'])


def _interrupted(record: JobRecord) -> JobRecord:
    found = dataclasses.replace(record.job, state=tasks.JobState.INTERRUPTED, left_sec=None)
    return dataclasses.replace(record, job=found)
