# SPDX-License-Identifier: Apache-2.0
"""When a taskmanager last had a pool of warm guests in its configuration."""

import sqlalchemy as sa
from alembic import op

revision = '0010'
down_revision = '0009'


def upgrade():
    op.add_column('trove_ceph_guest_pools', sa.Column('configured_at', sa.DateTime))


def downgrade():
    with op.batch_alter_table('trove_ceph_guest_pools') as batch:
        batch.drop_column('configured_at')
