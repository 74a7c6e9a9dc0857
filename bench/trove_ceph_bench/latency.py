# SPDX-License-Identifier: Apache-2.0
"""Latency distributions, read from the files that ``lua/timed.lua`` writes.

Buckets are log-spaced and 2 % wide. A percentile is the geometric middle of its bucket, so its
error is at most 1 %; count, sum (hence average) and maximum are exact.
"""

import collections
import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from trove_ceph_bench import model

#: As in lua/timed.lua: bucket b counts latencies from WIDTH**b up to WIDTH**(b + 1) microseconds.
WIDTH = 1.02
_NS_PER_MS = 1e6
_US_PER_MS = 1e3


@dataclasses.dataclass
class Histogram:
    """A distribution of transaction latencies."""

    count: int = 0
    sum_ns: int = 0
    max_ns: int = 0
    buckets: collections.Counter[int] = dataclasses.field(default_factory=collections.Counter)

    def add(self, other: 'Histogram') -> None:
        self.count += other.count
        self.sum_ns += other.sum_ns
        self.max_ns = max(self.max_ns, other.max_ns)
        self.buckets.update(other.buckets)

    def percentile_ms(self, percent: float) -> float | None:
        """Return the latency that ``percent`` of the transactions did not exceed.

        It is at most the maximum; None if there are no transactions.
        """
        rank = math.ceil(self.count * percent / 100)
        counted = 0
        for bucket in sorted(self.buckets):
            counted += self.buckets[bucket]
            if counted >= rank:
                middle = WIDTH ** (bucket + 0.5) / _US_PER_MS
                return min(middle, self.max_ns / _NS_PER_MS)
        return None

    def latency_ms(self) -> dict[str, float | None]:
        """Return average, percentiles and maximum in the format of results."""
        figures: dict[str, float | None] = {
            'avg': round(self.sum_ns / self.count / _NS_PER_MS, 4) if self.count else None
        }
        for percent in model.PERCENTILES:
            value = self.percentile_ms(percent)
            figures[f'p{percent:g}'] = None if value is None else round(value, 4)
        figures['max'] = round(self.max_ns / _NS_PER_MS, 4) if self.count else None
        return figures


#: Histograms by the second of the monotonic clock in which the transactions ended.
Seconds = dict[int, Histogram]


def parse(lines: Iterable[str]) -> Seconds:
    """Parse seconds; skip an incomplete last line."""
    seconds: Seconds = {}
    for line in lines:
        if line.endswith('\n'):
            second, count, sum_ns, max_ns, *pairs = line.split()
            buckets = collections.Counter(
                {int(b): int(n) for b, n in (p.split(':') for p in pairs)}
            )
            histogram = Histogram(int(count), int(sum_ns), int(max_ns), buckets)
            seconds.setdefault(int(second), Histogram()).add(histogram)
    return seconds


def merge(parts: Iterable[Mapping[int, Histogram]]) -> Seconds:
    """Add up the histograms of several threads or instances, second by second."""
    merged: Seconds = {}
    for part in parts:
        for second, histogram in part.items():
            merged.setdefault(second, Histogram()).add(histogram)
    return merged


def read(paths: Iterable[Path]) -> Seconds:
    """Read files and merge them."""

    def parts() -> Iterator[Seconds]:
        for path in paths:
            with path.open() as lines:
                yield parse(lines)

    return merge(parts())


def write(path: Path, seconds: Mapping[int, Histogram]) -> None:
    """Write seconds in the format that :func:`read` reads."""
    with path.open('w') as lines:
        for second, one in sorted(seconds.items()):
            pairs = ' '.join(f'{bucket}:{count}' for bucket, count in sorted(one.buckets.items()))
            lines.write(f'{second} {one.count} {one.sum_ns} {one.max_ns} {pairs}\n')


def total(seconds: Iterable[Histogram]) -> Histogram:
    """Add histograms up."""
    result = Histogram()
    for histogram in seconds:
        result.add(histogram)
    return result
