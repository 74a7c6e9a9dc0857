# SPDX-License-Identifier: Apache-2.0
"""The volume of a hot guest, and with what its MySQL runs."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0017'
down_revision = '0016'

_TABLE = 'trove_ceph_guests'


def upgrade():
    schema_changes.ensure_columns(
        _TABLE,
        sa.Column('hot_digest', sa.String(64)),
        sa.Column('volume_id', sa.String(36)),
    )


def downgrade():
    schema_changes.drop_columns(_TABLE, 'volume_id', 'hot_digest')
