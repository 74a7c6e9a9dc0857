# SPDX-License-Identifier: Apache-2.0
"""The volume type that the replication policy of a source names for its replicas."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0015'
down_revision = '0014'

_TABLE = 'trove_ceph_replication_policies'


def upgrade():
    schema_changes.ensure_columns(_TABLE, sa.Column('replica_volume_type', sa.String(255)))


def downgrade():
    schema_changes.drop_columns(_TABLE, 'replica_volume_type')
