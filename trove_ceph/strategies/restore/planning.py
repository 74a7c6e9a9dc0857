# SPDX-License-Identifier: Apache-2.0
"""Where a volume is restored from and to, and what is refused; nothing is changed."""

from trove_ceph import exceptions
from trove_ceph.cinder import model as cinder_model
from trove_ceph.db import model as db_model
from trove_ceph.storage import copying
from trove_ceph.storage import model as storage_model
from trove_ceph.strategies.backup.tools import Tools
from trove_ceph.strategies.restore.model import Plan, Wanted


def plan(tools: Tools, wanted: Wanted, prefer_copy: bool = False) -> Plan:
    """Return how a volume is made of a backup.

    :param prefer_copy: take the copy in the vault, and the snapshot where there is none
    :raises InvalidBackupError: it cannot be restored, or not as it was asked for
    :raises VolumeTooSmallError: it does not fit
    :raises QuotaExceededError: Cinder would not make the volume
    """
    record = tools.records.get(wanted.backup_id)
    _check_state(record)
    _check_version(tools, wanted)
    _check_size(record, wanted)
    backends = _find_backends(tools, wanted)
    _check_quota(tools, wanted)
    source = _find_source(tools, record, prefer_copy)
    backend = next((one for one in backends if one.pool == source.pool), backends[0])
    by_cinder = source == record.place and source.pool == backend.pool
    return Plan(source, backend, by_cinder)


def _check_state(record: db_model.Backup) -> None:
    if not record.state.can_be_restored:
        reason = record.verify_error or record.error
        raise exceptions.InvalidBackupError(
            f'backup {record.backup_id}: is {record.state}' + (f': {reason}' if reason else '')
        )


def _check_version(tools: Tools, wanted: Wanted) -> None:
    backup = tools.trove.find_backup(wanted.backup_id)
    instance = tools.trove.find_instance(wanted.instance_id)
    if backup is None or backup.is_deleted or instance is None or instance.is_deleted:
        raise exceptions.InvalidBackupError(f'{wanted}: one of them was deleted')
    of, to = (f'{one.datastore} {one.version}' for one in (backup, instance))
    if of != to:
        # A server may refuse data of another version, or change it for good.
        raise exceptions.InvalidBackupError(
            f'backup {wanted.backup_id}: is of {of}, and instance {wanted.instance_id} of {to}; '
            'restore it to its own version, and upgrade the instance'
        )


def _check_size(record: db_model.Backup, wanted: Wanted) -> None:
    needed_gib = -(-(record.size_bytes or 0) // cinder_model.GIB)
    if wanted.size_gib < needed_gib:
        raise exceptions.VolumeTooSmallError(
            f'backup {record.backup_id}: needs a volume of {needed_gib} GiB, not {wanted.size_gib}'
        )


def _find_backends(tools: Tools, wanted: Wanted) -> list[cinder_model.StorageBackend]:
    volume_type = tools.cinder.find_type(wanted.volume_type)
    if volume_type is None:
        raise exceptions.InvalidBackupError(
            f'{wanted}: there is no volume type {wanted.volume_type}'
        )
    found = [
        one
        for one in tools.cinder.list_backends()
        if volume_type.backend_name in (None, one.backend_name)
    ]
    if not found:
        raise exceptions.InvalidBackupError(
            f'{wanted}: volume type {wanted.volume_type} is on no tier that is up'
        )
    return found


def _check_quota(tools: Tools, wanted: Wanted) -> None:
    project_id = tools.cinder.project_id
    if shortage := tools.cinder.find_shortage(project_id, wanted.volume_type, wanted.size_gib):
        raise exceptions.QuotaExceededError(f'{wanted}: {shortage}')


def _find_source(
    tools: Tools, record: db_model.Backup, prefer_copy: bool
) -> storage_model.SnapshotRef:
    places = [record.place, record.copy if record.copied_at else None]
    problem = exceptions.InvalidBackupError(
        f'backup {record.backup_id}: neither its snapshot nor a complete copy of it can be read'
    )
    for place in filter(None, places[::-1] if prefer_copy else places):
        try:
            facts = tools.storage.describe(place.of)
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
