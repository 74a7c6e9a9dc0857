# SPDX-License-Identifier: Apache-2.0
"""Carrying out a plan: targets are entered, measured in turn and left, whatever happens.

What is stored already is not measured again, so the same command resumes a plan that was cut off.
"""

import abc
import contextlib
import dataclasses
import json
import shutil
import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph_bench import disclosure, model, progress, report, results, shell, targets

LOG = logging.getLogger(__name__)

#: Why a run is not complete when the user ended it.
INTERRUPTED = 'interrupted'
#: Of what a plan does once, before everything or after it.
COMMAND_TIMEOUT_SEC = 1800


@dataclasses.dataclass
class Outcome:
    """What became of a plan.

    :param measured: number of runs that were completed this time
    :param present: number of runs that were there before
    :param failures: what went wrong, in order
    :param report: the page, when there is anything to report
    """

    measured: int = 0
    present: int = 0
    interrupted: bool = False
    failures: list[str] = dataclasses.field(default_factory=list)
    report: Path | None = None


class Runner(abc.ABC):
    """Carries out one plan into one results folder.

    :param store: of the results, already created
    :param settings: what targets take from outside the plan
    :param only: names of the variants to measure; empty means all
    """

    def __init__(
        self,
        store: results.Store,
        shown: progress.Progress,
        settings: targets.Settings,
        only: Sequence[str] = (),
    ):
        self.store = store
        self.progress = shown
        self.only = only
        self.outcome = Outcome()
        self._settings = settings
        self._entered: dict[str, model.Target] = {}
        self._host: dict[str, Any] | None = None
        self._interruptions = _Interruptions()
        self._told: set[str] = set()

    def run(self) -> Outcome:
        """Measure what is missing and write the report; errors are in the outcome.

        The first Ctrl-C (or SIGTERM) ends the present run, whose part is kept. What follows,
        leaving the targets and the report, is then no longer interrupted.

        :raises ModuleNotFoundError: something is not installed; nothing was begun
        """
        report.prepare()
        with self._interruptions as interruptions:
            with self._keeping_failures(), contextlib.ExitStack() as stack:
                with self._keeping_failures():
                    self.measure_all(stack)
                interruptions.hold(self.progress)
                self.progress.note('removing what was made on the targets', None)
            with self._keeping_failures():
                self._write_report()
        return self.outcome

    @abc.abstractmethod
    def measure_all(self, stack: contextlib.ExitStack) -> None:
        """Measure what is missing; targets are entered on the stack."""

    @contextlib.contextmanager
    def _keeping_failures(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            self.outcome.interrupted = True
        except (exceptions.TroveCephError, OSError) as error:
            LOG.debug('The plan ends here', exc_info=True)
            self.outcome.failures.append(str(error))

    def enter(
        self, stack: contextlib.ExitStack, name: str, spec: Mapping[str, Any]
    ) -> model.Target:
        """Return a target that is ready; one that is described alike is shared.

        :param name: for a server that has none of its own
        :raises TargetUnavailableError: it cannot be measured
        """
        name = spec.get('instance', name)
        key = json.dumps(spec, sort_keys=True)
        if key not in self._entered:
            with self.progress.step('enter', f'{name}: making the server ready', 1):
                target = targets.make(name, spec, self._settings)
                self._entered[key] = stack.enter_context(target)
        return self._entered[key]

    def disclose(self, used: Sequence[model.Target]) -> dict[str, Any]:
        """Return what a reader must know of the host and of targets.

        :raises TargetUnavailableError: a target is gone
        """
        if self._host is None:
            self._host = disclosure.host()
        if len(used) == 1:
            return {'host': self._host, 'target': used[0].disclose()}
        return {'host': self._host, 'targets': {each.name: each.disclose() for each in used}}

    def new_directory(self, iteration: int, config: Mapping[str, Any]) -> Path:
        """Return the directory of a run, without what an earlier attempt left in it."""
        shutil.rmtree(self.store.run_directory(iteration, config))
        return self.store.run_directory(iteration, config)

    def keep(
        self,
        iteration: int,
        config: Mapping[str, Any],
        disclosed: Mapping[str, Any],
        run: Mapping[str, Any],
        text: str,
    ) -> None:
        """Store a run and then tell of it, of each warning once; Ctrl-C waits until both is done.

        :raises KeyboardInterrupt: it was interrupted
        """
        with self._interruptions.put_off():
            self.store.write(iteration, config, disclosed, run)
            self.outcome.measured += run['complete']
            self.progress.say(text)
            for warning in run['warnings']:
                if warning not in self._told:
                    self.progress.say(f'  {warning}')
                    self._told.add(warning)
        if run['reason'] == INTERRUPTED:
            raise KeyboardInterrupt

    def call(self, name: str, command: str) -> None:
        """Run a command that belongs to the plan as a whole; NAME.log has its output.

        :raises LoadFailedError: it failed
        """
        log = self.store.path / f'{name}.log'
        result = shell.run(command, {}, log, COMMAND_TIMEOUT_SEC)
        if not result.succeeded:
            raise exceptions.LoadFailedError(
                f'{name} of the plan failed: {result.failure()}; {log} has its output'
            )

    def _write_report(self) -> None:
        if self.store.runs():
            self.outcome.report = report.write(self.store)


class _Interruptions:
    """Makes SIGTERM the same as Ctrl-C, and says when neither may disturb."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._progress: progress.Progress | None = None
        self._putting_off = False
        self._pending = False

    def __enter__(self) -> '_Interruptions':
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exception: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def put_off(self) -> Iterator[None]:
        """Let an interruption within come after it."""
        self._putting_off = True
        try:
            yield
        finally:
            self._putting_off = False
        if self._pending:
            raise KeyboardInterrupt

    def hold(self, shown: progress.Progress) -> None:
        """From now on only say what is being done."""
        self._progress = shown

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._progress is not None:
            self._progress.say('giving back what was made; this takes a moment')
        elif self._putting_off:
            self._pending = True
        else:
            raise KeyboardInterrupt
