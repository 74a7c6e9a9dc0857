# SPDX-License-Identifier: Apache-2.0
"""Deleting an instance so that its backups live on, and its volume as long as they do.

Trove has the volume deleted twice, by Nova together with the server and by its name afterwards,
and takes no notice when Cinder refuses: the volume would stay for ever. Here both leave it alone,
and it is deleted when its last backup is, or at once when there are none.
"""

from collections.abc import Callable

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.strategies.backup import backup_types, volume_cleanup
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)

#: A client that was killed counts as one of the image for half a minute.
_CLOSING_SEC = 60
_POLL_SEC = 5


class InstanceDeletion:
    """One instance that is being deleted.

    :param delete: deletes the instance as Trove does, without its volume
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
            steps.Step('keep the volume from going with the server', self._keep, commits=True),
            steps.Step('delete the instance', self._delete_instance),
            steps.Step('give back the volume', self._reclaim),
        ]

    def _keep(self) -> None:
        instance = self._instance
        assert instance.volume_id is not None
        self._deps.records.keep_volume(instance.volume_id, instance.id, instance.project_id)
        if instance.server_id is None:
            return
        try:
            self._deps.servers.keep_volume(instance.server_id, instance.volume_id)
        except exceptions.ServiceUnavailableError as error:
            # Cinder refuses as long as there are backups.
            LOG.warning(
                'Instance %s: Nova will ask for the deletion of volume %s: %s',
                *(instance.id, instance.volume_id, error),
            )

    def _delete_instance(self) -> None:
        found = self._deps.trove.find_instance(self._instance.id)
        if found is not None and not found.is_deleted:
            self._delete()

    def _reclaim(self) -> None:
        assert self._instance.volume_id is not None
        deadline = self._deps.deadline(_CLOSING_SEC)
        while not volume_cleanup.reclaim_volume(self._deps, self._instance.volume_id):
            if not deadline.pause(_POLL_SEC):
                # The periodic task carries on.
                return
