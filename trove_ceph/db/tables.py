# SPDX-License-Identifier: Apache-2.0
"""The tables as SQLAlchemy models; :mod:`migration` creates them."""

import dataclasses
import datetime
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import mysql

from trove_ceph.db import (
    backup_record,
    failover_record,
    guest_record,
    replacement_record,
    replica_record,
)
from trove_ceph.db.policy_record import Scope
from trove_ceph.db.roles import Role

#: Unlike the version table of Trove, which is in the same database.
VERSION_TABLE = 'trove_ceph_alembic_version'

_FIELDS = dataclasses.fields(backup_record.BackupRecord)
_GUEST_FIELDS = dataclasses.fields(guest_record.GuestRecord)
_REPLACEMENT_FIELDS = dataclasses.fields(replacement_record.ReplacementRecord)
_FAILOVER_POLICY_FIELDS = dataclasses.fields(failover_record.FailoverPolicy)
_FAILOVER_WATCH_FIELDS = dataclasses.fields(failover_record.FailoverWatch)
_REPLICA_FIELDS = dataclasses.fields(replica_record.ReplicaRecord)
_REPLICATION_POLICY_FIELDS = dataclasses.fields(replica_record.ReplicationPolicy)
_Text = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


_Role = sa.Enum(
    Role,
    native_enum=False,
    create_constraint=False,
    length=16,
    values_callable=lambda roles: [str(role) for role in roles],
)


class Base(orm.DeclarativeBase):
    """The tables that ``trove-ceph-manage db sync`` creates."""


class Claimable:
    """Columns of a row that one worker at a time can claim, see :mod:`claims`."""

    claim_role: orm.Mapped[Any] = orm.mapped_column(_Role, nullable=True)
    claimed_by: orm.Mapped[Any] = orm.mapped_column(sa.String(255), nullable=True)
    claim_token: orm.Mapped[Any] = orm.mapped_column(sa.String(32), nullable=True)
    heartbeat_at: orm.Mapped[Any] = orm.mapped_column(sa.DateTime, nullable=True)


class BackupRow(Claimable, Base):
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
    error = orm.mapped_column(_Text)
    quiesce = orm.mapped_column(sa.String(16))
    quiesce_wanted = orm.mapped_column(sa.String(16))
    raised_from = orm.mapped_column(sa.String(16))
    raised_because = orm.mapped_column(_Text)
    gtid_executed = orm.mapped_column(_Text)
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
    copy_error = orm.mapped_column(_Text)
    verify_error = orm.mapped_column(_Text)
    copy_base_id = orm.mapped_column(sa.String(36))
    copy_base_because = orm.mapped_column(_Text)
    gtid_before = orm.mapped_column(_Text)
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


class KeptVolumeRow(Base):
    """A volume whose instance is deleted; it is deleted when no backup needs it any more."""

    __tablename__ = 'trove_ceph_kept_volumes'

    volume_id = orm.mapped_column(sa.String(36), primary_key=True)
    instance_id = orm.mapped_column(sa.String(36), nullable=False)
    project_id = orm.mapped_column(sa.String(255), nullable=False)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)


class TrashedImageRow(Base):
    """An image in the trash of its pool: it is purged when its last clone is gone."""

    __tablename__ = 'trove_ceph_trashed_images'

    pool = orm.mapped_column(sa.String(191), primary_key=True)
    image_id = orm.mapped_column(sa.String(64), primary_key=True)
    name = orm.mapped_column(sa.String(255), nullable=False)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)


class BackupPolicyRow(Base):
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


class JobStart(Base):
    """The start of a copy or a verification, from which turns and rates are computed."""

    __tablename__ = 'trove_ceph_job_starts'
    __table_args__ = (
        sa.Index('ix_trove_ceph_job_starts_started_at', 'started_at'),
        {'sqlite_autoincrement': True},
    )

    number = orm.mapped_column(sa.Integer, primary_key=True)
    project_id = orm.mapped_column(sa.String(255), nullable=False)
    backup_id = orm.mapped_column(sa.String(36), nullable=False)
    role = orm.mapped_column(_Role, nullable=False)
    started_at = orm.mapped_column(sa.DateTime, nullable=False)


class PolicyRunRow(Claimable, Base):
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


class InstanceOperationRow(Claimable, Base):
    """An instance that is being created or deleted, see :mod:`instance_operations`."""

    __tablename__ = 'trove_ceph_instance_operations'

    instance_id = orm.mapped_column(sa.String(36), primary_key=True)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)


class PolicyBackupRow(Base):
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


class GuestRow(Base):
    """A warm guest, see :mod:`guest_record`."""

    __tablename__ = 'trove_ceph_guests'
    __table_args__ = (
        sa.Index('ix_trove_ceph_guests_pool', 'pool'),
        sa.Index('ix_trove_ceph_guests_state', 'state'),
    )

    guest_id = orm.mapped_column(sa.String(36), primary_key=True)
    pool = orm.mapped_column(sa.String(191), nullable=False)
    state = orm.mapped_column(sa.String(16), nullable=False)
    server_id = orm.mapped_column(sa.String(36))
    port_id = orm.mapped_column(sa.String(36))
    host = orm.mapped_column(sa.String(255))
    availability_zone = orm.mapped_column(sa.String(255))
    flavor_id = orm.mapped_column(sa.String(255), nullable=False)
    image_id = orm.mapped_column(sa.String(36), nullable=False)
    config_digest = orm.mapped_column(sa.String(64), nullable=False)
    encrypted_key = orm.mapped_column(_Text, nullable=False)
    instance_id = orm.mapped_column(sa.String(36))
    reason = orm.mapped_column(_Text)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)
    updated_at = orm.mapped_column(sa.DateTime, nullable=False)
    seen_at = orm.mapped_column(sa.DateTime)

    def as_model(self) -> guest_record.GuestRecord:
        """Return the row as a record."""
        values = {field.name: getattr(self, field.name) for field in _GUEST_FIELDS}
        return guest_record.GuestRecord(**values | {'state': guest_record.GuestState(self.state)})


class GuestPoolRow(Claimable, Base):
    """A pool of warm guests, which one taskmanager at a time keeps."""

    __tablename__ = 'trove_ceph_guest_pools'

    pool = orm.mapped_column(sa.String(191), primary_key=True)
    configured_at = orm.mapped_column(sa.DateTime)


class GuestRequestRow(Base):
    """The request of an instance's creation for a warm guest; without a guest, it was refused."""

    __tablename__ = 'trove_ceph_guest_requests'
    __table_args__ = (sa.Index('ix_trove_ceph_guest_requests_requested_at', 'requested_at'),)

    id = orm.mapped_column(sa.Integer, primary_key=True)
    pool = orm.mapped_column(sa.String(191), nullable=False)
    requested_at = orm.mapped_column(sa.DateTime, nullable=False)
    guest_id = orm.mapped_column(sa.String(36))


class ReplacementRow(Claimable, Base):
    """The replacement of an instance's server, see :mod:`replacement_record`.

    ``open_instance_id`` is the id of the instance until the replacement ends, so that an instance
    has one open replacement at most. ``task_before`` is the task of the instance to which it
    returns if nothing was changed.
    """

    __tablename__ = 'trove_ceph_replacements'
    __table_args__ = (
        sa.UniqueConstraint('open_instance_id', name='uq_trove_ceph_replacements_open'),
        sa.Index('ix_trove_ceph_replacements_instance_id', 'instance_id'),
        sa.Index('ix_trove_ceph_replacements_project_id', 'project_id'),
        sa.Index('ix_trove_ceph_replacements_ended_at', 'ended_at'),
    )

    replacement_id = orm.mapped_column(sa.String(36), primary_key=True)
    open_instance_id = orm.mapped_column(sa.String(36))
    instance_id = orm.mapped_column(sa.String(36), nullable=False)
    project_id = orm.mapped_column(sa.String(255), nullable=False)
    kind = orm.mapped_column(sa.String(16), nullable=False)
    state = orm.mapped_column(sa.String(16), nullable=False)
    requested_by = orm.mapped_column(sa.String(16), nullable=False)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)
    updated_at = orm.mapped_column(sa.DateTime, nullable=False)
    task_before = orm.mapped_column(sa.String(32), nullable=False)
    reason = orm.mapped_column(_Text, nullable=False)
    is_forced = orm.mapped_column(sa.Boolean, nullable=False)
    flavor_id = orm.mapped_column(sa.String(255))
    version_id = orm.mapped_column(sa.String(36))
    step = orm.mapped_column(sa.String(255))
    error = orm.mapped_column(_Text)
    attempts = orm.mapped_column(sa.Integer, nullable=False)
    volume_id = orm.mapped_column(sa.String(36))
    old_server_id = orm.mapped_column(sa.String(36))
    old_host = orm.mapped_column(sa.String(255))
    availability_zone = orm.mapped_column(sa.String(255))
    image_id = orm.mapped_column(sa.String(36))
    port_ids = orm.mapped_column(sa.JSON, nullable=False)
    old_management_port_ids = orm.mapped_column(sa.JSON, nullable=False)
    guest_id = orm.mapped_column(sa.String(36))
    new_server_id = orm.mapped_column(sa.String(36))
    new_host = orm.mapped_column(sa.String(255))
    new_management_port_id = orm.mapped_column(sa.String(36))
    chosen_at = orm.mapped_column(sa.DateTime)
    fenced_at = orm.mapped_column(sa.DateTime)
    moved_at = orm.mapped_column(sa.DateTime)
    answered_at = orm.mapped_column(sa.DateTime)
    failed_starts = orm.mapped_column(sa.Integer, nullable=False)
    ended_at = orm.mapped_column(sa.DateTime)
    given_up_because = orm.mapped_column(_Text)

    def as_model(self) -> replacement_record.ReplacementRecord:
        """Return the row as a record."""
        values = {field.name: getattr(self, field.name) for field in _REPLACEMENT_FIELDS}
        return replacement_record.ReplacementRecord(
            **values
            | {
                'kind': replacement_record.ReplacementKind(self.kind),
                'state': replacement_record.ReplacementState(self.state),
                'requested_by': replacement_record.RequestedBy(self.requested_by),
                'port_ids': tuple(self.port_ids),
                'old_management_port_ids': tuple(self.old_management_port_ids),
            }
        )


class FailoverPolicyRow(Base):
    """A failover policy, see :mod:`failover_record`."""

    __tablename__ = 'trove_ceph_failover_policies'
    __table_args__ = (
        sa.UniqueConstraint('scope', 'target', name='uq_trove_ceph_failover_policies_target'),
    )

    policy_id = orm.mapped_column(sa.String(36), primary_key=True)
    scope = orm.mapped_column(sa.String(16), nullable=False)
    target = orm.mapped_column(sa.String(255), nullable=False)
    project_id = orm.mapped_column(sa.String(255))
    enabled = orm.mapped_column(sa.Boolean, nullable=False)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)
    updated_at = orm.mapped_column(sa.DateTime, nullable=False)

    def as_model(self) -> failover_record.FailoverPolicy:
        """Return the row as a policy."""
        values = {field.name: getattr(self, field.name) for field in _FAILOVER_POLICY_FIELDS}
        return failover_record.FailoverPolicy(**values | {'scope': Scope(self.scope)})


class FailoverWatchRow(Claimable, Base):
    """The watch over all databases: the only row, see :mod:`failover_watch`."""

    __tablename__ = 'trove_ceph_failover_watch'

    name = orm.mapped_column(sa.String(16), primary_key=True)
    maintenance = orm.mapped_column(_Text)
    maintenance_since = orm.mapped_column(sa.DateTime)
    report = orm.mapped_column(sa.JSON)
    reported_at = orm.mapped_column(sa.DateTime)

    def as_model(self) -> failover_record.FailoverWatch:
        """Return the row as a record."""
        values = {field.name: getattr(self, field.name) for field in _FAILOVER_WATCH_FIELDS}
        return failover_record.FailoverWatch(**values)


class ReplicaRow(Claimable, Base):
    """A replica, see :mod:`replica_record`."""

    __tablename__ = 'trove_ceph_replicas'
    __table_args__ = (
        sa.Index('ix_trove_ceph_replicas_project_id', 'project_id'),
        sa.Index('ix_trove_ceph_replicas_source_id', 'source_id'),
        sa.Index('ix_trove_ceph_replicas_state', 'state'),
    )

    instance_id = orm.mapped_column(sa.String(36), primary_key=True)
    project_id = orm.mapped_column(sa.String(255), nullable=False)
    source_id = orm.mapped_column(sa.String(36), nullable=False)
    state = orm.mapped_column(sa.String(16), nullable=False)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)
    updated_at = orm.mapped_column(sa.DateTime, nullable=False)
    volume_id = orm.mapped_column(sa.String(36))
    cloned_at = orm.mapped_column(sa.DateTime)
    request_id = orm.mapped_column(sa.String(36))
    requested_by = orm.mapped_column(sa.String(16))
    reason = orm.mapped_column(_Text)
    cause = orm.mapped_column(sa.String(16))
    error = orm.mapped_column(_Text)
    step = orm.mapped_column(sa.String(255))
    attempts = orm.mapped_column(sa.Integer, nullable=False)
    new_volume_id = orm.mapped_column(sa.String(36))
    old_volume_id = orm.mapped_column(sa.String(36))
    new_cloned_at = orm.mapped_column(sa.DateTime)
    target_gtid = orm.mapped_column(_Text)
    exchange_began_at = orm.mapped_column(sa.DateTime)
    answered_at = orm.mapped_column(sa.DateTime)
    failed_starts = orm.mapped_column(sa.Integer, nullable=False)
    task_before = orm.mapped_column(sa.String(32), nullable=False)
    requested_at = orm.mapped_column(sa.DateTime)
    ended_at = orm.mapped_column(sa.DateTime)
    failures = orm.mapped_column(sa.Integer, nullable=False)
    reprovisioned_at = orm.mapped_column(sa.DateTime)
    last_reason = orm.mapped_column(_Text)
    last_cause = orm.mapped_column(sa.String(16))
    is_replicating = orm.mapped_column(sa.Boolean)
    lag_sec = orm.mapped_column(sa.Float)
    lag_transactions = orm.mapped_column(sa.BigInteger)
    errant = orm.mapped_column(_Text)
    source_executed = orm.mapped_column(_Text)
    replication_error = orm.mapped_column(_Text)
    own_bytes = orm.mapped_column(sa.BigInteger)
    clone_depth = orm.mapped_column(sa.Integer)
    observed_at = orm.mapped_column(sa.DateTime)

    def as_model(self) -> replica_record.ReplicaRecord:
        """Return the row as a record."""
        values = {field.name: getattr(self, field.name) for field in _REPLICA_FIELDS}
        kinds = {
            'state': replica_record.ReplicaState,
            'requested_by': replica_record.Requester,
            'cause': replica_record.Cause,
            'last_cause': replica_record.Cause,
        }
        for name, kind in kinds.items():
            values[name] = None if values[name] is None else kind(values[name])
        return replica_record.ReplicaRecord(**values)


class ReplicationPolicyRow(Base):
    """The policy of a source, see :mod:`replica_record`."""

    __tablename__ = 'trove_ceph_replication_policies'

    instance_id = orm.mapped_column(sa.String(36), primary_key=True)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)
    updated_at = orm.mapped_column(sa.DateTime, nullable=False)
    semi_sync = orm.mapped_column(sa.Boolean, nullable=False)
    reprovision_every_hours = orm.mapped_column(sa.Integer)
    max_own_percent = orm.mapped_column(sa.Integer)
    max_lag_sec = orm.mapped_column(sa.Integer)

    def as_model(self) -> replica_record.ReplicationPolicy:
        """Return the row as a policy."""
        values = {field.name: getattr(self, field.name) for field in _REPLICATION_POLICY_FIELDS}
        return replica_record.ReplicationPolicy(**values)


class ReplicationWatchRow(Claimable, Base):
    """The watch over all replicas: the only row, see :mod:`replication_watch`."""

    __tablename__ = 'trove_ceph_replication_watch'

    name = orm.mapped_column(sa.String(16), primary_key=True)
