# SPDX-License-Identifier: Apache-2.0
"""Failover policies, and the watch over all databases."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from trove_ceph.db import schema_changes

revision = '0011'
down_revision = '0010'


def upgrade():
    schema_changes.ensure_table(
        'trove_ceph_failover_policies',
        sa.Column('policy_id', sa.String(36), primary_key=True),
        sa.Column('scope', sa.String(16), nullable=False),
        sa.Column('target', sa.String(255), nullable=False),
        sa.Column('project_id', sa.String(255)),
        sa.Column('enabled', sa.Boolean, nullable=False),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('updated_at', sa.DateTime, nullable=False),
        sa.UniqueConstraint('scope', 'target', name='uq_trove_ceph_failover_policies_target'),
    )
    schema_changes.ensure_table(
        'trove_ceph_failover_watch',
        sa.Column('name', sa.String(16), primary_key=True),
        sa.Column('claim_role', sa.String(16)),
        sa.Column('claimed_by', sa.String(255)),
        sa.Column('claim_token', sa.String(32)),
        sa.Column('heartbeat_at', sa.DateTime),
        sa.Column('maintenance', sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')),
        sa.Column('maintenance_since', sa.DateTime),
        sa.Column('report', sa.JSON),
        sa.Column('reported_at', sa.DateTime),
    )


def downgrade():
    schema_changes.drop_tables('trove_ceph_failover_watch', 'trove_ceph_failover_policies')
