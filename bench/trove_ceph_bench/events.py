# SPDX-License-Identifier: Apache-2.0
"""Run commands at given seconds of the measured phase: snapshot, resize, kill of an OSD …

The shell runs each command in its own process group, with these variables in its environment:

``BENCH_TARGET``, ``BENCH_TARGETS``
    name of the first target; names of all targets, separated by spaces
``BENCH_HOST``, ``BENCH_PORT``, ``BENCH_SOCKET``, ``BENCH_USER``, ``BENCH_PASSWORD``,
``BENCH_DATABASE``
    address of the first target; the socket is empty if the target is reached by TCP
``BENCH_POOL``, ``BENCH_IMAGE``, ``BENCH_CEPH_CONF``, ``BENCH_CEPH_USER``
    the RBD image below it; empty if none is known
"""

import dataclasses
import os
import re
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trove_ceph_bench import model, process_group, sysbench_output

#: Between SIGTERM and SIGKILL.
_TERMINATE_SEC = 3
_POLL_SEC = 0.05


def environment(targets: Sequence[model.Target]) -> dict[str, str]:
    """Return the variables that commands get in addition to those of this process."""
    first = targets[0]
    address, image = first.address, first.image
    return {
        'BENCH_TARGET': first.name,
        'BENCH_TARGETS': ' '.join(target.name for target in targets),
        'BENCH_HOST': address.host,
        'BENCH_PORT': str(address.port),
        'BENCH_SOCKET': address.unix_socket or '',
        'BENCH_USER': address.user,
        'BENCH_PASSWORD': address.password,
        'BENCH_DATABASE': address.database,
        'BENCH_POOL': image.pool if image else '',
        'BENCH_IMAGE': image.name if image else '',
        'BENCH_CEPH_CONF': image.conf if image else '',
        'BENCH_CEPH_USER': image.user if image else '',
    }


@dataclasses.dataclass
class _Outcome:
    event: model.Event
    log: Path
    began: float | None = None
    ended: float | None = None
    exit_code: int | None = None
    stopped: bool = False


class Events:
    """Run events as a context manager; on leaving, stop those that still run.

    :param directory: for their output, ``NAME.log``; created if there are events
    """

    def __init__(
        self, events: Sequence[model.Event], variables: Mapping[str, str], directory: Path
    ):
        self._outcomes = [
            _Outcome(event, directory / f'{_file_name(event.name)}.log') for event in events
        ]
        self._environment = os.environ | variables
        self._directory = directory
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._origin = 0.0

    def __enter__(self) -> 'Events':
        return self

    def __exit__(self, *exception: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def start(self, origin: float) -> None:
        """Start to wait for the events.

        :param origin: start of the measured phase, in seconds of the monotonic clock
        """
        self._origin = origin
        if self._outcomes:
            self._directory.mkdir(parents=True, exist_ok=True)
        for outcome in self._outcomes:
            thread = threading.Thread(target=self._wait_and_run, args=(outcome,))
            thread.start()
            self._threads.append(thread)

    def _wait_and_run(self, outcome: _Outcome) -> None:
        due = self._origin + outcome.event.at_sec
        if self._stopping.wait(max(0.0, due - time.monotonic())):
            return
        outcome.began = time.monotonic()
        with outcome.log.open('ab') as log:
            process = subprocess.Popen(
                ['/bin/sh', '-c', outcome.event.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )
        while not process_group.has_exited(process) and not self._stopping.wait(_POLL_SEC):
            pass
        outcome.stopped = not process_group.has_exited(process)
        outcome.ended = time.monotonic()
        self._stopping.wait()
        process_group.stop(process, _TERMINATE_SEC)
        outcome.exit_code = None if outcome.stopped else process.returncode

    def results(self) -> list[dict[str, Any]]:
        """Return the result of each event, as the object ``events`` of a run.

        An event without ``exit_code`` was stopped; one without ``ended_sec`` never began.
        """
        return [self._result(outcome) for outcome in self._outcomes]

    def _result(self, outcome: _Outcome) -> dict[str, Any]:
        output = outcome.log.read_text(errors='replace') if outcome.log.exists() else ''
        text = sysbench_output.last_lines(output)
        if outcome.began is None:
            text = 'the run ended before the event'
        elif outcome.stopped:
            text = f'still running at the end of the run, so it was stopped; {text}'.rstrip('; ')
        began = outcome.event.at_sec if outcome.began is None else outcome.began - self._origin
        ended = None if outcome.ended is None else round(outcome.ended - self._origin, 3)
        return {
            'name': outcome.event.name,
            'at_sec': round(began, 3),
            'ended_sec': ended,
            'exit_code': outcome.exit_code,
            'output': text,
        }


def _file_name(name: str) -> str:
    return re.sub(r'[^\w.-]+', '-', name)
