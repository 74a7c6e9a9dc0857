# SPDX-License-Identifier: Apache-2.0
"""Measure one run: a load on one or several servers at once, with all instruments.

sysbench runs *once* for warm-up and measured phase, so that connections and caches persist between
them; the measured phase is selected by seconds of the monotonic clock, which every instrument uses.
All threads of all instances start together, at the start of such a second. A transaction belongs to
the second in which it ends. The load is closed: each thread waits for its transaction before it
sends the next, so during a stall few transactions are slow and many are missing; the committer's
largest gap shows how long the stall lasted.
"""

import contextlib
import datetime
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trove_ceph import exceptions
from trove_ceph_bench import (
    commit_probe,
    events,
    fio,
    host_load,
    latency,
    model,
    rbd_stats,
    sysbench,
    sysbench_output,
    tables,
)

#: sysbench may omit its last report if it ends at the same moment.
_MARGIN_SEC = 1
#: For transactions in flight at the end.
_GRACE_SEC = 30
#: Commit gaps of this length or more give a warning.
_STALL_MS = 1000
_BUSY_SHARE = 0.95
_FIO_SEC = 20
_FIO_SIZE_MIB = 1024


def prefill(targets: Sequence[model.Target], dataset: model.Dataset, note: model.Note) -> None:
    """Ensure that the tables of all targets hold a dataset.

    :raises TargetUnavailableError: a server cannot be used, or its schema has foreign tables
    :raises LoadFailedError: sysbench failed to fill a table
    """
    sysbench.version()
    for number, target in enumerate(targets):
        text = f'{target.name}: {dataset.tables} tables of {dataset.rows} rows'
        note(text, number / len(targets))
        tables.Tables(target.address).ensure(dataset)


def measure(
    targets: Sequence[model.Target],
    load: model.Load,
    directory: Path,
    note: model.Note,
    fio_jobs: Sequence[str] = (),
) -> dict[str, Any]:
    """Run a load on prefilled targets and return the result, as in ``run.json``.

    A run that fails or is interrupted by Ctrl-C after at least one measured second, and one with an
    event that failed or was stopped, is returned as not complete, with the reason. All processes
    are stopped on return.

    :param directory: raw results go to its subdirectory ``raw``
    :param fio_jobs: names from ``fio.JOBS``, to run on the RBD pool before the load
    :raises InvalidPlanError: the load has no measured second or no target
    :raises LoadFailedError: the load failed before one second was measured
    :raises KeyboardInterrupt: the run was interrupted before one second was measured
    """
    if load.measure_sec < 1 or load.warmup_sec < 0 or not targets:
        raise exceptions.InvalidPlanError(
            f'{load.warmup_sec} s of warm-up and {load.measure_sec} s of measured phase on '
            f'{len(targets)} targets; expected at least 0 s, 1 s and 1 target'
        )
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
    raw = directory / 'raw'
    raw.mkdir(parents=True, exist_ok=True)
    warnings: list[str] = []
    fio_results = _run_fio(targets[0], fio_jobs, raw / 'fio', note, warnings)
    phase = _Phase(targets, load, raw, note, warnings)
    with contextlib.ExitStack() as stack:
        phase.begin(stack)
        phase.watch()
    figures = phase.results()
    # Without its events the run measured something else than it was to.
    reason = phase.reason or _failure_of(figures['events'])
    return {
        'format': model.FORMAT,
        'kind': 'load',
        'started': started,
        'complete': reason is None,
        'reason': reason,
        'warmup_sec': load.warmup_sec,
        'measured_sec': float(phase.seconds),
        **figures,
        'fio': fio_results,
        'warnings': warnings,
    }


def _run_fio(
    target: model.Target, jobs: Sequence[str], raw: Path, note: model.Note, warnings: list[str]
) -> dict[str, Any] | None:
    if not jobs:
        return None
    if target.image is None:
        warnings.append(f'{target.name}: its RBD image is unknown, so fio did not run')
        return None
    note(f'{target.name}: fio on pool {target.image.pool}', None)
    return fio.on_pool(target.image, jobs, _FIO_SEC, _FIO_SIZE_MIB, raw)


class _Phase:
    """Warm-up and measured phase of one run."""

    def __init__(
        self,
        targets: Sequence[model.Target],
        load: model.Load,
        raw: Path,
        note: model.Note,
        warnings: list[str],
    ):
        self.reason: str | None = None
        self.seconds = 0
        self._targets = targets
        self._load = load
        self._note = note
        self._warnings = warnings
        self._raw = raw
        self._directories = [
            raw / f'{number}-{re.sub(r"[^A-Za-z0-9_.-]", "-", target.name)}'
            for number, target in enumerate(targets, start=1)
        ]
        self._runs: list[sysbench.Run] = []
        self._committers: list[commit_probe.Committer] = []
        self._events = events.Events(load.events, events.environment(targets), raw / 'events')
        self._rbd: rbd_stats.RbdStats | None = None
        self._host: host_load.HostLoad  # from begin() on
        #: Start of the measured phase.
        self._since = 0

    def begin(self, stack: contextlib.ExitStack) -> None:
        """Connect the clients and start the load; put its cleanup on the stack."""
        load = self._load
        self._note('connecting', None)
        self._rbd = self._watch_images(stack)
        if load.committer:
            for target, directory in zip(self._targets, self._directories, strict=True):
                client = commit_probe.Committer(target.address, directory / 'committer.csv')
                self._committers.append(stack.enter_context(client))
        length = load.warmup_sec + load.measure_sec + _MARGIN_SEC
        for target, directory in zip(self._targets, self._directories, strict=True):
            generator = sysbench.Sysbench(target.address, load.workload, load.dataset)
            run = generator.start(load.threads, length, directory)
            stack.callback(run.stop)
            self._runs.append(run)
        stack.enter_context(self._events)
        self._since = sysbench.start_together(self._runs) + load.warmup_sec
        self._events.start(self._since)
        self._host = self._watch_host()

    def _watch_images(self, stack: contextlib.ExitStack) -> rbd_stats.RbdStats | None:
        images = [target.image for target in self._targets if target.image]
        if not images:
            return None
        try:
            return stack.enter_context(rbd_stats.RbdStats(images, self._raw / 'rbd.log'))
        except rbd_stats.UnavailableError as error:
            self._warnings.append(f'no figures of the RBD image: {error}')
            return None

    def _watch_host(self) -> host_load.HostLoad:
        pids = [run.pid for run in self._runs] + [each.pid for each in self._committers]
        threads = self._load.threads * len(self._runs) + len(self._committers)
        return host_load.HostLoad(pids, threads, self._server_cpu_sec)

    def _server_cpu_sec(self) -> float | None:
        used = [target.cpu_sec() for target in self._targets]
        return None if None in used else sum(filter(None, used))

    def watch(self) -> None:
        """Return when the measured phase has ended or was cut off.

        :raises LoadFailedError: sysbench failed before one second was measured
        :raises KeyboardInterrupt: it arrived before one second was measured
        """
        try:
            for second in range(-self._load.warmup_sec, self._load.measure_sec + 1):
                _sleep_until(self._since + second)
                failed = [run for run in self._runs if run.failed]
                if failed:
                    # It exited at some time within the previous second.
                    self._cut_off(second - 1, str(failed[0].failure()), failed[0].failure())
                    return
                if second >= 0:
                    self._host.read()
                if second in (0, self._load.measure_sec):
                    self._host.read_servers()
                self._report_progress(second)
            self.seconds = self._load.measure_sec
            self._wait_for_last_transactions()
        except KeyboardInterrupt as interrupt:
            if not self.seconds:
                # Seconds that threads have not written yet are lost: see merge_latencies().
                self._cut_off(int(time.monotonic() - self._since) - 1, model.INTERRUPTED, interrupt)
            self.reason = self.reason or model.INTERRUPTED

    def _cut_off(self, seconds: int, reason: str, error: BaseException) -> None:
        if seconds < 1:
            raise error
        # An interruption may come late, after the end of the phase.
        self.seconds = min(seconds, self._load.measure_sec)
        self.reason = reason

    def _report_progress(self, second: int) -> None:
        load = self._load
        done = (second + load.warmup_sec) / (load.warmup_sec + load.measure_sec)
        tps = sum(sample.tps for run in self._runs for sample in run.samples()[-1:])
        activity = 'warming up' if second < 0 else 'measuring'
        self._note(f'{activity}, {tps:.0f} TPS', done)

    def _wait_for_last_transactions(self) -> None:
        deadline = time.monotonic() + _MARGIN_SEC + _GRACE_SEC
        for run, target in zip(self._runs, self._targets, strict=True):
            if not run.wait(max(0.0, deadline - time.monotonic())):
                self.reason = (
                    f'{target.name}: transactions were still in flight {_GRACE_SEC} s after the '
                    f'end of the load: {sysbench_output.last_lines(run.output())}'
                )

    def results(self) -> dict[str, Any]:
        """Return the measured figures; call it after all processes have ended.

        :raises LoadFailedError: no transaction ended in the measured phase
        """
        latencies = [self._latencies(run) for run in self._runs]
        samples = [self._samples(run) for run in self._runs]
        merged = latency.merge(latencies)
        totals = self._totals(merged, samples)
        if not totals['transactions']:
            raise exceptions.LoadFailedError(
                f'no transaction ended within the {self.seconds} s of the measured phase'
            )
        until = self._since + self.seconds
        logs = [each.read() for each in self._committers]
        outcome = {
            'totals': totals,
            'seconds': [self._second(number, merged, samples) for number in self._numbers()],
            'instances': [
                {'name': target.name, 'totals': self._totals(one, [its])}
                for target, one, its in zip(self._targets, latencies, samples, strict=True)
            ],
            'committer': commit_probe.evaluate(logs, self._since, until) if logs else None,
            'rbd': self._rbd.result(self._since, until) if self._rbd else None,
            'cpu': self._host.cpu(),
            'client_saturated': self._host.client_saturated(),
            'events': self._events.results(),
        }
        self._warn(outcome, merged)
        return outcome

    def _numbers(self) -> range:
        return range(1, self.seconds + 1)

    def _latencies(self, run: sysbench.Run) -> latency.Seconds:
        """Return latencies by seconds of the measured phase, counted from 1."""
        first = self._since - 1
        return {second - first: one for second, one in run.merge_latencies().items()}

    def _samples(self, run: sysbench.Run) -> dict[int, sysbench_output.Sample]:
        return {sample.second - self._load.warmup_sec: sample for sample in run.samples()}

    def _totals(
        self,
        seconds: latency.Seconds,
        samples: Sequence[Mapping[int, sysbench_output.Sample]],
    ) -> dict[str, Any]:
        whole = latency.total(seconds[n] for n in self._numbers() if n in seconds)
        reported = [each[n] for each in samples for n in self._numbers() if n in each]
        tps = whole.count / self.seconds
        # sysbench's seconds differ from ours by some milliseconds, so the two must not be mixed:
        # statements per transaction come from sysbench alone, transactions from our histograms.
        reported_tps = sum(one.tps for one in reported)
        qps = tps * sum(one.qps for one in reported) / reported_tps if reported_tps else None
        return {
            'transactions': whole.count,
            'tps': round(tps, 2),
            'qps': None if qps is None else round(qps, 2),
            'errors': round(sum(one.errors for one in reported)),
            'reconnects': round(sum(one.reconnects for one in reported)),
            'latency_ms': whole.latency_ms(),
        }

    def _second(
        self,
        number: int,
        seconds: latency.Seconds,
        samples: Sequence[Mapping[int, sysbench_output.Sample]],
    ) -> dict[str, Any]:
        one = seconds.get(number, latency.Histogram())
        reported = [each[number] for each in samples if number in each]
        complete = len(reported) == len(samples)
        return {
            'second': number,
            'tps': float(one.count),
            'qps': round(sum(each.qps for each in reported), 2) if complete else None,
            'errors': round(sum(each.errors for each in reported), 2) if complete else None,
            'latency_ms': one.latency_ms(),
        }

    def _warn(self, outcome: Mapping[str, Any], merged: latency.Seconds) -> None:
        self._warnings += find_warnings(self._load, outcome)
        if self._rbd and outcome['rbd'] is None:
            self._warnings.append('no figures of the RBD image: its cluster sent none in time')
        elif self._rbd and self._rbd.silent_since is not None:
            second = max(0.0, self._rbd.silent_since - self._since)
            self._warnings.append(
                f'the figures of the RBD image end before second {second:.0f}: its cluster did not '
                f'answer any more'
            )
        for second in sorted(number for number in merged if number > self.seconds):
            took_sec = merged[second].max_ns / 1e9
            if took_sec > second - self.seconds + 1:
                self._warnings.append(
                    f'a transaction in flight at the end of the measured phase took '
                    f'{took_sec:.1f} s; the figures do not include it'
                )
                break


def find_warnings(load: model.Load, outcome: Mapping[str, Any]) -> list[str]:
    """Return the warnings about the figures of a run."""
    found = []
    totals, committer = outcome['totals'], outcome['committer']
    if not load.warmup_sec:
        found.append('no warm-up: caches were filling during the measured phase')
    cpu = outcome['cpu']
    use = f'client {cpu["client_cores"]} of {cpu["host_cores"]} cores'
    if outcome['client_saturated']:
        found.append(
            f'the client used nearly all CPU time available to it ({use}): the figures may show '
            f'the limit of its host'
        )
    if (cpu['host_busy'] or 0) >= _BUSY_SHARE:
        found.append(
            f'the host of the client was {cpu["host_busy"]:.0%} busy ({use}): its processes '
            f'competed for CPU time'
        )
    if totals['errors']:
        found.append(
            f'{totals["errors"]} transactions were retried after deadlocks or similar errors'
        )
    if totals['reconnects']:
        found.append(f'connections were lost and reopened {totals["reconnects"]} times')
    idle = sum(not second['tps'] for second in outcome['seconds'])
    if idle:
        found.append(f'no transaction ended in {idle} of {len(outcome["seconds"])} seconds')
    if committer and committer['gap_max_ms'] >= _STALL_MS:
        found.append(
            f'no commit was acknowledged for {committer["gap_max_ms"] / 1000:.1f} s, starting at '
            f'second {committer["gap_max_at_sec"]:.1f}'
        )
    if committer and committer['errors']:
        found.append(f'the committer met {committer["errors"]} errors')
    return found


def _failure_of(outcomes: Sequence[Mapping[str, Any]]) -> str | None:
    """Return which event failed or was stopped, and why; None if all succeeded."""
    for event in outcomes:
        if event['exit_code'] != 0:
            return f'event {event["name"]} failed: {event["output"]}'
    return None


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
