# SPDX-License-Identifier: Apache-2.0
"""How much of the file system was used when a backup was taken."""

import sqlalchemy as sa
from alembic import op

revision = '0005'
down_revision = '0004'


def upgrade():
    op.add_column('trove_ceph_backups', sa.Column('filesystem_used_bytes', sa.BigInteger))
