# SPDX-License-Identifier: Apache-2.0
"""Giving up backups that nobody has ever begun: the message that asked for them is lost.

Trove takes one backup of an instance at a time, so each of those is in the way of all others.
"""

import datetime

from oslo_log import log as logging

from trove_ceph import exceptions
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)

#: Longer than a taskmanager that is busy, or is restarted, lets messages wait.
START_TIMEOUT = datetime.timedelta(minutes=10)
_REASON = 'it was never begun, since nobody was told of it; ask for another one'


def expire_unstarted(deps: BackupDependencies, since: datetime.timedelta) -> None:
    """Show as failed what was asked for so long ago and never begun, and write down why.

    Whoever is told of it nevertheless, later, refuses it.
    """
    for backup in deps.trove.list_new_backups(since):
        try:
            if _is_ours(deps, backup) and deps.records.note_never_begun(
                backup.id, backup.instance_id, backup.project_id, _REASON
            ):
                LOG.warning(
                    'Backup %s of instance %s is given up: %s',
                    *(backup.id, backup.instance_id, _REASON),
                )
                deps.trove.fail_backup(backup.id)
        except exceptions.TroveCephError as error:
            LOG.warning('Backup %s is not given up for now: %s', backup.id, error)


def _is_ours(deps: BackupDependencies, backup: backup_types.TroveBackup) -> bool:
    """Tell whether the agent is ours and the volume, if it is there, one of the tiers'."""
    instance = deps.trove.find_instance(backup.instance_id)
    if instance is not None and not instance.has_our_guest_agent:
        return False
    volume_id = instance.volume_id if instance else None
    volume = deps.cinder.find_volume(volume_id) if volume_id else None
    return volume is not None and deps.find_image(volume) is not None
