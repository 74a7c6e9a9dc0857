# SPDX-License-Identifier: Apache-2.0
"""The time from the start of a backup to its snapshot."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0007'
down_revision = '0006'


def upgrade():
    schema_changes.ensure_columns('trove_ceph_backups', sa.Column('snapshot_sec', sa.Float))


def downgrade():
    schema_changes.drop_columns('trove_ceph_backups', 'snapshot_sec')
