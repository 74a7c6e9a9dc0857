# SPDX-License-Identifier: Apache-2.0
"""The own space of a replica before and after its last re-provisioning."""

import sqlalchemy as sa
from alembic import op

revision = '0014'
down_revision = '0013'

_TABLE = 'trove_ceph_replicas'


def upgrade():
    op.add_column(_TABLE, sa.Column('former_own_bytes', sa.BigInteger))
    op.add_column(_TABLE, sa.Column('fresh_own_bytes', sa.BigInteger))


def downgrade():
    with op.batch_alter_table(_TABLE) as batch:
        for name in ('fresh_own_bytes', 'former_own_bytes'):
            batch.drop_column(name)
