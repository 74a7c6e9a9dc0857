# SPDX-License-Identifier: Apache-2.0
"""Measure commit stalls: a client commits one row after another and logs every acknowledgement.

It runs in its own process, so that other Python work does not delay it, on its own connection, and
commits each statement separately. A *gap* is the time between two acknowledged commits, whatever
its cause: a lock, a frozen volume, a dead server, a lost connection. A stall that has not ended
when the committer stops counts as a gap too, so no stall is missed.
"""

import contextlib
import dataclasses
import itertools
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from trove_ceph import exceptions
from trove_ceph_bench import commit_loop, model

_START_TIMEOUT_SEC = 60
#: For the statement in flight; a stalled server does not answer it anyway.
_STOP_TIMEOUT_SEC = 2
_POLL_SEC = 0.02
_MS = 1000


@dataclasses.dataclass(frozen=True)
class Log:
    """The log of a committer, in seconds of the monotonic clock.

    :param commits: times at which each acknowledged statement was sent and acknowledged, in order
    :param errors: times at which a statement or a connection failed
    """

    commits: Sequence[tuple[float, float]]
    errors: Sequence[float]

    @classmethod
    def read(cls, path: Path) -> 'Log':
        """Read the log of :mod:`trove_ceph_bench.commit_loop`; skip an incomplete last line."""
        commits: list[tuple[float, float]] = []
        errors: list[float] = []
        with path.open() as lines:
            for line in lines:
                if line.endswith('\n'):
                    _, sent, ended, error = line.rstrip('\n').split(',', 3)
                    if error:
                        errors.append(float(ended))
                    else:
                        commits.append((float(sent), float(ended)))
        return cls(commits, errors)

    def rate(self, since: float, until: float) -> float | None:
        """Return commits per second; None for an empty period."""
        if until <= since:
            return None
        return sum(since < ack <= until for _, ack in self.commits) / (until - since)

    def gaps(self, since: float, until: float) -> list[tuple[float, float]]:
        """Return the begin and end of each period without an acknowledgement in a phase.

        The first gap begins with the last acknowledgement before the phase, if there is one, and
        the last gap ends with the phase: a stall that crosses the boundary counts.
        """
        acks = [ack for _, ack in self.commits]
        before = [ack for ack in acks if ack <= since]
        within = [ack for ack in acks if since < ack <= until]
        points = [before[-1] if before else since, *within, until]
        return list(itertools.pairwise(points))


def evaluate(logs: Sequence[Log], since: float, until: float) -> dict[str, Any]:
    """Return the object ``committer`` of a run: what one or more committers measured in a phase.

    With several, commits add up and each gap is the largest of any of them. The gap of a second is
    the time without acknowledgement up to the end of that second: during a stall it grows from
    second to second, and its last value is the whole gap.
    """
    gaps = [gap for log in logs for gap in log.gaps(since, until)]
    begin, end = max(gaps, key=lambda gap: gap[1] - gap[0])
    durations = sorted(
        ack - sent for log in logs for sent, ack in log.commits if since < ack <= until
    )
    return {
        'commits': len(durations),
        'errors': sum(since < error <= until for log in logs for error in log.errors),
        'gap_max_ms': round((end - begin) * _MS, 3),
        'gap_max_at_sec': round(max(begin - since, 0.0), 3),
        'commit_ms': _distribution(durations),
        'seconds': _gaps_by_second(gaps, since, until),
    }


def _distribution(durations: Sequence[float]) -> dict[str, float | None]:
    def figure(value: float | None) -> float | None:
        return None if value is None else round(value * _MS, 4)

    count = len(durations)
    distribution = {'avg': figure(sum(durations) / count if count else None)}
    for percent in model.PERCENTILES:
        rank = max(0, -int(-count * percent // 100) - 1)
        distribution[f'p{percent:g}'] = figure(durations[rank] if count else None)
    distribution['max'] = figure(durations[-1] if count else None)
    return distribution


def _gaps_by_second(
    gaps: Sequence[tuple[float, float]], since: float, until: float
) -> list[dict[str, float]]:
    # Times are floats: a phase of 60.0000001 s has 60 seconds.
    worst = [0.0] * max(0, math.ceil(round(until - since, 3)))
    for begin, end in gaps:
        first = max(0, int(begin - since))
        last = min(len(worst) - 1, int(end - since))
        for index in range(first, last + 1):
            elapsed = min(end, since + index + 1) - begin
            worst[index] = max(worst[index], elapsed)
    return [
        {'second': number, 'gap_max_ms': round(gap * _MS, 3)}
        for number, gap in enumerate(worst, start=1)
    ]


class Committer:
    """Commit while entered, or between :meth:`start` and :meth:`stop`.

    :param log: the file for its commits; None uses a temporary file
    :param interval_sec: seconds from the start of one statement to the next; 0 sends them back to
        back
    """

    def __init__(
        self, address: model.Address, log: Path | None = None, interval_sec: float = 0.0
    ) -> None:
        self._address = address
        self._interval_sec = interval_sec
        self._log = log
        self._temporary: tempfile.TemporaryDirectory | None = None
        self._process: subprocess.Popen | None = None
        self._errors: IO[bytes] | None = None
        self._began = 0.0
        self._ended: float | None = None

    def __enter__(self) -> 'Committer':
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop_process()
        if self._temporary:
            self._temporary.cleanup()

    @property
    def pid(self) -> int:
        assert self._process, 'the committer was not started'
        return self._process.pid

    def start(self) -> None:
        """Start to commit and return after the first acknowledgement; do nothing if it runs.

        :raises LoadFailedError: the server refused, or acknowledged no commit within a minute
        """
        if self._process:
            return
        if self._log is None:
            self._temporary = tempfile.TemporaryDirectory(prefix='trove-ceph-bench-')
            self._log = Path(self._temporary.name) / 'committer.csv'
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._log.touch()
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            [sys.executable, '-m', commit_loop.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,
        )
        try:
            self._send_task(self._log)
            self._wait_for_commit()
        except BaseException:
            self._stop_process()
            raise

    def _send_task(self, log: Path) -> None:
        task = {
            'address': dataclasses.asdict(self._address),
            'log': str(log.absolute()),
            'interval_sec': self._interval_sec,
        }
        assert self._process and self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(task).encode() + b'\n')
            self._process.stdin.flush()

    def _wait_for_commit(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_SEC
        while not self.read().commits:
            if self._process and self._process.poll() is not None:
                raise exceptions.LoadFailedError(
                    f'the committer did not start: {self._last_error()}'
                )
            if time.monotonic() > deadline:
                raise exceptions.LoadFailedError(
                    f'the server acknowledged no commit within {_START_TIMEOUT_SEC} s'
                )
            time.sleep(_POLL_SEC)
        self._began = time.monotonic()

    def _last_error(self) -> str:
        assert self._errors
        self._errors.seek(0)
        lines = self._errors.read().decode(errors='replace').strip().splitlines()
        return lines[-1] if lines else 'it printed no error'

    def read(self) -> Log:
        """Return everything logged so far."""
        assert self._log
        return Log.read(self._log)

    def stop(self) -> dict[str, Any]:
        """Stop and return the object ``committer`` for the time since :meth:`start`.

        For a part of that time, pass the result of :meth:`read` to :func:`evaluate`.
        """
        self._stop_process()
        assert self._ended, 'the committer was not started'
        return evaluate([self.read()], self._began, self._ended)

    def _stop_process(self) -> None:
        """Close its input, so that it exits; kill it if it hangs in a statement."""
        if self._process is None or self._ended is not None:
            return
        self._ended = time.monotonic()
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT_SEC)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._errors
        self._errors.close()
