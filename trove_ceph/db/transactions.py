# SPDX-License-Identifier: Apache-2.0
"""Transactions of the database, which translate the errors of SQLAlchemy and oslo.db."""

import contextlib
import datetime
from collections.abc import Callable, Iterator
from typing import Any

import oslo_db.api
import oslo_db.exception
import sqlalchemy as sa
from oslo_db.sqlalchemy import enginefacade
from sqlalchemy import orm

from trove_ceph import exceptions

#: MySQL's CURRENT_TIMESTAMP is in the time zone of the session.
_UTC_NOW = {
    'sqlite': 'CURRENT_TIMESTAMP',
    'mysql': 'UTC_TIMESTAMP()',
    'mariadb': 'UTC_TIMESTAMP()',
    'postgresql': "timezone('utc', now())",
}

#: Repeats a verb after a deadlock, or if :func:`insert` lost a race. The verb must be one
#: transaction.
retry_on_deadlock = oslo_db.api.wrap_db_retry(max_retries=5, retry_on_deadlock=True)


def utcnow() -> datetime.datetime:
    """Return the time as the tables store it: in UTC, without a time zone."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None, microsecond=0)


#: The database of Trove's configuration: one pool of connections for all stores of a process.
FACADE = enginefacade.transaction_context()


@enginefacade.transaction_context_provider
class _Context:
    """The context of one call, which enginefacade requires."""


class Transactions:
    """Read and write transactions; safe for use by several threads and processes.

    :param facade: an enginefacade of oslo.db; by default FACADE
    :param clock: returns the time that is recorded; by default the clock of this host
    :param database_clock: returns the time by which claims expire, which all workers must share; by
        default ``clock`` if given, otherwise the clock of the database
    """

    def __init__(
        self,
        facade: Any = None,
        clock: Callable[[], datetime.datetime] | None = None,
        database_clock: Callable[[], datetime.datetime] | None = None,
    ):
        self._facade = facade or FACADE
        self.clock = clock or utcnow
        self._database_clock = database_clock or clock

    def database_time(self, session: orm.Session) -> datetime.datetime:
        """Return the time of the clock that all workers share, in UTC, without a time zone."""
        if self._database_clock is not None:
            return self._database_clock()
        dialect = session.connection().dialect.name
        found = session.scalar(sa.select(sa.literal_column(_UTC_NOW[dialect], sa.DateTime())))
        assert found is not None
        return found.replace(tzinfo=None, microsecond=0)

    def read_database_time(self) -> datetime.datetime:
        """Return :meth:`database_time` in a transaction of its own.

        :raises ServiceUnavailableError: the database does not answer
        """
        with self.reading() as session:
            return self.database_time(session)

    @contextlib.contextmanager
    def reading(self) -> Iterator[orm.Session]:
        """Open a session for one read transaction.

        :raises ServiceUnavailableError: the database does not answer, or lacks the tables
        """
        with _translated(), self._facade.reader.using(_Context()) as session:
            yield session

    @contextlib.contextmanager
    def writing(self) -> Iterator[orm.Session]:
        """Open a session for one transaction, which is committed at the end of the block.

        :raises ServiceUnavailableError: the database does not answer, or lacks the tables
        """
        with _translated(), self._facade.writer.using(_Context()) as session:
            yield session


def insert(session: orm.Session, row: Any) -> None:
    """Insert a row that the verb has not found, and that another worker may insert meanwhile.

    The verb, which is decorated with :data:`retry_on_deadlock`, is then repeated and finds the row.
    """
    session.add(row)
    try:
        session.flush()
    except oslo_db.exception.DBDuplicateEntry as error:
        raise oslo_db.exception.RetryRequest(error) from error


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except oslo_db.exception.DBDeadlock:
        # The decorator of the verb retries.
        raise
    except oslo_db.exception.DBNonExistentTable as error:
        raise exceptions.ServiceUnavailableError(
            f'table {error.table} does not exist; run "trove-ceph-manage db sync"'
        ) from error
    except (oslo_db.exception.DBError, oslo_db.exception.CantStartEngineError) as error:
        raise exceptions.ServiceUnavailableError(f'the database failed: {error}') from error
