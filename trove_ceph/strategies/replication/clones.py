# SPDX-License-Identifier: Apache-2.0
"""Clone the volume of a source for its replicas.

One snapshot serves all replicas that are created together. It is removed as soon as the clones
exist: Ceph keeps what they read until the last of them is flattened or deleted.
"""

import contextlib
import datetime
from collections.abc import Callable, Iterable

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.storage import image_types, names
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.strategies.replication import placement
from trove_ceph.strategies.restore import cloned_volume

LOG = logging.getLogger(__name__)

_KIND = 'replica'
#: Clones are made within seconds of their snapshot.
SNAPSHOT_EXPIRY = datetime.timedelta(hours=1)


class SharedSnapshot:
    """A snapshot of the volume of a source, which is not paused.

    :param image: of the source's volume
    :param operation_id: of the first replica that is created, or of a re-provisioning
    """

    def __init__(self, deps: BackupDependencies, image: image_types.ImageRef, operation_id: str):
        self._deps = deps
        self.ref = image.snapshot(names.snapshot_name(_KIND, operation_id))

    def ensure(self) -> datetime.datetime:
        """Take the snapshot unless it exists; return when it was created, in UTC."""
        try:
            found = self._deps.storage.create_snapshot(self.ref)
        except exceptions.AlreadyExistsError:
            existing = self._deps.storage.describe(self.ref.of).find_snapshot(self.ref.name)
            if existing is None:
                raise
            found = existing
        # The database stores times without a time zone.
        return found.created_at.astimezone(datetime.UTC).replace(tzinfo=None)

    def remove(self) -> None:
        """Remove the snapshot; its clones keep their data; idempotent."""
        with contextlib.suppress(exceptions.NotFoundError):
            self._deps.storage.remove_snapshot(self.ref)

    def release(self) -> None:
        """Remove the snapshot; if that fails, leave it to :func:`remove_old_snapshots`."""
        try:
            self.remove()
        except exceptions.TroveCephError as error:
            LOG.warning('%s was not removed now; will retry: %s', self.ref, error)


class ReplicaVolume(cloned_volume.ClonedVolume):
    """A volume for a replica: a clone of its source, managed by Cinder.

    :param operation_id: that of the instance when it is created, and an id of its own for each
        re-provisioning
    :param instance_id: of the replica
    """

    def __init__(
        self,
        deps: BackupDependencies,
        operation_id: str,
        instance_id: str,
        source: SharedSnapshot,
        target: placement.Placement,
    ):
        request = cloned_volume.CloneRequest(
            _KIND, operation_id, instance_id, source.ref, target.backend, target.volume_type
        )
        super().__init__(deps, request)


def steps_of(
    snapshot: SharedSnapshot, volume: ReplicaVolume, check_settings: Callable[[], str | None]
) -> list[steps.Step]:
    """Return the steps that create the volume of a single replica, with the snapshot for it.

    :param check_settings: checks those of the source; see :func:`.source_checks.check_settings`
    """

    def take() -> None:
        # The settings may have been others when an interrupted attempt took it.
        snapshot.remove()
        settings_id = check_settings()
        snapshot.ensure()
        if check_settings() != settings_id:
            raise exceptions.ReplicaRefusedError(
                f'{snapshot.ref.of}: the settings of its server were changed while it was cloned; '
                'repeat the request'
            )

    return [
        steps.Step('take a snapshot of the source', take, undo=snapshot.remove),
        *volume.steps(),
        steps.Step('remove the snapshot of the source', snapshot.release),
    ]


def remove_snapshot(deps: BackupDependencies, source_id: str, operation_id: str) -> None:
    """Remove the snapshot that an operation has taken of a source; idempotent.

    :param operation_id: see :class:`SharedSnapshot`
    """
    image = _find_image_of(deps, source_id)
    if image is not None:
        SharedSnapshot(deps, image, operation_id).remove()


def remove_snapshots(
    deps: BackupDependencies, source_id: str, are_needed: Callable[[], bool]
) -> None:
    """Remove the snapshots that operations have left on a source; idempotent.

    :param are_needed: returns whether an operation may work on replicas of the source. It is called
        after the snapshots were listed: one of a later operation is not among them
    """
    image = _find_image_of(deps, source_id)
    left = [] if image is None else _list_snapshots(deps, image)
    if left and not are_needed():
        _remove(left)


def remove_old_snapshots(
    deps: BackupDependencies, volume_ids: Iterable[str], now: datetime.datetime
) -> None:
    """Remove the snapshots that interrupted operations have left on volumes.

    No operation fails for want of its snapshot: it takes another one, or its clone exists. It
    raises no error: the periodic task tries again.

    :param volume_ids: of sources
    """
    for volume_id in volume_ids:
        try:
            _remove_old(deps, volume_id, now - SNAPSHOT_EXPIRY)
        except exceptions.TroveCephError as error:
            LOG.warning(
                'Volume %s: snapshots for replicas cannot be removed now; will retry: %s',
                *(volume_id, error),
            )


def _remove_old(deps: BackupDependencies, volume_id: str, before: datetime.datetime) -> None:
    image = _find_image(deps, volume_id)
    if image is not None:
        _remove(_list_snapshots(deps, image, before))


def _find_image_of(deps: BackupDependencies, source_id: str) -> image_types.ImageRef | None:
    source = deps.trove.find_instance(source_id)
    if source is None or source.volume_id is None:
        return None
    return _find_image(deps, source.volume_id)


def _find_image(deps: BackupDependencies, volume_id: str) -> image_types.ImageRef | None:
    volume = deps.cinder.find_volume(volume_id)
    return None if volume is None else deps.find_image(volume)


def _list_snapshots(
    deps: BackupDependencies,
    image: image_types.ImageRef,
    before: datetime.datetime | None = None,
) -> list[SharedSnapshot]:
    """Return the snapshots of an image that operations have taken, or those of before a time."""
    found = []
    with contextlib.suppress(exceptions.NotFoundError):
        for one in deps.storage.describe(image).snapshots:
            name = names.parse(one.name)
            if name and name.kind == _KIND and not one.removed:
                if before is None or one.created_at < before:
                    found.append(SharedSnapshot(deps, image, name.id))
    return found


def _remove(snapshots: Iterable[SharedSnapshot]) -> None:
    for one in snapshots:
        LOG.info('Remove what an interrupted operation has left: %s', one.ref)
        one.remove()
