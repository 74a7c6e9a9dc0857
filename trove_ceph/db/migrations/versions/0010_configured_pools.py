# SPDX-License-Identifier: Apache-2.0
"""When a taskmanager last had a pool of warm guests in its configuration."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0010'
down_revision = '0009'


def upgrade():
    schema_changes.ensure_columns('trove_ceph_guest_pools', sa.Column('configured_at', sa.DateTime))


def downgrade():
    schema_changes.drop_columns('trove_ceph_guest_pools', 'configured_at')
