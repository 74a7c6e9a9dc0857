# SPDX-License-Identifier: Apache-2.0
"""The table of the last sweep for orphans."""

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph.db.tables import base


class OrphanSweepRow(base.Base):
    """The last sweep for orphans: the only row, see :mod:`orphan_sweeps`."""

    __tablename__ = 'trove_ceph_orphan_sweeps'

    name = orm.mapped_column(sa.String(16), primary_key=True)
    ended_at = orm.mapped_column(sa.DateTime, nullable=False)
    found = orm.mapped_column(sa.JSON, nullable=False)
    removed = orm.mapped_column(sa.JSON, nullable=False)
