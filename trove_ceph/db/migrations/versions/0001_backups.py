# SPDX-License-Identifier: Apache-2.0
"""Backups, and volumes and images that outlive deleted instances."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from trove_ceph.db import schema_changes

revision = '0001'
down_revision = None


def _text():
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade():
    schema_changes.ensure_table(
        'trove_ceph_backups',
        sa.Column('backup_id', sa.String(36), primary_key=True),
        sa.Column('instance_id', sa.String(36), nullable=False),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('parent_id', sa.String(36)),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('error', _text()),
        sa.Column('quiesce', sa.String(16)),
        sa.Column('raised_from', sa.String(16)),
        sa.Column('raised_because', _text()),
        sa.Column('gtid_executed', _text()),
        sa.Column('size_bytes', sa.BigInteger),
        sa.Column('used_bytes', sa.BigInteger),
        sa.Column('pool', sa.String(255)),
        sa.Column('image', sa.String(255)),
        sa.Column('snapshot', sa.String(255)),
        sa.Column('volume_id', sa.String(36)),
        sa.Column('cinder_snapshot_id', sa.String(36)),
        sa.Column('snapshot_at', sa.DateTime),
        sa.Column('vault_pool', sa.String(255)),
        sa.Column('vault_image', sa.String(255)),
        sa.Column('vault_snapshot', sa.String(255)),
        sa.Column('copied_at', sa.DateTime),
        sa.Column('moved_bytes', sa.BigInteger),
        sa.Column('verified_at', sa.DateTime),
        sa.Column('verification', sa.JSON),
        sa.Column('take_sec', sa.Float),
        sa.Column('quiesced_sec', sa.Float),
        sa.Column('copy_sec', sa.Float),
        sa.Column('verify_sec', sa.Float),
        sa.Column('worker', sa.String(255)),
        sa.Column('seen_at', sa.DateTime),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('updated_at', sa.DateTime, nullable=False),
    )
    for column in ('instance_id', 'project_id', 'volume_id', 'state'):
        schema_changes.ensure_index(
            f'ix_trove_ceph_backups_{column}', 'trove_ceph_backups', [column]
        )
    schema_changes.ensure_table(
        'trove_ceph_kept_volumes',
        sa.Column('volume_id', sa.String(36), primary_key=True),
        sa.Column('instance_id', sa.String(36), nullable=False),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('created_at', sa.DateTime, nullable=False),
    )
    schema_changes.ensure_table(
        'trove_ceph_trashed_images',
        sa.Column('pool', sa.String(191), primary_key=True),
        sa.Column('image_id', sa.String(64), primary_key=True),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('created_at', sa.DateTime, nullable=False),
    )


def downgrade():
    schema_changes.drop_tables(
        'trove_ceph_trashed_images', 'trove_ceph_kept_volumes', 'trove_ceph_backups'
    )
