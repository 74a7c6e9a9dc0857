# SPDX-License-Identifier: Apache-2.0
"""What projects use of their quotas, in Trove's own table, beside Trove's reservations."""

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy import orm

_USAGES = sa.table('quota_usages', *map(sa.column, ('tenant_id', 'resource', 'in_use')))


def add(session: orm.Session, project_id: str, counts: Mapping[str, int]) -> None:
    """Add to what a project uses, even beyond its quota, in the transaction of a session.

    :param counts: by the names of Trove's resources; negative ones are subtracted
    """
    for resource, count in counts.items():
        session.execute(
            sa.update(_USAGES)
            .where(_USAGES.c.tenant_id == project_id, _USAGES.c.resource == resource)
            .values(in_use=_USAGES.c.in_use + count)
        )
