# SPDX-License-Identifier: Apache-2.0
"""Compare the transactions and the rows of a source and of its replica."""

from collections.abc import Callable

from trove_ceph import exceptions, waiting
from trove_ceph_tempest_plugin import mysql

#: Shorter than the reply timeout of a statement.
_WAIT_SEC = 30
_EXECUTED = 'SELECT @@GLOBAL.gtid_executed'


class Equality:
    """A source, and a replica that must have its transactions and no others.

    Both checks of transactions are for a source on which clients may still commit.
    """

    def __init__(
        self,
        source: mysql.Database,
        replica: mysql.Database,
        start_wait: Callable[[float], waiting.Deadline] = waiting.Deadline,
    ):
        self._source, self._replica = source, replica
        self._start_wait = start_wait

    def wait_until_caught_up(self, timeout_sec: float) -> None:
        """Wait until the replica has what the source has executed by now.

        :raises TroveCephError: it has not in time
        """
        executed = _executed(self._source)
        deadline = self._start_wait(timeout_sec)
        while True:
            # The server waits by its own clock.
            ((is_late,),) = self._replica.query(
                'SELECT WAIT_FOR_EXECUTED_GTID_SET(%s, %s)',
                executed,
                max(1, min(_WAIT_SEC, deadline.left_sec)),
            )
            if not is_late:
                return
            if not deadline.left_sec:
                raise exceptions.TroveCephError(
                    f'{self._replica.address.host} lacks transactions of '
                    f'{self._source.address.host} after {timeout_sec} s: '
                    f'{self._subtract(executed, _executed(self._replica))}'
                )

    def errant(self) -> str:
        """Return the GTIDs of transactions that only the replica has; empty: there are none."""
        # The source is read later, so it has whatever the replica can have received.
        replica = _executed(self._replica)
        return self._subtract(replica, _executed(self._source))

    def faults(self) -> list[str]:
        """Compare all tables, on servers to which nothing commits; return what is different.

        The checksums count for equal positions alone, so a different one is a fault, too.
        """
        sources, replicas = _checksums(self._source), _checksums(self._replica)
        names = sorted(sources.keys() | replicas.keys())
        faults = [
            f'table {name}: checksum {sources.get(name)} on the source, {replicas.get(name)} on '
            'the replica'
            for name in names
            if sources.get(name) != replicas.get(name) or sources[name] is None
        ]
        positions = [_executed(one) for one in (self._source, self._replica)]
        for first, second, text in (
            (*positions, 'the replica lacks'),
            (*reversed(positions), 'only the replica has'),
        ):
            if difference := self._subtract(first, second):
                faults.append(f'{text} {difference}')
        return faults if names else ['there is no table to compare']

    def _subtract(self, first: str, second: str) -> str:
        ((difference,),) = self._source.query('SELECT GTID_SUBTRACT(%s, %s)', first, second)
        return difference


def _executed(database: mysql.Database) -> str:
    ((executed,),) = database.query(_EXECUTED)
    return executed


def _checksums(database: mysql.Database) -> dict[str, int | None]:
    """Return the checksum of each table of the schema; None: it cannot be read."""
    names = [name for (name,) in database.query('SHOW TABLES')]
    if not names:
        return {}
    listed = ', '.join(f'`{name}`' for name in names)
    rows = database.query(f'CHECKSUM TABLE {listed} EXTENDED')
    return {name.rpartition('.')[2]: checksum for name, checksum in rows}
