# SPDX-License-Identifier: Apache-2.0
"""Warm guests, their pools and the requests for them."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from trove_ceph.db import schema_changes

revision = '0008'
down_revision = '0007'


def _text():
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade():
    schema_changes.ensure_table(
        'trove_ceph_guests',
        sa.Column('guest_id', sa.String(36), primary_key=True),
        sa.Column('pool', sa.String(191), nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('server_id', sa.String(36)),
        sa.Column('port_id', sa.String(36)),
        sa.Column('host', sa.String(255)),
        sa.Column('availability_zone', sa.String(255)),
        sa.Column('flavor_id', sa.String(255), nullable=False),
        sa.Column('image_id', sa.String(36), nullable=False),
        sa.Column('config_digest', sa.String(64), nullable=False),
        sa.Column('encrypted_key', _text(), nullable=False),
        sa.Column('instance_id', sa.String(36)),
        sa.Column('reason', _text()),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('updated_at', sa.DateTime, nullable=False),
        sa.Column('seen_at', sa.DateTime),
    )
    for column in ('pool', 'state'):
        schema_changes.ensure_index(f'ix_trove_ceph_guests_{column}', 'trove_ceph_guests', [column])
    schema_changes.ensure_table(
        'trove_ceph_guest_pools',
        sa.Column('pool', sa.String(191), primary_key=True),
        sa.Column('claim_role', sa.String(16)),
        sa.Column('claimed_by', sa.String(255)),
        sa.Column('claim_token', sa.String(32)),
        sa.Column('heartbeat_at', sa.DateTime),
    )
    schema_changes.ensure_table(
        'trove_ceph_guest_requests',
        sa.Column('id', sa.Integer, primary_key=True),
        sa.Column('pool', sa.String(191), nullable=False),
        sa.Column('requested_at', sa.DateTime, nullable=False),
        sa.Column('guest_id', sa.String(36)),
    )
    schema_changes.ensure_index(
        'ix_trove_ceph_guest_requests_requested_at', 'trove_ceph_guest_requests', ['requested_at']
    )


def downgrade():
    schema_changes.drop_tables(
        'trove_ceph_guest_requests', 'trove_ceph_guest_pools', 'trove_ceph_guests'
    )
