# SPDX-License-Identifier: Apache-2.0
"""Backup policies, their last runs and their backups."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0003'
down_revision = '0002'


def upgrade():
    schema_changes.ensure_columns('trove_ceph_backups', sa.Column('quiesce_wanted', sa.String(16)))
    schema_changes.ensure_table(
        'trove_ceph_backup_policies',
        sa.Column('policy_id', sa.String(36), primary_key=True),
        sa.Column('name', sa.String(64), nullable=False),
        sa.Column('scope', sa.String(16), nullable=False),
        sa.Column('target', sa.String(255), nullable=False),
        sa.Column('project_id', sa.String(255)),
        sa.Column('enabled', sa.Boolean, nullable=False),
        sa.Column('interval_min', sa.Integer, nullable=False),
        sa.Column('at', sa.String(5)),
        sa.Column('timezone', sa.String(64), nullable=False),
        sa.Column('keep_last', sa.Integer, nullable=False),
        sa.Column('keep_hourly', sa.Integer, nullable=False),
        sa.Column('keep_daily', sa.Integer, nullable=False),
        sa.Column('keep_weekly', sa.Integer, nullable=False),
        sa.Column('keep_monthly', sa.Integer, nullable=False),
        sa.Column('copy_every', sa.Integer, nullable=False),
        sa.Column('verify_every', sa.Integer, nullable=False),
        sa.Column('quiesce', sa.String(16)),
        sa.Column('run_wanted_at', sa.DateTime),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('updated_at', sa.DateTime, nullable=False),
        sa.UniqueConstraint('scope', 'target', name='uq_trove_ceph_backup_policies_target'),
    )
    schema_changes.ensure_table(
        'trove_ceph_policy_runs',
        sa.Column('instance_id', sa.String(36), primary_key=True),
        sa.Column('policy_id', sa.String(36), nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('due_at', sa.DateTime, nullable=False),
        sa.Column('backup_name', sa.String(255), nullable=False),
        sa.Column('backup_id', sa.String(36)),
        sa.Column('attempts', sa.Integer, nullable=False),
        sa.Column('retry_at', sa.DateTime),
        sa.Column('error', sa.Text),
        sa.Column('count', sa.Integer, nullable=False),
        sa.Column('seen_at', sa.DateTime, nullable=False),
    )
    schema_changes.ensure_table(
        'trove_ceph_policy_backups',
        sa.Column('number', sa.Integer, primary_key=True),
        sa.Column('backup_id', sa.String(36), nullable=False),
        sa.Column('instance_id', sa.String(36), nullable=False),
        sa.Column('policy_id', sa.String(36), nullable=False),
        sa.Column('taken_at', sa.DateTime, nullable=False),
        sa.Column('removal_wanted_at', sa.DateTime),
        sa.UniqueConstraint('backup_id', name='uq_trove_ceph_policy_backups_backup_id'),
        # A number is never used again, not even that of the last row.
        sqlite_autoincrement=True,
    )
    schema_changes.ensure_index(
        'ix_trove_ceph_policy_backups_instance_id', 'trove_ceph_policy_backups', ['instance_id']
    )


def downgrade():
    schema_changes.drop_tables(
        'trove_ceph_policy_backups',
        'trove_ceph_policy_runs',
        'trove_ceph_backup_policies',
    )
    schema_changes.drop_columns('trove_ceph_backups', 'quiesce_wanted')
