# SPDX-License-Identifier: Apache-2.0
"""The stall instrument: a client that commits one row after another and logs every acknowledgement.

It runs in a process of its own, so that nothing else that Python does here delays it, on a
connection of its own, each statement committed by itself. A *gap* is the time between two
acknowledged commits, whatever filled it: a lock, a frozen volume, a dead server, a lost connection.
A stall that has not ended when the committer is stopped is a gap like any other, so none is missed.
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
#: For the statement on its way; a stalled server does not answer it anyway.
_STOP_TIMEOUT_SEC = 2
_POLL_SEC = 0.02
_MS = 1000


@dataclasses.dataclass(frozen=True)
class Log:
    """What a committer did, in seconds of the monotonic clock.

    :param commits: when each acknowledged statement was sent and acknowledged, in order
    :param errors: when a statement or a connection failed
    """

    commits: Sequence[tuple[float, float]]
    errors: Sequence[float]

    @classmethod
    def read(cls, path: Path) -> 'Log':
        """Read the log of :mod:`trove_ceph_bench.commit_loop`, but no line that was cut off."""
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
        """Return commits in a second; None for a time of no length."""
        if until <= since:
            return None
        return sum(since < ack <= until for _, ack in self.commits) / (until - since)

    def gaps(self, since: float, until: float) -> list[tuple[float, float]]:
        """Return the begin and end of each time without an acknowledgement in a phase.

        The first begins with the last acknowledgement before the phase where there was one, and the
        last ends with the phase: a stall counts though the phase cuts it.
        """
        acks = [ack for _, ack in self.commits]
        before = [ack for ack in acks if ack <= since]
        within = [ack for ack in acks if since < ack <= until]
        points = [before[-1] if before else since, *within, until]
        return list(itertools.pairwise(points))


def evaluate(logs: Sequence[Log], since: float, until: float) -> dict[str, Any]:
    """Return the object ``committer`` of a run: what one or several committers saw in a phase.

    With several, commits add up and gaps are the largest that any of them saw. The gap of a second
    is the time without acknowledgement as far as that second saw it: during a stall it grows from
    second to second, and its last value is the whole gap.
    """
    gaps = [gap for log in logs for gap in log.gaps(since, until)]
    begin, end = max(gaps, key=lambda gap: gap[1] - gap[0])
    took = sorted(ack - sent for log in logs for sent, ack in log.commits if since < ack <= until)
    return {
        'commits': len(took),
        'errors': sum(since < error <= until for log in logs for error in log.errors),
        'gap_max_ms': round((end - begin) * _MS, 3),
        'gap_max_at_sec': round(max(begin - since, 0.0), 3),
        'commit_ms': _distribution(took),
        'seconds': _gaps_by_second(gaps, since, until),
    }


def _distribution(took: Sequence[float]) -> dict[str, float | None]:
    def figure(value: float | None) -> float | None:
        return None if value is None else round(value * _MS, 4)

    count = len(took)
    found = {'avg': figure(sum(took) / count if count else None)}
    for percent in model.PERCENTILES:
        rank = max(0, -int(-count * percent // 100) - 1)
        found[f'p{percent:g}'] = figure(took[rank] if count else None)
    found['max'] = figure(took[-1] if count else None)
    return found


def _gaps_by_second(
    gaps: Sequence[tuple[float, float]], since: float, until: float
) -> list[dict[str, float]]:
    # Clocks are floats: a phase of 60.0000001 s has 60 seconds.
    worst = [0.0] * max(0, math.ceil(round(until - since, 3)))
    for begin, end in gaps:
        first = max(0, int(begin - since))
        last = min(len(worst) - 1, int(end - since))
        for index in range(first, last + 1):
            seen = min(end, since + index + 1) - begin
            worst[index] = max(worst[index], seen)
    return [
        {'second': number, 'gap_max_ms': round(gap * _MS, 3)}
        for number, gap in enumerate(worst, start=1)
    ]


class Committer:
    """Commits while entered, or between :meth:`start` and :meth:`stop`.

    :param log: the file for its commits; without one they are forgotten in the end
    :param interval_sec: from one statement's begin to the next's; 0 sends them back to back
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
        self._end_process()
        if self._temporary:
            self._temporary.cleanup()

    @property
    def pid(self) -> int:
        assert self._process, 'it was never started'
        return self._process.pid

    def start(self) -> None:
        """Begin to commit; returns after the first acknowledgement. Does nothing when it runs.

        :raises LoadFailedError: nothing was committed for a minute, or the server refused
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
            self._end_process()
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
                raise exceptions.LoadFailedError(f'the committer did not start: {self._said()}')
            if time.monotonic() > deadline:
                raise exceptions.LoadFailedError(
                    f'the committer had no commit acknowledged in {_START_TIMEOUT_SEC} s'
                )
            time.sleep(_POLL_SEC)
        self._began = time.monotonic()

    def _said(self) -> str:
        assert self._errors
        self._errors.seek(0)
        lines = self._errors.read().decode(errors='replace').strip().splitlines()
        return lines[-1] if lines else 'it said nothing'

    def read(self) -> Log:
        """Return everything logged so far."""
        assert self._log
        return Log.read(self._log)

    def stop(self) -> dict[str, Any]:
        """End and return the object ``committer`` for the time since :meth:`start`.

        A part of that time is evaluated by :func:`evaluate` on what :meth:`read` returns.
        """
        self._end_process()
        assert self._ended, 'it was never started'
        return evaluate([self.read()], self._began, self._ended)

    def _end_process(self) -> None:
        """Close its input, at which it ends; end it when it hangs in a statement."""
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
