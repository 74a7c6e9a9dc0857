# SPDX-License-Identifier: Apache-2.0
"""What the tables hold, for those who know no database."""

import dataclasses
import datetime
import enum
from collections.abc import Mapping
from typing import Any

from trove_ceph.storage import image_types


class RecordState(enum.StrEnum):
    """How far a backup is.

    Taken, it is in the pool of its volume; copied, in the vault as well; verified, a server was
    started from it; suspected, one inspection found something against it that no second one has
    confirmed; damaged, two inspections found that it does not restore, or not all of it. The others
    are under way, or ended badly.
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
        """Whether it can be restored, as far as is known."""
        return self in (RecordState.TAKEN, RecordState.COPIED, RecordState.VERIFIED)

    @property
    def can_be_restored(self) -> bool:
        """Whether a tenant may restore it: a suspicion takes a backup from nobody."""
        return self.is_complete or self is RecordState.SUSPECTED

    @property
    def can_be_verified(self) -> bool:
        """Whether there is something to inspect."""
        return self.can_be_restored or self is RecordState.DAMAGED


#: What somebody must be carrying on with.
UNDER_WAY = (RecordState.TAKING, RecordState.DELETING)


@dataclasses.dataclass(frozen=True)
class BackupRecord:
    """What is known of a backup besides what Trove has.

    :param parent_id: the backup of the same instance upon which a copy of it may build
    :param error: why it failed, or could not be deleted
    :param quiesce: how the server was held when the snapshot was made
    :param quiesce_wanted: the level that was asked for with it; None: as it is configured
    :param raised_from: the level that was to be, where the settings made it unsafe
    :param raised_because: what was unsafe
    :param gtid_executed: exactly what it holds, read from a clone; None until one was looked at
    :param size_bytes: of the volume
    :param used_bytes: what the snapshot really holds; None until it was counted
    :param filesystem_used_bytes: what the file system held before the snapshot was made, by the
        guest's own account
    :param snapshot: its name in Ceph
    :param snapshot_at: when a snapshot was made that is known to be good, in UTC
    :param vault_snapshot: its copy's name; with ``vault_pool`` and ``vault_image``
    :param copied_at: when the copy was complete; None as long as it is not
    :param moved_bytes: what the copy moved
    :param verified_at: when a verification last found it sound
    :param verification: what the last verification found
    :param take_sec: how long taking it took
    :param quiesced_sec: how long the server was held
    :param claim_role: what the worker does that holds the claim; None when no worker does
    :param claimed_by: the worker
    :param claim_token: drawn for each claim; whoever writes without the present one writes nothing
    :param heartbeat_at: when a worker last showed life, by the clock of the database; it stays
        when the claim is released
    :param copy_wanted_at: since when a copy is requested; None when it is not, or is there
    :param verify_wanted_at: since when a verification is requested; None when it is not
    :param copy_failures: attempts to copy that failed since the last one that succeeded
    :param copy_retry_at: before which no copy is tried
    :param verify_failures: the same of verifications, with ``verify_retry_at``
    :param copy_error: why there is no copy, as far as one was tried to make
    :param verify_error: what a verification found to be wrong, or why it could not be done
    :param copy_base_id: the backup on whose copy this one's was built; None where it was built on
        none
    :param copy_base_because: why it was not built on the one that was asked for, or on none
    :param gtid_before: what the server had executed before the snapshot was made, which a
        verification must find
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

    @property
    def location(self) -> image_types.SnapshotRef | None:
        """The snapshot in the pool of its volume, if it was made."""
        if self.pool and self.image and self.snapshot:
            return image_types.SnapshotRef(self.pool, self.image, self.snapshot)
        return None

    @property
    def retry_at(self) -> datetime.datetime | None:
        """When the next attempt to copy or to verify is possible, whichever comes first."""
        moments = [one for one in (self.copy_retry_at, self.verify_retry_at) if one is not None]
        return min(moments, default=None)

    @property
    def copy(self) -> image_types.SnapshotRef | None:
        """The copy in the vault, if there is one, or was to be one."""
        if self.vault_pool and self.vault_image and self.vault_snapshot:
            return image_types.SnapshotRef(self.vault_pool, self.vault_image, self.vault_snapshot)
        return None


@dataclasses.dataclass(frozen=True)
class KeptVolume:
    """A volume that outlives its instance as long as something needs it."""

    volume_id: str
    instance_id: str
    project_id: str
    created_at: datetime.datetime


@dataclasses.dataclass(frozen=True)
class TrashedImage:
    """An image that lies in the trash until its last clone is gone."""

    pool: str
    image_id: str
    name: str
    created_at: datetime.datetime

    def __str__(self) -> str:
        return f'{self.pool}/{self.name} (in the trash, id {self.image_id})'
