# SPDX-License-Identifier: Apache-2.0
"""Read the I/O counters of RBD images from the cluster's manager.

The manager module ``rbd_support`` (always on, Ceph 14 and later) adds up operations on the objects
of each image. Two consequences: an operation on an image counts once for each object that it
touches, and its latency is that inside the OSDs, including replication but excluding the client and
its network. And new sums arrive only once per ``mgr_stats_period`` (5 s by default), so all seconds
within such a period show the same mean; the results record the period.

One ``ceph`` client runs for the whole run and reads commands from its standard input: starting one
each second would cost a third of a core.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import operator
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph_bench import model

_TIMEOUT_SEC = 20
_INTERVAL_SEC = 1.0
_GIB = 1024**3
_NS_PER_MS = 1e6


@dataclasses.dataclass(frozen=True)
class Counters:
    """Sums since the manager started to count; latencies in ns."""

    write_ops: int = 0
    read_ops: int = 0
    write_bytes: int = 0
    read_bytes: int = 0
    write_latency: int = 0
    read_latency: int = 0

    def __add__(self, other: 'Counters') -> 'Counters':
        return self._combine(other, operator.add)

    def __sub__(self, other: 'Counters') -> 'Counters':
        return self._combine(other, operator.sub)

    def _combine(self, other: 'Counters', how: Callable[[int, int], int]) -> 'Counters':
        return Counters(*map(how, dataclasses.astuple(self), dataclasses.astuple(other)))


def find_counters(reply: str, image: model.Image) -> Counters | None:
    """Return an image's counters from the reply to ``rbd perf image counters``.

    The reply omits images without operations, and lists only the 64 busiest images of a pool.

    :raises ValueError: the reply is invalid
    """
    data = json.loads(reply)
    pools = {name: number for number, name in data['pool_descriptors'].items()}
    key = f'{pools.get(image.pool)}/{image.name}'
    for entry in data['counters']:
        if key in entry:
            named = zip(data['counter_descriptors'], entry[key], strict=True)
            return Counters(**dict(named))
    return None


#: A time of the monotonic clock, and the counters read then.
Point = tuple[float, Counters]


@dataclasses.dataclass(frozen=True)
class Span:
    """The operations counted between two times."""

    since: float
    until: float
    counted: Counters


def spans(points: Sequence[Point], since: float, until: float) -> list[Span]:
    """Return the operations counted between one set of sums and the next, for a phase.

    The first span begins with the newest sums at the start of the phase, and the last one ends with
    the first sums after it, if there are any. Readings between two sets of sums repeat the old sums
    and are skipped, and so is a span in which the sums decreased, because the manager restarted.
    """
    steps = [points[0]] if points else []
    for point in points:
        if point[1] != steps[-1][1] and steps[-1][0] < until:
            steps.append(point)
    first = max((number for number, step in enumerate(steps) if step[0] <= since), default=0)
    found = [
        Span(before[0], after[0], after[1] - before[1])
        for before, after in itertools.pairwise(steps[first:])
    ]
    return [span for span in found if min(dataclasses.astuple(span.counted)) >= 0]


def figures(elapsed_sec: float, counted: Counters) -> dict[str, float | None]:
    """Return rates and latencies in the format of results."""

    def latency_ms(total_ns: int, operations: int) -> float | None:
        return round(total_ns / operations / _NS_PER_MS, 3) if operations else None

    return {
        'read_iops': round(counted.read_ops / elapsed_sec, 2),
        'write_iops': round(counted.write_ops / elapsed_sec, 2),
        'read_mib_s': round(counted.read_bytes / elapsed_sec / units.Mi, 3),
        'write_mib_s': round(counted.write_bytes / elapsed_sec / units.Mi, 3),
        'read_latency_ms': latency_ms(counted.read_latency, counted.read_ops),
        'write_latency_ms': latency_ms(counted.write_latency, counted.write_ops),
    }


def evaluate(
    points: Sequence[Point], since: float, until: float, size_gib: float, period_sec: float | None
) -> dict[str, Any] | None:
    """Return the object ``rbd`` of a run for a phase; None if the sums did not change in it."""
    found = spans(points, since, until)
    if not found:
        return None
    elapsed = sum(span.until - span.since for span in found)
    counted = functools.reduce(operator.add, (span.counted for span in found))
    operations = counted.read_ops + counted.write_ops
    return {
        'source': 'mgr',
        'period_sec': period_sec,
        'size_gib': size_gib,
        'totals': {
            **figures(elapsed, counted),
            'iops_per_gib': round(operations / elapsed / size_gib, 3),
            'write_iops_per_gib': round(counted.write_ops / elapsed / size_gib, 3),
        },
        'seconds': [
            {'second': number, **figures(span.until - span.since, span.counted)}
            for number in range(1, round(until - since) + 1)
            for span in found
            if span.since <= since + number - 0.5 < span.until
        ],
    }


class UnavailableError(exceptions.LoadFailedError):
    """The statistics of the image are unavailable; the measurement continues without them."""


class RbdStats:
    """Read the counters of images every second and add them up, as a context manager.

    :param log: file for the raw readings
    :ivar silent_since: time of the monotonic clock at which the cluster had not answered, and the
        readings ended; None: it always did
    :raises UnavailableError: (on entering) there is no such image, its cluster returns no
        statistics, or the images are in different clusters
    """

    def __init__(self, images: Sequence[model.Image], log: Path):
        self._images = images
        self._pools = sorted({image.pool for image in images})
        self._log = log
        self._stopping = threading.Event()
        self._replies: queue.Queue[str] = queue.Queue()
        self._newest = dict.fromkeys(images, Counters())
        self._points: list[Point] = []
        self._process: subprocess.Popen | None = None
        self._threads: list[threading.Thread] = []
        self.silent_since: float | None = None
        self._size_gib = 0.0
        self._period_sec: float | None = None

    def __enter__(self) -> 'RbdStats':
        if len({(image.conf, image.user) for image in self._images}) > 1:
            raise UnavailableError('the images are in different clusters or have different users')
        for image in self._images:
            info = self._query('rbd', 'info', f'{image.pool}/{image.name}')
            self._size_gib += round(info['size'] / _GIB, 3)
        with contextlib.suppress(UnavailableError):
            period = self._query('ceph', 'tell', 'mgr', 'config', 'get', 'mgr_stats_period')
            self._period_sec = float(period['mgr_stats_period'])
        for pool in self._pools:
            # The first query makes the manager start to count.
            self._query('ceph', *_counters_command(pool))
        self._process = subprocess.Popen(
            ['ceph', *self._access()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
            start_new_session=True,
        )
        for target in (self._read_replies, self._poll):
            thread = threading.Thread(target=target, args=(self._process,))
            thread.start()
            self._threads.append(thread)
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        if self._process:
            self._process.kill()
            self._process.wait()
        for thread in self._threads:
            thread.join()

    def _access(self) -> list[str]:
        first = self._images[0]
        return ['--conf', first.conf, '--id', first.user, '--format', 'json']

    def _query(self, program: str, *arguments: str) -> dict[str, Any]:
        command = [program, *self._access(), *arguments]
        try:
            result = subprocess.run(
                command,
                capture_output=True,
                text=True,
                stdin=subprocess.DEVNULL,
                timeout=_TIMEOUT_SEC,
                check=True,
                start_new_session=True,
            )
            return json.loads(result.stdout)
        except subprocess.CalledProcessError as error:
            last = error.stderr.strip().splitlines()[-1:] or [f'exit status {error.returncode}']
            raise UnavailableError(f'{" ".join(command)}: {last[0]}') from error
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            raise UnavailableError(f'{" ".join(command)}: {error}') from error

    def _read_replies(self, process: subprocess.Popen) -> None:
        assert process.stdout
        for line in process.stdout:
            if line.strip():
                self._replies.put(line)
        # Unblock _poll(): no further reply can arrive.
        self._replies.put('')

    def _poll(self, process: subprocess.Popen) -> None:
        """Query once a second, until stopped or until a reply is missing."""
        assert process.stdin
        with self._log.open('w') as log:
            while not self._stopping.wait(_INTERVAL_SEC):
                try:
                    for pool in self._pools:
                        process.stdin.write(' '.join(_counters_command(pool)) + '\n')
                        reply = self._replies.get(timeout=_TIMEOUT_SEC)
                        self._update(pool, reply)
                        log.write(f'{time.monotonic():.3f} {reply}')
                        log.flush()
                except (OSError, ValueError, queue.Empty):
                    # On leaving, the client is killed.
                    if not self._stopping.is_set():
                        self.silent_since = time.monotonic()
                    return
                total = functools.reduce(operator.add, self._newest.values())
                self._points.append((time.monotonic(), total))

    def _update(self, pool: str, reply: str) -> None:
        for image in self._images:
            if image.pool == pool:
                found = find_counters(reply, image)
                self._newest[image] = found or self._newest[image]

    def result(self, since: float, until: float) -> dict[str, Any] | None:
        """Return the object ``rbd`` of a run for a phase of the monotonic clock."""
        return evaluate(self._points, since, until, self._size_gib, self._period_sec)


def _counters_command(pool: str) -> list[str]:
    return ['rbd', 'perf', 'image', 'counters', pool]
