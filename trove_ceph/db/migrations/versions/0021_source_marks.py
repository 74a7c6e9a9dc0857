# SPDX-License-Identifier: Apache-2.0
"""What is left to do on a source when the change of a source has ended."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0021'
down_revision = '0020'

_TABLE = 'trove_ceph_source_marks'


def upgrade():
    schema_changes.ensure_table(
        _TABLE,
        sa.Column('instance_id', sa.String(36), primary_key=True),
        sa.Column('mark', sa.String(32), nullable=False),
        sa.Column('marked_at', sa.DateTime, nullable=False),
    )


def downgrade():
    schema_changes.drop_tables(_TABLE)
