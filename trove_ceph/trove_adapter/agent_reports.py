# SPDX-License-Identifier: Apache-2.0
"""The times at which guest agents reported last.

Trove's conductor writes them by the clock of its host, and not at all while a server has to be
restarted, as after its certificates have changed. By them a failover decides whether a database is
healthy, and how old the last look at its source is.
"""

import sqlalchemy as sa

from trove_ceph.db.transactions import Transactions, retry_on_deadlock

_STATUSES = sa.table('service_statuses', *map(sa.column, ('instance_id', 'updated_at')))
_LAST_SEEN = sa.table('conductor_lastseen', *map(sa.column, ('instance_id', 'method_name', 'sent')))
#: Databases round the time at which a report was sent.
_ROUNDED_SEC = 0.001


@retry_on_deadlock
def note(instance_id: str, sent: float | None, transactions: Transactions | None = None) -> None:
    """Record that an agent reports now, by the clock of the database.

    :param sent: when the report was sent, by the clock of the guest; an older one than the last is
        not recorded
    :raises ServiceUnavailableError: the database does not answer
    """
    transactions = transactions or Transactions()
    update = sa.update(_STATUSES).where(_STATUSES.c.instance_id == instance_id)
    if sent is not None:
        is_outdated = sa.exists().where(
            _LAST_SEEN.c.instance_id == instance_id,
            _LAST_SEEN.c.method_name == 'heartbeat',
            _LAST_SEEN.c.sent > sent + _ROUNDED_SEC,
        )
        update = update.where(~is_outdated)
    with transactions.writing() as session:
        session.execute(update.values(updated_at=transactions.database_time(session)))
