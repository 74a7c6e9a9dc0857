# SPDX-License-Identifier: Apache-2.0
"""Delete the volumes and images of instances and backups once nothing needs them.

An instance that is deleted needs its volume no more, nor does a replica that got another one.

A volume is kept as long as Cinder has snapshots of it: they are backups, and Cinder restores from
them. An image with clones, such as a volume from whose backup another instance was created, is
moved to the trash of its pool, where Ceph keeps it until the last clone is deleted or flattened;
Cinder would copy all of it into each clone. A clone that still reads from the vault is trashed too:
deleting the last clone of a removed snapshot also purges that snapshot, which Cinder's user must
not do in the vault. No failure here fails another operation: the periodic task tries again.
"""

import contextlib

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.cinder import deletion
from trove_ceph.db import backup_record
from trove_ceph.storage import image_types, tasks
from trove_ceph.strategies.backup.dependencies import BackupDependencies

LOG = logging.getLogger(__name__)


def reclaim(deps: BackupDependencies) -> None:
    """Delete the kept volumes and trashed images that nothing needs; safe in several processes."""
    for volume in deps.records.kept_volumes():
        reclaim_volume(deps, volume.volume_id)
    purge_trashed(deps)


def purge_trashed(deps: BackupDependencies) -> None:
    """Start to purge the trashed images that have no clones; return without waiting."""
    for image in deps.records.trashed_images():
        try:
            _purge(deps, image)
        except Exception as error:
            LOG.warning('%s: could not be purged; will retry: %s', image, error)


def reclaim_volume(deps: BackupDependencies, volume_id: str) -> bool:
    """Delete the volume that an instance had, unless something needs it.

    :returns: False if this attempt failed and another one may succeed
    """
    kept = deps.records.find_kept_volume(volume_id)
    if kept is None:
        return True
    subject = f'former volume {volume_id} of instance {kept.instance_id}'
    try:
        if reason := _find_user(deps, kept):
            LOG.info('%s stays: %s', subject, reason)
            return True
    except Exception as error:
        LOG.warning('%s: could not be checked; will retry: %s', subject, error)
        return False
    return delete_volume(deps, volume_id)


def delete_volume(deps: BackupDependencies, volume_id: str) -> bool:
    """Delete a kept volume that nothing needs.

    :returns: False if this attempt failed and another one may succeed
    """
    subject = f'deletion of volume {volume_id}'
    try:
        steps.run(subject, KeptVolumeDeletion(deps, volume_id).steps())
    except Exception as error:
        LOG.warning('%s failed and is retried: %s', subject, error)
        return False
    return True


def trash(deps: BackupDependencies, image: image_types.ImageRef, image_id: str) -> None:
    """Move an image to the trash; a periodic task purges it once it has no clones.

    :param image_id: of the image; another image that has the name now stays
    :raises BusyError: a client has the image open
    """
    # Recorded first, so that an interruption cannot leave it unrecorded; its id stays the same.
    deps.records.record_trashed(image.pool, image_id, image.name)
    with contextlib.suppress(exceptions.NotFoundError):
        deps.storage.trash(image, image_id)


def _find_user(deps: BackupDependencies, kept: backup_record.KeptVolume) -> str | None:
    instance = deps.trove.find_instance(kept.instance_id)
    if instance is not None and not instance.is_deleted and instance.volume_id == kept.volume_id:
        return 'the instance is not deleted'
    if any(one.state in backup_record.UNDER_WAY for one in deps.records.of_volume(kept.volume_id)):
        return 'a backup of it is being created or deleted'
    if found := deps.cinder.list_snapshots(kept.volume_id):
        return f'it has {", ".join(map(str, found))}'
    return None


class KeptVolumeDeletion:
    """The deletion of a kept volume without backups."""

    def __init__(self, deps: BackupDependencies, volume_id: str):
        self._deps = deps
        self._volume_id = volume_id

    def steps(self) -> list[steps.Step]:
        """Return the steps; all roll forward."""
        return [
            steps.Step(
                'move an image with clones, or a clone of another pool, to the trash',
                self._trash,
                commits=True,
            ),
            steps.Step('delete the volume', self._delete),
            steps.Step(
                'delete the record of the volume',
                lambda: self._deps.records.delete_kept_volume(self._volume_id),
            ),
        ]

    def _trash(self) -> None:
        image = self._find_image()
        if image is None:
            return
        facts = self._describe(image)
        if facts is None or facts.snapshot_names:
            return
        if facts.children or (facts.parent and facts.parent.pool != image.pool):
            trash(self._deps, image, facts.image_id)

    def _delete(self) -> None:
        image = self._find_image()
        if image is None or self._describe(image) is None:
            # Ceph has no image that Cinder would delete.
            self._deps.cinder.delete_volume(self._volume_id)
            self._deps.wait_limits.until_gone(self._deps.cinder.find_volume, self._volume_id)
            return
        volume = deletion.VolumeDeletion(
            self._deps.storage, self._deps.cinder, self._volume_id, self._deps.wait_limits
        )
        volume.check_unneeded()
        volume.ensure_deleted()

    def _find_image(self) -> image_types.ImageRef | None:
        volume = self._deps.cinder.find_volume(self._volume_id)
        return self._deps.find_image(volume) if volume else None

    def _describe(self, image: image_types.ImageRef) -> image_types.ImageFacts | None:
        with contextlib.suppress(exceptions.NotFoundError):
            return self._deps.storage.describe(image)
        return None


def _purge(deps: BackupDependencies, image: backup_record.TrashedImage) -> None:
    for trashed in deps.storage.list_trash(image.pool):
        if trashed.image_id == image.image_id:
            if trashed.children:
                LOG.info('%s stays: it has clones %s', image, ', '.join(map(str, trashed.children)))
                return
            job = deps.storage.start(
                f'purge.{image.image_id}', tasks.PurgeTask(image.pool, image.image_id)
            )
            if job.state is not tasks.JobState.DONE:
                # The next call finds it purged and deletes the record.
                return
    if _exists(deps, image):
        # Another process is about to move it to the trash.
        return
    deps.records.delete_trashed_image(image.pool, image.image_id)


def _exists(deps: BackupDependencies, image: backup_record.TrashedImage) -> bool:
    with contextlib.suppress(exceptions.NotFoundError):
        found = deps.storage.describe(image_types.ImageRef(image.pool, image.name))
        return found.image_id == image.image_id
    return False
