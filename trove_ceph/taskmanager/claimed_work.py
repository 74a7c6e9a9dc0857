# SPDX-License-Identifier: Apache-2.0
"""Continue long operations that have a record each: any taskmanager continues each that is open.

An operation that waits for another service holds no thread between its attempts.
"""

import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from oslo_log import log as logging

from trove_ceph import exceptions, waiting
from trove_ceph.db import heartbeat
from trove_ceph.db.claims import Claim, Claimant
from trove_ceph.strategies.backup import queue_worker
from trove_ceph.strategies.replacement import rules

LOG = logging.getLogger(__name__)

POLL_SEC = 1
#: A worker that died keeps its claim for claim_expiry_sec; an attempt looks every few seconds.
_CANCEL_TIMEOUT_SEC = 180
#: Longer than the pause after a failed attempt.
_FORGET_SEC = 600


class Record(Protocol):
    """The record of an operation."""

    @property
    def attempts(self) -> int:
        """How many attempts have failed."""


Found = TypeVar('Found', bound=Record)
Found_co = TypeVar('Found_co', bound=Record, covariant=True)


class Store(Protocol[Found_co]):
    """The records of operations, and the claims on those that are open."""

    @property
    def claims(self) -> Any: ...
    def find(self, record_id: str, /) -> Found_co | None: ...
    def list_claimable(self, claimant: Claimant) -> Sequence[Found_co]: ...
    def claim(self, record_id: str, claimant: Claimant, /) -> Claim | None: ...


class ClaimedWork(Generic[Found]):
    """The operations of one kind on which this process works.

    :param heartbeat: renews the claims of this process
    :param worker: the name of this process in claims
    :param threads: those of the attempts
    :param id_of: returns the id of a record, by which it is claimed
    :param attempt: makes one attempt. It returns when the operation has ended, and raises
        ClaimLostError, InProgressError, or any other error of an attempt that failed
    :param clock: seconds on a monotonic clock
    :param start_wait: returns the deadline of a wait of so many seconds
    """

    def __init__(
        self,
        store: Store[Found],
        heartbeat: heartbeat.Heartbeat,
        worker: Claimant,
        threads: queue_worker.WorkerThreads,
        id_of: Callable[[Found], str],
        attempt: Callable[[Claim, Found], object],
        clock: Callable[[], float],
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
    ):
        self._store = store
        self._heartbeat = heartbeat
        self._worker = worker
        self._threads = threads
        self._id_of = id_of
        self._make_attempt = attempt
        self._clock = clock
        self._start_wait = start_wait
        self._mutex = threading.Lock()
        # When this process makes the next attempt of an operation, by the id of its record: sooner
        # after a wait, and after an error that could not be noted.
        self._due: dict[str, float] = {}

    def start_due(self) -> None:
        """Start the attempts that are due, as long as threads are free; call it every 2 s.

        One worker runs each attempt, even if several processes call this. Each call reads the
        table, since automatic failover and the commands of operators only write a record.
        """
        now = self._clock()
        open_ones = self._store.list_claimable(self._worker)
        with self._mutex:
            ids = set(map(self._id_of, open_ones))
            # What failed is listed again when its pause is over, and has its turn as before.
            since = now - _FORGET_SEC
            self._due = {one: at for one, at in self._due.items() if one in ids or at > since}
            due = [one for one in open_ones if self._due.get(self._id_of(one), now) <= now]
            # New ones first, and then those that have waited longest: if there are more than
            # threads, those that wait long must not keep the others from their turn.
            due.sort(key=lambda one: self._due.get(self._id_of(one), -math.inf))
        for record in due:
            if not self._threads.start(functools.partial(self._attempt, record)):
                return

    def end(self, find_open: Callable[[], Found | None]) -> None:
        """Return when the operation on an instance that is being deleted has ended.

        :param find_open: returns the operation; None: it has ended
        :raises InProgressError: it did not end in time
        """
        deadline = self._start_wait(_CANCEL_TIMEOUT_SEC)
        while (record := find_open()) is not None:
            if self._attempt(record):
                continue
            if not deadline.pause(POLL_SEC):
                raise exceptions.InProgressError(
                    f'{record}: did not end within {_CANCEL_TIMEOUT_SEC} s; repeat the deletion of '
                    'the instance',
                    'the replacement of its server or volume, which was under way, did not end '
                    f'within {_CANCEL_TIMEOUT_SEC} s; repeat the deletion of the instance',
                )

    def _attempt(self, record: Found) -> bool:
        """Try to complete an operation; return whether it has ended."""
        record_id = self._id_of(record)
        claim = self._heartbeat.acquire(lambda: self._store.claim(record_id, self._worker))
        if claim is None:
            return False
        try:
            with self._heartbeat.hold(claim):
                return self._run(claim, record.attempts)
        finally:
            self._release(claim)

    def _run(self, claim: Claim, attempts: int) -> bool:
        """Make one attempt, unless another worker has made one since the record was read."""
        record = self._store.find(claim.resource_id)
        if record is None:
            return True
        if record.attempts > attempts:
            return False
        try:
            self._make_attempt(claim, record)
        except exceptions.ClaimLostError as error:
            LOG.info('%s', error)
            return False
        except exceptions.InProgressError as error:
            LOG.info('%s', error)
            self._postpone(record, error)
            return False
        except Exception as error:
            is_known = isinstance(error, exceptions.TroveCephError)
            LOG.warning('%s: failed and is retried: %s', record, error, exc_info=not is_known)
            self._postpone(record, error)
            return False
        return True

    def _postpone(self, record: Found, error: Exception) -> None:
        is_waiting = isinstance(error, exceptions.InProgressError)
        pause_sec = rules.IN_PROGRESS_SEC if is_waiting else rules.retry_sec(record.attempts + 1)
        with self._mutex:
            self._due[self._id_of(record)] = self._clock() + pause_sec

    def _release(self, claim: Claim) -> None:
        try:
            self._store.claims.release(claim)
        except exceptions.TroveCephError as error:
            LOG.warning('The %s is released when it expires: %s', claim, error)
