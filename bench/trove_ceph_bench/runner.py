# SPDX-License-Identifier: Apache-2.0
"""Run a plan: enter the targets, measure them in turn and leave them, also after an error.

Stored runs are not measured again, so the same command resumes an interrupted plan.
"""

import abc
import contextlib
import dataclasses
import json
import signal
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph_bench import disclosure, model, progress, report, results, shell, targets

LOG = logging.getLogger(__name__)

#: For the commands that a plan runs once, at its start or its end.
COMMAND_TIMEOUT_SEC = 1800


@dataclasses.dataclass
class Outcome:
    """The result of a plan.

    :param measured: number of runs completed by this command
    :param present: number of runs completed before
    :param failures: error messages, in order
    :param report: path of the page; None if there are no runs
    """

    measured: int = 0
    present: int = 0
    interrupted: bool = False
    failures: list[str] = dataclasses.field(default_factory=list)
    report: Path | None = None


class Runner(abc.ABC):
    """Run one plan and store its results in one folder.

    :param store: the results folder, already created
    :param display: shows the progress
    :param settings: settings of targets from outside the plan
    :param only: names of the variants to measure; empty means all
    """

    def __init__(
        self,
        store: results.Store,
        display: progress.Progress,
        settings: targets.Settings,
        only: Sequence[str] = (),
    ):
        self.store = store
        self.progress = display
        self.only = only
        self.outcome = Outcome()
        self._settings = settings
        self._entered: dict[str, model.Target] = {}
        self._host: dict[str, Any] | None = None
        self.interruptions = _Interruptions()
        self._session = uuid.uuid4().hex
        self._reported_warnings: set[str] = set()

    def run(self) -> Outcome:
        """Measure the missing runs and write the report; errors are in the outcome.

        The first Ctrl-C (or SIGTERM) stops the current run and stores the seconds measured so far.
        Cleaning up the targets and writing the report cannot be interrupted.

        :raises ModuleNotFoundError: a package is not installed; no run was started
        """
        report.prepare()
        with self.interruptions:
            with self._collecting_failures(), contextlib.ExitStack() as stack:
                with self._collecting_failures():
                    self.measure_all(stack)
                self.interruptions.ignore(self.progress)
                self.progress.note('cleaning up the targets', None)
            with self._collecting_failures():
                self._write_report()
        return self.outcome

    @abc.abstractmethod
    def measure_all(self, stack: contextlib.ExitStack) -> None:
        """Measure the missing runs; enter their targets on the stack."""

    @contextlib.contextmanager
    def _collecting_failures(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            self.outcome.interrupted = True
        except (exceptions.TroveCephError, OSError) as error:
            LOG.debug('The plan failed', exc_info=True)
            self.outcome.failures.append(str(error))

    def enter(
        self, stack: contextlib.ExitStack, name: str, spec: Mapping[str, Any]
    ) -> model.Target:
        """Enter a target and return it; equal specifications share a target.

        :param name: name of a server without its own name
        :raises TargetUnavailableError: the target cannot be used
        """
        name = spec.get('instance', name)
        key = json.dumps(spec, sort_keys=True)
        if key not in self._entered:
            with self.progress.step('enter', f'{name}: preparing the server', 1):
                target = targets.create(name, spec, self._settings)
                self._entered[key] = stack.enter_context(target)
        return self._entered[key]

    def disclose(self, used: Sequence[model.Target]) -> dict[str, Any]:
        """Return the facts of the host and of targets.

        :raises TargetUnavailableError: a target does not exist any more
        """
        if self._host is None:
            self._host = disclosure.host()
        if len(used) == 1:
            return {'host': self._host, 'target': used[0].disclose()}
        return {'host': self._host, 'targets': {each.name: each.disclose() for each in used}}

    def new_directory(self, iteration: int, config: Mapping[str, Any]) -> Path:
        """Return the directory of a run; the files of an attempt that failed are kept in it."""
        self.store.put_attempt_aside(iteration, config)
        return self.store.run_directory(iteration, config)

    def save_run(
        self,
        iteration: int,
        config: Mapping[str, Any],
        disclosed: Mapping[str, Any],
        run: Mapping[str, Any],
        text: str,
    ) -> None:
        """Store a run, then report it and each new warning; Ctrl-C is deferred until then.

        :raises KeyboardInterrupt: the user interrupted the run
        """
        with self.interruptions.deferred():
            self.store.write(iteration, config, disclosed, {**run, 'session': self._session})
            self.outcome.measured += run['complete']
            self.progress.print_line(text)
            for warning in run['warnings']:
                if warning not in self._reported_warnings:
                    self.progress.print_line(f'  {warning}')
                    self._reported_warnings.add(warning)
        if run['reason'] == model.INTERRUPTED:
            raise KeyboardInterrupt

    def run_command(self, name: str, command: str) -> None:
        """Run a command of the plan as a whole; its output goes to NAME.log.

        :raises LoadFailedError: the command failed
        """
        log = self.store.path / f'{name}.log'
        result = shell.run(command, {}, log, COMMAND_TIMEOUT_SEC)
        if not result.succeeded:
            raise exceptions.LoadFailedError(
                f'{name} of the plan failed: {result.failure()}; see its output in {log}'
            )

    def _write_report(self) -> None:
        if self.store.runs():
            self.outcome.report = report.write(self.store)


class _Interruptions:
    """Handle SIGTERM like Ctrl-C; defer or ignore both on request."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        #: Answers an interruption with a message.
        self._progress: progress.Progress | None = None
        self._ignoring = False
        self._deferring = False
        self._pending = False

    def __enter__(self) -> '_Interruptions':
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def deferred(self, display: progress.Progress | None = None) -> Iterator[None]:
        """Defer an interruption to the end of the context, or of that around it.

        :param display: to answer it at once with a message, if the context cleans up
        """
        before = self._deferring, self._progress
        self._deferring, self._progress = True, display or self._progress
        try:
            yield
        finally:
            self._deferring, self._progress = before
        if self._pending and not self._deferring:
            raise KeyboardInterrupt

    def ignore(self, display: progress.Progress) -> None:
        """From now on, answer an interruption only with a message."""
        self._ignoring, self._progress = True, display

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._progress is not None:
            self._progress.print_line('cleaning up; this takes a moment')
        if self._ignoring:
            return
        if not self._deferring:
            raise KeyboardInterrupt
        self._pending = True
