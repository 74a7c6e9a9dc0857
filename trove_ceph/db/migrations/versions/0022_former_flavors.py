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
        sa.Column('returned_at', sa.DateTime),
    )


def downgrade():
    _check_none_under_way()
    schema_changes.drop_columns(
        *(_REPLACEMENTS, 'returned_at', 'returned_because', 'ram_growth_mib', 'former_flavor_id')
    )


def _check_none_under_way():
    """Return if the earlier release can end all replacements.

    :raises RecordError: a resize has not ended, whose former flavor and quota that does not know
    """
    table = sa.table(
        _REPLACEMENTS,
        *(sa.column('replacement_id'), sa.column('open_instance_id'), sa.column('kind')),
    )
    query = sa.select(table.c.replacement_id).where(
        table.c.open_instance_id.is_not(None), table.c.kind == 'resize'
    )
    if found := op.get_bind().scalars(query.order_by(table.c.replacement_id)).all():
        raise exceptions.RecordError(
            f'the resizes {", ".join(found)} have not ended, and the earlier release does not know '
            'to which flavor they return: nothing was changed; start the taskmanagers again, and '
            'wait until "trove-ceph-manage replacements list --open" shows no resize'
        )
