# SPDX-License-Identifier: Apache-2.0
"""Run the shell commands of an operation, time them and stop all their processes."""

import dataclasses
import os
import re
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from trove_ceph_bench import process_group

#: Number of output lines in the results; the raw file has all of them.
TAIL_LINES = 20

_BEGIN = 'begin'
_PHASE = 'phase '
_TOOK = re.compile(r'took (\S+) (\d+(?:\.\d+)?)')
_TERMINATE_SEC = 10
_POLL_SEC = 0.5
_CHUNK_BYTES = 1 << 16
_CHUNKS = 32


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of a command.

    :param began: start, in seconds of the monotonic clock: of the command, or the time at which it
        printed ``begin``
    :param seconds: time from then to the end of the command
    :param exit_code: None if the command was stopped by its time limit
    :param phases: phases that the command printed as ``phase NAME``, with the seconds since the
        previous such line (or the start), or as ``took NAME SECONDS``
    :param output: the last lines of both streams
    :param first_line: the first line that is not a phase
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
        """Return why the command failed, with its last line of output."""
        reason = 'timed out' if self.exit_code is None else f'exit code {self.exit_code}'
        last = self.output.splitlines()[-1:]
        return f'{reason} after {self.seconds:.1f} s{": " if last else ""}{"".join(last)}'


def run(
    command: str, environment: Mapping[str, str], log: Path, timeout_sec: float | None = None
) -> Result:
    """Run a command with ``sh -e``, wait until it ends, and stop the processes it started.

    :param environment: variables to add to those of this process
    :param log: file for all output
    """
    with open(log, 'wb') as raw:
        process = subprocess.Popen(
            ['sh', '-ec', command],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # This process handles Ctrl-C, and can stop the group as a whole.
            start_new_session=True,
        )
        assert process.stdout is not None
        started = time.monotonic()
        lines = _Lines(started)
        try:
            in_time = _read(process, raw, lines, timeout_sec and started + timeout_sec)
        finally:
            ended = time.monotonic()
            process_group.stop(process, _TERMINATE_SEC)
            process.stdout.close()
    return Result(
        began=lines.began,
        seconds=ended - lines.began,
        exit_code=process.returncode if in_time else None,
        phases=lines.phases,
        output='\n'.join(lines.plain[-TAIL_LINES:]),
        first_line=lines.plain[0] if lines.plain else '',
    )


class _Lines:
    """Parse output as it arrives, because a phase ends when its line is read."""

    def __init__(self, began: float):
        self.began = began
        self.plain: list[str] = []
        self.phases: list[dict[str, Any]] = []
        self._since = began
        self._rest = b''

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b'\n')
        for line in lines:
            self._parse(line.decode(errors='replace').rstrip('\r'))

    def end(self) -> None:
        if self._rest:
            self._parse(self._rest.decode(errors='replace'))
            self._rest = b''

    def _parse(self, line: str) -> None:
        if line.startswith(_PHASE):
            now = time.monotonic()
            self.phases.append({'name': line.removeprefix(_PHASE), 'seconds': now - self._since})
            self._since = now
        elif line == _BEGIN:
            self.began = self._since = time.monotonic()
        elif match := _TOOK.fullmatch(line):
            self.phases.append({'name': match[1], 'seconds': float(match[2])})
        else:
            self.plain.append(line)


def _read(
    process: subprocess.Popen[bytes], raw: BinaryIO, lines: _Lines, deadline: float | None
) -> bool:
    """Read the output of a process until it exits; return False if it timed out before."""
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
                    # Read its last output, but do not wait for EOF: a background child may hold
                    # the pipe open forever.
                    _drain(output, raw, lines)
                    return True
        return False
    finally:
        os.close(end)
        lines.end()


def _drain(output: int, raw: BinaryIO, lines: _Lines) -> bool:
    """Read the data that a pipe holds now; return False at EOF."""
    # Bounded, because a background child may write endlessly; a pipe holds far less.
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
