# SPDX-License-Identifier: Apache-2.0
"""Control a MySQL server in a sandbox from outside and validate its answers.

The tenant may control what the sandbox answers. A false answer can change only the verdict on the
tenant's own backup: each value has a type and a bound, and any other value fails the job.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from trove_ceph import exceptions
from trove_ceph.verification import channel, confined, report, server

#: Timeout of a call that sets none.
_CALL_SEC = 60.0
#: Extra time, so that the confined program notices first that the server hangs.
_GRACE_SEC = 30.0
_ERRORS = {
    known.__name__: known
    for known in (
        exceptions.InspectionFaultError,
        exceptions.InvalidRequestError,
        exceptions.NotInspectableError,
        exceptions.ServerFailedError,
    )
}
_VERDICTS = (report.CORRUPT, report.INCOMPLETE)
_VERSION = re.compile(r'[0-9A-Za-z.+~-]{1,64}')
_POSITION = re.compile(r'[0-9A-Za-z_:,-]*')
_XID = re.compile(r"X'[0-9A-Fa-f]{0,128}',X'[0-9A-Fa-f]{0,128}',-?[0-9]{1,10}")
_MAX_XIDS = 100
_MAX_NAME_CHARACTERS = 64
_MAX_BYTES = 2**63


class SilentProgramError(exceptions.ServerFailedError):
    """The confined program did not answer in time, and was killed."""


class ConfinedProcess(Protocol):
    """The process of the confined program."""

    def kill(self) -> None:
        """Kill the program and every process that it started; do nothing if it has ended."""

    def why_ended(self) -> str:
        """Return how the program ended."""


class ConfinedServer:
    """The interface of :class:`.server.Server`, called through a channel.

    :raises ServerFailedError: by every method: the confined program has ended, or its answer is
        invalid
    """

    def __init__(
        self,
        process: ConfinedProcess,
        line: channel.Channel,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._process = process
        self._line = line
        self._clock = clock
        self._deadline: float | None = None
        self._numbers: dict[server.Table, int] = {}
        self.data_version = ''
        self.recovery_sec: float | None = None

    def read(self, memory_bytes: int) -> None:
        """Read the data directory and prepare a server for it.

        :raises NotSoundError: there is no data that a server can open
        :raises NotInspectableError: the configured server cannot open the data
        """
        self.data_version = _validate(
            self._call('read', memory_bytes=memory_bytes), _VERSION, 'version of the data'
        )

    def start(self, timeout_sec: float) -> None:
        """Start the server; see :meth:`.server.Server.start`."""
        self._deadline = self._clock() + timeout_sec
        found = self._call('start', timeout_sec=timeout_sec)
        if found is not None and not (isinstance(found, int | float) and 0 <= found < _MAX_BYTES):
            raise _invalid('recovery time')
        self.recovery_sec = found

    def kill(self) -> None:
        """Kill the server at once."""
        self._process.kill()

    def version(self) -> str:
        return _validate(self._call('version'), _VERSION, 'version')

    def gtid_executed(self) -> str:
        """Return ``gtid_executed``; see :meth:`.server.Server.gtid_executed`."""
        found = _validate(self._call('gtid_executed'), _POSITION, 'gtid_executed')
        if len(found) > report.MAX_GTID_BYTES:
            raise _invalid('gtid_executed')
        return found

    def missing_and_extra(self, expected: str, found: str) -> tuple[str, str]:
        """Compare two GTID sets; see :meth:`.server.Server.missing_and_extra`."""
        answer = self._call('missing_and_extra', expected=expected, found=found)
        if not isinstance(answer, list) or len(answer) != 2:
            raise _invalid('comparison of GTID sets')
        missing, extra = (_validate(one, _POSITION, 'GTID set') for one in answer)
        return missing[: report.MAX_REASON_CHARACTERS], extra[: report.MAX_REASON_CHARACTERS]

    def check_undisturbed(self) -> None:
        """Check that the server logged no fault of the host.

        :raises InspectionFaultError: the log has a fault of the host
        """
        self._call('check_undisturbed')

    def prepared_transactions(self) -> tuple[list[str], int]:
        """List XA transactions; see :meth:`.server.Server.prepared_transactions`."""
        match self._call('prepared_transactions'):
            case [list(names), int(count)] if len(names) <= min(_MAX_XIDS, count):
                return [_validate(name, _XID, 'XA transaction') for name in names], count
        raise _invalid('list of XA transactions')

    def tables(self) -> list[server.Table]:
        """List all tables; see :meth:`.server.Server.tables`."""
        found: list[server.Table] = []
        while page := self._call('tables', start=len(found)):
            if not isinstance(page, list) or len(page) > confined.PAGE_TABLES:
                raise _invalid('list of tables')
            found += map(_table, page)
            if len(found) > server.MAX_TABLES:
                raise _invalid('number of tables')
        self._numbers = {table: number for number, table in enumerate(found)}
        return found

    def check(self, table: server.Table) -> None:
        """Check a table; see :meth:`.server.Server.check`."""
        self._call('check', number=self._numbers[table])

    def read_ends(self, table: server.Table, limit_bytes: int) -> None:
        """Read part of a table; see :meth:`.server.Server.read_ends`."""
        self._call('read_ends', number=self._numbers[table], limit_bytes=limit_bytes)

    def _call(self, call: str, **arguments: Any) -> Any:
        left_sec = _CALL_SEC
        if self._deadline is not None:
            left_sec = max(0.0, self._deadline - self._clock()) + _GRACE_SEC
        return self._exchange(call, arguments, left_sec)

    def _exchange(self, call: str, arguments: Mapping[str, Any], limit_sec: float) -> Any:
        try:
            self._line.send({'call': call, 'with': arguments})
            answer = self._line.receive(limit_sec)
        except (EOFError, OSError) as error:
            if isinstance(error, TimeoutError):
                self._process.kill()
                raise SilentProgramError(f'{call}: {error}') from error
            raise exceptions.ServerFailedError(
                f'{call}: the confined program ended: {self._process.why_ended()}'
            ) from error
        return _result(answer)


def _result(answer: Any) -> Any:
    match answer:
        case {'result': result}:
            return result
        case {'finding': [str(verdict), str(reason)]} if verdict in _VERDICTS:
            raise report.NotSoundError(verdict, _printable(reason))
        case {'error': [str(name), str(message)]} if name in _ERRORS:
            raise _ERRORS[name](report.shorten(_printable(message)))
    raise _invalid('answer')


def _table(row: Any) -> server.Table:
    match row:
        case [str(schema), str(name), int(size), int(row_size)] if (
            0 < len(schema) <= _MAX_NAME_CHARACTERS
            and 0 < len(name) <= _MAX_NAME_CHARACTERS
            and 0 <= size < _MAX_BYTES
            and 0 <= row_size < _MAX_BYTES
        ):
            return server.Table(schema, name, size, row_size)
    raise _invalid('table')


def _validate(value: Any, pattern: re.Pattern[str], field: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _invalid(field)
    return value


def _printable(text: str) -> str:
    return ''.join(letter if letter.isprintable() else '?' for letter in text)


def _invalid(field: str) -> exceptions.ServerFailedError:
    return exceptions.ServerFailedError(f'the confined program returned an invalid {field}')
