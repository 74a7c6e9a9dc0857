# SPDX-License-Identifier: Apache-2.0
"""Why a failover was requested, and when it has begun to stop a MySQL that serves."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0013'
down_revision = '0012'

_TABLE = 'trove_ceph_replacements'


def upgrade():
    schema_changes.ensure_columns(
        _TABLE,
        sa.Column('cause', sa.String(16)),
        sa.Column('stop_requested_at', sa.DateTime),
    )


def downgrade():
    schema_changes.drop_columns(_TABLE, 'stop_requested_at', 'cause')
