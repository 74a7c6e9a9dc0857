# SPDX-License-Identifier: Apache-2.0
"""Replacements of the servers of instances."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from trove_ceph.db import schema_changes

revision = '0009'
down_revision = '0008'

_TABLE = 'trove_ceph_replacements'


def _text():
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade():
    schema_changes.ensure_table(
        _TABLE,
        sa.Column('replacement_id', sa.String(36), primary_key=True),
        sa.Column('open_instance_id', sa.String(36)),
        sa.Column('instance_id', sa.String(36), nullable=False),
        sa.Column('project_id', sa.String(255), nullable=False),
        sa.Column('kind', sa.String(16), nullable=False),
        sa.Column('state', sa.String(16), nullable=False),
        sa.Column('requested_by', sa.String(16), nullable=False),
        sa.Column('created_at', sa.DateTime, nullable=False),
        sa.Column('updated_at', sa.DateTime, nullable=False),
        sa.Column('task_before', sa.String(32), nullable=False),
        sa.Column('reason', _text(), nullable=False),
        sa.Column('is_forced', sa.Boolean, nullable=False),
        sa.Column('flavor_id', sa.String(255)),
        sa.Column('version_id', sa.String(36)),
        sa.Column('step', sa.String(255)),
        sa.Column('error', _text()),
        sa.Column('attempts', sa.Integer, nullable=False),
        sa.Column('volume_id', sa.String(36)),
        sa.Column('old_server_id', sa.String(36)),
        sa.Column('old_host', sa.String(255)),
        sa.Column('availability_zone', sa.String(255)),
        sa.Column('image_id', sa.String(36)),
        sa.Column('port_ids', sa.JSON, nullable=False),
        sa.Column('old_management_port_ids', sa.JSON, nullable=False),
        sa.Column('guest_id', sa.String(36)),
        sa.Column('new_server_id', sa.String(36)),
        sa.Column('new_host', sa.String(255)),
        sa.Column('new_management_port_id', sa.String(36)),
        sa.Column('chosen_at', sa.DateTime),
        sa.Column('fenced_at', sa.DateTime),
        sa.Column('moved_at', sa.DateTime),
        sa.Column('answered_at', sa.DateTime),
        sa.Column('failed_starts', sa.Integer, nullable=False),
        sa.Column('ended_at', sa.DateTime),
        sa.Column('given_up_because', _text()),
        sa.Column('claim_role', sa.String(16)),
        sa.Column('claimed_by', sa.String(255)),
        sa.Column('claim_token', sa.String(32)),
        sa.Column('heartbeat_at', sa.DateTime),
        sa.UniqueConstraint('open_instance_id', name='uq_trove_ceph_replacements_open'),
    )
    for column in ('instance_id', 'project_id', 'ended_at'):
        schema_changes.ensure_index(f'ix_{_TABLE}_{column}', _TABLE, [column])


def downgrade():
    schema_changes.drop_tables(_TABLE)
