# SPDX-License-Identifier: Apache-2.0
"""Used bytes of the file system when a backup is taken."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0005'
down_revision = '0004'


def upgrade():
    schema_changes.ensure_columns(
        'trove_ceph_backups', sa.Column('filesystem_used_bytes', sa.BigInteger)
    )


def downgrade():
    schema_changes.drop_columns('trove_ceph_backups', 'filesystem_used_bytes')
