# SPDX-License-Identifier: Apache-2.0
"""Replicas, the policies of their sources, and the watch over them."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from trove_ceph.db import schema_changes

revision = '0012'
down_revision = '0011'

_TABLE = 'trove_ceph_replicas'


def _text():
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def _claim():
    return (
        sa.Column('claim_role', sa.String(16)),
        sa.Column('claimed_by', sa.String(255)),
        sa.Column('claim_token', sa.String(32)),
        sa.Column('heartbeat_at', sa.DateTime),
    )


def upgrade():
    schema_changes.ensure_table(
        _TABLE,
        sa.Column('instance_id', sa.String(36), primary_key=True),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('source_id', sa.String(36), nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('updated_at', sa.DateTime, nullable=False),
        sa.Column('volume_id', sa.String(36)),
        sa.Column('cloned_at', sa.DateTime),
        sa.Column('request_id', sa.String(36)),
        sa.Column('requested_by', sa.String(16)),
        sa.Column('reason', _text()),
        sa.Column('cause', sa.String(16)),
        sa.Column('error', _text()),
        sa.Column('step', sa.String(255)),
        sa.Column('attempts', sa.Integer, nullable=False),
        sa.Column('new_volume_id', sa.String(36)),
        sa.Column('old_volume_id', sa.String(36)),
        sa.Column('new_cloned_at', sa.DateTime),
        sa.Column('target_gtid', _text()),
        sa.Column('exchange_began_at', sa.DateTime),
        sa.Column('answered_at', sa.DateTime),
        sa.Column('failed_starts', sa.Integer, nullable=False),
        sa.Column('task_before', sa.String(32), nullable=False),
        sa.Column('requested_at', sa.DateTime),
        sa.Column('ended_at', sa.DateTime),
        sa.Column('failures', sa.Integer, nullable=False),
        sa.Column('reprovisioned_at', sa.DateTime),
        sa.Column('last_reason', _text()),
        sa.Column('last_cause', sa.String(16)),
        sa.Column('is_replicating', sa.Boolean),
        sa.Column('lag_sec', sa.Float),
        sa.Column('lag_transactions', sa.BigInteger),
        sa.Column('errant', _text()),
        sa.Column('source_executed', _text()),
        sa.Column('replication_error', _text()),
        sa.Column('own_bytes', sa.BigInteger),
        sa.Column('clone_depth', sa.Integer),
        sa.Column('observed_at', sa.DateTime),
        *_claim(),
    )
    for column in ('project_id', 'source_id', 'state'):
        schema_changes.ensure_index(f'ix_{_TABLE}_{column}', _TABLE, [column])
    schema_changes.ensure_table(
        'trove_ceph_replication_policies',
        sa.Column('instance_id', sa.String(36), primary_key=True),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('updated_at', sa.DateTime, nullable=False),
        sa.Column('semi_sync', sa.Boolean, nullable=False),
        sa.Column('reprovision_every_hours', sa.Integer),
        sa.Column('max_own_percent', sa.Integer),
        sa.Column('max_lag_sec', sa.Integer),
    )
    schema_changes.ensure_table(
        'trove_ceph_replication_watch',
        sa.Column('name', sa.String(16), primary_key=True),
        *_claim(),
    )


def downgrade():
    schema_changes.drop_tables(
        'trove_ceph_replication_watch', 'trove_ceph_replication_policies', _TABLE
    )
