# SPDX-License-Identifier: Apache-2.0
"""Create the volumes of new replicas.

:func:`plan` refuses what cannot succeed before anything is created. :class:`VolumeCreation` then
clones the volume of the source for all replicas of a request at once. The failure of one replica
leaves the others alone.
"""

import dataclasses
import datetime
import functools

from oslo_utils import units

from trove_ceph import exceptions, steps
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.storage import image_types
from trove_ceph.strategies.backup import backup_types
from trove_ceph.strategies.replication import clones, placement, source_checks
from trove_ceph.strategies.replication.dependencies import ReplicationDependencies
from trove_ceph.strategies.restore import cloned_volume, room


@dataclasses.dataclass(frozen=True)
class ReplicaRequest:
    """A request for replicas of one source.

    :param instance_ids: of the replicas, which exist in Trove's tables without a volume
    :param volume_type: the name of the requested type; None, or that of the source: the policy or
        the tier of the source chooses
    """

    source_id: str
    instance_ids: tuple[str, ...]
    volume_type: str | None = None

    def __str__(self) -> str:
        return f'replicas {", ".join(self.instance_ids)} of instance {self.source_id}'


@dataclasses.dataclass(frozen=True)
class ReplicaPlan:
    """How to create the volumes of a request.

    :param image: of the source's volume
    :param settings_id: changes with each change of the source's settings; None: it is not known
    """

    request: ReplicaRequest
    image: image_types.ImageRef
    target: placement.Placement
    settings_id: str | None


def plan(deps: ReplicationDependencies, request: ReplicaRequest) -> ReplicaPlan:
    """Return how to create the volumes of replicas.

    :raises ReplicaRefusedError: the source cannot have these replicas
    :raises UnsafeSettingsError: the source's settings do not allow clones of it while it serves
    :raises GuestUnavailableError: the source does not serve
    :raises NoSpaceError: the pool for the replicas is nearly full
    :raises QuotaExceededError: Cinder's quota does not allow the volumes
    """
    source = _find_source(deps, request)
    _check_number(deps, request)
    _check_versions(deps, request, source)
    volume, image = _find_volume(deps, request, source)
    facts = deps.backup.storage.describe(image)
    source_checks.check_depth(request.source_id, facts, deps.limits.clone_depth)
    policy = deps.policies.find(request.source_id)
    target = placement.choose(deps.backup, deps.tiers(), volume, image, request.volume_type, policy)
    size_gib, count = -(-facts.size_bytes // units.Gi), len(request.instance_ids)
    # A replica is expendable, and grows; a full OSD would block its source.
    room.check_room(
        deps.backup,
        str(request),
        target.backend,
        target.volume_type,
        size_gib,
        count,
        kept_free=room.KEPT_FREE,
    )
    settings_id = _check_settings(deps, request)
    return ReplicaPlan(request, image, target, settings_id)


class VolumeCreation:
    """The volumes of the replicas of one request, which share a snapshot of their source.

    :ivar failures: why replicas have no volume, by their ids; nothing is left of such a volume
    :ivar cloned_at: when the snapshot was created
    """

    def __init__(self, deps: ReplicationDependencies, planned: ReplicaPlan):
        self._deps = deps
        self._plan = planned
        self._request = planned.request
        # Its name has the id of the first replica, since the request has none.
        self._snapshot = clones.SharedSnapshot(
            deps.backup, planned.image, planned.request.instance_ids[0]
        )
        self.failures: dict[str, Exception] = {}
        self.cloned_at: datetime.datetime | None = None

    def steps(self) -> list[steps.Step]:
        """Return the steps."""
        return [
            steps.Step(
                'take a snapshot of the source', self._take_snapshot, undo=self._snapshot.remove
            ),
            steps.Step('check that no setting was changed meanwhile', self._check_unchanged),
            steps.Step('clone the volumes', self._clone, undo=self._remove_volumes),
            steps.Step('remove the snapshot of the source', self._snapshot.release),
        ]

    def _take_snapshot(self) -> None:
        self.cloned_at = self._snapshot.ensure()

    def _check_unchanged(self) -> None:
        found = source_checks.check_settings(self._deps.backup, self._request.source_id)
        if found != self._plan.settings_id:
            raise exceptions.ReplicaRefusedError(
                f'instance {self._request.source_id}: its settings were changed while its volume '
                'was cloned; create the replica again'
            )

    def _clone(self) -> None:
        begin = self._deps.backup.begin
        waits = {
            instance_id: begin(functools.partial(self._create, instance_id))
            for instance_id in self._request.instance_ids
        }
        for instance_id, wait in waits.items():
            try:
                wait()
            except Exception as error:
                self.failures[instance_id] = error

    def _create(self, instance_id: str) -> None:
        volume = clones.ReplicaVolume(
            self._deps.backup, instance_id, instance_id, self._snapshot, self._plan.target
        )
        subject = f'volume of replica {instance_id} of instance {self._request.source_id}'
        steps.run(subject, [*volume.steps(), volume.assignment()])

    def _remove_volumes(self) -> None:
        trove = self._deps.backup.trove
        for instance_id in self._request.instance_ids:
            instance = trove.find_instance(instance_id)
            if instance is not None:
                trove.set_volume(instance_id, None)
                cloned_volume.remove(
                    self._deps.backup, instance_id, instance_id, instance.project_id
                )


def _find_source(deps: ReplicationDependencies, request: ReplicaRequest) -> backup_types.Instance:
    source = deps.backup.trove.find_instance(request.source_id)
    if source is None or source.is_deleted or source.is_deleting:
        raise _refusal(request, 'was deleted, or is being deleted')
    if source.is_building:
        raise _refusal(request, 'is still being created; wait until it is ACTIVE')
    if source.source_id is not None:
        # It refuses the writes that make an account for the replica.
        raise _refusal(
            request, f'is itself a replica; create a replica of its source {source.source_id}'
        )
    return source


def _check_number(deps: ReplicationDependencies, request: ReplicaRequest) -> None:
    count = len({one.id for one in deps.trove.list_replicas(request.source_id)})
    if count > deps.limits.replicas:
        raise _refusal(
            request,
            f'would have {count} replicas, and may have {deps.limits.replicas}; delete or detach '
            'some',
        )


def _check_versions(
    deps: ReplicationDependencies, request: ReplicaRequest, source: backup_types.Instance
) -> None:
    expected = f'{source.datastore} {source.version}'
    for instance_id in request.instance_ids:
        replica = deps.backup.trove.find_instance(instance_id)
        if replica is not None and (found := f'{replica.datastore} {replica.version}') != expected:
            # A server may refuse data of another version, or upgrade it irreversibly.
            raise _refusal(request, f'is of {expected}, and replica {instance_id} of {found}')


def _find_volume(
    deps: ReplicationDependencies, request: ReplicaRequest, source: backup_types.Instance
) -> tuple[cinder_resources.Volume, image_types.ImageRef]:
    volume = deps.backup.cinder.find_volume(source.volume_id) if source.volume_id else None
    image = deps.backup.find_image(volume) if volume else None
    if volume is None or image is None:
        raise _refusal(request, 'has no volume on a storage tier')
    return volume, image


def _check_settings(deps: ReplicationDependencies, request: ReplicaRequest) -> str | None:
    try:
        return source_checks.check_settings(deps.backup, request.source_id)
    except exceptions.GuestOutdatedError:
        raise
    except exceptions.GuestUnavailableError as error:
        raise exceptions.GuestUnavailableError(
            # Trove shortens a fault: what to do comes first.
            f'instance {request.source_id}: does not serve; restart it, and create the replica '
            f'again when it is HEALTHY: {error}'
        ) from error


def _refusal(request: ReplicaRequest, reason: str) -> exceptions.ReplicaRefusedError:
    return exceptions.ReplicaRefusedError(f'instance {request.source_id}: {reason}')
