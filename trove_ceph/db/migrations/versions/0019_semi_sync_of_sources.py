# SPDX-License-Identifier: Apache-2.0
"""Whether the commits of the source of a replica wait for a replica."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0019'
down_revision = '0018'

_TABLE = 'trove_ceph_replicas'


def upgrade():
    schema_changes.ensure_columns(_TABLE, sa.Column('semi_sync_active', sa.Boolean))


def downgrade():
    schema_changes.drop_columns(_TABLE, 'semi_sync_active')
