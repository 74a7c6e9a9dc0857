# SPDX-License-Identifier: Apache-2.0
"""Run the replacements of servers: any taskmanager continues each that is open."""

import datetime
from collections.abc import Callable

from trove_ceph import exceptions, waiting
from trove_ceph.db import claims
from trove_ceph.db.replacement_record import ReplacementRecord
from trove_ceph.strategies.backup import queue_worker
from trove_ceph.strategies.replacement import replacement
from trove_ceph.strategies.replacement.dependencies import ReplacementDependencies
from trove_ceph.taskmanager import claimed_work


class Replacements:
    """The replacements on which this process works.

    :ivar start_due: see :meth:`.ClaimedWork.start_due`
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
        self._start_wait = start_wait
        self._work = claimed_work.ClaimedWork[ReplacementRecord](
            deps.store,
            deps.heartbeat,
            worker,
            threads,
            id_of=lambda record: record.replacement_id,
            attempt=lambda claim, record: replacement.Replacement(deps, claim, record).run(),
            clock=deps.clock,
            start_wait=start_wait,
        )
        self.start_due = self._work.start_due

    def cancel(self, instance_id: str) -> None:
        """Return when no replacement of an instance that is being deleted is open any more.

        :raises InProgressError: it did not end in time
        """
        self._work.end(lambda: self._deps.store.find_open(instance_id))

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
            if not deadline.pause(claimed_work.POLL_SEC):
                raise exceptions.InProgressError(
                    f'{record}: did not end within {timeout_sec:.0f} s; it goes on',
                    f'the {record.kind} did not end within {timeout_sec:.0f} s; it goes on by '
                    f'itself, and is in the step {record.step or record.state}',
                )

    def prune(self, keep: datetime.timedelta) -> None:
        """Delete the records of the replacements that ended longer ago than ``keep``."""
        self._deps.store.prune(self._deps.store.now() - keep)
