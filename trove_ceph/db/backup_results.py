# SPDX-License-Identifier: Apache-2.0
"""Results of copies to the vault and of verifications."""

import itertools
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import orm

from trove_ceph import exceptions, times
from trove_ceph.db import backup_rows, claims, tables, work_queue
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.backup_states import Event
from trove_ceph.db.claims import Claim
from trove_ceph.db.transactions import retry_on_deadlock

_Row = tables.BackupRow
#: The columns of a backup without a copy in the vault.
_NO_COPY = {
    'vault_pool': None,
    'vault_image': None,
    'vault_snapshot': None,
    'copied_at': None,
    'copy_base_id': None,
    'inherited_bytes': None,
}


class BackupResults(backup_rows.BackupRows):
    """The results of copies and verifications; each verb is one transaction and needs a claim.

    A verb raises ClaimLostError, and writes nothing, when the claim is lost or the deletion of the
    backup has begun.
    """

    def begin_copying(
        self,
        claim: Claim,
        copy: Any,
        base_id: str | None = None,
        because: str | None = None,
    ) -> None:
        """Record where a copy will be, before it is created, so that a deletion finds it.

        :param copy: the future snapshot in the vault
        :param base_id: the backup whose copy is the base; None: a full copy
        :param because: why another base than the requested one is used
        :raises ClaimLostError: the claim is lost, or the backup is not complete
        """
        try:
            self._write(
                claim,
                _Row.state.in_([str(state) for state in RecordState if state.is_complete]),
                vault_pool=copy.pool,
                vault_image=copy.image,
                vault_snapshot=copy.name,
                copy_base_id=base_id,
                copy_base_because=because,
            )
        except exceptions.ClaimLostError as error:
            raise exceptions.ClaimLostError(
                f'backup {claim.resource_id} is not copied to {copy}: the {claim} is lost; the '
                'backup is being deleted or damaged, or another worker has claimed it'
            ) from error

    @retry_on_deadlock
    def record_copied(
        self,
        claim: Claim,
        moved_bytes: int,
        copy_sec: float,
        used_bytes: int | None = None,
        verify: bool = False,
    ) -> None:
        """Record that the copy is complete; a verified backup stays verified.

        :param moved_bytes: bytes that the copy transferred
        :param copy_sec: duration of the copy
        :param used_bytes: used bytes of the snapshot; None: not counted
        :param verify: whether to request a verification
        """
        now = self._transactions.clock()
        values: dict[str, Any] = {'moved_bytes': moved_bytes, 'copy_sec': copy_sec}
        values |= {'copied_at': now, 'copy_wanted_at': None, 'copy_error': None}
        values |= {'copy_failures': None, 'copy_retry_at': None}
        if used_bytes is not None:
            values['used_bytes'] = used_bytes
        with self._transactions.writing() as session:
            ours = claims.write_conditions(claim)
            if not self._move_in(session, claim.resource_id, Event.COPY, *ours, **values):
                raise backup_rows.claim_lost(claim)
            if verify:
                requested_at = self._transactions.database_time(session)
                wanted_at = sa.func.coalesce(_Row.verify_wanted_at, requested_at)
                session.execute(sa.update(_Row).where(*ours).values(verify_wanted_at=wanted_at))

    @retry_on_deadlock
    def clear_copy(self, claim: Claim) -> None:
        """Record that the backup has no copy."""
        values = _NO_COPY | {'copy_base_because': None}
        with self._transactions.writing() as session:
            ours = claims.write_conditions(claim)
            _pass_on(session, claim.resource_id)
            if not self._update_in(session, claim.resource_id, *ours, **values):
                raise backup_rows.claim_lost(claim)

    @retry_on_deadlock
    def replace_copy(self, claim: Claim, because: str) -> None:
        """Record that a copy is removed, and request a new full copy.

        :param because: what was wrong with the copy
        """
        with self._transactions.writing() as session:
            now = self._transactions.database_time(session)
            values = _NO_COPY | {'copy_base_because': because, 'copy_wanted_at': now}
            ours = claims.write_conditions(claim)
            _pass_on(session, claim.resource_id)
            if not self._move_in(session, claim.resource_id, Event.LOSE_COPY, *ours, **values):
                raise backup_rows.claim_lost(claim)

    def record_verified(
        self,
        claim: Claim,
        gtid_executed: str | None,
        verification: Mapping[str, Any],
        verify_sec: float,
        used_bytes: int | None = None,
    ) -> None:
        """Record a successful verification.

        :param gtid_executed: read from the server that was started on a clone
        :param verification: the report
        :param verify_sec: duration of the verification
        :param used_bytes: used bytes of the snapshot; None: not counted
        """
        usage = {} if used_bytes is None else {'used_bytes': used_bytes}
        self._record_verification(
            claim,
            Event.PASS_VERIFICATION,
            verification,
            verify_sec,
            gtid_executed=gtid_executed,
            verified_at=self._transactions.clock(),
            verify_error=None,
            **usage,
        )

    def record_suspected(
        self, claim: Claim, verification: Mapping[str, Any], verify_sec: float, error: str
    ) -> None:
        """Record a first failed inspection; the verification stays requested.

        A backup that is damaged stays so, and nothing is written.
        """
        now = self._transactions.clock()
        damaged = _Row.state == str(RecordState.DAMAGED)
        if self._update(claim.resource_id, *claims.write_conditions(claim), damaged):
            return
        self._move(
            claim,
            Event.SUSPECT,
            verification={'at': times.utc_text(now), **verification},
            verify_sec=verify_sec,
            verify_error=error,
        )

    def record_damaged(
        self, claim: Claim, verification: Mapping[str, Any], verify_sec: float, error: str
    ) -> None:
        """Record that two inspections found that the backup does not restore, and why.

        A requested copy stays requested; it is made if a later verification succeeds.
        """
        self._record_verification(
            claim,
            Event.FAIL_VERIFICATION,
            verification,
            verify_sec,
            verify_error=error,
        )

    def record_unfinished(
        self, claim: Claim, verification: Mapping[str, Any], verify_sec: float, error: str
    ) -> None:
        """Record that a verification ended without a verdict; the state stays."""
        self._record_verification(claim, None, verification, verify_sec, verify_error=error)

    def _record_verification(
        self,
        claim: Claim,
        event: Event | None,
        verification: Mapping[str, Any],
        verify_sec: float,
        **values: Any,
    ) -> None:
        """Record the result of a verification and its time.

        :param event: the event for the state of the backup; None: the state stays
        """
        now = self._transactions.clock()
        columns: dict[str, Any] = {
            'verification': {'at': times.utc_text(now), **verification},
            'verify_sec': verify_sec,
            'verify_wanted_at': None,
            'verify_failures': None,
            'verify_retry_at': None,
        }
        if event is None:
            self._write(claim, **columns | values)
        else:
            self._move(claim, event, **columns | values)


def _pass_on(session: orm.Session, backup_id: str) -> None:
    """Have the copy after one that is deleted count what this one replaced.

    The copy before both keeps that. Without one before it, Ceph frees it.
    """
    own = session.get(_Row, backup_id)
    if own is None or own.copied_at is None:
        return
    rows = session.scalars(
        sa.select(_Row)
        .where(_Row.vault_pool == own.vault_pool, _Row.vault_image == own.vault_image)
        .where(_Row.copied_at.isnot(None))
        # Lock the rows in one order, where the database supports it.
        .order_by(_Row.backup_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    ).all()
    ordered = work_queue.in_order([row.as_model() for row in rows])
    for own_copy, after in itertools.pairwise(ordered[1:]):
        if own_copy.backup_id == backup_id:
            inherited = (after.inherited_bytes or 0) + work_queue.replaced_bytes(own_copy)
            session.execute(
                sa.update(_Row)
                .where(_Row.backup_id == after.backup_id)
                .values(inherited_bytes=inherited)
            )
