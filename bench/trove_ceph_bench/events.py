# SPDX-License-Identifier: Apache-2.0
"""Commands that are run at given seconds of the measured phase: snapshot, resize, kill of an OSD …

A command is run by the shell, in a process group of its own, and told where the load is:

``BENCH_TARGET``, ``BENCH_TARGETS``
    name of the first target; names of all of them, separated by spaces
``BENCH_HOST``, ``BENCH_PORT``, ``BENCH_SOCKET``, ``BENCH_USER``, ``BENCH_PASSWORD``,
``BENCH_DATABASE``
    how the first target is reached; the socket is empty when it is reached by TCP
``BENCH_POOL``, ``BENCH_IMAGE``, ``BENCH_CEPH_CONF``, ``BENCH_CEPH_USER``
    the RBD image below it; empty when there is none to be asked
"""

import dataclasses
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trove_ceph_bench import model, sysbench_output

#: Between asking a command to end and making it.
_TERMINATE_SEC = 3
_POLL_SEC = 0.05


def environment(targets: Sequence[model.Target]) -> dict[str, str]:
    """Return the variables that commands see besides those of this process."""
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
    """Runs events as a context manager; leaving it ends those that still run.

    :param directory: for their output, ``NAME.log``; made when there are events
    """

    def __init__(
        self, events: Sequence[model.Event], variables: Mapping[str, str], directory: Path
    ):
        self._outcomes = [
            _Outcome(event, directory / f'{_file_name(event.name)}.log') for event in events
        ]
        self._environment = os.environ | variables
        self._directory = directory
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._origin = 0.0

    def __enter__(self) -> 'Events':
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def start(self, origin: float) -> None:
        """Begin to wait for the events.

        :param origin: when the measured phase begins, by the monotonic clock
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
        if self._over.wait(max(0.0, due - time.monotonic())):
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
        while not _has_ended(process) and not self._over.wait(_POLL_SEC):
            pass
        outcome.stopped = not _has_ended(process)
        outcome.ended = time.monotonic()
        self._over.wait()
        _end_group(process)
        outcome.exit_code = None if outcome.stopped else process.returncode

    def results(self) -> list[dict[str, Any]]:
        """Return what became of each event, as the object ``events`` of a run.

        An event without ``exit_code`` did not end by itself; without ``ended_sec`` it never began.
        """
        return [self._result(outcome) for outcome in self._outcomes]

    def _result(self, outcome: _Outcome) -> dict[str, Any]:
        output = outcome.log.read_text(errors='replace') if outcome.log.exists() else ''
        said = sysbench_output.last_lines(output)
        if outcome.began is None:
            said = 'the run was over before'
        elif outcome.stopped:
            said = f'still running at the end of the run, so it was ended; {said}'.rstrip('; ')
        began = outcome.event.at_sec if outcome.began is None else outcome.began - self._origin
        ended = None if outcome.ended is None else round(outcome.ended - self._origin, 3)
        return {
            'name': outcome.event.name,
            'at_sec': round(began, 3),
            'ended_sec': ended,
            'exit_code': outcome.exit_code,
            'output': said,
        }


def _file_name(name: str) -> str:
    return re.sub(r'[^\w.-]+', '-', name)


def _has_ended(process: subprocess.Popen) -> bool:
    """Tell without collecting the process, so that the number of its group stays taken."""
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, options) is not None


def _end_group(process: subprocess.Popen) -> None:
    """End a command, and what it left running in its process group."""
    os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + _TERMINATE_SEC
    while not _has_ended(process) and time.monotonic() < deadline:
        time.sleep(_POLL_SEC)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
