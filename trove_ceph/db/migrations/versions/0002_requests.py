# SPDX-License-Identifier: Apache-2.0
"""Requests for copies and verifications, and their results."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = '0002'
down_revision = '0001'


def _text():
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade():
    for column in (
        sa.Column('copy_wanted_at', sa.DateTime),
        sa.Column('verify_wanted_at', sa.DateTime),
        sa.Column('failures', sa.Integer),
        sa.Column('retry_at', sa.DateTime),
        sa.Column('copy_error', _text()),
        sa.Column('verify_error', _text()),
        sa.Column('copy_base_id', sa.String(36)),
        sa.Column('copy_base_because', _text()),
        sa.Column('gtid_before', _text()),
    ):
        op.add_column('trove_ceph_backups', column)
    for name in ('copy_wanted_at', 'verify_wanted_at'):
        op.create_index(f'ix_trove_ceph_backups_{name}', 'trove_ceph_backups', [name])


def downgrade():
    for name in ('copy_wanted_at', 'verify_wanted_at'):
        op.drop_index(f'ix_trove_ceph_backups_{name}', 'trove_ceph_backups')
    with op.batch_alter_table('trove_ceph_backups') as batch:
        for column in (
            *('copy_wanted_at', 'verify_wanted_at', 'failures', 'retry_at', 'copy_error'),
            *('verify_error', 'copy_base_id', 'copy_base_because', 'gtid_before'),
        ):
            batch.drop_column(column)
