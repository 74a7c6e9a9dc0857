# SPDX-License-Identifier: Apache-2.0
"""The rows of the tables as plain dataclasses, for callers outside of the database package."""

import dataclasses
import datetime
import enum
from collections.abc import Mapping
from typing import Any

from trove_ceph.storage import image_types


class RecordState(enum.StrEnum):
    """The state of a backup.

    A taken backup has its snapshot in the pool of its volume; a copied one is in the vault as well.
    From a verified one a server was started. A suspected one failed one inspection, which no second
    one has confirmed; a damaged one failed two: it does not restore completely. The other states
    are in progress or failed.
    """

    TAKING = 'taking'
    TAKEN = 'taken'
    COPIED = 'copied'
    VERIFIED = 'verified'
    SUSPECTED = 'suspected'
    DAMAGED = 'damaged'
    FAILED = 'failed'
    DELETING = 'deleting'

    @property
    def is_complete(self) -> bool:
        """Whether the snapshot is complete, and no inspection speaks against it."""
        return self in (RecordState.TAKEN, RecordState.COPIED, RecordState.VERIFIED)

    @property
    def can_be_restored(self) -> bool:
        """Whether a tenant may restore it; a suspected backup may be restored."""
        return self.is_complete or self is RecordState.SUSPECTED

    @property
    def can_be_verified(self) -> bool:
        """Whether there is a snapshot to inspect."""
        return self.can_be_restored or self is RecordState.DAMAGED


#: The states in which a worker must continue.
UNDER_WAY = (RecordState.TAKING, RecordState.DELETING)


@dataclasses.dataclass(frozen=True)
class BackupRecord:
    """The record of a backup, beside Trove's own. Times are in UTC, without a time zone.

    :param parent_id: the backup of the same instance on which the copy may build
    :param error: why taking or deleting it failed
    :param quiesce: the quiesce level at which the snapshot was created
    :param quiesce_wanted: the level that was requested; None: the configured one
    :param raised_from: the level that was replaced by a stricter one because of unsafe settings
    :param raised_because: the unsafe settings
    :param gtid_executed: read from a clone by a verification; None before the first one
    :param size_bytes: size of the volume
    :param used_bytes: used bytes of the snapshot; None until they are counted
    :param filesystem_used_bytes: used bytes of the file system before the snapshot, as the guest
        reports them
    :param snapshot: name of the snapshot in Ceph
    :param snapshot_at: when the snapshot was created; None until it is proved to be consistent
    :param vault_snapshot: name of the copy, in ``vault_pool`` and ``vault_image``
    :param copied_at: when the copy was complete; None before that
    :param moved_bytes: bytes that the copy transferred, in all its attempts
    :param inherited_bytes: bytes that deleted copies transferred, between this one and the one
        before it in the image; what they replaced is kept for the one before
    :param verified_at: when a verification last succeeded
    :param verification: the result of the last verification
    :param take_sec: duration of taking the backup
    :param snapshot_sec: from the start of taking the backup to the end of the snapshot's creation
    :param quiesced_sec: how long the server was quiesced
    :param claim_role: what the worker with the claim does; None when no worker has one
    :param claimed_by: name of that worker
    :param claim_token: random, new for each claim; a write with another token changes nothing
    :param heartbeat_at: the last heartbeat, by the clock of the database; it stays when the claim
        is released
    :param copy_wanted_at: since when a copy is requested; None: not requested, or complete
    :param verify_wanted_at: since when a verification is requested; None: not requested
    :param copy_failures: failed attempts to copy since the last success
    :param copy_retry_at: earliest time of the next attempt to copy
    :param verify_failures: failed attempts to verify, with ``verify_retry_at``
    :param delete_retry_at: earliest time of the next attempt to delete, by the clock of the
        database; None: it is due
    :param copy_error: why the last attempt to copy failed
    :param verify_error: what a verification found wrong, or why it failed
    :param copy_base_id: the backup whose copy is the base of this one; None: a full copy
    :param copy_base_because: why the requested base was not used
    :param gtid_before: gtid_executed of the server before the snapshot; a verification must find it
    """

    backup_id: str
    instance_id: str
    project_id: str
    state: RecordState
    created_at: datetime.datetime
    updated_at: datetime.datetime
    parent_id: str | None = None
    error: str | None = None
    quiesce: str | None = None
    quiesce_wanted: str | None = None
    raised_from: str | None = None
    raised_because: str | None = None
    gtid_executed: str | None = None
    size_bytes: int | None = None
    used_bytes: int | None = None
    pool: str | None = None
    image: str | None = None
    snapshot: str | None = None
    volume_id: str | None = None
    cinder_snapshot_id: str | None = None
    snapshot_at: datetime.datetime | None = None
    vault_pool: str | None = None
    vault_image: str | None = None
    vault_snapshot: str | None = None
    copied_at: datetime.datetime | None = None
    moved_bytes: int | None = None
    verified_at: datetime.datetime | None = None
    verification: Mapping[str, Any] | None = None
    take_sec: float | None = None
    snapshot_sec: float | None = None
    quiesced_sec: float | None = None
    copy_sec: float | None = None
    verify_sec: float | None = None
    claim_role: str | None = None
    claimed_by: str | None = None
    claim_token: str | None = None
    heartbeat_at: datetime.datetime | None = None
    copy_wanted_at: datetime.datetime | None = None
    verify_wanted_at: datetime.datetime | None = None
    copy_failures: int | None = None
    copy_retry_at: datetime.datetime | None = None
    verify_failures: int | None = None
    verify_retry_at: datetime.datetime | None = None
    copy_error: str | None = None
    verify_error: str | None = None
    copy_base_id: str | None = None
    copy_base_because: str | None = None
    gtid_before: str | None = None
    filesystem_used_bytes: int | None = None
    delete_retry_at: datetime.datetime | None = None
    inherited_bytes: int | None = None

    @property
    def location(self) -> image_types.SnapshotRef | None:
        """The snapshot in the pool of its volume; None: not created yet."""
        if self.pool and self.image and self.snapshot:
            return image_types.SnapshotRef(self.pool, self.image, self.snapshot)
        return None

    @property
    def copy(self) -> image_types.SnapshotRef | None:
        """The copy in the vault, complete or begun; None: there is none."""
        if self.vault_pool and self.vault_image and self.vault_snapshot:
            return image_types.SnapshotRef(self.vault_pool, self.vault_image, self.vault_snapshot)
        return None


@dataclasses.dataclass(frozen=True)
class KeptVolume:
    """A volume whose instance is deleted and that a backup or clone still needs."""

    volume_id: str
    instance_id: str
    project_id: str
    created_at: datetime.datetime


@dataclasses.dataclass(frozen=True)
class TrashedImage:
    """An image that stays in the trash until its last clone is gone."""

    pool: str
    image_id: str
    name: str
    created_at: datetime.datetime

    def __str__(self) -> str:
        return f'{self.pool}/{self.name} (in the trash, id {self.image_id})'
