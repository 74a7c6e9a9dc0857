# SPDX-License-Identifier: Apache-2.0
"""How busy the host of the load generator is, and whether that host sets the result.

*Saturation.* The client (sysbench and the committers) could have used the cores that it used and
those that were idle, and in any case half of the host, which the scheduler would have granted it
against other load; but no more than it may run on, and no more than it has threads. When it used
90 % or more of that, averaged over the measured phase, it is saturated: the figures may be the
client's and not the server's.
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
    """Processor seconds used so far, at a moment of the monotonic clock.

    :param server: None when out of reach
    """

    at: float
    client: float
    busy: float
    total: float
    server: float | None


class HostLoad:
    """Reads processor times of a load while it runs.

    :param pids: the client's processes; one that ends counts with what it had used
    :param client_threads: how many threads they have, each of which can fill one core
    :param server_cpu_sec: returns the seconds used by the servers, None when out of reach
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

    def read(self) -> None:
        """Take a reading; to be called at the begin and end of every second."""
        for pid in self._pids:
            try:
                times = psutil.Process(pid).cpu_times()
            except psutil.Error:
                continue
            self._used[pid] = max(self._used[pid], times.user + times.system)
        times = psutil.cpu_times()
        # guest times are part of user times already
        total = sum(times) - getattr(times, 'guest', 0.0) - getattr(times, 'guest_nice', 0.0)
        idle = times.idle + getattr(times, 'iowait', 0.0)
        self._readings.append(
            Reading(
                time.monotonic(),
                sum(self._used.values()),
                total - idle,
                total,
                self._server_cpu_sec(),
            )
        )

    def cpu(self) -> dict[str, Any]:
        """Return the object ``cpu`` of a run, from the first reading to the last."""
        pairs = itertools.pairwise(self._readings)
        return {
            'host_cores': psutil.cpu_count(),
            **self._whole(),
            'seconds': [
                {'second': number, **_use(before, after)}
                for number, (before, after) in enumerate(pairs, start=1)
            ],
        }

    def _whole(self) -> dict[str, float | None]:
        if len(self._readings) < 2:
            return {'client_cores': None, 'server_cores': None, 'host_busy': None}
        return _use(self._readings[0], self._readings[-1])

    def client_saturated(self) -> bool:
        """Whether the client used SATURATED_SHARE or more of the cores it could have."""
        whole = self._whole()
        used, busy = whole['client_cores'], whole['host_busy']
        if used is None or busy is None:
            return False
        host_cores = psutil.cpu_count() or 1
        idle_cores = (1 - busy) * host_cores
        could_have = min(self._usable_cores, max(used + idle_cores, host_cores / 2))
        return used >= SATURATED_SHARE * could_have


def _use(before: Reading, after: Reading) -> dict[str, float | None]:
    elapsed = max(after.at - before.at, 1e-9)
    server = None
    if before.server is not None and after.server is not None:
        # A restart begins to count anew.
        server = round(max(0.0, after.server - before.server) / elapsed, 3)
    host_seconds = after.total - before.total
    return {
        'client_cores': round((after.client - before.client) / elapsed, 3),
        'server_cores': server,
        'host_busy': round((after.busy - before.busy) / host_seconds, 3) if host_seconds else None,
    }
