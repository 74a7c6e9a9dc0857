# SPDX-License-Identifier: Apache-2.0
"""The tables, as SQLAlchemy knows them; :mod:`migration` makes them."""

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import mysql

#: Beside the version of Trove's own tables in the same database.
VERSION_TABLE = 'trove_ceph_alembic_version'

_Text = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


class Base(orm.DeclarativeBase):
    """All that ``trove-ceph-manage db sync`` makes."""


class Backup(Base):
    """One backup of ours, beside Trove's own row of the same id; it survives its instance."""

    __tablename__ = 'trove_ceph_backups'
    __table_args__ = (
        sa.Index('ix_trove_ceph_backups_instance_id', 'instance_id'),
        sa.Index('ix_trove_ceph_backups_project_id', 'project_id'),
        sa.Index('ix_trove_ceph_backups_volume_id', 'volume_id'),
        sa.Index('ix_trove_ceph_backups_state', 'state'),
        sa.Index('ix_trove_ceph_backups_copy_wanted_at', 'copy_wanted_at'),
        sa.Index('ix_trove_ceph_backups_verify_wanted_at', 'verify_wanted_at'),
    )

    backup_id = orm.mapped_column(sa.String(36), primary_key=True)
    instance_id = orm.mapped_column(sa.String(36), nullable=False)
    project_id = orm.mapped_column(sa.String(255), nullable=False)
    parent_id = orm.mapped_column(sa.String(36))
    state = orm.mapped_column(sa.String(16), nullable=False)
    error = orm.mapped_column(_Text)
    quiesce = orm.mapped_column(sa.String(16))
    raised_from = orm.mapped_column(sa.String(16))
    raised_because = orm.mapped_column(_Text)
    gtid_executed = orm.mapped_column(_Text)
    size_bytes = orm.mapped_column(sa.BigInteger)
    used_bytes = orm.mapped_column(sa.BigInteger)
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
    verified_at = orm.mapped_column(sa.DateTime)
    verification = orm.mapped_column(sa.JSON)
    take_sec = orm.mapped_column(sa.Float)
    quiesced_sec = orm.mapped_column(sa.Float)
    copy_sec = orm.mapped_column(sa.Float)
    verify_sec = orm.mapped_column(sa.Float)
    worker = orm.mapped_column(sa.String(255))
    seen_at = orm.mapped_column(sa.DateTime)
    copy_wanted_at = orm.mapped_column(sa.DateTime)
    verify_wanted_at = orm.mapped_column(sa.DateTime)
    failures = orm.mapped_column(sa.Integer)
    retry_at = orm.mapped_column(sa.DateTime)
    copy_error = orm.mapped_column(_Text)
    verify_error = orm.mapped_column(_Text)
    copy_base_id = orm.mapped_column(sa.String(36))
    copy_base_because = orm.mapped_column(_Text)
    gtid_before = orm.mapped_column(_Text)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)
    updated_at = orm.mapped_column(sa.DateTime, nullable=False)


class KeptVolume(Base):
    """A volume whose instance goes or is gone: it is deleted when nothing needs it any more."""

    __tablename__ = 'trove_ceph_kept_volumes'

    volume_id = orm.mapped_column(sa.String(36), primary_key=True)
    instance_id = orm.mapped_column(sa.String(36), nullable=False)
    project_id = orm.mapped_column(sa.String(255), nullable=False)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)


class TrashedImage(Base):
    """An image in the trash of its pool: it is purged when its last clone is gone."""

    __tablename__ = 'trove_ceph_trashed_images'

    pool = orm.mapped_column(sa.String(191), primary_key=True)
    image_id = orm.mapped_column(sa.String(64), primary_key=True)
    name = orm.mapped_column(sa.String(255), nullable=False)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)
