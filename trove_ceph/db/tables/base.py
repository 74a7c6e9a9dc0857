# SPDX-License-Identifier: Apache-2.0
"""What the models share: their base, the columns of a claim and the types of columns."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.dialects import mysql

from trove_ceph.db.roles import Role

#: Text of up to 16 MiB.
Text = sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')

#: A role, by its value.
RoleType = sa.Enum(
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

    claim_role: orm.Mapped[Any] = orm.mapped_column(RoleType, nullable=True)
    claimed_by: orm.Mapped[Any] = orm.mapped_column(sa.String(255), nullable=True)
    claim_token: orm.Mapped[Any] = orm.mapped_column(sa.String(32), nullable=True)
    heartbeat_at: orm.Mapped[Any] = orm.mapped_column(sa.DateTime, nullable=True)
