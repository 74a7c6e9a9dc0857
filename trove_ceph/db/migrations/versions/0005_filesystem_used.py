# SPDX-License-Identifier: Apache-2.0
"""Used bytes of the file system when a backup is taken."""

import sqlalchemy as sa
from alembic import op

revision = '0005'
down_revision = '0004'


def upgrade():
    op.add_column('trove_ceph_backups', sa.Column('filesystem_used_bytes', sa.BigInteger))


def downgrade():
    with op.batch_alter_table('trove_ceph_backups') as batch:
        batch.drop_column('filesystem_used_bytes')
