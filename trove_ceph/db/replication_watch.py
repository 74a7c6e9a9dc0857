# SPDX-License-Identifier: Apache-2.0
"""The claim on the watch over all replicas, which one taskmanager at a time keeps."""

from trove_ceph.db import claims, tables
from trove_ceph.db.claims import Claim, Claimant
from trove_ceph.db.roles import Role
from trove_ceph.db.transactions import Transactions, insert, retry_on_deadlock

_Row = tables.ReplicationWatchRow
#: The key of the only row.
_CLOUD = 'cloud'


class ReplicationWatchStore:
    """The watch; safe for use by several threads and processes.

    :param transactions: access to the database; by default the one of Trove's configuration
    """

    def __init__(self, transactions: Transactions | None = None):
        self._transactions = transactions or Transactions()
        self._claims = claims.Claims(self._transactions)

    @retry_on_deadlock
    def begin_watching(self, claimant: Claimant) -> Claim | None:
        """Claim the watch; None: another live taskmanager keeps it.

        :raises ServiceUnavailableError: the database does not answer or lacks the tables
        """
        with self._transactions.writing() as session:
            if session.get(_Row, _CLOUD) is None:
                insert(session, _Row(name=_CLOUD))
            return self._claims.claim_in(session, Role.WATCH_REPLICAS, _CLOUD, claimant)
