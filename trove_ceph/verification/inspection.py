# SPDX-License-Identifier: Apache-2.0
"""Inspect a backup: clone it, start a server on the clone, ask it, throw the clone away.

What is found against a backup counts only once the disk below the clone is proved to work and the
server's log is free of faults of the host. Without that proof an inspection ends with an error,
which says nothing of the backup; so it does where anything takes longer than its time but the
server's own work. See :mod:`.evidence` and :mod:`.device_health`.
"""

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

#: Told the phase, and the bytes that are done and all in it; it may raise CanceledError.
Note = Callable[[str, int, int], None]

#: How long giving back what an inspection holds may take, whatever became of the inspection.
CLOSE_SEC = 300.0
#: How long removing the clone may take, the fencing of a dead host included.
REMOVE_SEC = 600.0


class Server(Protocol):
    """What is asked of a server on a clone; see :class:`.server.Server`."""

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
    """A place for one clone and one server; see :class:`.on_host.HostSandbox`.

    ``isolation`` and ``memory_limit`` tell how the server is kept apart from the host.
    """

    isolation: str
    memory_limit: str | None

    def clear_killed(self) -> None:
        """Give back what inspections on this host held when their process was killed."""

    def open(self, clone: image_types.ImageRef) -> None:
        """Mount a clone."""

    def serve(self, version: str) -> Server:
        """Prepare a server for the clone that is open."""

    def prove_healthy(self) -> None:
        """Do nothing if the disk below the clone works, and did so since it was opened.

        :raises InspectionFaultError: that could not be proved
        """

    def abort(self) -> None:
        """Have all that waits for the disk below the clone fail, at once; ``close`` comes after."""

    def close(self) -> None:
        """End the server and give back what belongs to the clone; nothing if none is open."""


class Inspector:
    """Finds out whether snapshots restore.

    :param make_sandbox: called for each inspection
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
        """Give back what inspections on this host held when their process was killed."""
        self._make_sandbox().clear_killed()

    def inspect(
        self,
        work: tasks.InspectTask,
        options: image_types.ImageOptions,
        cancel: threading.Event | None = None,
        is_allowed: Callable[[], bool] = lambda: True,
        note: Note = lambda *_: None,
    ) -> report.Inspection:
        """Find out whether a snapshot restores; nothing of it is left, however it ends.

        Run again after it was killed, it removes what was left first. What is wrong with the backup
        is in the result; errors are what kept it from being found out.

        :param options: how the clone is made
        :param cancel: once set, it ends soon
        :param is_allowed: once it says no, nothing more is touched that others can reach
        :raises CanceledError: it was asked to end, or is not allowed to go on
        :raises NotInspectableError: no server here can open it
        :raises ServerFailedError: the server does not run, and does not say why
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
    """One inspection, and what it has found so far."""

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
        self._guard = watch
        self._note = note
        self._server: Server | None = None
        self._phase = ''
        self._phase_began = 0.0
        self._seconds: dict[str, float] = {}
        self._wrong: report.Finding | None = None
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
        self._guard.call('clearing', self._sandbox.clear_killed)

    def clone(self) -> None:
        self.remove_clone()
        self._guard.call('cloning', self._make_clone)

    def _make_clone(self) -> None:
        self._storage.clone(self._work.snapshot, self._work.clone, self._options)
        limits = image_types.Qos(bytes_per_sec=self._settings.bytes_per_sec)
        self._storage.set_qos(self._work.clone, limits)
        self._clone_id = self._storage.read_header(self._work.clone).image_id

    def remove_clone(self) -> None:
        """Remove the clone, also one that a host has open on which an inspection was killed."""
        self._guard.check_allowed()
        self._guard.call('removing the clone', self._remove_from_anybody, limit_sec=REMOVE_SEC)

    def _remove_from_anybody(self) -> None:
        try:
            self._remove()
        except exceptions.BusyError as error:
            LOG.warning('%s; fencing them', error)
            fencing.fence(self._storage, self._work.clone)
            self._remove()

    def _remove(self) -> None:
        try:
            self._storage.remove(self._work.clone)
        except exceptions.NotFoundError:
            # Nothing else has its name.
            pass

    def close(self) -> None:
        self._server = None
        self._guard.call('closing', self._sandbox.close, self._sandbox.abort, CLOSE_SEC)

    # What is looked at, until something is wrong.

    def look(self, at: Callable[[], None]) -> None:
        if self._wrong is not None:
            return
        try:
            self._guard.check()
            at()
        except report.Finding as found:
            self._check_evidence(found)
            self._wrong = found
        except exceptions.InspectionFaultError:
            # Whatever waits for the disk would hold up the giving back.
            self._sandbox.abort()
            raise

    def _check_evidence(self, found: report.Finding) -> None:
        """Do nothing if what was found can only come from the data.

        :raises InspectionFaultError: it can have another cause
        """
        try:
            if self._server is not None:
                self._server.check_undisturbed()
            self._sandbox.prove_healthy()
        except exceptions.InspectionFaultError as fault:
            self._sandbox.abort()
            raise exceptions.InspectionFaultError(
                f'{fault}; this may be why the backup was found {found.verdict}: {found.reason}'
            ) from found

    def open(self) -> None:
        clone = self._work.clone
        self._guard.call('opening', lambda: self._sandbox.open(clone), self._sandbox.abort)

    def recover(self) -> None:
        # In this thread: what is confined ends with the thread that starts it.
        with self._guard.watching(self._sandbox.abort):
            self._server = self._sandbox.serve(self._work.version)
        self._data_version = self._server.data_version
        with self._guard.watching(self._end_server):
            self._server.start(self._guard.left_sec)
        self._recovery_sec = self._server.recovery_sec

    def _end_server(self) -> None:
        try:
            self._running.kill()
        except subprocess.TimeoutExpired:
            # It waits for its disk in the kernel.
            self._sandbox.abort()

    def read(self) -> None:
        running = self._running
        with self._guard.watching(self._end_server):
            self._mysql_version = running.version()
            self._gtid_executed = running.gtid_executed()
            self._prepared_xa, self._prepared_xa_count = running.prepared_transactions()
            expected = self._work.expected_gtid
            if expected is not None:
                missing, extra = running.missing_and_extra(expected, self._gtid_executed)
                self._hold_against(missing, extra)
            self._tables = running.tables()

    def _hold_against(self, missing: str, extra: str) -> None:
        if missing:
            raise report.Finding(report.INCOMPLETE, f'lacks the transactions {missing}')
        if extra and self._work.exact:
            raise report.Finding(report.CORRUPT, f'has the transactions {extra}, expected none')

    def check(self) -> None:
        running = self._running
        chosen = self._choose()
        total = sum(chosen.values())
        done = 0
        with self._guard.watching(self._end_server):
            for table, size in sorted(chosen.items()):
                self._note(self._phase, done, total)
                self._guard.check()
                if size < table.bytes:
                    running.read_ends(table, size)
                    self._in_part += 1
                else:
                    running.check(table)
                    self._checked += 1
                done += size
            now = running.gtid_executed()
        if now != self._gtid_executed:
            raise exceptions.ServerFailedError(
                f'{self._work}: the server wrote transactions of its own: {now}'
            )

    def _choose(self) -> dict[server.Table, int]:
        """Choose what is read and how many bytes of each: each backup has another sample."""
        deep = self._settings.deep if self._work.deep is None else self._work.deep
        if deep:
            return {table: table.bytes for table in self._tables}
        own = [table for table in self._tables if table.schema == server.SYSTEM_SCHEMA]
        others = [table for table in self._tables if table.schema != server.SYSTEM_SCHEMA]
        count = self._work.sample_tables or self._settings.sample_tables
        drawn = random.Random(self._work.check_id).sample(others, min(count, len(others)))
        chosen = {table: table.bytes for table in own}
        left = self._settings.sample_bytes
        # What small tables leave of their shares is for the larger ones.
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

    # What it comes to.

    def begin_phase(self, name: str, *_: int) -> None:
        self.end_phase()
        self._phase, self._phase_began = name, time.monotonic()
        self._note(name, 0, 0)

    def end_phase(self) -> None:
        if self._phase:
            self._seconds[self._phase] = round(time.monotonic() - self._phase_began, 3)

    def result(self) -> report.Inspection:
        wrong = self._wrong
        return report.Inspection(
            verdict=wrong.verdict if wrong else report.SOUND,
            reasons=(wrong.reason,) if wrong else (),
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
    """Return the steps of an inspection, whose names are the phases that a job shows."""
    return [
        steps.Step(FIRST_PHASE, context.clear_killed),
        steps.Step('cloning', context.clone, undo=context.remove_clone),
        steps.Step('opening', functools.partial(context.look, context.open), undo=context.close),
        steps.Step('recovering', functools.partial(context.look, context.recover)),
        steps.Step('reading', functools.partial(context.look, context.read)),
        steps.Step('checking', functools.partial(context.look, context.check)),
        steps.Step('closing', context.close),
        steps.Step('removing', context.remove_clone),
    ]
