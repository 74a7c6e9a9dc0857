# SPDX-License-Identifier: Apache-2.0
"""Show the progress of a plan and estimate the remaining time."""

import collections
import contextlib
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TextIO

#: If the output is not a terminal, a long step prints a line this often.
HEARTBEAT_SEC = 30


class Estimate:
    """Estimate the remaining time from planned durations and those of finished steps of a kind.

    :param clock: returns seconds
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._left: dict[str, list[float]] = collections.defaultdict(list)
        self._done: dict[str, list[tuple[float, float]]] = collections.defaultdict(list)
        self._running: tuple[str, float, float] | None = None
        self._unknown: set[str] = set()

    def plan(self, kind: str, expected_sec: float, known: bool = True) -> None:
        """Add a planned step.

        :param known: False means that ``expected_sec`` is not a duration but a size, by which
            steps of a kind may differ; there is no estimate until the first of them is done
        """
        self._left[kind].append(expected_sec)
        if not known:
            self._unknown.add(kind)

    def start(self, kind: str, expected_sec: float) -> None:
        """Begin a step, planned or not."""
        if expected_sec in self._left[kind]:
            self._left[kind].remove(expected_sec)
        self._running = (kind, expected_sec, self._clock())

    def finish(self) -> None:
        """End the current step."""
        if self._running:
            kind, expected_sec, began = self._running
            self._done[kind].append((expected_sec, self._clock() - began))
            self._running = None

    def left_sec(self) -> float | None:
        """Return the seconds until all planned steps are done; None if unknown."""
        left = 0.0
        for kind, steps in self._left.items():
            for expected_sec in steps:
                if not self._is_known(kind):
                    return None
                left += self._predict(kind, expected_sec)
        if self._running:
            kind, expected_sec, began = self._running
            if not self._is_known(kind):
                return None
            left += max(0.0, self._predict(kind, expected_sec) - (self._clock() - began))
        return left

    def _is_known(self, kind: str) -> bool:
        return kind not in self._unknown or bool(self._done[kind])

    def _predict(self, kind: str, expected: float) -> float:
        done = self._done[kind]
        if kind in self._unknown:
            return _fit(done, expected)
        if not sum(one for one, _ in done):
            return expected
        return expected * sum(elapsed for _, elapsed in done) / sum(one for one, _ in done)


def _fit(done: list[tuple[float, float]], size: float) -> float:
    """Return the duration of a step: linear in its size if larger ones took longer, else the mean.

    The mean covers all finished steps of the kind.
    """
    sizes, seconds = zip(*done, strict=True)
    mean = statistics.fmean(seconds)
    if len(set(sizes)) < 2:
        return mean
    slope, start = statistics.linear_regression(sizes, seconds)
    return max(0.0, start + slope * size) if slope > 0 else mean


class Progress:
    """Print the progress: a live line on a terminal, else one line for each finished step.

    :param stream: output stream
    :param estimate: records every step
    """

    def __init__(
        self,
        stream: TextIO,
        estimate: Estimate | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.estimate = estimate or Estimate(clock)
        self._stream = stream
        self._clock = clock
        self._began = clock()
        self._live = stream.isatty()
        self._text = ''
        self._shown = clock()

    @contextlib.contextmanager
    def step(self, kind: str, text: str, expected_sec: float) -> Iterator[None]:
        """Enter a planned step; until it is left, :meth:`note` reports about it."""
        self.estimate.start(kind, expected_sec)
        self._text = text
        self._shown = self._clock()
        self.note('', None)
        try:
            yield
        finally:
            self.estimate.finish()
            self._text = ''

    def note(self, activity: str, share: float | None = None) -> None:
        """Report the current activity in the step, and the share of the step that is done."""
        line = ': '.join(part for part in (self._text, activity) if part)
        if share is not None:
            line += f' {share:.0%}'
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f'\r\x1b[K{f"{self._clock_text()} {line}"[:width]}')
            self._stream.flush()
        elif self._clock() - self._shown >= HEARTBEAT_SEC:
            self.print_line(line)

    def print_line(self, text: str) -> None:
        """Print a permanent line."""
        erase = '\r\x1b[K' if self._live else ''
        self._stream.write(f'{erase}{self._clock_text()} {text}\n')
        self._stream.flush()
        self._shown = self._clock()

    def _clock_text(self) -> str:
        left = self.estimate.left_sec()
        elapsed = duration_text(self._clock() - self._began)
        return f'[{elapsed}, {"left ?" if left is None else duration_text(left) + " left"}]'


def duration_text(seconds: float) -> str:
    """Return a duration as ``0:42``, ``12:03`` or ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f'{hours}:{minutes:02d}:{rest:02d}' if hours else f'{minutes}:{rest:02d}'
