# SPDX-License-Identifier: Apache-2.0
"""Trove's own tables of instances and backups, whose rows tenants see.

This module writes them directly. trove-conductor would drop an update with a timestamp before the
guest agent's last one, and thereby compare two clocks.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from trove.backup import models as backup_models
from trove.backup.state import BackupState
from trove.common import exception as trove_exceptions
from trove.common import timeutils
from trove.datastore import models as datastore_models
from trove.instance import models as instance_models
from trove.instance.tasks import InstanceTask, InstanceTasks
from trove.quota import models as quota_models
from trove.quota import quota

from trove_ceph import exceptions
from trove_ceph.strategies.backup import backup_types

#: The prefix of ``registry_ext`` in datastore versions that use our guest manager.
_GUEST_MANAGERS = 'trove_ceph.'
#: The prefix of a backup's location, before the id of the Cinder snapshot.
_LOCATION = 'cinder://'


class TroveDatabase:
    """The tables in the database of Trove's configuration."""

    def find_instance(self, instance_id: str) -> backup_types.Instance | None:
        """Return an instance, even a deleted one."""
        row = find_row(instance_models.DBInstance, instance_id)
        if row is None:
            return None
        return _instance(row, version_of(row.datastore_version_id))

    def is_deleting(self, instance_id: str) -> bool:
        """Return whether the deletion of an instance has been requested, and has not ended."""
        row = find_row(instance_models.DBInstance, instance_id)
        return row is not None and not row.deleted and row.task_status == InstanceTasks.DELETING

    def find_source_id(self, instance_id: str) -> str | None:
        """Return the source of a replica; None: the instance is none, or does not exist."""
        row = find_row(instance_models.DBInstance, instance_id)
        return None if row is None else row.slave_of_id

    def find_instance_of_volume(self, volume_id: str) -> backup_types.Instance | None:
        """Return the instance that has a volume and is not deleted."""
        rows = instance_models.DBInstance.find_all(volume_id=volume_id, deleted=False)
        row = next(iter(rows), None)
        return None if row is None else _instance(row, version_of(row.datastore_version_id))

    def list_instances(self) -> list[backup_types.Instance]:
        """List the instances that are not deleted."""
        rows = list(instance_models.DBInstance.find_all(deleted=False))
        versions = {
            version_id: version_of(version_id)
            for version_id in {row.datastore_version_id for row in rows}
        }
        return [_instance(row, versions[row.datastore_version_id]) for row in rows]

    def list_replicas(self, source_id: str) -> list[backup_types.Instance]:
        """List the replicas of an instance that are not deleted, even if they have failed."""
        rows = instance_models.DBInstance.find_all(slave_of_id=source_id, deleted=False)
        return [_instance(row, version_of(row.datastore_version_id)) for row in rows]

    def has_replicas(self) -> bool:
        """Return whether an instance that is not deleted is a replica."""
        model = instance_models.DBInstance
        found = model.find_by_filter(filters=[model.slave_of_id.is_not(None)], deleted=False)
        return next(iter(found), None) is not None

    def list_replicated_volumes(self) -> list[str]:
        """List the ids of the volumes of replicas and of their sources."""
        model = instance_models.DBInstance
        replicas = list(
            model.find_by_filter(filters=[model.slave_of_id.is_not(None)], deleted=False)
        )
        source_ids = {row.slave_of_id for row in replicas}
        sources = list(model.find_by_filter(filters=[model.id.in_(source_ids)], deleted=False))
        return sorted({row.volume_id for row in replicas + sources if row.volume_id})

    def list_servers(self, instance_ids: Collection[str]) -> Mapping[str, str | None]:
        """Return the servers of instances, by the ids of those that are not deleted.

        None: there is no server, or a task is under way that may change it.
        """
        model = instance_models.DBInstance
        rows = model.find_by_filter(filters=[model.id.in_(instance_ids)], deleted=False)
        return {
            row.id: row.compute_instance_id if row.task_status == InstanceTasks.NONE else None
            for row in rows
        }

    def set_volume(self, instance_id: str, volume_id: str | None) -> None:
        """Set the volume of an instance; do nothing if the instance is deleted."""
        row = find_row(instance_models.DBInstance, instance_id)
        if row is not None and not row.deleted:
            row.update(volume_id=volume_id)

    def check_volume_quota(self, instance_id: str, size_gib: int) -> None:
        """Check that the volume of an instance may be that large by the quota of its project."""
        row = find_row(instance_models.DBInstance, instance_id)
        growth_gib = 0 if row is None else size_gib - (row.volume_size or 0)
        if growth_gib <= 0:
            return
        limit = quota.QUOTAS.get_quota_by_tenant(row.tenant_id, 'volumes')
        usage = quota.QUOTAS.get_quota_usage(limit)
        used_gib = usage.in_use + usage.reserved
        if 0 <= limit.hard_limit < used_gib + growth_gib:
            raise exceptions.ReplicaRefusedError(
                f'instance {instance_id}: its source has grown, so the fresh clone needs '
                f'{growth_gib} GiB more of the quota of volumes, of which {used_gib} of '
                f'{limit.hard_limit} GiB are used; delete instances, or ask for a larger quota'
            )

    def fail_volume(self, instance_id: str) -> None:
        """Show that building an instance failed at its volume; do nothing if it is deleted."""
        row = find_row(instance_models.DBInstance, instance_id)
        if row is not None and not row.deleted:
            row.update(task_status=InstanceTasks.BUILDING_ERROR_VOLUME)

    def fail_replica(self, instance_id: str) -> None:
        """Show that a replica in BUILD failed; do nothing if it is in another state."""
        row = find_row(instance_models.DBInstance, instance_id)
        if row is not None and not row.deleted and row.task_status == InstanceTasks.BUILDING:
            row.update(task_status=InstanceTasks.BUILDING_ERROR_REPLICA)

    def fail_creation(self, instance_id: str, fault: str) -> bool:
        """Show that an instance in BUILD failed, so that its tenant can delete it.

        :param fault: what the tenant reads
        :returns: False when the instance is gone or no longer in BUILD
        """
        row = find_row(instance_models.DBInstance, instance_id)
        if row is None or row.deleted or row.task_status != InstanceTasks.BUILDING:
            return False
        row.update(task_status=InstanceTasks.BUILDING_ERROR_SERVER)
        instance_models.save_instance_fault(instance_id, fault, '')
        return True

    def find_backup(self, backup_id: str) -> backup_types.TroveBackup | None:
        """Return a backup, even a deleted one."""
        row = find_row(backup_models.DBBackup, backup_id)
        return None if row is None else _backup(row)

    def list_new_backups(self) -> list[backup_types.TroveBackup]:
        """List backups that have not begun."""
        rows = backup_models.DBBackup.find_all(
            state=BackupState.NEW, storage_driver='cinder', deleted=False
        )
        return [_backup(row) for row in rows]

    def list_running_backups(self) -> list[str]:
        """List the ids of the backups that have not begun, or are shown as being taken."""
        model = backup_models.DBBackup
        states = [BackupState.NEW, BackupState.BUILDING]
        rows = model.find_by_filter(
            filters=[model.state.in_(states)], storage_driver='cinder', deleted=False
        )
        return [row.id for row in rows]

    def begin_backup(self, backup_id: str) -> None:
        """Show a backup as being taken, and without a parent.

        Trove's API deletes the children of a backup with it. It refuses to do so while a child is
        being taken, and afterwards this backup has no parent.

        :raises RecordNotFoundError: the backup is deleted
        """
        self._update(backup_id, state=BackupState.BUILDING, size=0.0, location=None, parent_id=None)

    def complete_backup(self, backup_id: str, snapshot_id: str, size_gib: int) -> None:
        """Show a backup as complete, with the location of its snapshot.

        :param size_gib: of the volume; Trove refuses to restore to a smaller one
        :raises RecordNotFoundError: the backup is deleted
        """
        self._update(
            backup_id,
            state=BackupState.COMPLETED,
            size=float(size_gib),
            location=f'{_LOCATION}{snapshot_id}',
            checksum=None,
        )

    def fail_backup(self, backup_id: str) -> None:
        """Show a backup as failed; do nothing if it is deleted."""
        self._update_if_present(backup_id, state=BackupState.FAILED)

    def fail_deletion(self, backup_id: str) -> None:
        """Show that the deletion of a backup failed; do nothing if it is deleted."""
        self._update_if_present(backup_id, state=BackupState.DELETE_FAILED)

    def delete_backup(self, backup_id: str) -> None:
        """Mark a backup as deleted and release its datastore version; harmless when repeated."""
        self._update_if_present(
            backup_id, deleted=True, deleted_at=timeutils.utcnow(), datastore_version_id=None
        )

    def count_backup(self, project_id: str) -> None:
        """Add one backup to the used quota of a project, even beyond the limit.

        Trove's API subtracts one at each request to delete a backup, even if that still exists.
        It does so after it has sent the request, so perhaps now.
        """
        limit = quota.QUOTAS.get_quota_by_tenant(project_id, 'backups')
        # Creates the row if it is missing.
        usage = quota.QUOTAS.get_quota_usage(limit)
        model = quota_models.QuotaUsage
        with model.query() as query:
            query.filter_by(id=usage.id).update(
                {'in_use': model.in_use + 1}, synchronize_session=False
            )

    def _update(self, backup_id: str, **values: Any) -> None:
        row = find_row(backup_models.DBBackup, backup_id)
        if row is None or row.deleted:
            raise exceptions.RecordNotFoundError(f'backup {backup_id}: was deleted')
        row.update(**values)

    def _update_if_present(self, backup_id: str, **values: Any) -> None:
        row = find_row(backup_models.DBBackup, backup_id)
        if row is not None and not row.deleted:
            row.update(**values)


def find_row(kind: Any, row_id: str) -> Any:
    """Return a row of one of Trove's models, even a deleted one; None: there is none."""
    try:
        return kind.find_by(id=row_id)
    except trove_exceptions.ModelNotFoundError:
        return None


def task_name(code: int | None) -> str:
    """Return the name of a task, such as PROMOTION_ERROR; its action may be that of another."""
    for name, value in vars(InstanceTasks).items():
        if isinstance(value, InstanceTask) and value.code == code:
            return name
    return 'NONE'


def _instance(row: Any, version: 'Version') -> backup_types.Instance:
    return backup_types.Instance(
        row.id,
        row.tenant_id,
        row.volume_id,
        row.compute_instance_id,
        version.datastore,
        version.name,
        is_building=row.task_status == InstanceTasks.BUILDING,
        is_deleting=row.task_status == InstanceTasks.DELETING,
        is_deleted=bool(row.deleted),
        has_our_guest_agent=version.has_our_guest_agent,
        source_id=row.slave_of_id,
        created_at=row.created.replace(tzinfo=None),
    )


def _backup(row: Any) -> backup_types.TroveBackup:
    version = version_of(row.datastore_version_id)
    return backup_types.TroveBackup(
        row.id,
        row.tenant_id,
        row.instance_id,
        row.name,
        row.description or '',
        row.parent_id,
        bool(row.deleted),
        version.datastore,
        version.name,
        _snapshot_of(row),
    )


def _snapshot_of(row: Any) -> str | None:
    if row.state == BackupState.COMPLETED and row.is_snapshot:
        return row.location.removeprefix(_LOCATION)
    return None


@dataclasses.dataclass(frozen=True)
class Version:
    """A datastore version; the defaults stand for that of a deleted instance, which is gone."""

    datastore: str = ''
    name: str = ''
    has_our_guest_agent: bool = True


def version_of(version_id: str | None) -> Version:
    """Return a datastore version by its id."""
    if version_id is None:
        return Version()
    found = datastore_models.DatastoreVersion.load_by_uuid(version_id)
    datastore = datastore_models.Datastore.load(found.datastore_id).name
    is_ours = (found.registry_ext or '').startswith(_GUEST_MANAGERS)
    return Version(datastore, found.name, is_ours)
