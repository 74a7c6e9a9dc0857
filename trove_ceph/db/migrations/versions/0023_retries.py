# SPDX-License-Identifier: Apache-2.0
"""When a replacement or a re-provisioning that failed is attempted again, by any taskmanager."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0023'
down_revision = '0022'

_TABLES = ('trove_ceph_replacements', 'trove_ceph_replicas')


def upgrade():
    for table in _TABLES:
        schema_changes.ensure_columns(table, sa.Column('retry_at', sa.DateTime))


def downgrade():
    for table in _TABLES:
        schema_changes.drop_columns(table, 'retry_at')
