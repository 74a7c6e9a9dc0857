# SPDX-License-Identifier: Apache-2.0
"""${message}"""

import sqlalchemy as sa

from trove_ceph.db import schema_changes

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade():
    ${upgrades if upgrades else 'pass'}
