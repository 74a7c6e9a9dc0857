# SPDX-License-Identifier: Apache-2.0
"""The confined program: reads a tenant's data directory, runs mysqld on it and answers requests.

It runs in a sandbox in which it can damage nothing but the clone. The process outside does not
trust it: each answer is one bounded line of JSON, and :mod:`.confined_server` validates it.
"""

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trove_ceph import exceptions
from trove_ceph.host import commands
from trove_ceph.mysql import installation, mysqld
from trove_ceph.verification import channel, data_directory, report, server

VOLUME = Path('/var/lib/mysql')
RUN = Path('/run/mysqld')
#: Number of tables in one answer.
PAGE_TABLES = 1000


#: The only methods that a request can call.
CALLS = (
    *('read', 'start', 'version', 'gtid_executed', 'missing_and_extra', 'tables', 'check'),
    *('read_ends', 'check_undisturbed', 'prepared_transactions'),
)


class Inspector:
    """Answers the calls of one inspection; each method has the name of its call."""

    calls: tuple[str, ...] = CALLS

    def __init__(self, volume: Path = VOLUME, run: Path = RUN):
        self._volume = volume
        self._run = run
        self._server: server.Server | None = None
        self._tables: list[server.Table] = []

    def read(self, memory_bytes: int) -> str:
        """Read the data directory, prepare a server for it, and return the data's version."""
        found = data_directory.read(self._volume / installation.DATA)
        if not (found.uid and found.gid):
            raise report.NotSoundError(report.CORRUPT, f'{installation.DATA} belongs to root')
        installed = mysqld_version()
        if installed < found.version:
            raise exceptions.NotInspectableError(
                f'the data is of MySQL {found.version_text}; the mysqld that is configured for it '
                f'is older: {".".join(map(str, installed))}'
            )
        ids = (found.uid, found.gid) if os.geteuid() == 0 else None
        running = mysqld.Mysqld(
            installation.InPlace(ids),
            self._volume,
            self._run,
            server.options(found, memory_bytes),
        )
        self._server = server.Server(running, found)
        return found.version_text

    def start(self, timeout_sec: float) -> float | None:
        """Start the server and return the seconds that InnoDB recovery took."""
        self._running.start(timeout_sec)
        return self._running.recovery_sec

    def check_undisturbed(self) -> None:
        """Check that the server logged no fault of the host."""
        self._running.check_undisturbed()

    def prepared_transactions(self) -> tuple[list[str], int]:
        return self._running.prepared_transactions()

    def version(self) -> str:
        return self._running.version()

    def gtid_executed(self) -> str:
        return self._running.gtid_executed()

    def missing_and_extra(self, expected: str, found: str) -> tuple[str, str]:
        return self._running.missing_and_extra(expected, found)

    def tables(self, start: int) -> list[tuple[str, str, int, int]]:
        """Return one page of tables, from the given number on; it is empty after the last."""
        if start == 0:
            self._tables = self._running.tables()
        page = self._tables[start : start + PAGE_TABLES]
        return [(table.schema, table.name, table.bytes, table.row_bytes) for table in page]

    def check(self, number: int) -> None:
        """Check a table, given its number in the list."""
        self._running.check(self._tables[number])

    def read_ends(self, number: int, limit_bytes: int) -> None:
        """Read both ends of a table's indexes, given the table's number in the list."""
        self._running.read_ends(self._tables[number], limit_bytes)

    @property
    def _running(self) -> server.Server:
        if self._server is None:
            raise exceptions.InvalidRequestError('the data directory was not read before this call')
        return self._server


def mysqld_version(run: Callable[..., str] = commands.run) -> tuple[int, int, int]:
    """Return the version of the mysqld in the PATH.

    :raises NotInspectableError: there is none, or it does not run
    """
    try:
        output = run('mysqld', '--no-defaults', '--version')
        words = output.partition(' Ver ')[2].split()
        major, minor, patch = words[0].partition('-')[0].split('.')[:3]
        return int(major), int(minor), int(patch)
    except (exceptions.StorageCommandError, IndexError, ValueError) as error:
        raise exceptions.NotInspectableError(
            f'the root file system has no mysqld that runs: {error}'
        ) from error


def answer(inspector: Inspector, request: Any) -> dict[str, Any]:
    """Return the answer to one call: its result, a finding against the data, or an error."""
    try:
        name, arguments = request['call'], request['with']
        if name not in inspector.calls:
            raise exceptions.InvalidRequestError(f'{name}: unknown call')
        return {'result': getattr(inspector, name)(**arguments)}
    except report.NotSoundError as found:
        return {'finding': [found.verdict, found.reason]}
    except exceptions.TroveCephError as error:
        return {'error': [type(error).__name__, report.shorten(str(error))]}
    except Exception as error:
        kind = exceptions.ServerFailedError.__name__
        return {'error': [kind, report.shorten(f'{type(error).__name__}: {error}')]}


def serve(inspector: Inspector, line: channel.Channel) -> None:
    """Answer requests until the other side closes the channel."""
    with contextlib.suppress(EOFError):
        while True:
            line.send(answer(inspector, line.receive()))


def main() -> None:
    """Read requests from standard input and answer on standard output."""
    serve(Inspector(), channel.Channel(sys.stdin.fileno(), sys.stdout.fileno()))
