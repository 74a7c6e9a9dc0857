# SPDX-License-Identifier: Apache-2.0
"""The own space of a replica before and after its last re-provisioning."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0014'
down_revision = '0013'

_TABLE = 'trove_ceph_replicas'


def upgrade():
    schema_changes.ensure_columns(
        _TABLE,
        sa.Column('former_own_bytes', sa.BigInteger),
        sa.Column('fresh_own_bytes', sa.BigInteger),
    )


def downgrade():
    schema_changes.drop_columns(_TABLE, 'fresh_own_bytes', 'former_own_bytes')
