# SPDX-License-Identifier: Apache-2.0
"""Trove's own tables of instances and backups, of which tenants see the rows.

They are written here and not through trove-conductor, which drops what has an older time than the
guest agent's last word: two clocks.
"""

import dataclasses
import datetime
from typing import Any

from trove.backup import models as backup_models
from trove.backup.state import BackupState
from trove.common import exception as trove_exceptions
from trove.common import timeutils
from trove.datastore import models as datastore_models
from trove.instance import models as instance_models
from trove.instance.tasks import InstanceTasks
from trove.quota import quota

from trove_ceph import exceptions
from trove_ceph.strategies.backup import backup_types

#: What the ``registry_ext`` of datastore versions begins with that our guest manager serves.
_GUEST_MANAGERS = 'trove_ceph.'
#: Before the id of Cinder's snapshot.
_LOCATION = 'cinder://'


class TroveDatabase:
    """The tables of the database that Trove is configured with."""

    def find_instance(self, instance_id: str) -> backup_types.Instance | None:
        """Return an instance, a deleted one too."""
        row = _find(instance_models.DBInstance, instance_id)
        if row is None:
            return None
        return _instance(row, _version(row.datastore_version_id))

    def list_instances(self) -> list[backup_types.Instance]:
        """List the instances that are not deleted."""
        rows = list(instance_models.DBInstance.find_all(deleted=False))
        versions = {
            version_id: _version(version_id)
            for version_id in {row.datastore_version_id for row in rows}
        }
        return [_instance(row, versions[row.datastore_version_id]) for row in rows]

    def set_volume(self, instance_id: str, volume_id: str | None) -> None:
        """Say which volume an instance has; nothing if it is deleted."""
        row = _find(instance_models.DBInstance, instance_id)
        if row is not None and not row.deleted:
            row.update(volume_id=volume_id)

    def fail_volume(self, instance_id: str) -> None:
        """Show that an instance is not built, for want of a volume; nothing if it is deleted."""
        row = _find(instance_models.DBInstance, instance_id)
        if row is not None and not row.deleted:
            row.update(task_status=InstanceTasks.BUILDING_ERROR_VOLUME)

    def find_backup(self, backup_id: str) -> backup_types.TroveBackup | None:
        """Return a backup, a deleted one too."""
        row = _find(backup_models.DBBackup, backup_id)
        return None if row is None else _backup(row)

    def list_new_backups(self, since: datetime.timedelta) -> list[backup_types.TroveBackup]:
        """List what was asked for so long ago, and is not shown as being taken."""
        before = timeutils.utcnow() - since
        rows = backup_models.DBBackup.find_all(
            state=BackupState.NEW, storage_driver='cinder', deleted=False
        )
        return [_backup(row) for row in rows if row.created.replace(tzinfo=None) < before]

    def begin_backup(self, backup_id: str) -> None:
        """Show it as being taken, complete by itself.

        Trove's API deletes with a backup all that name it as their parent. While this one is being
        taken that is refused, and afterwards it names none.

        :raises RecordNotFoundError: it is deleted
        """
        self._update(backup_id, state=BackupState.BUILDING, size=0.0, location=None, parent_id=None)

    def complete_backup(self, backup_id: str, snapshot_id: str, size_gib: int) -> None:
        """Show it as complete, and where it is.

        :param size_gib: of the volume: Trove restores to none that is smaller
        :raises RecordNotFoundError: it is deleted
        """
        self._update(
            backup_id,
            state=BackupState.COMPLETED,
            size=float(size_gib),
            location=f'{_LOCATION}{snapshot_id}',
            checksum=None,
        )

    def fail_backup(self, backup_id: str) -> None:
        """Show that it could not be taken; nothing if it is deleted."""
        self._update_if_there(backup_id, state=BackupState.FAILED)

    def fail_deletion(self, backup_id: str) -> None:
        """Show that it could not be deleted; nothing if it is."""
        self._update_if_there(backup_id, state=BackupState.DELETE_FAILED)

    def delete_backup(self, backup_id: str) -> None:
        """Show it no more, and let its version of the datastore go; harmless when repeated."""
        self._update_if_there(
            backup_id, deleted=True, deleted_at=timeutils.utcnow(), datastore_version_id=None
        )

    def count_backup(self, project_id: str) -> None:
        """Count one more backup against a project's quota, also where that is used up.

        Trove's API counts one less each time it is asked to delete one, though it is still there.
        """
        limit = quota.QUOTAS.get_quota_by_tenant(project_id, 'backups')
        usage = quota.QUOTAS.get_quota_usage(limit)
        usage.in_use += 1
        usage.save()

    def _update(self, backup_id: str, **values: Any) -> None:
        row = _find(backup_models.DBBackup, backup_id)
        if row is None or row.deleted:
            raise exceptions.RecordNotFoundError(f'backup {backup_id}: was deleted')
        row.update(**values)

    def _update_if_there(self, backup_id: str, **values: Any) -> None:
        row = _find(backup_models.DBBackup, backup_id)
        if row is not None and not row.deleted:
            row.update(**values)


def _find(kind: Any, row_id: str) -> Any:
    try:
        return kind.find_by(id=row_id)
    except trove_exceptions.ModelNotFoundError:
        return None


def _instance(row: Any, version: '_Version') -> backup_types.Instance:
    return backup_types.Instance(
        row.id,
        row.tenant_id,
        row.volume_id,
        row.compute_instance_id,
        version.datastore,
        version.name,
        is_deleting=row.task_status == InstanceTasks.DELETING,
        is_deleted=bool(row.deleted),
        has_our_guest_agent=version.has_our_guest_agent,
    )


def _backup(row: Any) -> backup_types.TroveBackup:
    version = _version(row.datastore_version_id)
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
class _Version:
    """A datastore version; that of a deleted instance is gone and tells nothing."""

    datastore: str = ''
    name: str = ''
    has_our_guest_agent: bool = True


def _version(version_id: str | None) -> _Version:
    if version_id is None:
        return _Version()
    found = datastore_models.DatastoreVersion.load_by_uuid(version_id)
    datastore = datastore_models.Datastore.load(found.datastore_id).name
    is_ours = (found.registry_ext or '').startswith(_GUEST_MANAGERS)
    return _Version(datastore, found.name, is_ours)
