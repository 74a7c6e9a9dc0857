# SPDX-License-Identifier: Apache-2.0
"""Where a volume is restored from and to, and what is refused; nothing is changed."""

from oslo_utils import units

from trove_ceph import exceptions
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.db import backup_record
from trove_ceph.storage import copying, image_types
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.strategies.restore.restore_types import RestorePlan, RestoreRequest


def plan(
    deps: BackupDependencies, wanted: RestoreRequest, prefer_copy: bool = False
) -> RestorePlan:
    """Return how a volume is made of a backup.

    :param prefer_copy: take the copy in the vault, and the snapshot where there is none
    :raises InvalidBackupError: it cannot be restored, or not as it was asked for
    :raises VolumeTooSmallError: it does not fit
    :raises QuotaExceededError: Cinder would not make the volume
    """
    record = deps.records.get(wanted.backup_id)
    _check_state(record)
    _check_version(deps, wanted)
    _check_size(record, wanted)
    backends = _find_backends(deps, wanted)
    _check_quota(deps, wanted)
    source = _find_source(deps, record, prefer_copy)
    backend = next((one for one in backends if one.pool == source.pool), backends[0])
    by_cinder = source == record.location and source.pool == backend.pool
    return RestorePlan(source, backend, by_cinder)


def _check_state(record: backup_record.BackupRecord) -> None:
    if not record.state.can_be_restored:
        reason = record.verify_error or record.error
        raise exceptions.InvalidBackupError(
            f'backup {record.backup_id}: is {record.state}' + (f': {reason}' if reason else '')
        )


def _check_version(deps: BackupDependencies, wanted: RestoreRequest) -> None:
    backup = deps.trove.find_backup(wanted.backup_id)
    instance = deps.trove.find_instance(wanted.instance_id)
    if backup is None or backup.is_deleted or instance is None or instance.is_deleted:
        raise exceptions.InvalidBackupError(f'{wanted}: one of them was deleted')
    of, to = (f'{one.datastore} {one.version}' for one in (backup, instance))
    if of != to:
        # A server may refuse data of another version, or change it for good.
        raise exceptions.InvalidBackupError(
            f'backup {wanted.backup_id}: is of {of}, and instance {wanted.instance_id} of {to}; '
            'restore it to its own version, and upgrade the instance'
        )


def _check_size(record: backup_record.BackupRecord, wanted: RestoreRequest) -> None:
    needed_gib = -(-(record.size_bytes or 0) // units.Gi)
    if wanted.size_gib < needed_gib:
        raise exceptions.VolumeTooSmallError(
            f'backup {record.backup_id}: needs a volume of {needed_gib} GiB, not {wanted.size_gib}'
        )


def _find_backends(
    deps: BackupDependencies, wanted: RestoreRequest
) -> list[cinder_resources.StorageBackend]:
    volume_type = deps.cinder.find_type(wanted.volume_type)
    if volume_type is None:
        raise exceptions.InvalidBackupError(
            f'{wanted}: there is no volume type {wanted.volume_type}'
        )
    found = [
        one
        for one in deps.cinder.list_backends()
        if volume_type.backend_name in (None, one.backend_name)
    ]
    if not found:
        raise exceptions.InvalidBackupError(
            f'{wanted}: volume type {wanted.volume_type} is on no tier that is up'
        )
    return found


def _check_quota(deps: BackupDependencies, wanted: RestoreRequest) -> None:
    project_id = deps.cinder.project_id
    if shortage := deps.cinder.find_shortage(project_id, wanted.volume_type, wanted.size_gib):
        raise exceptions.QuotaExceededError(f'{wanted}: {shortage}')


def _find_source(
    deps: BackupDependencies, record: backup_record.BackupRecord, prefer_copy: bool
) -> image_types.SnapshotRef:
    places = [record.location, record.copy if record.copied_at else None]
    problem = exceptions.InvalidBackupError(
        f'backup {record.backup_id}: neither its snapshot nor a complete copy of it can be read'
    )
    for place in filter(None, places[::-1] if prefer_copy else places):
        try:
            facts = deps.storage.describe(place.of)
        except exceptions.StorageError as error:
            # The other place is there for this.
            problem.add_note(f'{place}: {error}')
            continue
        if place.name not in facts.snapshot_names:
            problem.add_note(f'{place}: is gone')
        elif place == record.copy and place.name not in copying.complete_copies(facts):
            problem.add_note(f'{place}: is not complete')
        else:
            return place
    raise problem
