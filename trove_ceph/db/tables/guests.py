# SPDX-License-Identifier: Apache-2.0
"""The tables of warm guests."""

import dataclasses

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph.db import guest_record
from trove_ceph.db.tables import base

_FIELDS = dataclasses.fields(guest_record.GuestRecord)


class GuestRow(base.Base):
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
    encrypted_key = orm.mapped_column(base.Text, nullable=False)
    instance_id = orm.mapped_column(sa.String(36))
    reason = orm.mapped_column(base.Text)
    created_at = orm.mapped_column(sa.DateTime, nullable=False)
    updated_at = orm.mapped_column(sa.DateTime, nullable=False)
    seen_at = orm.mapped_column(sa.DateTime)
    hot_digest = orm.mapped_column(sa.String(64))
    volume_id = orm.mapped_column(sa.String(36))

    def as_model(self) -> guest_record.GuestRecord:
        """Return the row as a record."""
        values = {field.name: getattr(self, field.name) for field in _FIELDS}
        return guest_record.GuestRecord(**values | {'state': guest_record.GuestState(self.state)})


class GuestPoolRow(base.Claimable, base.Base):
    """A pool of warm guests, which one taskmanager at a time keeps."""

    __tablename__ = 'trove_ceph_guest_pools'

    pool = orm.mapped_column(sa.String(191), primary_key=True)
    configured_at = orm.mapped_column(sa.DateTime)


class GuestRequestRow(base.Base):
    """The request of an instance's creation for a warm guest; without a guest, it was refused."""

    __tablename__ = 'trove_ceph_guest_requests'
    __table_args__ = (sa.Index('ix_trove_ceph_guest_requests_requested_at', 'requested_at'),)

    id = orm.mapped_column(sa.Integer, primary_key=True)
    pool = orm.mapped_column(sa.String(191), nullable=False)
    requested_at = orm.mapped_column(sa.DateTime, nullable=False)
    guest_id = orm.mapped_column(sa.String(36))
