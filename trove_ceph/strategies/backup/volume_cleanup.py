# SPDX-License-Identifier: Apache-2.0
"""Giving back what is left of instances and backups, once nothing needs it any more.

A volume is kept as long as Cinder has snapshots of it: they are backups, and tenants restore from
them by Cinder. What clones read from, such as a volume from whose backup another instance was made,
is moved to the trash of its pool, where Ceph keeps it until the last clone is gone or made
independent; Cinder would copy all of it into each of them. So is a clone that still reads from the
vault, where Cinder's user may change nothing: the last clone of a removed snapshot takes that
along. Nothing here fails anybody: what cannot be done now is done later.
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
    """Give back all that nothing needs any more; for several processes at once."""
    for volume in deps.records.kept_volumes():
        reclaim_volume(deps, volume.volume_id)
    purge_trashed(deps)


def purge_trashed(deps: BackupDependencies) -> None:
    """Have deleted for good what lies in the trash and nothing reads from; returns soon."""
    for image in deps.records.trashed_images():
        try:
            _purge(deps, image)
        except Exception as error:
            LOG.warning('%s stays for now: %s', image, error)


def reclaim_volume(deps: BackupDependencies, volume_id: str) -> bool:
    """Delete the volume of an instance that is gone, unless something needs it.

    :returns: False where another attempt may do what this one could not
    """
    kept = deps.records.find_kept_volume(volume_id)
    if kept is None:
        return True
    subject = f'volume {volume_id} of deleted instance {kept.instance_id}'
    try:
        if reason := _find_need(deps, kept):
            LOG.info('%s stays: %s', subject, reason)
            return True
    except Exception as error:
        LOG.warning('%s stays for now: %s', subject, error)
        return False
    return delete_volume(deps, volume_id)


def delete_volume(deps: BackupDependencies, volume_id: str) -> bool:
    """Delete a volume that is kept, and that nothing needs.

    :returns: False where another attempt may do what this one could not
    """
    subject = f'deletion of volume {volume_id}'
    try:
        steps.run(subject, VolumeReclaiming(deps, volume_id).steps())
    except Exception as error:
        LOG.warning('%s failed for now: %s', subject, error)
        return False
    return True


def trash(deps: BackupDependencies, image: image_types.ImageRef, image_id: str) -> None:
    """Move an image to the trash, from where it is purged in time.

    An image that was made by the same name since it was looked at stays.

    :raises BusyError: a client has it open
    """
    # Written down before: its id stays the same.
    deps.records.note_trashed(image.pool, image_id, image.name)
    with contextlib.suppress(exceptions.NotFoundError):
        deps.storage.trash(image, image_id)


def _find_need(deps: BackupDependencies, kept: backup_record.KeptVolume) -> str | None:
    instance = deps.trove.find_instance(kept.instance_id)
    if instance is not None and not instance.is_deleted:
        return 'the instance is not deleted yet'
    if any(one.state in backup_record.UNDER_WAY for one in deps.records.of_volume(kept.volume_id)):
        return 'a backup of it is being worked on'
    if found := deps.cinder.list_snapshots(kept.volume_id):
        return f'it has {", ".join(map(str, found))}'
    return None


class VolumeReclaiming:
    """Deletes a volume of which there are no backups."""

    def __init__(self, deps: BackupDependencies, volume_id: str):
        self._deps = deps
        self._volume_id = volume_id

    def steps(self) -> list[steps.Step]:
        """Return the steps; all roll forward."""
        return [
            steps.Step(
                'move an image that clones read from, or a clone of another pool, to the trash',
                self._trash,
                commits=True,
            ),
            steps.Step('delete the volume', self._delete),
            steps.Step(
                'forget the volume', lambda: self._deps.records.delete_kept_volume(self._volume_id)
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
            # Cinder has nothing to do in Ceph.
            self._deps.cinder.delete_volume(self._volume_id)
            self._deps.patience.until_gone(self._deps.cinder.find_volume, self._volume_id)
            return
        volume = deletion.VolumeDeletion(
            self._deps.storage, self._deps.cinder, self._volume_id, self._deps.patience
        )
        volume.check_unneeded()
        volume.ensure_deleted()

    def _find_image(self) -> image_types.ImageRef | None:
        volume = self._deps.cinder.find_volume(self._volume_id)
        return self._deps.place(volume) if volume else None

    def _describe(self, image: image_types.ImageRef) -> image_types.ImageFacts | None:
        with contextlib.suppress(exceptions.NotFoundError):
            return self._deps.storage.describe(image)
        return None


def _purge(deps: BackupDependencies, image: backup_record.TrashedImage) -> None:
    for trashed in deps.storage.list_trash(image.pool):
        if trashed.image_id == image.image_id:
            if trashed.children:
                LOG.info('%s stays: %s read from it', image, ', '.join(map(str, trashed.children)))
                return
            found = deps.storage.start(
                f'purge.{image.image_id}', tasks.PurgeTask(image.pool, image.image_id)
            )
            if found.state is not tasks.JobState.DONE:
                # Whoever looks next finds it gone.
                return
    if _is_there(deps, image):
        # Somebody is just about to move it there.
        return
    deps.records.delete_trashed_image(image.pool, image.image_id)


def _is_there(deps: BackupDependencies, image: backup_record.TrashedImage) -> bool:
    with contextlib.suppress(exceptions.NotFoundError):
        found = deps.storage.describe(image_types.ImageRef(image.pool, image.name))
        return found.image_id == image.image_id
    return False
