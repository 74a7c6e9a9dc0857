# SPDX-License-Identifier: Apache-2.0
"""A database in a file, with the tables that the migrations create."""

import functools
import os
import shutil
import tempfile

import sqlalchemy as sa
from oslo_db.sqlalchemy import enginefacade
from sqlalchemy import dialects

from trove_ceph.db import migration, tables

_FILE = 'trove.sqlite'
# Created at import, so that it is removed after the files of the tests, and not with those of one.
_DIRECTORY = tempfile.TemporaryDirectory(prefix='trove-ceph-test-')


class Pool(sa.pool.QueuePool):
    """Any number of connections; to open a file and read its tables takes as long as their use."""

    def __init__(self, creator, **options):
        super().__init__(creator, **options | {'pool_size': 0})


class PoolPlugin(sa.engine.CreateEnginePlugin):
    """Gives the engine of a file a pool: oslo.db has none for files, and no option for one."""

    def __init__(self, found, options):
        super().__init__(found, options)
        options['poolclass'] = Pool

    def update_url(self, found):
        return found


dialects.plugins.register(PoolPlugin.__name__, __name__, PoolPlugin.__name__)


def url(path):
    """Return the URL of the database in a file, for this process."""
    return f'sqlite:///{path}?plugin={PoolPlugin.__name__}'


def facade(path):
    """Return the database in a file, which is created if it does not exist."""
    context = enginefacade.transaction_context()
    # The tests do not need a durable database.
    context.configure(connection=url(path), max_retries=0, sqlite_synchronous=False)
    return context


def with_tables(path):
    """Return the database in a file, with all tables."""
    if not os.path.exists(path):
        return facade(shutil.copy(_template(), path))
    context = facade(path)
    migration.upgrade(context.writer.get_engine())
    return context


@functools.cache
def _template():
    """Return the path of a database to copy, since creating the tables takes long."""
    path = f'{_DIRECTORY.name}/{_FILE}'
    engine = facade(path).writer.get_engine()
    migration.upgrade(engine)
    engine.dispose()
    return path


def emptied(context):
    """Return a database without the rows of our tables."""
    with context.writer.get_engine().begin() as connection:
        for table in tables.Base.metadata.sorted_tables:
            connection.execute(table.delete())
    return context


class Shared:
    """One database for the worlds of a module, since creating the tables takes long.

    Create it at import, so that it is removed after the files of the tests.
    """

    def __init__(self):
        self._directory = tempfile.TemporaryDirectory(prefix='trove-ceph-test-')
        self._context = None

    def emptied(self):
        """Return the database without the rows of other worlds."""
        if self._context is None:
            self._context = with_tables(f'{self._directory.name}/{_FILE}')
        return emptied(self._context)

    def rows(self):
        """Return the rows of all our tables."""
        with self._context.reader.get_engine().connect() as connection:
            return [
                (table, [row._asdict() for row in connection.execute(table.select())])
                for table in tables.Base.metadata.sorted_tables
            ]

    def refill(self, rows):
        """Replace all rows of our tables with earlier ones."""
        with emptied(self._context).writer.get_engine().begin() as connection:
            for table, found in rows:
                if found:
                    connection.execute(table.insert(), found)
