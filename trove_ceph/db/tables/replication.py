# SPDX-License-Identifier: Apache-2.0
"""The tables of replication."""

import dataclasses

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph.db import replica_record
from trove_ceph.db.tables import base

_REPLICA_FIELDS = dataclasses.fields(replica_record.ReplicaRecord)
_POLICY_FIELDS = dataclasses.fields(replica_record.ReplicationPolicy)


class ReplicaRow(base.Claimable, base.Base):
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
    reason = orm.mapped_column(base.Text)
    cause = orm.mapped_column(sa.String(16))
    error = orm.mapped_column(base.Text)
    step = orm.mapped_column(sa.String(255))
    attempts = orm.mapped_column(sa.Integer, nullable=False)
    retry_at = orm.mapped_column(sa.DateTime)
    new_volume_id = orm.mapped_column(sa.String(36))
    old_volume_id = orm.mapped_column(sa.String(36))
    new_cloned_at = orm.mapped_column(sa.DateTime)
    target_gtid = orm.mapped_column(base.Text)
    exchange_began_at = orm.mapped_column(sa.DateTime)
    answered_at = orm.mapped_column(sa.DateTime)
    failed_starts = orm.mapped_column(sa.Integer, nullable=False)
    task_before = orm.mapped_column(sa.String(32), nullable=False)
    requested_at = orm.mapped_column(sa.DateTime)
    ended_at = orm.mapped_column(sa.DateTime)
    failures = orm.mapped_column(sa.Integer, nullable=False)
    reprovisioned_at = orm.mapped_column(sa.DateTime)
    last_reason = orm.mapped_column(base.Text)
    last_cause = orm.mapped_column(sa.String(16))
    former_own_bytes = orm.mapped_column(sa.BigInteger)
    fresh_own_bytes = orm.mapped_column(sa.BigInteger)
    is_replicating = orm.mapped_column(sa.Boolean)
    lag_sec = orm.mapped_column(sa.Float)
    lag_transactions = orm.mapped_column(sa.BigInteger)
    errant = orm.mapped_column(base.Text)
    source_executed = orm.mapped_column(base.Text)
    replication_error = orm.mapped_column(base.Text)
    own_bytes = orm.mapped_column(sa.BigInteger)
    clone_depth = orm.mapped_column(sa.Integer)
    semi_sync_active = orm.mapped_column(sa.Boolean)
    has_surplus = orm.mapped_column(sa.Boolean)
    observed_at = orm.mapped_column(sa.DateTime)
    source_seen_at = orm.mapped_column(sa.DateTime)
    stopped_at = orm.mapped_column(sa.DateTime)

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


class ReplicationPolicyRow(base.Base):
    """The policy of a source, see :mod:`replica_record`."""

    __tablename__ = 'trove_ceph_replication_policies'

    instance_id = orm.mapped_column(sa.String(36), primary_key=True)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)
    updated_at = orm.mapped_column(sa.DateTime, nullable=False)
    semi_sync = orm.mapped_column(sa.Boolean, nullable=False)
    reprovision_every_hours = orm.mapped_column(sa.Integer)
    max_own_percent = orm.mapped_column(sa.Integer)
    max_lag_sec = orm.mapped_column(sa.Integer)
    replica_volume_type = orm.mapped_column(sa.String(255))

    def as_model(self) -> replica_record.ReplicationPolicy:
        """Return the row as a policy."""
        values = {field.name: getattr(self, field.name) for field in _POLICY_FIELDS}
        return replica_record.ReplicationPolicy(**values)


class ReplicationWatchRow(base.Claimable, base.Base):
    """The watch over all replicas: the only row, see :mod:`replication_watch`."""

    __tablename__ = 'trove_ceph_replication_watch'

    name = orm.mapped_column(sa.String(16), primary_key=True)


class SourceMarkRow(base.Base):
    """What is left to do on a source, see :mod:`source_marks`."""

    __tablename__ = 'trove_ceph_source_marks'

    instance_id = orm.mapped_column(sa.String(36), primary_key=True)
    mark = orm.mapped_column(sa.String(32), nullable=False)
    marked_at = orm.mapped_column(sa.DateTime, nullable=False)
