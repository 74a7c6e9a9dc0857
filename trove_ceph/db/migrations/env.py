# SPDX-License-Identifier: Apache-2.0
"""What alembic runs; trove_ceph.db.migration gives it the connection."""

from alembic import context

from trove_ceph.db import tables


def _is_ours(name, kind, _parents):
    """Keep Trove's tables, which are in the same database, out of comparisons."""
    return kind != 'table' or name in tables.Base.metadata.tables


context.configure(
    connection=context.config.attributes['connection'],
    target_metadata=tables.Base.metadata,
    version_table=tables.VERSION_TABLE,
    include_name=_is_ours,
)
with context.begin_transaction():
    context.run_migrations()
