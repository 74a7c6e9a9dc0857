# SPDX-License-Identifier: Apache-2.0
"""Delete an instance and keep its backups, and keep its volume as long as it has backups.

Trove has the volume deleted twice, by Nova with its server and by its name afterwards, and
ignores a refusal by Cinder, so the volume would stay for ever. Here both leave the volume alone. It
is deleted with its last backup, or at once if it has none.
"""

from collections.abc import Callable

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.strategies.backup import backup_types, volume_cleanup
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)

#: Ceph counts a client that was killed as a watcher of the image for half a minute.
_CLOSE_TIMEOUT_SEC = 60
_POLL_SEC = 5


class InstanceDeletion:
    """One instance that is being deleted.

    :param delete: deletes the instance, as Trove does, but not its volume
    """

    def __init__(
        self, deps: BackupDependencies, instance: backup_types.Instance, delete: Callable[[], None]
    ):
        self._deps = deps
        self._instance = instance
        self._delete = delete

    def steps(self) -> list[steps.Step]:
        """Return the steps; all roll forward."""
        return [
            steps.Step(
                'keep the volume when its Nova server is deleted', self._keep_volume, commits=True
            ),
            steps.Step('delete the instance', self._delete_instance),
            steps.Step('delete the volume if it has no backup', self._reclaim_volume),
            steps.Step('delete the former volumes that have no backup', self._reclaim_others),
            # A replica is trashed, and until it is purged its source keeps the snapshot.
            steps.Step(
                'purge the trashed images that have no clones',
                lambda: volume_cleanup.purge_trashed(self._deps),
            ),
        ]

    def _keep_volume(self) -> None:
        instance = self._instance
        assert instance.volume_id is not None
        self._deps.records.keep_volume(instance.volume_id, instance.id, instance.project_id)
        if instance.server_id is None:
            return
        try:
            self._deps.servers.keep_volume(instance.server_id, instance.volume_id)
        except exceptions.ServiceUnavailableError as error:
            # Cinder refuses the deletion while the volume has snapshots.
            LOG.warning(
                'Instance %s: Nova will request the deletion of volume %s: %s',
                *(instance.id, instance.volume_id, error),
            )

    def _delete_instance(self) -> None:
        found = self._deps.trove.find_instance(self._instance.id)
        if found is not None and not found.is_deleted:
            self._delete()

    def _reclaim_volume(self) -> None:
        assert self._instance.volume_id is not None
        deadline = self._deps.deadline(_CLOSE_TIMEOUT_SEC)
        while not volume_cleanup.reclaim_volume(self._deps, self._instance.volume_id):
            if not deadline.pause(_POLL_SEC):
                # The periodic task tries again.
                return

    def _reclaim_others(self) -> None:
        """Delete what a re-provisioning has left; what cannot be deleted now, is so later."""
        for kept in self._deps.records.kept_volumes():
            if kept.instance_id == self._instance.id and kept.volume_id != self._instance.volume_id:
                volume_cleanup.reclaim_volume(self._deps, kept.volume_id)
