# SPDX-License-Identifier: Apache-2.0
"""The volumes of replicas that are re-provisioned, in Cinder and Ceph."""

import functools
from collections.abc import Callable, Collection

from oslo_log import log as logging
from oslo_utils import units

from trove_ceph import exceptions, steps
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.db.replica_record import ReplicaRecord
from trove_ceph.db.replication_policies import ReplicationPolicyStore
from trove_ceph.storage import image_types
from trove_ceph.strategies.backup import tenant_errors
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.strategies.replication import clones, placement, source_checks
from trove_ceph.strategies.replication.dependencies import Limits
from trove_ceph.strategies.restore import cloned_volume, room
from trove_ceph.tiers import tier_types

LOG = logging.getLogger(__name__)

#: Errors that no repetition of the attempt repairs.
_REFUSALS = (
    exceptions.NoSpaceError,
    exceptions.QuotaExceededError,
    exceptions.ReplicaRefusedError,
    exceptions.UnsafeSettingsError,
)


class ReplicaVolumes:
    """The data volumes; see :class:`.reprovision_dependencies.Volumes`.

    :param deps: of backups, with the clients of Cinder and of the storage service
    :param detach: see :meth:`.ReplacementVolumes.detach`
    """

    def __init__(self, deps: BackupDependencies, detach: Callable[[str, str], None]):
        self._deps = deps
        self.detach = detach

    def find_servers(self, volume_id: str) -> Collection[str]:
        """Return the ids of the servers for which Cinder attaches or reserves a volume."""
        return self._deps.cinder.find_attachments(volume_id).keys()

    def is_attached(self, volume_id: str) -> bool:
        """Return whether the attachment of a volume is complete."""
        volume = self._deps.cinder.find_volume(volume_id)
        return volume is not None and volume.status == 'in-use'

    def roll_back_detachment(self, volume_id: str) -> None:
        """Have a volume attached again whose detachment nothing continues; idempotent.

        Do nothing unless Cinder shows it as being detached. A volume without any attachment becomes
        available.
        """
        volume = self._deps.cinder.find_volume(volume_id)
        if volume is None or volume.status != 'detaching':
            return
        if self._deps.cinder.find_attachments(volume_id):
            self._deps.cinder.roll_back_detachment(volume_id)
        else:
            # Cinder has no attachment left that could be ended again.
            self._deps.cinder.set_volume_status(volume_id, 'available')

    def can_be_read(self, volume_id: str) -> bool:
        """Return whether the pool of a volume answers, and has its image.

        :raises ServiceUnavailableError: Cinder, or the storage service, does not answer
        """
        return self._exists(volume_id) is True

    def is_gone(self, volume_id: str) -> bool:
        """Return whether a volume does not exist, in Cinder or in Ceph.

        :raises ServiceUnavailableError: Cinder, or the storage service, does not answer
        """
        return self._exists(volume_id) is False

    def _exists(self, volume_id: str) -> bool | None:
        """Return whether a volume exists; None: its pool does not answer, or is no tier's now."""
        volume = self._deps.cinder.find_volume(volume_id)
        if volume is None:
            return False
        image = self._deps.find_image(volume)
        if image is None:
            return None
        try:
            self._deps.storage.describe(image, with_usage=False)
        except exceptions.NotFoundError:
            return False
        except exceptions.StorageError:
            return None
        return True

    def find_size_gib(self, volume_id: str) -> int | None:
        """Return the size of a volume; None: Cinder has no such volume."""
        volume = self._deps.cinder.find_volume(volume_id)
        return None if volume is None else volume.size_gib

    def find_own_bytes(self, volume_id: str) -> int | None:
        """Return the space that a volume does not share; None: it cannot be measured now."""
        try:
            volume = self._deps.cinder.find_volume(volume_id)
            image = None if volume is None else self._deps.find_image(volume)
            if image is None:
                return None
            return self._deps.storage.describe(image, with_usage=True).used_bytes
        except exceptions.TroveCephError as error:
            LOG.info('Volume %s: its own space is not measured: %s', volume_id, error)
            return None

    def discard(self, volume_id: str, record: ReplicaRecord) -> None:
        """Have a volume deleted that no instance uses, whenever its pool answers; idempotent."""
        self._deps.records.keep_volume(volume_id, record.instance_id, record.project_id)

    def is_discarded(self, volume_id: str) -> bool:
        """Return whether :meth:`discard` was called, so that the volume may be deleted by now."""
        return self._deps.records.find_kept_volume(volume_id) is not None


class ReplicaClones:
    """The fresh clones of sources; see :class:`.reprovision_dependencies.Clones`.

    :param deps: of backups, whose clients check the claim of a worker before each request
    :param tiers: reads the tiers file; raises InvalidTiersError if it cannot be used
    :param policies: of the sources
    :param limits: of the depth of clones
    """

    def __init__(
        self,
        deps: BackupDependencies,
        tiers: Callable[[], tier_types.TiersFile],
        policies: ReplicationPolicyStore,
        limits: Limits,
    ):
        self._deps = deps
        self._tiers = tiers
        self._policies = policies
        self._limits = limits

    def create(self, record: ReplicaRecord) -> str:
        """Return the volume that is a clone of the source, made after the request.

        It is at least as large as the present volume of the replica, and on the tier that the
        policy of the source names, or the tier of the source, or on that of the present volume.

        :raises ReprovisioningRefusedError: the source, its settings, its policy, or the volume type
            of the replica, do not allow it, or its pool, Cinder's quota, or that of its project has
            no room for the clone
        :raises GuestUnavailableError: the source does not serve
        """
        try:
            return self._create(record)
        except _REFUSALS as error:
            LOG.error('%s: no clone of its source is made: %s', record, error)
            text = tenant_errors.tenant_message(error)
            raise exceptions.ReprovisioningRefusedError(f'{record}: {text}') from error

    def _create(self, record: ReplicaRecord) -> str:
        assert record.request_id is not None
        source, image = self._find_source(record)
        facts = self._deps.storage.describe(image)
        source_checks.check_depth(record.source_id, facts, self._limits.clone_depth)
        old = None if record.volume_id is None else self._deps.cinder.find_volume(record.volume_id)
        target = placement.choose(
            self._deps,
            self._tiers(),
            source,
            image,
            old.volume_type if old else None,
            self._policies.find(record.source_id),
        )
        old_size_gib = old.size_gib if old else 0
        # An earlier attempt may have created the volume: the quota counts it already.
        if not self._deps.cinder.find_volumes(record.request_id):
            size_gib = max(-(-facts.size_bytes // units.Gi), old_size_gib)
            self._deps.trove.check_volume_quota(record.instance_id, size_gib)
            room.check_room(self._deps, str(record), target.backend, target.volume_type, size_gib)
        snapshot = clones.SharedSnapshot(self._deps, image, record.request_id)
        volume = clones.ReplicaVolume(
            self._deps, record.request_id, record.instance_id, snapshot, target
        )
        steps.run(
            f'fresh clone for {record}',
            [
                *clones.steps_of(
                    snapshot,
                    volume,
                    functools.partial(source_checks.check_settings, self._deps, record.source_id),
                ),
                steps.Step('extend the volume', lambda: volume.extend(old_size_gib)),
            ],
            unfinished=(exceptions.ClaimLostError,),
        )
        return volume.volume_id

    def remove(self, record: ReplicaRecord) -> None:
        """Remove all that :meth:`create` has made for a request; idempotent."""
        assert record.request_id is not None
        cloned_volume.remove(self._deps, record.request_id, record.instance_id, record.project_id)
        clones.remove_snapshot(self._deps, record.source_id, record.request_id)

    def _find_source(
        self, record: ReplicaRecord
    ) -> tuple[cinder_resources.Volume, image_types.ImageRef]:
        source = self._deps.trove.find_instance(record.source_id)
        volume_id = None if source is None else source.volume_id
        volume = None if volume_id is None else self._deps.cinder.find_volume(volume_id)
        image = None if volume is None else self._deps.find_image(volume)
        if volume is None or image is None:
            raise exceptions.ReprovisioningRefusedError(
                f'{record}: the volume {volume_id} of the source does not exist, or is on no tier'
            )
        return volume, image
