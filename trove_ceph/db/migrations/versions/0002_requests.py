# SPDX-License-Identifier: Apache-2.0
"""Requests for copies and verifications, and their results."""

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from trove_ceph.db import schema_changes

revision = '0002'
down_revision = '0001'


def _text():
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade():
    schema_changes.ensure_columns(
        'trove_ceph_backups',
        sa.Column('copy_wanted_at', sa.DateTime),
        sa.Column('verify_wanted_at', sa.DateTime),
        sa.Column('failures', sa.Integer),
        sa.Column('retry_at', sa.DateTime),
        sa.Column('copy_error', _text()),
        sa.Column('verify_error', _text()),
        sa.Column('copy_base_id', sa.String(36)),
        sa.Column('copy_base_because', _text()),
        sa.Column('gtid_before', _text()),
    )
    for name in ('copy_wanted_at', 'verify_wanted_at'):
        schema_changes.ensure_index(f'ix_trove_ceph_backups_{name}', 'trove_ceph_backups', [name])


def downgrade():
    for name in ('copy_wanted_at', 'verify_wanted_at'):
        schema_changes.drop_index(f'ix_trove_ceph_backups_{name}', 'trove_ceph_backups')
    schema_changes.drop_columns(
        'trove_ceph_backups',
        *('copy_wanted_at', 'verify_wanted_at', 'failures', 'retry_at', 'copy_error'),
        *('verify_error', 'copy_base_id', 'copy_base_because', 'gtid_before'),
    )
