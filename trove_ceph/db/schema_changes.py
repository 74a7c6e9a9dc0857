# SPDX-License-Identifier: Apache-2.0
"""The verbs of migrations: changes of tables that can be repeated.

MySQL commits each statement that changes a table by itself. So a migration that is killed leaves
some of its changes, and its next run begins with its first statement. Each verb here looks whether
its change is made already.
"""

import sqlalchemy as sa
from alembic import op


def ensure_table(name: str, *parts: sa.schema.SchemaItem, **options: bool) -> None:
    """Create a table; idempotent.

    :param parts: its columns and constraints
    :param options: of the dialect, such as ``sqlite_autoincrement``
    """
    if not _inspector().has_table(name):
        op.create_table(name, *parts, **options)


def ensure_columns(table: str, *columns: sa.Column) -> None:
    """Add columns to a table; idempotent."""
    for column in columns:
        if not has_column(table, column.name):
            op.add_column(table, column)


def ensure_not_null(table: str, column: sa.Column) -> None:
    """Forbid NULL in a column; idempotent.

    :param column: with its type, which stays
    """
    (found,) = (one for one in _inspector().get_columns(table) if one['name'] == column.name)
    if found['nullable']:
        with op.batch_alter_table(table) as batch:
            batch.alter_column(column.name, existing_type=column.type, nullable=False)


def ensure_index(name: str, table: str, columns: list[str]) -> None:
    """Create an index; idempotent."""
    if not _has_index(name, table):
        op.create_index(name, table, columns)


def drop_tables(*names: str) -> None:
    """Drop tables; idempotent."""
    for name in names:
        if _inspector().has_table(name):
            op.drop_table(name)


def drop_columns(table: str, *names: str) -> None:
    """Drop columns, in their order; idempotent."""
    present = [name for name in names if has_column(table, name)]
    if present:
        with op.batch_alter_table(table) as batch:
            for name in present:
                batch.drop_column(name)


def drop_index(name: str, table: str) -> None:
    """Drop an index; idempotent."""
    if _has_index(name, table):
        op.drop_index(name, table)


def has_column(table: str, name: str) -> bool:
    """Return whether a table has a column."""
    return any(column['name'] == name for column in _inspector().get_columns(table))


def _has_index(name: str, table: str) -> bool:
    return any(index['name'] == name for index in _inspector().get_indexes(table))


def _inspector() -> sa.Inspector:
    # A new one each time: it remembers what it has read.
    return sa.inspect(op.get_bind())
