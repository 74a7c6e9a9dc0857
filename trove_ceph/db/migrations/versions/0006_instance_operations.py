# SPDX-License-Identifier: Apache-2.0
"""Claims on instances that are being created or deleted."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0006'
down_revision = '0005'


def upgrade():
    schema_changes.ensure_table(
        'trove_ceph_instance_operations',
        sa.Column('instance_id', sa.String(36), primary_key=True),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('claim_role', sa.String(16)),
        sa.Column('claimed_by', sa.String(255)),
        sa.Column('claim_token', sa.String(32)),
        sa.Column('heartbeat_at', sa.DateTime),
    )


def downgrade():
    schema_changes.drop_tables('trove_ceph_instance_operations')
