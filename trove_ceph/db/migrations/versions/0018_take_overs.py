# SPDX-License-Identifier: Apache-2.0
"""Failovers in which a replica takes over from its source."""

import sqlalchemy as sa
from alembic import op

from trove_ceph import exceptions
from trove_ceph.db import schema_changes

revision = '0018'
down_revision = '0017'

_POLICIES = 'trove_ceph_failover_policies'
_REPLACEMENTS = 'trove_ceph_replacements'
_REPLICAS = 'trove_ceph_replicas'


def upgrade():
    # Rows of an earlier release, and its processes that still write, have the defaults.
    schema_changes.ensure_columns(
        _POLICIES, sa.Column('prefer', sa.String(16), nullable=False, server_default='volume')
    )
    schema_changes.ensure_columns(
        _REPLACEMENTS,
        sa.Column('prefers_replica', sa.Boolean, nullable=False, server_default=sa.false()),
        sa.Column('take_over_at', sa.DateTime),
        sa.Column('promoted_id', sa.String(36)),
    )
    schema_changes.ensure_columns(
        _REPLICAS,
        sa.Column('source_seen_at', sa.DateTime),
        sa.Column('stopped_at', sa.DateTime),
    )


def downgrade():
    _check_none_under_way()
    schema_changes.drop_columns(_REPLICAS, 'stopped_at', 'source_seen_at')
    schema_changes.drop_columns(_REPLACEMENTS, 'promoted_id', 'take_over_at', 'prefers_replica')
    schema_changes.drop_columns(_POLICIES, 'prefer')


def _check_none_under_way():
    """Return if the earlier release knows the states of all failovers.

    :raises RecordError: a replica may be taking over, which only this release can end
    """
    table = sa.table(_REPLACEMENTS, sa.column('replacement_id'), sa.column('state'))
    query = sa.select(table.c.replacement_id).where(table.c.state == 'taking_over')
    if found := op.get_bind().scalars(query.order_by(table.c.replacement_id)).all():
        raise exceptions.RecordError(
            f'in the failovers {", ".join(found)} a replica may be taking over, which the earlier '
            'release cannot continue: nothing was changed; start the taskmanagers again, and wait '
            'until "trove-ceph-manage replacements list" shows none in the state "taking_over"'
        )
