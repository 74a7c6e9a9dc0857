# SPDX-License-Identifier: Apache-2.0
"""Inspect a backup: clone it, start a server on the clone, query it, remove the clone.

A finding against a backup counts only after the disk below the clone is proved to work and the
server's log is free of faults of the host. Without that proof the inspection ends with an error,
which is no verdict on the backup. It also ends with an error when any step other than the server's
own work exceeds its time limit. See :mod:`.evidence` and :mod:`.device_health`.
"""

import contextlib
import functools
import random
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Protocol

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.storage import backend, fencing, image_types, tasks
from trove_ceph.verification import deadline, report, server

LOG = logging.getLogger(__name__)

#: The name of the first step.
FIRST_PHASE = 'clearing'

#: Progress callback: the phase, its bytes done and its bytes in total; may raise CanceledError.
Note = Callable[[str, int, int], None]

#: How long releasing the sandbox may take, whatever the result of the inspection.
CLOSE_SEC = 300.0
#: How long removing the clone may take, the fencing of a dead host included.
REMOVE_SEC = 600.0


class Server(Protocol):
    """A server on a clone; see :class:`.server.Server`."""

    data_version: str
    recovery_sec: float | None

    def start(self, timeout_sec: float) -> None: ...

    def kill(self) -> None: ...

    def check_undisturbed(self) -> None: ...

    def version(self) -> str: ...

    def gtid_executed(self) -> str: ...

    def missing_and_extra(self, expected: str, found: str) -> tuple[str, str]: ...

    def prepared_transactions(self) -> tuple[list[str], int]: ...

    def tables(self) -> list[server.Table]: ...

    def check(self, table: server.Table) -> None: ...

    def read_ends(self, table: server.Table, limit_bytes: int) -> None: ...


class Sandbox(Protocol):
    """An isolated environment for one clone and one server; see :class:`.on_host.HostSandbox`.

    ``isolation`` and ``memory_limit`` name the mechanisms that confine the server.
    """

    isolation: str
    memory_limit: str | None

    def clear_killed(self) -> None:
        """Release the resources of inspections on this host whose process was killed."""

    def open(self, clone: image_types.ImageRef) -> None:
        """Mount a clone."""

    def serve(self, version: str) -> Server:
        """Prepare a server for the open clone."""

    def prove_healthy(self) -> None:
        """Prove that the disk below the clone works, and has worked since it was opened.

        :raises InspectionFaultError: there is no proof
        """

    def abort(self) -> None:
        """Make every operation that waits for the disk fail at once; ``close`` is called next."""

    def close(self) -> None:
        """Stop the server and release the clone; do nothing if no clone is open."""


class Inspector:
    """Verifies that snapshots restore.

    :param make_sandbox: called once per inspection
    """

    def __init__(
        self,
        storage: backend.Backend,
        make_sandbox: Callable[[], Sandbox],
        settings: report.InspectionSettings,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._storage = storage
        self._make_sandbox = make_sandbox
        self._settings = settings
        self._clock = clock

    def clear_killed(self) -> None:
        """Release the resources of inspections on this host whose process was killed."""
        self._make_sandbox().clear_killed()

    def inspect(
        self,
        work: tasks.InspectTask,
        options: image_types.ImageOptions,
        cancel: threading.Event | None = None,
        is_allowed: Callable[[], bool] = lambda: True,
        note: Note = lambda *_: None,
    ) -> report.Inspection:
        """Verify that a snapshot restores, and remove everything that the inspection created.

        Run again after a kill, it first removes what the killed run left. The result holds any
        finding against the backup; an error means that there is no verdict.

        :param options: options of the clone
        :param cancel: once set, the inspection stops soon
        :param is_allowed: once it returns False, the inspection changes nothing in Ceph any more
        :raises CanceledError: the inspection was canceled, or its leases are lost
        :raises NotInspectableError: no server here can open the backup
        :raises ServerFailedError: the server fails without a known reason
        :raises UnexpectedTransactionsError: the server wrote to the clone what it must not
        :raises InspectionFaultError: the host, a disk or Ceph failed; the backup may be sound
        """
        time_limit_sec = work.time_limit_sec or self._settings.time_limit_sec
        watch = deadline.Deadline(time_limit_sec, cancel, is_allowed, self._clock)
        context = Context(
            self._storage, self._make_sandbox(), work, self._settings, options, watch, note
        )
        steps.run(str(work), make_steps(context), context.begin_phase)
        context.end_phase()
        result = context.result()
        LOG.info('%s: %s', work, result)
        return result


class Context:
    """The state of one inspection."""

    def __init__(
        self,
        storage: backend.Backend,
        sandbox: Sandbox,
        work: tasks.InspectTask,
        settings: report.InspectionSettings,
        options: image_types.ImageOptions,
        watch: deadline.Deadline,
        note: Note,
    ):
        self._storage = storage
        self._sandbox = sandbox
        self._work = work
        self._settings = settings
        self._options = options
        self._deadline = watch
        self._note = note
        self._server: Server | None = None
        self._phase = ''
        self._phase_began = 0.0
        self._seconds: dict[str, float] = {}
        self._finding: report.NotSoundError | None = None
        self._gtid_executed: str | None = None
        self._mysql_version: str | None = None
        self._data_version: str | None = None
        self._recovery_sec: float | None = None
        self._tables: list[server.Table] = []
        self._checked = 0
        self._in_part = 0
        self._clone_id: str | None = None
        self._prepared_xa: list[str] = []
        self._prepared_xa_count = 0

    # The clone.

    def clear_killed(self) -> None:
        self._deadline.call('clearing', self._sandbox.clear_killed)

    def clone(self) -> None:
        self.remove_clone()
        self._deadline.call('cloning', self._make_clone)

    def _make_clone(self) -> None:
        self._storage.clone(self._work.snapshot, self._work.clone, self._options)
        limits = image_types.Qos(bytes_per_sec=self._settings.bytes_per_sec)
        self._storage.set_qos(self._work.clone, limits)
        self._clone_id = self._storage.read_header(self._work.clone).image_id

    def remove_clone(self) -> None:
        """Remove the clone, even if a host on which an inspection was killed has it open."""
        given_up = threading.Event()

        def remove() -> None:
            # The name is unique, so no other image was meant.
            with contextlib.suppress(exceptions.NotFoundError):
                self._remove_or_fence(given_up)

        self._deadline.call('removing the clone', remove, given_up.set, REMOVE_SEC)

    def _remove_or_fence(self, given_up: threading.Event) -> None:
        clone = self._work.clone
        self._check_removing(given_up)
        try:
            self._storage.remove(clone)
        except exceptions.BusyError as error:
            clients = self._storage.find_clients(clone).addresses
            # By the time that Ceph answers, the clone and its clients may be those of the next
            # inspection. Those that were found while this one was allowed to are not.
            self._check_removing(given_up)
            LOG.warning('%s; fencing its clients', error)
            fencing.fence(self._storage, clone, only=clients)
            self._check_removing(given_up)
            self._storage.remove(clone)

    def _check_removing(self, given_up: threading.Event) -> None:
        """Check that no other inspection can have a clone of the same name yet.

        :param given_up: set when the removal is abandoned, after which its leases are released
        :raises CanceledError: another one can
        """
        self._deadline.check_allowed()
        if given_up.is_set():
            raise exceptions.CanceledError('removing the clone: did not end within its time limit')

    def close(self) -> None:
        self._server = None
        self._deadline.call('closing', self._sandbox.close, self._sandbox.abort, CLOSE_SEC)

    # The checks, until the first finding.

    def examine(self, check: Callable[[], None]) -> None:
        if self._finding is not None:
            return
        try:
            self._deadline.check()
            check()
        except report.NotSoundError as found:
            self._check_evidence(found)
            self._finding = found
        except exceptions.InspectionFaultError:
            # Processes that wait for the disk would block the cleanup.
            self._sandbox.abort()
            raise

    def _check_evidence(self, found: report.NotSoundError) -> None:
        """Check that a finding can only come from the data.

        :raises InspectionFaultError: it may have another cause
        """
        try:
            # The time limit kills the server, in a virtual machine with all that could answer.
            if self._server is not None and found.verdict != report.UNFINISHED:
                self._server.check_undisturbed()
            self._sandbox.prove_healthy()
        except exceptions.InspectionFaultError as fault:
            self._sandbox.abort()
            raise exceptions.InspectionFaultError(
                f'{fault}; this may be why the backup appeared {found.verdict}: {found.reason}'
            ) from found

    def open(self) -> None:
        clone = self._work.clone
        self._deadline.call('opening', lambda: self._sandbox.open(clone), self._sandbox.abort)

    def recover(self) -> None:
        # In this thread: the confined program ends with the thread that starts it.
        with self._deadline.watching(self._sandbox.abort):
            self._server = self._sandbox.serve(self._work.version)
        self._data_version = self._server.data_version
        with self._deadline.watching(self._kill_server):
            self._server.start(self._deadline.left_sec)
        self._recovery_sec = self._server.recovery_sec

    def _kill_server(self) -> None:
        try:
            self._running.kill()
        except subprocess.TimeoutExpired:
            # The server waits for its disk in the kernel.
            self._sandbox.abort()

    def read(self) -> None:
        running = self._running
        with self._deadline.watching(self._kill_server):
            self._mysql_version = running.version()
            self._gtid_executed = running.gtid_executed()
            self._prepared_xa, self._prepared_xa_count = running.prepared_transactions()
            expected = self._work.expected_gtid
            if expected is not None:
                missing, extra = running.missing_and_extra(expected, self._gtid_executed)
                self._check_transactions(missing, extra)
            self._tables = running.tables()

    def _check_transactions(self, missing: str, extra: str) -> None:
        if missing:
            raise report.NotSoundError(report.INCOMPLETE, f'lacks the transactions {missing}')
        if extra and self._work.exact:
            raise report.NotSoundError(
                report.CORRUPT, f'has the transactions {extra}, expected none'
            )

    def check(self) -> None:
        running = self._running
        chosen = self._choose()
        total = sum(chosen.values())
        done = 0
        with self._deadline.watching(self._kill_server):
            for table, size in sorted(chosen.items()):
                self._note(self._phase, done, total)
                self._deadline.check()
                if size < table.bytes:
                    running.read_ends(table, size)
                    self._in_part += 1
                else:
                    running.check(table)
                    self._checked += 1
                done += size
            now = running.gtid_executed()
        if now != self._gtid_executed:
            position = report.shorten(now)
            raise exceptions.UnexpectedTransactionsError(
                f'{self._work}: the server of the inspection committed transactions of its own; '
                f'after the checks its gtid_executed is {position or "empty"}'
            )

    def _choose(self) -> dict[server.Table, int]:
        """Return the tables to check and the bytes to read of each; a sample differs per backup."""
        deep = self._settings.deep if self._work.deep is None else self._work.deep
        if deep:
            return {table: table.bytes for table in self._tables}
        own = [table for table in self._tables if table.schema == server.SYSTEM_SCHEMA]
        others = [table for table in self._tables if table.schema != server.SYSTEM_SCHEMA]
        count = self._work.sample_tables or self._settings.sample_tables
        drawn = random.Random(self._work.check_id).sample(others, min(count, len(others)))
        chosen = {table: table.bytes for table in own}
        left = self._settings.sample_bytes
        # Small tables leave the rest of their shares to the larger ones.
        drawn.sort(key=lambda table: table.bytes)
        for position, table in enumerate(drawn):
            chosen[table] = min(table.bytes, left // (len(drawn) - position))
            left -= chosen[table]
        return chosen

    @property
    def _running(self) -> Server:
        if self._server is None:
            raise RuntimeError('there is no server')
        return self._server

    # The result.

    def begin_phase(self, name: str, *_: int) -> None:
        self.end_phase()
        self._phase, self._phase_began = name, time.monotonic()
        self._note(name, 0, 0)

    def end_phase(self) -> None:
        if self._phase:
            self._seconds[self._phase] = round(time.monotonic() - self._phase_began, 3)

    def result(self) -> report.Inspection:
        finding = self._finding
        return report.Inspection(
            verdict=finding.verdict if finding else report.SOUND,
            reasons=(finding.reason,) if finding else (),
            gtid_executed=self._gtid_executed,
            mysql_version=self._mysql_version,
            data_version=self._data_version,
            tables_checked=self._checked,
            tables_in_part=self._in_part,
            tables=len(self._tables),
            bytes=sum(table.bytes for table in self._tables),
            recovery_sec=self._recovery_sec,
            seconds=self._seconds,
            isolation=self._sandbox.isolation,
            memory_limit=self._sandbox.memory_limit,
            prepared_xa=tuple(self._prepared_xa),
            prepared_xa_count=self._prepared_xa_count,
            clone_id=self._clone_id,
        )


def make_steps(context: Context) -> list[steps.Step]:
    """Return the steps of an inspection; their names are the phases of the job."""
    return [
        steps.Step(FIRST_PHASE, context.clear_killed),
        steps.Step('cloning', context.clone, undo=context.remove_clone),
        steps.Step('opening', functools.partial(context.examine, context.open), undo=context.close),
        steps.Step('recovering', functools.partial(context.examine, context.recover)),
        steps.Step('reading', functools.partial(context.examine, context.read)),
        steps.Step('checking', functools.partial(context.examine, context.check)),
        steps.Step('closing', context.close),
        steps.Step('removing', context.remove_clone),
    ]
