# SPDX-License-Identifier: Apache-2.0
"""What the deletion of a copy in the vault does not free."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0025'
down_revision = '0024'

_TABLE = 'trove_ceph_backups'


def upgrade():
    schema_changes.ensure_columns(_TABLE, sa.Column('inherited_bytes', sa.BigInteger))


def downgrade():
    schema_changes.drop_columns(_TABLE, 'inherited_bytes')
