# SPDX-License-Identifier: Apache-2.0
"""A shell that keeps its variables and functions from one command to the next."""

import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Mapping


class CommandError(Exception):
    """A command failed, or did not end in time; the text says which and what it printed."""


class Shell:
    """A bash without start-up files, which the end of the context ends with all that it started.

    :param environ: its environment
    """

    def __init__(self, environ: Mapping[str, str]):
        # Not in the output of any command.
        self._mark = f'end-of-command-{secrets.token_hex(8)}'
        self._process = subprocess.Popen(
            ['bash', '--noprofile', '--norc'],
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors='replace',
            start_new_session=True,
        )

    def __enter__(self) -> 'Shell':
        return self

    def __exit__(self, *_error) -> None:
        self._end()
        for stream in (self._process.stdin, self._process.stdout):
            stream.close()
        self._process.wait()

    def run(self, command: str, limit_sec: float) -> list[str]:
        """Run a command; return the lines of its output, those of its errors among them.

        :raises CommandError: it has another exit status than 0, or did not end within the limit
        """
        # In braces, so that it keeps what it sets, and does not read the commands after it.
        wrapped = f'{{ {command}\n}} </dev/null\nprintf "\\n%s %d\\n" {self._mark} $?\n'
        lines: list[str] = []
        limit = threading.Timer(limit_sec, self._end)
        limit.start()
        try:
            self._process.stdin.write(wrapped)
            self._process.stdin.flush()
            for line in self._process.stdout:
                if line.startswith(self._mark):
                    return self._ended(command, lines, int(line.split()[1]))
                lines.append(line.rstrip())
        finally:
            limit.cancel()
        raise CommandError(
            f'"{command}" did not end within {limit_sec:g} s, or ended the shell; '
            f'it printed: {_tail(lines)}'
        )

    @staticmethod
    def _ended(command: str, lines: list[str], status: int) -> list[str]:
        while lines and not lines[-1]:
            lines.pop()
        if status:
            raise CommandError(f'"{command}" ended with status {status}: {_tail(lines)}')
        return lines

    def _end(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)


def _tail(lines: list[str]) -> str:
    return '\n'.join(lines)[-2000:] or '(nothing)'
