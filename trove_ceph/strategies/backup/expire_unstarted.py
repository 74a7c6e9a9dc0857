# SPDX-License-Identifier: Apache-2.0
"""Fail backups that no worker takes, and that block others: Trove takes one at a time.

No worker ever began one whose request was lost. One that has failed stays NEW or BUILDING in Trove
if its worker died, or the database failed, between the record of the failure and Trove's row.
"""

import datetime
from collections.abc import Mapping

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.db.backup_record import RecordState
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)

#: Longer than messages wait for a taskmanager that is busy.
START_TIMEOUT = datetime.timedelta(minutes=10)
_REASON = 'it was never begun, because its request was lost; create another backup'


class UnstartedBackups:
    """The backups that this process has seen waiting for their begin.

    The host of trove-api dates a request by its own clock. So a wait counts from when this process
    first sees it, by the clock of this process.
    """

    def __init__(self) -> None:
        self._seen_at: Mapping[str, float] = {}

    def expire(self, deps: BackupDependencies) -> None:
        """Show as failed, and record as failed, each backup that has waited for START_TIMEOUT.

        A worker that receives the request later refuses it.
        """
        waiting = deps.trove.list_new_backups()
        now = deps.clock()
        self._seen_at = {one.id: self._seen_at.get(one.id, now) for one in waiting}
        for backup in waiting:
            if now - self._seen_at[backup.id] >= START_TIMEOUT.total_seconds():
                _expire(deps, backup)


def _expire(deps: BackupDependencies, backup: backup_types.TroveBackup) -> None:
    try:
        if _is_ours(deps, backup) and deps.records.record_never_begun(
            backup.id, backup.instance_id, backup.project_id, _REASON
        ):
            LOG.warning(
                'Backup %s of instance %s failed: %s', backup.id, backup.instance_id, _REASON
            )
            deps.trove.fail_backup(backup.id)
    except exceptions.TroveCephError as error:
        LOG.warning('Backup %s could not be marked as failed; will retry: %s', backup.id, error)


def show_failures(deps: BackupDependencies) -> None:
    """Show as failed each backup that Trove shows as running and whose record is failed."""
    for backup_id in deps.trove.list_running_backups():
        try:
            record = deps.records.find(backup_id)
            if record is not None and record.state is RecordState.FAILED:
                LOG.warning(
                    'Backup %s had failed and was not shown so: %s', backup_id, record.error
                )
                deps.trove.fail_backup(backup_id)
        except exceptions.TroveCephError as error:
            LOG.warning('Backup %s could not be shown as failed; will retry: %s', backup_id, error)


def _is_ours(deps: BackupDependencies, backup: backup_types.TroveBackup) -> bool:
    """Return whether the instance has our guest agent and a volume on one of the tiers."""
    instance = deps.trove.find_instance(backup.instance_id)
    if instance is not None and not instance.has_our_guest_agent:
        return False
    volume_id = instance.volume_id if instance else None
    volume = deps.cinder.find_volume(volume_id) if volume_id else None
    return volume is not None and deps.find_image(volume) is not None
