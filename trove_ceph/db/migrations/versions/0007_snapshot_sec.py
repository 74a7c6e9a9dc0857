# SPDX-License-Identifier: Apache-2.0
"""The time from the start of a backup to its snapshot."""

import sqlalchemy as sa
from alembic import op

revision = '0007'
down_revision = '0006'


def upgrade():
    op.add_column('trove_ceph_backups', sa.Column('snapshot_sec', sa.Float))


def downgrade():
    with op.batch_alter_table('trove_ceph_backups') as batch:
        batch.drop_column('snapshot_sec')
