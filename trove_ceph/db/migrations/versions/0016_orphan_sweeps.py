# SPDX-License-Identifier: Apache-2.0
"""The last sweep for orphans."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0016'
down_revision = '0015'

_TABLE = 'trove_ceph_orphan_sweeps'


def upgrade():
    schema_changes.ensure_table(
        _TABLE,
        sa.Column('name', sa.String(16), primary_key=True),
        sa.Column('ended_at', sa.DateTime, nullable=False),
        sa.Column('found', sa.JSON, nullable=False),
        sa.Column('removed', sa.JSON, nullable=False),
    )


def downgrade():
    schema_changes.drop_tables(_TABLE)
