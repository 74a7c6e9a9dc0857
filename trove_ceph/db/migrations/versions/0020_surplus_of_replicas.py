# SPDX-License-Identifier: Apache-2.0
"""Whether a replica has transactions that its source lacks, as it was last seen."""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = '0020'
down_revision = '0019'

_TABLE = 'trove_ceph_replicas'


def upgrade():
    schema_changes.ensure_columns(_TABLE, sa.Column('has_surplus', sa.Boolean))


def downgrade():
    schema_changes.drop_columns(_TABLE, 'has_surplus')
