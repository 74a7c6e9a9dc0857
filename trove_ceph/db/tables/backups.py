# SPDX-License-Identifier: Apache-2.0
"""The tables of backups, of what outlives an instance, and of the jobs of backups."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph.db import backup_record
from trove_ceph.db.tables import base

_FIELDS = dataclasses.fields(backup_record.BackupRecord)


class BackupRow(base.Claimable, base.Base):
    """The record of a backup, beside Trove's row with the same id; it outlives the instance."""

    __tablename__ = 'trove_ceph_backups'
    __table_args__ = (
        sa.Index('ix_trove_ceph_backups_instance_id', 'instance_id'),
        sa.Index('ix_trove_ceph_backups_project_id', 'project_id'),
        sa.Index('ix_trove_ceph_backups_volume_id', 'volume_id'),
        sa.Index('ix_trove_ceph_backups_state', 'state'),
        sa.Index('ix_trove_ceph_backups_copy_wanted_at', 'copy_wanted_at'),
        sa.Index('ix_trove_ceph_backups_verify_wanted_at', 'verify_wanted_at'),
        sa.Index('ix_trove_ceph_backups_claim_token', 'claim_token'),
    )

    backup_id = orm.mapped_column(sa.String(36), primary_key=True)
    instance_id = orm.mapped_column(sa.String(36), nullable=False)
    project_id = orm.mapped_column(sa.String(255), nullable=False)
    parent_id = orm.mapped_column(sa.String(36))
    state = orm.mapped_column(sa.String(16), nullable=False)
    error = orm.mapped_column(base.Text)
    quiesce = orm.mapped_column(sa.String(16))
    quiesce_wanted = orm.mapped_column(sa.String(16))
    raised_from = orm.mapped_column(sa.String(16))
    raised_because = orm.mapped_column(base.Text)
    gtid_executed = orm.mapped_column(base.Text)
    size_bytes = orm.mapped_column(sa.BigInteger)
    used_bytes = orm.mapped_column(sa.BigInteger)
    filesystem_used_bytes = orm.mapped_column(sa.BigInteger)
    pool = orm.mapped_column(sa.String(255))
    image = orm.mapped_column(sa.String(255))
    snapshot = orm.mapped_column(sa.String(255))
    volume_id = orm.mapped_column(sa.String(36))
    cinder_snapshot_id = orm.mapped_column(sa.String(36))
    snapshot_at = orm.mapped_column(sa.DateTime)
    vault_pool = orm.mapped_column(sa.String(255))
    vault_image = orm.mapped_column(sa.String(255))
    vault_snapshot = orm.mapped_column(sa.String(255))
    copied_at = orm.mapped_column(sa.DateTime)
    moved_bytes = orm.mapped_column(sa.BigInteger)
    inherited_bytes = orm.mapped_column(sa.BigInteger)
    verified_at = orm.mapped_column(sa.DateTime)
    verification = orm.mapped_column(sa.JSON)
    take_sec = orm.mapped_column(sa.Float)
    snapshot_sec = orm.mapped_column(sa.Float)
    quiesced_sec = orm.mapped_column(sa.Float)
    copy_sec = orm.mapped_column(sa.Float)
    verify_sec = orm.mapped_column(sa.Float)
    copy_wanted_at = orm.mapped_column(sa.DateTime)
    verify_wanted_at = orm.mapped_column(sa.DateTime)
    copy_failures = orm.mapped_column(sa.Integer)
    copy_retry_at = orm.mapped_column(sa.DateTime)
    verify_failures = orm.mapped_column(sa.Integer)
    verify_retry_at = orm.mapped_column(sa.DateTime)
    delete_retry_at = orm.mapped_column(sa.DateTime)
    copy_error = orm.mapped_column(base.Text)
    verify_error = orm.mapped_column(base.Text)
    copy_base_id = orm.mapped_column(sa.String(36))
    copy_base_because = orm.mapped_column(base.Text)
    gtid_before = orm.mapped_column(base.Text)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)
    updated_at = orm.mapped_column(sa.DateTime, nullable=False)

    def set(self, values: Mapping[str, Any]) -> None:
        """Set several columns."""
        for name, value in values.items():
            setattr(self, name, value)

    def request(self, now: datetime.datetime, *, copy: bool, verify: bool) -> None:
        """Request a copy or a verification, unless it is requested already."""
        if copy:
            self.copy_wanted_at = self.copy_wanted_at or now
        if verify:
            self.verify_wanted_at = self.verify_wanted_at or now

    def as_model(self) -> backup_record.BackupRecord:
        """Return the row as a record."""
        values = {field.name: getattr(self, field.name) for field in _FIELDS}
        return backup_record.BackupRecord(
            **values | {'state': backup_record.RecordState(self.state)}
        )


class KeptVolumeRow(base.Base):
    """A volume whose instance is deleted; it is deleted when no backup needs it any more."""

    __tablename__ = 'trove_ceph_kept_volumes'

    volume_id = orm.mapped_column(sa.String(36), primary_key=True)
    instance_id = orm.mapped_column(sa.String(36), nullable=False)
    project_id = orm.mapped_column(sa.String(255), nullable=False)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)


class TrashedImageRow(base.Base):
    """An image in the trash of its pool: it is purged when its last clone is gone."""

    __tablename__ = 'trove_ceph_trashed_images'

    pool = orm.mapped_column(sa.String(191), primary_key=True)
    image_id = orm.mapped_column(sa.String(64), primary_key=True)
    name = orm.mapped_column(sa.String(255), nullable=False)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)


class JobStart(base.Base):
    """The start of a copy or a verification, from which turns and rates are computed."""

    __tablename__ = 'trove_ceph_job_starts'
    __table_args__ = (
        sa.Index('ix_trove_ceph_job_starts_started_at', 'started_at'),
        {'sqlite_autoincrement': True},
    )

    number = orm.mapped_column(sa.Integer, primary_key=True)
    project_id = orm.mapped_column(sa.String(255), nullable=False)
    backup_id = orm.mapped_column(sa.String(36), nullable=False)
    role = orm.mapped_column(base.RoleType, nullable=False)
    started_at = orm.mapped_column(sa.DateTime, nullable=False)
