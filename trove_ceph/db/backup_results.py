# SPDX-License-Identifier: Apache-2.0
"""What became of copies in the vault, and of verifications."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from trove_ceph import exceptions
from trove_ceph.db import backup_rows, tables
from trove_ceph.db.backup_record import RecordState
from trove_ceph.db.transactions import retried

_Row = tables.BackupRow
#: What is forgotten when what was wanted is there.
_NO_FAILURES = {'failures': None, 'retry_at': None}
#: What is known of a backup that is in its pool alone.
_NO_COPY = {
    'vault_pool': None,
    'vault_image': None,
    'vault_snapshot': None,
    'copied_at': None,
    'copy_base_id': None,
}


class BackupResults(backup_rows.BackupRows):
    """What is known of them; each verb is one transaction, as those of Records."""

    def begin_copying(
        self,
        backup_id: str,
        copy: Any,
        base_id: str | None = None,
        because: str | None = None,
    ) -> None:
        """Write down where a copy will be, before anything is made there.

        From then on whoever deletes the backup knows of it. Once that has begun no copy can be.

        :param copy: the snapshot that it will be
        :param base_id: the backup on whose copy it is built; None where it is built on none
        :param because: why that is not the one that it was to be built on
        :raises LockLostError: the backup is being deleted, or is none that is complete
        """
        has_begun = self._update(
            backup_id,
            _Row.state.in_([str(state) for state in RecordState if state.is_complete]),
            vault_pool=copy.pool,
            vault_image=copy.image,
            vault_snapshot=copy.name,
            copy_base_id=base_id,
            copy_base_because=because,
        )
        if not has_begun:
            raise exceptions.LockLostError(
                f'backup {backup_id}: is not copied to {copy}, since it is being deleted or damaged'
            )

    @retried
    def note_copied(
        self,
        backup_id: str,
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
        with self._transactions.writing() as session:
            row = session.get(_Row, backup_id)
            if row is None:
                return
            values: dict[str, Any] = {'moved_bytes': moved_bytes, 'copy_sec': copy_sec}
            if row.state == RecordState.TAKEN:
                values['state'] = str(RecordState.COPIED)
            if used_bytes is not None:
                values['used_bytes'] = used_bytes
            if verify:
                values['verify_wanted_at'] = row.verify_wanted_at or now
            row.set(values | {'copied_at': now, 'updated_at': now})
            row.set({'copy_wanted_at': None, 'copy_error': None} | _NO_FAILURES)

    def forget_copy(self, backup_id: str) -> None:
        """Write down that there is no copy any more."""
        self._update(backup_id, **_NO_COPY, copy_base_because=None)

    def replace_copy(self, backup_id: str, because: str) -> None:
        """Write down that a copy is no more, and another one is wanted, built on no other.

        :param because: what was wrong
        """
        self._update(
            backup_id,
            _Row.state != str(RecordState.DELETING),
            **_NO_COPY,
            copy_base_because=because,
            copy_wanted_at=self._transactions.clock(),
            state=sa.case(
                (_Row.state == str(RecordState.COPIED), str(RecordState.TAKEN)), else_=_Row.state
            ),
        )

    def note_verified(
        self,
        backup_id: str,
        gtid_executed: str | None,
        verification: Mapping[str, Any],
        verify_sec: float,
        used_bytes: int | None = None,
    ) -> None:
        """Write down that a server was started from it, and what it held."""
        known = {} if used_bytes is None else {'used_bytes': used_bytes}
        self._note_verification(
            backup_id,
            verification,
            verify_sec,
            state=str(RecordState.VERIFIED),
            gtid_executed=gtid_executed,
            verified_at=self._transactions.clock(),
            verify_error=None,
            **known,
        )

    def note_suspected(
        self, backup_id: str, verification: Mapping[str, Any], verify_sec: float, error: str
    ) -> None:
        """Write down what one inspection found against it; its verification is still wanted.

        What two inspections have found damaged stays so.
        """
        now = self._transactions.clock()
        self._update(
            backup_id,
            _Row.state.in_([str(state) for state in RecordState if state.can_be_restored]),
            state=str(RecordState.SUSPECTED),
            verification={'at': f'{now.isoformat()}Z', **verification},
            verify_sec=verify_sec,
            verify_error=error,
        )

    def note_damaged(
        self, backup_id: str, verification: Mapping[str, Any], verify_sec: float, error: str
    ) -> None:
        """Write down that two inspections found that it does not restore, and why.

        A copy that is wanted stays so: it is made once the backup is found sound after all.
        """
        self._note_verification(
            backup_id, verification, verify_sec, state=str(RecordState.DAMAGED), verify_error=error
        )

    def note_unfinished(
        self, backup_id: str, verification: Mapping[str, Any], verify_sec: float, error: str
    ) -> None:
        """Write down that a verification came to no end; the state stays."""
        self._note_verification(backup_id, verification, verify_sec, verify_error=error)

    @retried
    def _note_verification(
        self, backup_id: str, verification: Mapping[str, Any], verify_sec: float, **values: Any
    ) -> None:
        """Write down what one came to, and when, unless the backup is being deleted meanwhile."""
        now = self._transactions.clock()
        found = {
            'verification': {'at': f'{now.isoformat()}Z', **verification},
            'verify_sec': verify_sec,
            'verify_wanted_at': None,
            'updated_at': now,
        }
        with self._transactions.writing() as session:
            session.execute(
                sa.update(_Row)
                .where(_Row.backup_id == backup_id)
                .where(_Row.state != str(RecordState.DELETING))
                .values(**found | _NO_FAILURES | values)
            )
