# SPDX-License-Identifier: Apache-2.0
"""A server in a confined place, asked from outside.

What comes out is believed as far as a backup's verdict goes, since it is the tenant's own backup,
and no further: each value has a type and a bound, and anything else is an error of the job.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from trove_ceph import exceptions
from trove_ceph.verification import channel, confined, report, server

#: For what does not say how long it may take.
_CALL_SEC = 60.0
#: A server that hangs is noticed inside first.
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


class Place(Protocol):
    """Where the confined program runs."""

    def kill(self) -> None:
        """End it and all that it started; nothing if it has ended."""

    def why_ended(self) -> str:
        """Say how it ended, once it is gone."""


class ConfinedServer:
    """The same questions as of :class:`.server.Server`, asked through a channel.

    :raises ServerFailedError: of each question: the confined program is gone, or makes no sense
    """

    def __init__(
        self,
        place: Place,
        line: channel.Channel,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._place = place
        self._line = line
        self._clock = clock
        self._deadline: float | None = None
        self._numbers: dict[server.Table, int] = {}
        self.data_version = ''
        self.recovery_sec: float | None = None

    def read(self, memory_bytes: int) -> None:
        """Have the data directory read, and a server prepared.

        :raises Finding: there is no data that a server could open
        :raises NotInspectableError: the server that is configured cannot
        """
        self.data_version = _checked(
            self._ask('read', memory_bytes=memory_bytes), _VERSION, 'version of the data'
        )

    def start(self, timeout_sec: float) -> None:
        """Recover; see :meth:`.server.Server.start`."""
        self._deadline = self._clock() + timeout_sec
        found = self._ask('start', timeout_sec=timeout_sec)
        if found is not None and not (isinstance(found, int | float) and 0 <= found < _MAX_BYTES):
            raise _senseless('time of the recovery')
        self.recovery_sec = found

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self._place.kill()

    def version(self) -> str:
        return _checked(self._ask('version'), _VERSION, 'version')

    def gtid_executed(self) -> str:
        """Return the position; see :meth:`.server.Server.gtid_executed`."""
        found = _checked(self._ask('gtid_executed'), _POSITION, 'gtid_executed')
        if len(found) > report.MAX_GTID_BYTES:
            raise _senseless('gtid_executed')
        return found

    def missing_and_extra(self, expected: str, found: str) -> tuple[str, str]:
        """Compare positions; see :meth:`.server.Server.missing_and_extra`."""
        answer = self._ask('missing_and_extra', expected=expected, found=found)
        if not isinstance(answer, list) or len(answer) != 2:
            raise _senseless('comparison of positions')
        missing, extra = (_checked(one, _POSITION, 'position') for one in answer)
        return missing[: report.MAX_REASON_CHARACTERS], extra[: report.MAX_REASON_CHARACTERS]

    def check_undisturbed(self) -> None:
        """Do nothing if the server has met no fault of the host.

        :raises InspectionFaultError: it has
        """
        self._ask('check_undisturbed')

    def prepared_transactions(self) -> tuple[list[str], int]:
        """List XA transactions; see :meth:`.server.Server.prepared_transactions`."""
        match self._ask('prepared_transactions'):
            case [list(names), int(count)] if len(names) <= min(_MAX_XIDS, count):
                return [_checked(name, _XID, 'XA transaction') for name in names], count
        raise _senseless('list of XA transactions')

    def tables(self) -> list[server.Table]:
        """List all tables; see :meth:`.server.Server.tables`."""
        found: list[server.Table] = []
        while page := self._ask('tables', start=len(found)):
            if not isinstance(page, list) or len(page) > confined.PAGE_TABLES:
                raise _senseless('list of tables')
            found += map(_table, page)
            if len(found) > server.MAX_TABLES:
                raise _senseless('number of tables')
        self._numbers = {table: number for number, table in enumerate(found)}
        return found

    def check(self, table: server.Table) -> None:
        """Have a table checked; see :meth:`.server.Server.check`."""
        self._ask('check', number=self._numbers[table])

    def read_ends(self, table: server.Table, limit_bytes: int) -> None:
        """Have some of a table read; see :meth:`.server.Server.read_ends`."""
        self._ask('read_ends', number=self._numbers[table], limit_bytes=limit_bytes)

    def _ask(self, call: str, **arguments: Any) -> Any:
        left_sec = _CALL_SEC
        if self._deadline is not None:
            left_sec = max(0.0, self._deadline - self._clock()) + _GRACE_SEC
        return self._call(call, arguments, left_sec)

    def _call(self, call: str, arguments: Mapping[str, Any], limit_sec: float) -> Any:
        try:
            self._line.send({'call': call, 'with': arguments})
            answer = self._line.receive(limit_sec)
        except (EOFError, OSError) as error:
            if isinstance(error, TimeoutError):
                self._place.kill()
                raise exceptions.ServerFailedError(f'{call}: {error}') from error
            raise exceptions.ServerFailedError(
                f'{call}: the confined program ended: {self._place.why_ended()}'
            ) from error
        return _result(answer)


def _result(answer: Any) -> Any:
    match answer:
        case {'result': result}:
            return result
        case {'finding': [str(verdict), str(reason)]} if verdict in _VERDICTS:
            raise report.Finding(verdict, _printable(reason))
        case {'error': [str(name), str(message)]} if name in _ERRORS:
            raise _ERRORS[name](report.shorten(_printable(message)))
    raise _senseless('answer')


def _table(row: Any) -> server.Table:
    match row:
        case [str(schema), str(name), int(size), int(row_size)] if (
            0 < len(schema) <= _MAX_NAME_CHARACTERS
            and 0 < len(name) <= _MAX_NAME_CHARACTERS
            and 0 <= size < _MAX_BYTES
            and 0 <= row_size < _MAX_BYTES
        ):
            return server.Table(schema, name, size, row_size)
    raise _senseless('table')


def _checked(value: Any, pattern: re.Pattern[str], what: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _senseless(what)
    return value


def _printable(text: str) -> str:
    return ''.join(letter if letter.isprintable() else '?' for letter in text)


def _senseless(what: str) -> exceptions.ServerFailedError:
    return exceptions.ServerFailedError(f'the confined program told a {what} that makes no sense')
