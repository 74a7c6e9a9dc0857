# SPDX-License-Identifier: Apache-2.0
"""Run the replacements of servers: any taskmanager continues each that is open.

A replacement that waits for Nova or for a guest holds no thread between its attempts.
"""

import datetime
import functools
import threading
from collections.abc import Callable

from oslo_log import log as logging

from trove_ceph import exceptions, waiting
from trove_ceph.db import claims
from trove_ceph.db.claims import Claim
from trove_ceph.db.replacement_record import ReplacementRecord
from trove_ceph.strategies.backup import queue_worker
from trove_ceph.strategies.replacement import replacement, rules
from trove_ceph.strategies.replacement.dependencies import ReplacementDependencies

LOG = logging.getLogger(__name__)

#: With no replacement open, the table is read this often.
IDLE_SEC = 10
_POLL_SEC = 1
#: A worker that died keeps its claim for claim_expiry_sec; an attempt looks every few seconds.
_CANCEL_TIMEOUT_SEC = 180


class Replacements:
    """The replacements on which this process works.

    :param deps: of replacements
    :param worker: the name of this process in claims
    :param threads: those of the attempts
    :param start_wait: returns the deadline of a wait of so many seconds
    """

    def __init__(
        self,
        deps: ReplacementDependencies,
        worker: claims.Claimant,
        threads: queue_worker.WorkerThreads,
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
    ):
        self._deps = deps
        self._worker = worker
        self._threads = threads
        self._start_wait = start_wait
        self._mutex = threading.Lock()
        # When the next attempt of a replacement is due, by its id.
        self._due: dict[str, float] = {}
        self._next_look = 0.0

    def start_due(self) -> None:
        """Start the attempts that are due, as long as threads are free; call it every 2 s.

        One worker runs each attempt, even if several processes call this.
        """
        now = self._deps.clock()
        with self._mutex:
            if now < self._next_look:
                return
            self._next_look = now + IDLE_SEC
        open_ones = self._deps.store.list_claimable(self._worker)
        if open_ones:
            self.look_now()
        with self._mutex:
            ids = {record.replacement_id for record in open_ones}
            self._due = {one: at for one, at in self._due.items() if one in ids}
            due = [one for one in open_ones if self._due.get(one.replacement_id, now) <= now]
        for record in due:
            if not self._threads.start(functools.partial(self._attempt, record)):
                return

    def look_now(self) -> None:
        """Have the next call of :meth:`start_due` look for replacements in any case."""
        with self._mutex:
            self._next_look = 0.0

    def cancel(self, instance_id: str) -> None:
        """Return when no replacement of an instance that is being deleted is open any more.

        :raises InProgressError: it did not end in time
        """
        deadline = self._start_wait(_CANCEL_TIMEOUT_SEC)
        while (record := self._deps.store.find_open(instance_id)) is not None:
            if self._attempt(record):
                continue
            if not deadline.pause(_POLL_SEC):
                raise exceptions.InProgressError(
                    f'{record}: did not end within {_CANCEL_TIMEOUT_SEC} s; repeat the deletion of '
                    'the instance'
                )

    def wait(self, replacement_id: str, timeout_sec: float) -> ReplacementRecord:
        """Return a replacement when it has ended.

        :raises InProgressError: it did not end in time; it goes on
        :raises RecordNotFoundError: it has no record
        """
        deadline = self._start_wait(timeout_sec)
        while True:
            record = self._deps.store.find(replacement_id)
            if record is None:
                raise exceptions.RecordNotFoundError(f'replacement {replacement_id}: has no record')
            if not record.state.is_open:
                return record
            if not deadline.pause(_POLL_SEC):
                raise exceptions.InProgressError(
                    f'{record}: did not end within {timeout_sec:.0f} s; it goes on'
                )

    def prune(self, keep: datetime.timedelta) -> None:
        """Delete the records of the replacements that ended longer ago than ``keep``."""
        self._deps.store.prune(self._deps.store.now() - keep)

    def _attempt(self, record: ReplacementRecord) -> bool:
        """Try to complete a replacement; return whether it has ended."""
        store, replacement_id = self._deps.store, record.replacement_id
        claim = self._deps.heartbeat.acquire(lambda: store.claim(replacement_id, self._worker))
        if claim is None:
            return False
        try:
            with self._deps.heartbeat.hold(claim):
                return self._run(claim)
        finally:
            self._release(claim)
            self.look_now()

    def _run(self, claim: Claim) -> bool:
        record = self._deps.store.find(claim.resource_id)
        if record is None:
            return True
        try:
            replacement.Replacement(self._deps, claim, record).run()
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

    def _postpone(self, record: ReplacementRecord, error: Exception) -> None:
        pause_sec = rules.retry_sec(error, record.attempts + 1)
        with self._mutex:
            self._due[record.replacement_id] = self._deps.clock() + pause_sec

    def _release(self, claim: Claim) -> None:
        try:
            self._deps.store.claims.release(claim)
        except exceptions.TroveCephError as error:
            LOG.warning('The %s is released when it expires: %s', claim, error)
