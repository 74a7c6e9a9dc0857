# SPDX-License-Identifier: Apache-2.0
"""What became of copies in the vault, and of verifications."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from trove_ceph import exceptions
from trove_ceph.db import backup_rows, claims, tables
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.backup_states import Event
from trove_ceph.db.claims import Claim
from trove_ceph.db.transactions import retry_on_deadlock

_Row = tables.BackupRow
#: What is known of a backup that is in its pool alone.
_NO_COPY = {
    'vault_pool': None,
    'vault_image': None,
    'vault_snapshot': None,
    'copied_at': None,
    'copy_base_id': None,
}


class BackupResults(backup_rows.BackupRows):
    """What is known of them; each verb is one transaction, as those of Records, and needs a claim.

    Each raises ClaimLostError, and writes nothing, when the claim is lost or the deletion of the
    backup has begun.
    """

    def begin_copying(
        self,
        claim: Claim,
        copy: Any,
        base_id: str | None = None,
        because: str | None = None,
    ) -> None:
        """Write down where a copy will be, before anything is made there.

        From then on the worker that deletes the backup knows of it.

        :param copy: the snapshot that it will be
        :param base_id: the backup on whose copy it is built; None where it is built on none
        :param because: why that is not the one that it was to be built on
        :raises ClaimLostError: the backup is being deleted, or is none that is complete
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
                f'backup {claim.resource_id}: is not copied to {copy}, since it is being deleted '
                f'or damaged, or another worker has it; the {claim} is lost'
            ) from error

    @retry_on_deadlock
    def note_copied(
        self,
        claim: Claim,
        moved_bytes: int,
        copy_sec: float,
        used_bytes: int | None = None,
        verify: bool = False,
    ) -> None:
        """Write down that the copy is complete; one that is verified stays so.

        :param used_bytes: what the snapshot really holds; None where it was not counted
        :param verify: it is to be verified, too
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
                wanted_at = sa.func.coalesce(_Row.verify_wanted_at, now)
                session.execute(sa.update(_Row).where(*ours).values(verify_wanted_at=wanted_at))

    def clear_copy(self, claim: Claim) -> None:
        """Write down that there is no copy any more."""
        self._write(claim, **_NO_COPY, copy_base_because=None)

    def replace_copy(self, claim: Claim, because: str) -> None:
        """Write down that a copy is no more, and request another one that is built on no other.

        :param because: what was wrong
        """
        self._move(
            claim,
            Event.LOSE_COPY,
            **_NO_COPY,
            copy_base_because=because,
            copy_wanted_at=self._transactions.clock(),
        )

    def note_verified(
        self,
        claim: Claim,
        gtid_executed: str | None,
        verification: Mapping[str, Any],
        verify_sec: float,
        used_bytes: int | None = None,
    ) -> None:
        """Write down that a server was started from it, and what it held."""
        known = {} if used_bytes is None else {'used_bytes': used_bytes}
        self._note_verification(
            claim,
            Event.PASS_VERIFICATION,
            verification,
            verify_sec,
            gtid_executed=gtid_executed,
            verified_at=self._transactions.clock(),
            verify_error=None,
            **known,
        )

    def note_suspected(
        self, claim: Claim, verification: Mapping[str, Any], verify_sec: float, error: str
    ) -> None:
        """Write down what one inspection found against it; its verification is still requested.

        What two inspections have found damaged stays so, and nothing is written about it.
        """
        now = self._transactions.clock()
        damaged = _Row.state == str(RecordState.DAMAGED)
        if self._update(claim.resource_id, *claims.write_conditions(claim), damaged):
            return
        self._move(
            claim,
            Event.SUSPECT,
            verification={'at': f'{now.isoformat()}Z', **verification},
            verify_sec=verify_sec,
            verify_error=error,
        )

    def note_damaged(
        self, claim: Claim, verification: Mapping[str, Any], verify_sec: float, error: str
    ) -> None:
        """Write down that two inspections found that it does not restore, and why.

        A copy that is wanted stays so: it is made once the backup is found sound after all.
        """
        self._note_verification(
            claim,
            Event.FAIL_VERIFICATION,
            verification,
            verify_sec,
            verify_error=error,
        )

    def note_unfinished(
        self, claim: Claim, verification: Mapping[str, Any], verify_sec: float, error: str
    ) -> None:
        """Write down that a verification came to no end; the state stays."""
        self._note_verification(claim, None, verification, verify_sec, verify_error=error)

    def _note_verification(
        self,
        claim: Claim,
        event: Event | None,
        verification: Mapping[str, Any],
        verify_sec: float,
        **values: Any,
    ) -> None:
        """Write down what one came to, and when.

        :param event: what it means for the backup; None: nothing
        """
        now = self._transactions.clock()
        found: dict[str, Any] = {
            'verification': {'at': f'{now.isoformat()}Z', **verification},
            'verify_sec': verify_sec,
            'verify_wanted_at': None,
            'verify_failures': None,
            'verify_retry_at': None,
        }
        if event is None:
            self._write(claim, **found | values)
        else:
            self._move(claim, event, **found | values)
