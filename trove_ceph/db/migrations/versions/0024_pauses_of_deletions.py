# SPDX-License-Identifier: Apache-2.0
"""When the deletion of a backup that failed is attempted again."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0024'
down_revision = '0023'

_TABLE = 'trove_ceph_backups'


def upgrade():
    schema_changes.ensure_columns(_TABLE, sa.Column('delete_retry_at', sa.DateTime))


def downgrade():
    schema_changes.drop_columns(_TABLE, 'delete_retry_at')
