# SPDX-License-Identifier: Apache-2.0
"""The shell commands of an operation, timed, with a limit, and with nothing of them left."""

import contextlib
import dataclasses
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

#: Kept of a command's output in the results; all of it is in the raw file.
TAIL_LINES = 20

_PHASE = 'phase '
_TOOK = re.compile(r'took (\S+) (\d+(?:\.\d+)?)')
_TERMINATE_SEC = 10
_POLL_SEC = 0.5
_CHUNK_BYTES = 1 << 16
_CHUNKS = 32


@dataclasses.dataclass(frozen=True)
class Result:
    """How a command ended.

    :param began: by the monotonic clock
    :param exit_code: None when it was ended because its time was over
    :param phases: parts that the command told by lines ``phase NAME``, with the seconds from the
        line before (or from the start) to each, or by lines ``took NAME SECONDS``
    :param output: the last lines of both its streams
    :param first_line: the first line that tells neither
    """

    began: float
    seconds: float
    exit_code: int | None
    phases: Sequence[Mapping[str, Any]]
    output: str
    first_line: str

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0

    def failure(self) -> str:
        """Say how it failed, with its last line."""
        how = 'ran out of time' if self.exit_code is None else f'exit code {self.exit_code}'
        last = self.output.splitlines()[-1:]
        return f'{how} after {self.seconds:.1f} s{": " if last else ""}{"".join(last)}'


def run(
    command: str, environment: Mapping[str, str], log: Path, timeout_sec: float | None = None
) -> Result:
    """Run a command by ``sh -e`` and wait for its end; whatever it started ends with it.

    :param environment: added to that of this process
    :param log: gets all output
    """
    with open(log, 'wb') as raw:
        process = subprocess.Popen(
            ['sh', '-ec', command],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Ctrl-C is ours to answer; and a group of its own can be ended as a whole.
            start_new_session=True,
        )
        began = time.monotonic()
        lines = _Lines(began)
        try:
            in_time = _read(process, raw, lines, timeout_sec and began + timeout_sec)
        finally:
            seconds = time.monotonic() - began
            _end_group(process)
    return Result(
        began=began,
        seconds=seconds,
        exit_code=process.returncode if in_time else None,
        phases=lines.phases,
        output='\n'.join(lines.plain[-TAIL_LINES:]),
        first_line=lines.plain[0] if lines.plain else '',
    )


class _Lines:
    """Takes output apart as it comes, because the time of a phase is that of its line."""

    def __init__(self, began: float):
        self.plain: list[str] = []
        self.phases: list[dict[str, Any]] = []
        self._since = began
        self._rest = b''

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b'\n')
        for line in lines:
            self._take(line.decode(errors='replace').rstrip('\r'))

    def end(self) -> None:
        if self._rest:
            self._take(self._rest.decode(errors='replace'))
            self._rest = b''

    def _take(self, line: str) -> None:
        if line.startswith(_PHASE):
            now = time.monotonic()
            self.phases.append({'name': line.removeprefix(_PHASE), 'seconds': now - self._since})
            self._since = now
        elif told := _TOOK.fullmatch(line):
            self.phases.append({'name': told[1], 'seconds': float(told[2])})
        else:
            self.plain.append(line)


def _read(
    process: subprocess.Popen[bytes], raw: BinaryIO, lines: _Lines, deadline: float | None
) -> bool:
    """Take in a process's output until it ends; return False when its time was over before."""
    assert process.stdout is not None
    output, end = process.stdout.fileno(), os.pidfd_open(process.pid)
    os.set_blocking(output, False)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            selector.register(end, selectors.EVENT_READ)
            while deadline is None or time.monotonic() < deadline:
                ready = {key.fd for key, _ in selector.select(_POLL_SEC)}
                if output in ready and not _drain(output, raw, lines):
                    selector.unregister(output)
                if end in ready:
                    # What it wrote last is taken too, but not its end: a child in the background
                    # may hold the pipe open for ever.
                    _drain(output, raw, lines)
                    process.wait()
                    return True
        return False
    finally:
        os.close(end)
        lines.end()


def _drain(output: int, raw: BinaryIO, lines: _Lines) -> bool:
    """Take in what a pipe holds now; return whether there may be more later."""
    # Bounded, for a child in the background may write without end; a pipe holds less by far.
    for _ in range(_CHUNKS):
        try:
            data = os.read(output, _CHUNK_BYTES)
        except BlockingIOError:
            return True
        if not data:
            return False
        raw.write(data)
        lines.feed(data)
    return True


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what the command left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(_TERMINATE_SEC)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdout:
        process.stdout.close()
