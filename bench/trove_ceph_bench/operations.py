# SPDX-License-Identifier: Apache-2.0
"""Run a plan of operations: time each contender's commands while one writer commits.

The writer is the committer. It runs alone before the operation, during it, and afterwards until it
commits again, so that a stall that outlasts the operation counts in full.
"""

import contextlib
import datetime
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trove_ceph import exceptions
from trove_ceph_bench import (
    commit_probe,
    dataset,
    events,
    measure,
    model,
    plan,
    results,
    runner,
    shell,
)
from trove_ceph_bench.targets import database

#: How long to wait for a writer that is stalled at the end of the operation.
STALL_LIMIT_SEC = 300
#: Cleaning up may take long.
CLEANUP_TIMEOUT_SEC = 1800
COST_TIMEOUT_SEC = 300

_TABLES = 4
_POLL_SEC = 0.2


class OperationsRunner(runner.Runner):
    """Run a plan of operations.

    A failed operation is stored as failed, and the plan continues; the next run of the plan
    retries it.
    """

    def __init__(self, operations: plan.OperationsPlan, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        self._plan = operations
        self._total = 0
        self._filled: dict[model.Target, int] = {}

    def measure_all(self, stack: contextlib.ExitStack) -> None:
        missing = self._missing()
        if missing and self._plan.cleanup:
            stack.callback(self.run_command, 'cleanup', self._plan.cleanup)
        # Enter all targets first, so that an unusable server fails the plan before hours of work.
        used = [
            self.enter(stack, each.contender.name, each.contender.target)
            if each.contender.target
            else None
            for _, each, _ in missing
        ]
        for target, (number, attempt, config) in zip(used, missing, strict=True):
            if target:
                self._fill(target, attempt.size_mib)
            self._measure(number, attempt, config, target)

    def _missing(self) -> list[tuple[int, plan.Attempt, dict[str, Any]]]:
        missing = []
        succeeded = {
            (each.iteration, results.config_hash(each.config))
            for each in self.store.runs()
            if each.run['complete'] and each.run['exit_code'] == 0
        }
        for number, attempt in enumerate(self._plan.attempts(self.only), start=1):
            self._total = number
            config = self._plan.configuration(attempt)
            if (attempt.iteration, results.config_hash(config)) not in succeeded:
                missing.append((number, attempt, config))
                self.progress.estimate.plan(_kind(attempt), attempt.size_mib, known=False)
        self.outcome.present = self._total - len(missing)
        if self.outcome.present:
            self.progress.print_line(
                f'{self.outcome.present} of {self._total} runs are measured already'
            )
        return missing

    def _fill(self, target: model.Target, size_mib: int) -> None:
        """Fill the target's schema to a size, unless it has that size."""
        if self._filled.get(target) == size_mib:
            return
        data = dataset_of_size(size_mib)
        with self.progress.step('fill', f'{target.name}: filling {size_mib} MiB', 0):
            measure.prefill([target], data, self.progress.note)
        self._filled[target] = size_mib

    def _measure(
        self,
        number: int,
        attempt: plan.Attempt,
        config: Mapping[str, Any],
        target: model.Target | None,
    ) -> None:
        directory = self.new_directory(attempt.iteration, config) / results.RAW_DIRECTORY
        text = f'{number}/{self._total} {_text(attempt)}'
        with contextlib.ExitStack() as stack:
            with self.progress.step(_kind(attempt), text, attempt.size_mib):
                disclosed = self.disclose([target] if target else [])
                operation = Operation(self._plan, attempt, target, directory, self.progress.note)
                try:
                    run = operation.measure()
                finally:
                    # An aborted clean-up would leave what the attempt created, and an interruption
                    # must not discard what it measured.
                    stack.enter_context(self.interruptions.deferred(self.progress))
                    operation.clean_up()
            if run['complete'] and run['exit_code'] != 0:
                self.outcome.failures.append(f'{_text(attempt)}: {run["reason"]}')
            self.save_run(attempt.iteration, config, disclosed, run, f'{text}: {_figures(run)}')


class Operation:
    """One attempt at one operation.

    :param target: the server that it acts on, if any
    :param directory: for the output of its commands
    """

    def __init__(
        self,
        operations: plan.OperationsPlan,
        attempt: plan.Attempt,
        target: model.Target | None,
        directory: Path,
        note: model.Note,
    ):
        self._settle_sec = operations.settle_sec if operations.committer else 0
        self._committer = (
            commit_probe.Committer(target.address, directory / 'committer.csv')
            if operations.committer and target
            else None
        )
        self._attempt = attempt
        self._contender = attempt.contender
        self._target = target
        self._directory = directory
        self._note = note
        self._environment = (events.environment([target]) if target else {}) | {
            'BENCH_OPERATION': attempt.contender.operation,
            'BENCH_VARIANT': attempt.contender.name,
            'BENCH_DATA_MIB': str(attempt.size_mib),
            'BENCH_ITERATION': str(attempt.iteration),
            'BENCH_DIRECTORY': str(directory.absolute()),
        }
        self._run: dict[str, Any] = {
            'format': model.FORMAT,
            'kind': 'operation',
            'started': datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds'),
            'complete': True,
            'reason': None,
            'data_bytes': None,
            'seconds': None,
            'exit_code': None,
            'phases': [],
            'committer': None,
            'writer_tps': None,
            'cost': dict.fromkeys(plan.COSTS),
            'output': '',
            'warnings': [],
        }

    def measure(self) -> dict[str, Any]:
        """Prepare, time the operation, check it and measure its costs; return the result.

        The result records a failure or an interruption. Call :meth:`clean_up` afterwards.
        """
        try:
            self._prepare_and_run()
        except KeyboardInterrupt:
            self._run |= {'complete': False, 'reason': model.INTERRUPTED}
        except (exceptions.LoadFailedError, exceptions.TargetUnavailableError) as error:
            # The server may be unusable for this attempt alone.
            self._run['reason'] = str(error)
        return self._run

    def clean_up(self) -> None:
        """Run the contender's cleanup; the result records its failure as a warning."""
        if self._contender.cleanup:
            self._note('cleaning up', None)
            result = self._shell('cleanup', self._contender.cleanup, CLEANUP_TIMEOUT_SEC)
            if not result.succeeded:
                self._run['warnings'].append(f'cleanup failed: {result.failure()}')

    def _prepare_and_run(self) -> None:
        if self._contender.prepare:
            self._note('preparing', None)
            result = self._shell('prepare', self._contender.prepare, self._contender.timeout_sec)
            if not result.succeeded:
                self._fail('prepare', result)
                return
        if self._target:
            server = database.Server(self._target.address)
            self._run['data_bytes'] = server.schema_bytes(self._target.address.database)
        with contextlib.ExitStack() as stack:
            if self._committer:
                stack.enter_context(self._committer)
                self._wait('writer alone', self._settle_sec)
            self._note('running', None)
            result = self._shell('run', self._contender.run, self._contender.timeout_sec)
            self._wait('writer alone', self._settle_sec)
            if self._committer:
                self._evaluate_writer(self._committer, result.began, result.began + result.seconds)
        self._run |= {
            'seconds': round(result.seconds, 3),
            'exit_code': result.exit_code,
            'phases': [
                {'name': each['name'], 'seconds': round(each['seconds'], 3)}
                for each in result.phases
            ],
            'output': result.output,
        }
        if result.succeeded:
            self._measure_costs()
            self._check()
        else:
            self._fail('run', result)

    def _evaluate_writer(self, writer: commit_probe.Committer, began: float, ended: float) -> None:
        """Wait for the end of a stall; count the writer's commits and find its largest gap."""
        deadline = ended + STALL_LIMIT_SEC
        while not (after := [ack for _, ack in writer.read().commits if ack > ended]):
            if time.monotonic() > deadline:
                self._run['warnings'].append(
                    f'the writer was still stalled {STALL_LIMIT_SEC} s after the end of the '
                    f'operation; its largest gap is longer than reported'
                )
                break
            self._note('waiting for the stalled writer', None)
            time.sleep(_POLL_SEC)
        writer.stop()
        log = writer.read()
        self._run['committer'] = commit_probe.evaluate(
            [log], began, after[0] if after else time.monotonic()
        )
        self._run['writer_tps'] = {
            'before': log.rate(began - self._settle_sec, began),
            'during': log.rate(began, ended),
        }

    def _measure_costs(self) -> None:
        for name, command in self._contender.cost.items():
            result = self._shell(name, command, COST_TIMEOUT_SEC)
            try:
                if not result.succeeded:
                    raise ValueError(result.failure())
                self._run['cost'][name] = int(float(result.first_line))
            except ValueError as error:
                self._run['warnings'].append(f'{name} is unknown: {error}')

    def _check(self) -> None:
        if self._contender.check:
            self._note('checking', None)
            result = self._shell('check', self._contender.check, self._contender.timeout_sec)
            if not result.succeeded:
                self._fail('check', result)

    def _fail(self, command: str, result: shell.Result) -> None:
        self._run |= {
            'reason': f'{command} failed: {result.failure()}',
            'exit_code': result.exit_code,
            'output': result.output,
        }

    def _shell(self, name: str, command: str, timeout_sec: float) -> shell.Result:
        return shell.run(command, self._environment, self._directory / f'{name}.log', timeout_sec)

    def _wait(self, text: str, seconds: float) -> None:
        if seconds:
            self._note(text, None)
            time.sleep(seconds)


def dataset_of_size(size_mib: int) -> model.Dataset:
    """Return the dataset of a size in MiB."""
    rows = size_mib * 1024 * 1024 // dataset.BYTES_PER_ROW // _TABLES
    return model.Dataset(f'{size_mib} MiB', _TABLES, max(rows, 1))


def _kind(attempt: plan.Attempt) -> str:
    return f'{attempt.contender.operation} by {attempt.contender.name}'


def _text(attempt: plan.Attempt) -> str:
    return f'{_kind(attempt)}, {attempt.size_mib} MiB, repeat {attempt.iteration + 1}'


def _figures(run: Mapping[str, Any]) -> str:
    """Return a one-line summary of an operation's result."""
    if run['reason']:
        return run['reason']
    parts = [f'{run["seconds"]:.1f} s']
    if run['committer']:
        parts.append(f'largest commit gap {run["committer"]["gap_max_ms"]:.0f} ms')
    return ', '.join(parts)
