# SPDX-License-Identifier: Apache-2.0
"""Why a failover was requested, and when it has begun to stop a MySQL that serves."""

import sqlalchemy as sa
from alembic import op

revision = '0013'
down_revision = '0012'

_TABLE = 'trove_ceph_replacements'


def upgrade():
    op.add_column(_TABLE, sa.Column('cause', sa.String(16)))
    op.add_column(_TABLE, sa.Column('stop_requested_at', sa.DateTime))


def downgrade():
    with op.batch_alter_table(_TABLE) as batch:
        for name in ('stop_requested_at', 'cause'):
            batch.drop_column(name)
