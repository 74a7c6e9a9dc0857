# SPDX-License-Identifier: Apache-2.0
"""Measure how busy the host of the load generator is, and whether the client is saturated.

*Saturation.* The cores available to the client (sysbench and the committers) are those that it
used plus the idle ones, and at least half of the host, which the scheduler would grant it against
other load; but no more than its CPU affinity allows, and no more than it has threads. A client that
used 90 % or more of them, averaged over the measured phase, is saturated: the figures may show the
limit of the client and not of the server.
"""

import dataclasses
import itertools
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import psutil

SATURATED_SHARE = 0.9


@dataclasses.dataclass(frozen=True)
class Reading:
    """CPU seconds used so far, at a time of the monotonic clock."""

    at: float
    client: float
    busy: float
    total: float


class HostLoad:
    """Sample the CPU times of a load while it runs.

    Those of the servers are read at the start and at the end only: for an instance, Nova has work
    with each reading, on processors that it may share with the servers.

    :param pids: the client's processes; one that exits counts with the CPU time it had used
    :param client_threads: number of their threads, each of which can use one core
    :param server_cpu_sec: returns the CPU seconds used by the servers; None if unknown
    """

    def __init__(
        self,
        pids: Sequence[int],
        client_threads: int,
        server_cpu_sec: Callable[[], float | None],
    ):
        self._pids = pids
        self._used = dict.fromkeys(pids, 0.0)
        self._usable_cores = min(len(os.sched_getaffinity(0)), client_threads)
        self._server_cpu_sec = server_cpu_sec
        self._readings: list[Reading] = []
        self._server_readings: list[tuple[float, float | None]] = []

    def read_servers(self) -> None:
        """Read the CPU seconds of the servers; the caller does so at the start and at the end."""
        used = self._server_cpu_sec()
        self._server_readings.append((time.monotonic(), used))

    def read(self) -> None:
        """Take a reading; the caller does so at the start and end of every second."""
        for pid in self._pids:
            try:
                times = psutil.Process(pid).cpu_times()
            except psutil.Error:
                continue
            self._used[pid] = max(self._used[pid], times.user + times.system)
        times = psutil.cpu_times()
        # user times already include guest times
        total = sum(times) - getattr(times, 'guest', 0.0) - getattr(times, 'guest_nice', 0.0)
        idle = times.idle + getattr(times, 'iowait', 0.0)
        self._readings.append(
            Reading(
                time.monotonic(),
                sum(self._used.values()),
                total - idle,
                total,
            )
        )

    def cpu(self) -> dict[str, Any]:
        """Return the object ``cpu`` of a run, from the first reading to the last."""
        pairs = itertools.pairwise(self._readings)
        return {
            'host_cores': psutil.cpu_count(),
            **self._average(),
            'server_cores': self._server_cores(),
            'seconds': [
                {'second': number, **_usage(before, after)}
                for number, (before, after) in enumerate(pairs, start=1)
            ],
        }

    def _average(self) -> dict[str, float | None]:
        if len(self._readings) < 2:
            return {'client_cores': None, 'host_busy': None}
        return _usage(self._readings[0], self._readings[-1])

    def _server_cores(self) -> float | None:
        if len(self._server_readings) < 2:
            return None
        (since, before), (until, after) = self._server_readings[0], self._server_readings[-1]
        if before is None or after is None:
            return None
        # A restart resets the counter.
        return round(max(0.0, after - before) / max(until - since, 1e-9), 3)

    def client_saturated(self) -> bool:
        """Return whether the client used SATURATED_SHARE or more of the cores available to it."""
        average = self._average()
        used, busy = average['client_cores'], average['host_busy']
        if used is None or busy is None:
            return False
        host_cores = psutil.cpu_count() or 1
        idle_cores = (1 - busy) * host_cores
        available = min(self._usable_cores, max(used + idle_cores, host_cores / 2))
        return used >= SATURATED_SHARE * available


def _usage(before: Reading, after: Reading) -> dict[str, float | None]:
    elapsed = max(after.at - before.at, 1e-9)
    host_seconds = after.total - before.total
    return {
        'client_cores': round((after.client - before.client) / elapsed, 3),
        'host_busy': round((after.busy - before.busy) / host_seconds, 3) if host_seconds else None,
    }
