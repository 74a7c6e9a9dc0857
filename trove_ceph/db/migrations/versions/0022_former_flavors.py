# SPDX-License-Identifier: Apache-2.0
"""Resizes that return to the former flavor."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from trove_ceph import exceptions
from trove_ceph.db import schema_changes

revision = '0022'
down_revision = '0021'

_REPLACEMENTS = 'trove_ceph_replacements'


def _text():
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade():
    # Rows of an earlier release, and its processes that still write, have the defaults.
    schema_changes.ensure_columns(
        _REPLACEMENTS,
        sa.Column('former_flavor_id', sa.String(255)),
        sa.Column('ram_growth_mib', sa.Integer, nullable=False, server_default='0'),
        sa.Column('returned_because', _text()),
    )


def downgrade():
    _check_none_under_way()
    schema_changes.drop_columns(
        _REPLACEMENTS, 'returned_because', 'ram_growth_mib', 'former_flavor_id'
    )


def _check_none_under_way():
    """Return if the earlier release knows the states of all replacements.

    :raises RecordError: a resize returns, which only this release can continue
    """
    table = sa.table(_REPLACEMENTS, sa.column('replacement_id'), sa.column('state'))
    query = sa.select(table.c.replacement_id).where(table.c.state == 'returning')
    if found := op.get_bind().scalars(query.order_by(table.c.replacement_id)).all():
        raise exceptions.RecordError(
            f'the resizes {", ".join(found)} return to the former flavor, which the earlier '
            'release cannot continue: nothing was changed; start the taskmanagers again, and '
            'wait until "trove-ceph-manage replacements list" shows none in the state "returning"'
        )
