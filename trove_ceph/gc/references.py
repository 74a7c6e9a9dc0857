# SPDX-License-Identifier: Apache-2.0
"""Who says that something is theirs: Trove, our own records, and jobs of the storage service."""

import dataclasses
from collections.abc import Iterator

from trove_ceph.db import backup_record
from trove_ceph.storage import image_types, tasks
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.backup.dependencies import BackupDependencies

Place = image_types.ImageRef | image_types.SnapshotRef


class References:
    """What is claimed now, to be asked for *after* what is there was seen.

    Whoever makes something writes that down first, so that all that was seen has its claim by now.
    """

    def __init__(self, deps: BackupDependencies):
        self._trove = deps.trove
        self.jobs = deps.storage.list_jobs()
        self.backups = {one.backup_id: one for one in deps.records.all()}
        self.kept_volumes = deps.records.kept_volumes()
        self.trash_records = deps.records.trashed_images()
        # Interrupted jobs count, too: a worker may resume them at any time.
        works = [
            one.work
            for one in self.jobs
            if one.state.is_active or one.state is tasks.JobState.INTERRUPTED
        ]
        self._places = {place for work in works for place in _places(work)}
        self._purged = {
            (one.pool, one.image_id) for one in works if isinstance(one, tasks.PurgeTask)
        }

    def is_worked_on(self, place: Place) -> bool:
        """Whether a job reads or writes an image or a snapshot."""
        if place in self._places:
            return True
        return isinstance(place, image_types.SnapshotRef) and place.of in self._places

    def is_waiting_in_trash(self, trashed: image_types.TrashedImage) -> bool:
        """Whether a record or a job will purge an image once no clone reads it."""
        recorded = {(one.pool, one.image_id) for one in self.trash_records}
        return (trashed.pool, trashed.image_id) in recorded | self._purged

    def has_copies(self, image: image_types.ImageRef) -> bool:
        """Whether a backup has, or is to have, a copy in an image."""
        return any(
            (one.vault_pool, one.vault_image) == (image.pool, image.name)
            for one in self.backups.values()
        )

    def has_copy_at(self, place: image_types.SnapshotRef) -> bool:
        """Whether a snapshot is, or is to be, the copy of a backup."""
        return any(one.copy == place for one in self.backups.values())

    def find_backup_at(self, backup_id: str, place: image_types.SnapshotRef) -> str | None:
        """Return why a snapshot is not that of a backup; None if it is."""
        record = self.backups.get(backup_id)
        if record is None:
            return None if self.is_alive(backup_id) else f'no backup {backup_id} is recorded'
        if record.state in backup_record.UNDER_WAY or place == record.copy:
            return None
        if record.state is backup_record.RecordState.FAILED:
            return f'backup {backup_id} failed'
        return None if place == record.location else f'backup {backup_id} has another snapshot'

    def is_alive(self, owner_id: str) -> bool:
        """Whether there is an instance or a backup of an id."""
        instance, backup = self._find(owner_id)
        return (
            owner_id in self.backups
            or (instance is not None and not instance.is_deleted)
            or (backup is not None and not backup.is_deleted)
        )

    def has_volume(self, instance_id: str) -> bool:
        """Whether an instance has a volume, so that no restore is making one for it."""
        found = self._trove.find_instance(instance_id)
        return found is not None and not found.is_deleted and found.volume_id is not None

    def is_known(self, owner_id: str) -> bool:
        """Whether our Trove has or had an instance or a backup of an id."""
        return owner_id in self.backups or any(self._find(owner_id))

    def shows_backup(self, backup_id: str) -> bool:
        """Whether Trove shows a backup to its tenant."""
        found = self._trove.find_backup(backup_id)
        return found is not None and not found.is_deleted

    def _find(
        self, owner_id: str
    ) -> tuple[backup_types.Instance | None, backup_types.TroveBackup | None]:
        return self._trove.find_instance(owner_id), self._trove.find_backup(owner_id)


def _places(work: tasks.Task) -> Iterator[Place]:
    for field in dataclasses.fields(work):  # type: ignore[arg-type]
        value = getattr(work, field.name)
        if isinstance(value, Place):
            yield value
    match work:
        case tasks.CopyTask(snapshot, since=str(since)):
            yield snapshot.of.snapshot(since)
        case tasks.InspectTask():
            yield work.clone
