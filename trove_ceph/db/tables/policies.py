# SPDX-License-Identifier: Apache-2.0
"""The tables of backup policies, of their runs and of their backups."""

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph.db.tables import base


class BackupPolicyRow(base.Base):
    """A backup policy: schedule, target and retention."""

    __tablename__ = 'trove_ceph_backup_policies'
    __table_args__ = (
        sa.UniqueConstraint('scope', 'target', name='uq_trove_ceph_backup_policies_target'),
    )

    policy_id = orm.mapped_column(sa.String(36), primary_key=True)
    name = orm.mapped_column(sa.String(64), nullable=False)
    scope = orm.mapped_column(sa.String(16), nullable=False)
    target = orm.mapped_column(sa.String(255), nullable=False)
    project_id = orm.mapped_column(sa.String(255))
    enabled = orm.mapped_column(sa.Boolean, nullable=False)
    interval_min = orm.mapped_column(sa.Integer, nullable=False)
    at = orm.mapped_column(sa.String(5))
    timezone = orm.mapped_column(sa.String(64), nullable=False)
    keep_last = orm.mapped_column(sa.Integer, nullable=False)
    keep_hourly = orm.mapped_column(sa.Integer, nullable=False)
    keep_daily = orm.mapped_column(sa.Integer, nullable=False)
    keep_weekly = orm.mapped_column(sa.Integer, nullable=False)
    keep_monthly = orm.mapped_column(sa.Integer, nullable=False)
    copy_every = orm.mapped_column(sa.Integer, nullable=False)
    verify_every = orm.mapped_column(sa.Integer, nullable=False)
    quiesce = orm.mapped_column(sa.String(16))
    run_wanted_at = orm.mapped_column(sa.DateTime)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)
    updated_at = orm.mapped_column(sa.DateTime, nullable=False)


class PolicyRunRow(base.Claimable, base.Base):
    """The last run of a policy for one instance; a change must name its backup."""

    __tablename__ = 'trove_ceph_policy_runs'

    instance_id = orm.mapped_column(sa.String(36), primary_key=True)
    policy_id = orm.mapped_column(sa.String(36), nullable=False)
    state = orm.mapped_column(sa.String(16), nullable=False)
    due_at = orm.mapped_column(sa.DateTime, nullable=False)
    backup_name = orm.mapped_column(sa.String(255), nullable=False)
    backup_id = orm.mapped_column(sa.String(36))
    attempts = orm.mapped_column(sa.Integer, nullable=False)
    retry_at = orm.mapped_column(sa.DateTime)
    error = orm.mapped_column(sa.Text)
    count = orm.mapped_column(sa.Integer, nullable=False)


class PolicyBackupRow(base.Base):
    """A backup that a policy requested; retention ignores backups without such a row."""

    __tablename__ = 'trove_ceph_policy_backups'
    __table_args__ = (
        sa.UniqueConstraint('backup_id', name='uq_trove_ceph_policy_backups_backup_id'),
        sa.Index('ix_trove_ceph_policy_backups_instance_id', 'instance_id'),
        {'sqlite_autoincrement': True},
    )

    number = orm.mapped_column(sa.Integer, primary_key=True)
    backup_id = orm.mapped_column(sa.String(36), nullable=False)
    instance_id = orm.mapped_column(sa.String(36), nullable=False)
    policy_id = orm.mapped_column(sa.String(36), nullable=False)
    taken_at = orm.mapped_column(sa.DateTime, nullable=False)
    removal_wanted_at = orm.mapped_column(sa.DateTime)
