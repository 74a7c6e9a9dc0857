# SPDX-License-Identifier: Apache-2.0
"""The environment of Alembic; trove_ceph.db.migration passes the connection."""

from alembic import context

from trove_ceph.db import tables


def _is_ours(name, kind, _parents):
    """Exclude Trove's tables, which are in the same database, from comparisons."""
    return kind != 'table' or name in tables.Base.metadata.tables


context.configure(
    connection=context.config.attributes['connection'],
    target_metadata=tables.Base.metadata,
    version_table=tables.VERSION_TABLE,
    include_name=_is_ours,
)
with context.begin_transaction():
    context.run_migrations()
