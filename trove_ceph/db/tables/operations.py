# SPDX-License-Identifier: Apache-2.0
"""The tables of operations on instances: replacements of servers, creations and deletions."""

import dataclasses

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph.db import replacement_record
from trove_ceph.db.tables import base

_FIELDS = dataclasses.fields(replacement_record.ReplacementRecord)


class InstanceOperationRow(base.Claimable, base.Base):
    """An instance that is being created or deleted, see :mod:`instance_operations`."""

    __tablename__ = 'trove_ceph_instance_operations'

    instance_id = orm.mapped_column(sa.String(36), primary_key=True)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)


class ReplacementRow(base.Claimable, base.Base):
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
    reason = orm.mapped_column(base.Text, nullable=False)
    is_forced = orm.mapped_column(sa.Boolean, nullable=False)
    cause = orm.mapped_column(sa.String(16))
    prefers_replica = orm.mapped_column(sa.Boolean, nullable=False)
    take_over_at = orm.mapped_column(sa.DateTime)
    promoted_id = orm.mapped_column(sa.String(36))
    flavor_id = orm.mapped_column(sa.String(255))
    former_flavor_id = orm.mapped_column(sa.String(255))
    ram_growth_mib = orm.mapped_column(sa.Integer, nullable=False)
    returned_because = orm.mapped_column(base.Text)
    returned_at = orm.mapped_column(sa.DateTime)
    version_id = orm.mapped_column(sa.String(36))
    step = orm.mapped_column(sa.String(255))
    error = orm.mapped_column(base.Text)
    attempts = orm.mapped_column(sa.Integer, nullable=False)
    retry_at = orm.mapped_column(sa.DateTime)
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
    stop_requested_at = orm.mapped_column(sa.DateTime)
    chosen_at = orm.mapped_column(sa.DateTime)
    fenced_at = orm.mapped_column(sa.DateTime)
    moved_at = orm.mapped_column(sa.DateTime)
    answered_at = orm.mapped_column(sa.DateTime)
    failed_starts = orm.mapped_column(sa.Integer, nullable=False)
    ended_at = orm.mapped_column(sa.DateTime)
    given_up_because = orm.mapped_column(base.Text)

    def as_model(self) -> replacement_record.ReplacementRecord:
        """Return the row as a record."""
        values = {field.name: getattr(self, field.name) for field in _FIELDS}
        return replacement_record.ReplacementRecord(
            **values
            | {
                'kind': replacement_record.ReplacementKind(self.kind),
                'state': replacement_record.ReplacementState(self.state),
                'requested_by': replacement_record.RequestedBy(self.requested_by),
                'cause': self.cause and replacement_record.FailoverCause(self.cause),
                'port_ids': tuple(self.port_ids),
                'old_management_port_ids': tuple(self.old_management_port_ids),
            }
        )
