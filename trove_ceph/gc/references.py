# SPDX-License-Identifier: Apache-2.0
"""What refers to objects: Trove, our own records, and jobs of the storage service."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Protocol

from trove_ceph.db import backup_record
from trove_ceph.db.replica_record import ReplicaRecord
from trove_ceph.gc.guests import Guests
from trove_ceph.storage import image_types, tasks
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.backup.dependencies import BackupDependencies


class Replicas(Protocol):
    """Our table of replicas."""

    def list(self) -> Sequence[ReplicaRecord]: ...


Location = image_types.ImageRef | image_types.SnapshotRef


class References:
    """The references that exist now; read them *after* the inventory.

    Each operation records an object before it creates it, so that every object in the inventory
    has its reference by now.
    """

    def __init__(self, deps: BackupDependencies, guests: Guests, replicas: Replicas):
        self._trove = deps.trove
        self.jobs = deps.storage.list_jobs()
        self.backups = {one.backup_id: one for one in deps.records.all()}
        self.kept_volumes = deps.records.kept_volumes()
        self.trash_records = deps.records.trashed_images()
        records = guests.list_records()
        self.guest_ids = {one.guest_id for one in records}
        #: Those that no instance has yet.
        self.volumes_of_guests = {one.volume_id for one in records} - {None}
        self._replicas = replicas.list()
        # Interrupted jobs count too: a worker may resume them at any time.
        active = [
            one.work
            for one in self.jobs
            if one.state.is_active or one.state is tasks.JobState.INTERRUPTED
        ]
        self._locations = {location for task in active for location in _locations(task)}
        self._purged = {
            (one.pool, one.image_id) for one in active if isinstance(one, tasks.PurgeTask)
        }

    def is_in_use(self, location: Location) -> bool:
        """Return whether a job reads or writes an image or a snapshot."""
        if location in self._locations:
            return True
        return isinstance(location, image_types.SnapshotRef) and location.of in self._locations

    def is_waiting_in_trash(self, trashed: image_types.TrashedImage) -> bool:
        """Return whether a record or a job will purge an image once it has no clones."""
        recorded = {(one.pool, one.image_id) for one in self.trash_records}
        return (trashed.pool, trashed.image_id) in recorded | self._purged

    def has_copies(self, image: image_types.ImageRef) -> bool:
        """Return whether a backup has, or is about to have, a copy in an image."""
        return any(
            (one.vault_pool, one.vault_image) == (image.pool, image.name)
            for one in self.backups.values()
        )

    def has_copy_at(self, location: image_types.SnapshotRef) -> bool:
        """Return whether a snapshot is, or is about to be, the copy of a backup."""
        return any(one.copy == location for one in self.backups.values())

    def find_backup_at(self, backup_id: str, location: image_types.SnapshotRef) -> str | None:
        """Return why a snapshot does not belong to a backup; None if it does."""
        record = self.backups.get(backup_id)
        if record is None:
            return None if self.is_alive(backup_id) else f'no backup {backup_id} is recorded'
        if record.state in backup_record.UNDER_WAY or location == record.copy:
            return None
        if record.state is backup_record.RecordState.FAILED:
            return f'backup {backup_id} failed'
        return None if location == record.location else f'backup {backup_id} has another snapshot'

    def is_alive(self, owner_id: str) -> bool:
        """Return whether an instance or a backup with an id exists."""
        instance, backup = self._find(owner_id)
        return (
            owner_id in self.backups
            or (instance is not None and not instance.is_deleted)
            or (backup is not None and not backup.is_deleted)
        )

    def has_volume(self, instance_id: str) -> bool:
        """Return whether an instance has a volume, so that no restore is creating one for it."""
        instance = self._trove.find_instance(instance_id)
        return instance is not None and not instance.is_deleted and instance.volume_id is not None

    def has_other_volume(self, instance_id: str, volume_id: str) -> bool:
        """Return whether an instance has a volume, and neither has nor is being given this one."""
        instance = self._trove.find_instance(instance_id)
        own = {instance.volume_id} if instance is not None else {None}
        for one in self._replicas:
            if one.instance_id == instance_id:
                own |= {one.volume_id, one.new_volume_id, one.old_volume_id}
        return self.has_volume(instance_id) and volume_id not in own

    def is_reprovisioning(self, operation_id: str) -> bool:
        """Return whether an id is that of a re-provisioning that has not ended."""
        return any(
            one.request_id == operation_id and one.state.is_reprovisioning for one in self._replicas
        )

    def is_known(self, owner_id: str) -> bool:
        """Return whether our Trove has or had an instance, a backup or another owner with an id."""
        return (
            owner_id in self.backups
            or any(self._find(owner_id))
            or any(one.request_id == owner_id for one in self._replicas)
        )

    def shows_backup(self, backup_id: str) -> bool:
        """Return whether Trove shows a backup to its tenant."""
        backup = self._trove.find_backup(backup_id)
        return backup is not None and not backup.is_deleted

    def _find(
        self, owner_id: str
    ) -> tuple[backup_types.Instance | None, backup_types.TroveBackup | None]:
        return self._trove.find_instance(owner_id), self._trove.find_backup(owner_id)


def _locations(task: tasks.Task) -> Iterator[Location]:
    for field in dataclasses.fields(task):  # type: ignore[arg-type]
        value = getattr(task, field.name)
        if isinstance(value, Location):
            yield value
    match task:
        case tasks.CopyTask(snapshot, since=str(since)):
            yield snapshot.of.snapshot(since)
        case tasks.InspectTask():
            yield task.clone
        case tasks.GoldenTask():
            yield task.inspection.clone
