# SPDX-License-Identifier: Apache-2.0
"""Which worker creates, deletes, rebuilds, promotes, ejects or detaches which instance.

Trove's taskmanager keeps these requests in memory only. A row here shows other workers that the
worker of an instance died, so that the operation will never end.
"""

import dataclasses
from collections.abc import Collection, Mapping

import sqlalchemy as sa

from trove_ceph.db import claims, tables
from trove_ceph.db.claims import Claim, Claimant
from trove_ceph.db.roles import Role
from trove_ceph.db.transactions import Transactions, insert, retry_on_deadlock


class InstanceOperationStore:
    """The instances on which workers operate; each verb is one transaction.

    A verb raises ServiceUnavailableError when the database does not answer or lacks the tables.

    :param transactions: access to the database; by default the one of Trove's configuration
    """

    def __init__(self, transactions: Transactions | None = None):
        self._transactions = transactions or Transactions()
        self._claims = claims.Claims(self._transactions)

    @retry_on_deadlock
    def begin(
        self, role: Role, instance_id: str, claimant: Claimant, over: Collection[Role] = ()
    ) -> Claim | None:
        """Record that a worker begins to operate on an instance, and claim it.

        The row of a dead worker belongs to its operation until a resumption (:meth:`resume`) has
        ended that.

        :param over: the operations of dead workers that end with this one, or that it continues
        :returns: None: another worker operates on the instance, or has died without an end
        """
        row = tables.InstanceOperationRow
        with self._transactions.writing() as session:
            found = session.get(row, instance_id)
            if found is None:
                insert(session, row(instance_id=instance_id, created_at=self._transactions.clock()))
            before = None if found is None or not found.claim_role else Role(found.claim_role)
            if before is not None and before not in over:
                return None
            claim = self._claims.claim_in(session, role, instance_id, claimant)
            return claim and dataclasses.replace(claim, former_role=before)

    def resume(self, role: Role, instance_id: str, claimant: Claimant) -> Claim | None:
        """Claim an instance whose worker has died; None: another worker has claimed it."""
        return self._claims.claim(role, instance_id, claimant)

    def find_role(self, instance_id: str) -> Role | None:
        """Return the operation on an instance that has not ended, even if its worker died."""
        with self._transactions.reading() as session:
            row = session.get(tables.InstanceOperationRow, instance_id)
            return None if row is None or row.claim_role is None else Role(row.claim_role)

    def find_roles(self, instance_ids: Collection[str]) -> Mapping[str, Role]:
        """Return the operations on instances, as :meth:`find_role`, by the ids of the instances."""
        row = tables.InstanceOperationRow
        query = sa.select(row).where(row.instance_id.in_(instance_ids), row.claim_role.is_not(None))
        with self._transactions.reading() as session:
            return {found.instance_id: Role(found.claim_role) for found in session.scalars(query)}

    @retry_on_deadlock
    def set_role(self, claim: Claim, role: Role) -> None:
        """Record that something else is left to do on an instance that a worker has claimed.

        Do nothing if the claim is lost.
        """
        self._update(claim, claim_role=role)

    @retry_on_deadlock
    def hand_over(self, claim: Claim, role: Role) -> None:
        """Leave an instance that a worker has claimed to any worker that resumes another operation.

        Do nothing if the claim is lost.
        """
        self._update(claim, **claims.cleared_claim() | {'claim_role': role})

    def _update(self, claim: Claim, **values: object) -> None:
        with self._transactions.writing() as session:
            session.execute(
                sa.update(tables.InstanceOperationRow)
                .where(*claims.write_conditions(claim))
                .values(**values)
            )

    def list_interrupted(self, claimant: Claimant) -> list[tuple[Role, str]]:
        """Return the roles of dead workers and the ids of their instances, the oldest first.

        A take-over is left to the failover that has it, as long as that is open.
        """
        row, failover = tables.InstanceOperationRow, tables.ReplacementRow
        is_open = sa.exists().where(failover.open_instance_id == row.instance_id)
        query = sa.select(row).where(sa.or_(row.claim_role != Role.TAKE_OVER, ~is_open))
        with self._transactions.reading() as session:
            now = self._transactions.database_time(session)
            rows = session.scalars(query.order_by(row.created_at, row.instance_id))
            return [
                (found.claim_role, found.instance_id)
                for found in rows
                if claimant.may_claim(found, now)
            ]

    @retry_on_deadlock
    def finish(self, claim: Claim) -> None:
        """Delete the row of an operation that has ended; do nothing if the claim is lost."""
        with self._transactions.writing() as session:
            session.execute(
                sa.delete(tables.InstanceOperationRow).where(*claims.write_conditions(claim))
            )
