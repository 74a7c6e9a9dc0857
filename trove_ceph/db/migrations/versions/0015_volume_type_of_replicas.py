# SPDX-License-Identifier: Apache-2.0
"""The volume type that the replication policy of a source names for its replicas."""

import sqlalchemy as sa
from alembic import op

revision = '0015'
down_revision = '0014'

_TABLE = 'trove_ceph_replication_policies'


def upgrade():
    op.add_column(_TABLE, sa.Column('replica_volume_type', sa.String(255)))


def downgrade():
    with op.batch_alter_table(_TABLE) as batch:
        batch.drop_column('replica_volume_type')
