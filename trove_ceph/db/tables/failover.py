# SPDX-License-Identifier: Apache-2.0
"""The tables of automatic failover."""

import dataclasses

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph.db import failover_record
from trove_ceph.db.policy_record import Scope
from trove_ceph.db.tables import base

_POLICY_FIELDS = dataclasses.fields(failover_record.FailoverPolicy)
_WATCH_FIELDS = dataclasses.fields(failover_record.FailoverWatch)


class FailoverPolicyRow(base.Base):
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
    prefer = orm.mapped_column(sa.String(16), nullable=False)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)
    updated_at = orm.mapped_column(sa.DateTime, nullable=False)

    def as_model(self) -> failover_record.FailoverPolicy:
        """Return the row as a policy."""
        values = {field.name: getattr(self, field.name) for field in _POLICY_FIELDS}
        kinds = {'scope': Scope(self.scope), 'prefer': failover_record.Preference(self.prefer)}
        return failover_record.FailoverPolicy(**values | kinds)


class FailoverWatchRow(base.Claimable, base.Base):
    """The watch over all databases: the only row, see :mod:`failover_watch`."""

    __tablename__ = 'trove_ceph_failover_watch'

    name = orm.mapped_column(sa.String(16), primary_key=True)
    maintenance = orm.mapped_column(base.Text)
    maintenance_since = orm.mapped_column(sa.DateTime)
    report = orm.mapped_column(sa.JSON)
    reported_at = orm.mapped_column(sa.DateTime)

    def as_model(self) -> failover_record.FailoverWatch:
        """Return the row as a record."""
        values = {field.name: getattr(self, field.name) for field in _WATCH_FIELDS}
        return failover_record.FailoverWatch(**values)
