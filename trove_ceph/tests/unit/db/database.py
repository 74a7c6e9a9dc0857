# SPDX-License-Identifier: Apache-2.0
"""A database in a file, with the tables that the migrations make."""

from oslo_db.sqlalchemy import enginefacade

from trove_ceph.db import migration


def facade(path):
    """Return the database in a file, which needs not be there."""
    made = enginefacade.transaction_context()
    # Nothing has to outlive the machine.
    made.configure(connection=f'sqlite:///{path}', max_retries=0, sqlite_synchronous=False)
    return made


def with_tables(path):
    """Return the database in a file, with all tables."""
    made = facade(path)
    migration.upgrade(made.writer.get_engine())
    return made
