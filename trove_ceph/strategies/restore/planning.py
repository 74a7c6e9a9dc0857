# SPDX-License-Identifier: Apache-2.0
"""Plan a restore: choose source and back end, or refuse the request. Nothing is changed."""

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.cinder import checks
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.db import backup_record
from trove_ceph.storage import copying, image_types
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.strategies.restore import room
from trove_ceph.strategies.restore.restore_types import RestorePlan, RestoreRequest


def plan(
    deps: BackupDependencies, request: RestoreRequest, prefer_copy: bool = False
) -> RestorePlan:
    """Return how to create a volume from a backup.

    :param prefer_copy: use the copy in the vault, and the snapshot only if there is no copy
    :raises InvalidBackupError: the backup cannot be restored, or not as requested
    :raises VolumeTooSmallError: the backup does not fit into the requested volume
    :raises NoSpaceError: the pool for the volume is full
    :raises QuotaExceededError: Cinder's quota does not allow the volume
    """
    record = deps.records.get(request.backup_id)
    _check_state(record)
    _check_version(deps, request)
    _check_size(record, request)
    backends = _find_backends(deps, request)
    source = _find_source(deps, record, prefer_copy)
    backend = next((one for one in backends if one.pool == source.pool), backends[0])
    room.check_room(deps, str(request), backend, request.volume_type, request.size_gib)
    by_cinder = source == record.location and source.pool == backend.pool
    return RestorePlan(source, backend, by_cinder)


def _check_state(record: backup_record.BackupRecord) -> None:
    if not record.state.can_be_restored:
        reason = record.verify_error or record.error
        raise exceptions.InvalidBackupError(
            f'backup {record.backup_id} is {record.state}' + (f': {reason}' if reason else '')
        )


def _check_version(deps: BackupDependencies, request: RestoreRequest) -> None:
    backup = deps.trove.find_backup(request.backup_id)
    instance = deps.trove.find_instance(request.instance_id)
    if backup is None or backup.is_deleted or instance is None or instance.is_deleted:
        raise exceptions.InvalidBackupError(f'{request}: the backup or the instance was deleted')
    source, target = (f'{one.datastore} {one.version}' for one in (backup, instance))
    if source != target:
        # A server may refuse data of another version, or upgrade it irreversibly.
        raise exceptions.InvalidBackupError(
            f'backup {request.backup_id} is of {source}, but instance {request.instance_id} is of '
            f'{target}; restore it to its own version, then upgrade the instance'
        )


def _check_size(record: backup_record.BackupRecord, request: RestoreRequest) -> None:
    needed_gib = -(-(record.size_bytes or 0) // units.Gi)
    if request.size_gib < needed_gib:
        raise exceptions.VolumeTooSmallError(
            f'backup {record.backup_id}: needs a volume of {needed_gib} GiB, not {request.size_gib}'
        )


def _find_backends(
    deps: BackupDependencies, request: RestoreRequest
) -> list[cinder_resources.StorageBackend]:
    try:
        return checks.find_backends(deps.cinder, str(request), request.volume_type)
    except exceptions.NotAdoptableError as error:
        raise exceptions.InvalidBackupError(str(error)) from error


def _find_source(
    deps: BackupDependencies, record: backup_record.BackupRecord, prefer_copy: bool
) -> image_types.SnapshotRef:
    locations = [record.location, record.copy if record.copied_at else None]
    problem = exceptions.InvalidBackupError(
        f'backup {record.backup_id}: neither its snapshot nor a complete copy can be read'
    )
    for location in filter(None, locations[::-1] if prefer_copy else locations):
        try:
            facts = deps.storage.describe(location.of)
        except exceptions.StorageError as error:
            # The other location may still be readable.
            problem.add_note(f'{location}: {error}')
            continue
        if location.name not in facts.snapshot_names:
            problem.add_note(f'{location} is gone')
        elif location == record.copy and location.name not in copying.complete_copies(facts):
            problem.add_note(f'{location} is incomplete')
        else:
            return location
    raise problem
