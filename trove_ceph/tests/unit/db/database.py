# SPDX-License-Identifier: Apache-2.0
"""A database in a file, with the tables that the migrations create."""

from oslo_db.sqlalchemy import enginefacade

from trove_ceph.db import migration


def facade(path):
    """Return the database in a file, which is created if it does not exist."""
    context = enginefacade.transaction_context()
    # The tests do not need a durable database.
    context.configure(connection=f'sqlite:///{path}', max_retries=0, sqlite_synchronous=False)
    return context


def with_tables(path):
    """Return the database in a file, with all tables."""
    context = facade(path)
    migration.upgrade(context.writer.get_engine())
    return context
