# SPDX-License-Identifier: Apache-2.0
"""The volumes of hot guests: clones of a golden volume, until they are those of instances.

The id of the guest is that of the operation: by it a later run finds the image and the volume. A
volume that an instance has is never touched on behalf of a guest.
"""

from typing import Protocol

from oslo_log import log as logging

from trove_ceph import exceptions, steps
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.db import heartbeat
from trove_ceph.db.claims import Claim
from trove_ceph.db.guest_record import GuestRecord
from trove_ceph.storage import golden
from trove_ceph.strategies.backup import claimed, volume_cleanup
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.strategies.guests.dependencies import guest_name
from trove_ceph.strategies.guests.hot_spec import HotSpec
from trove_ceph.strategies.restore import cloned_volume, flatten, golden_volume

LOG = logging.getLogger(__name__)

#: Of a volume that is attached, or about to be.
_ATTACHED = ('reserved', 'attaching', 'in-use')


class Servers(Protocol):
    """Nova."""

    def attach_volume(self, server_id: str, volume_id: str) -> None:
        """Request to attach a volume, which then outlives the server.

        :raises ServiceUnavailableError: Nova refuses
        """


class HotVolumes:
    """The volumes of hot guests; each verb is safe to repeat after an interruption."""

    def __init__(self, deps: BackupDependencies, servers: Servers):
        self._deps = deps
        self._servers = servers

    def guarded(self, beating: heartbeat.Heartbeat, claim: Claim) -> 'HotVolumes':
        """Return one that raises ClaimLostError instead of a request once a claim is lost."""
        return HotVolumes(
            claimed.guarded(self._deps, claim), claimed.Guarded(self._servers, beating, claim)
        )

    def find_source(self, spec: HotSpec) -> golden_volume.GoldenSource | None:
        """Return the golden volume to clone; None: none of this size is ready.

        :raises NotAdoptableError: no back end of the volume type is up
        """
        request = golden_volume.GoldenRequest(
            '', spec.version, spec.volume.volume_type, spec.volume.size_gib
        )
        return golden_volume.find_source(self._deps, request, [spec.volume.size_gib])

    def create(self, guest: GuestRecord, spec: HotSpec, source: golden_volume.GoldenSource) -> str:
        """Create the volume of a guest; return its id.

        :raises TroveCephError: it could not be created
        """
        volume = self.plan(guest, spec, source)
        steps.run(f'volume of {guest}', volume.steps())
        # An interrupted round may have begun to remove it.
        self._deps.records.delete_kept_volume(volume.volume_id)
        return volume.volume_id

    def plan(
        self, guest: GuestRecord, spec: HotSpec, source: golden_volume.GoldenSource
    ) -> cloned_volume.ClonedVolume:
        """Return the volume of :meth:`create`, without creating it.

        It is not marked to be flattened before an instance has it, whose agent is told then.
        """
        return cloned_volume.ClonedVolume(
            self._deps,
            cloned_volume.CloneRequest(
                'restore',
                guest.guest_id,
                guest.guest_id,
                source.volume.snapshot(golden.State.READY),
                source.backend,
                spec.volume.volume_type,
                name=guest_name(guest.guest_id),
                description=_description(guest),
            ),
        )

    def ensure_attached(self, server_id: str, volume_id: str) -> None:
        """Request to attach a volume, unless that was done; do not wait.

        :raises ServiceUnavailableError: the volume cannot be attached, or Nova refuses
        """
        volume = self._deps.cinder.find_volume(volume_id)
        status = None if volume is None else volume.status
        if status == 'available':
            self._servers.attach_volume(server_id, volume_id)
        elif status not in _ATTACHED:
            raise exceptions.ServiceUnavailableError(
                f'volume {volume_id} cannot be attached to server {server_id}: expected the '
                f'status available, found {status}'
            )

    def hand_over(self, volume_id: str, instance_id: str, size_gib: int) -> None:
        """Make the volume of a guest that of an instance, in Trove's table first, and in Cinder.

        Then it is extended to the size of the instance, while MySQL runs on it.

        :raises TroveCephError: Cinder refuses, or fails
        """
        self._deps.trove.set_volume(instance_id, volume_id)
        self._deps.cinder.describe_volume(
            volume_id,
            cloned_volume.volume_name(instance_id),
            cloned_volume.volume_description(instance_id),
            {
                cinder_resources.OPERATION_KEY: instance_id,
                cinder_resources.DEPENDENT_KEY: cinder_resources.TO_FLATTEN,
            },
        )
        cloned_volume.extend(self._deps, volume_id, size_gib)

    def take_back(self, guest: GuestRecord, instance_id: str) -> bool:
        """Leave an instance without a volume, so that it can get another one; idempotent.

        The volume is that of the guest again in any case, by the guest's record.

        :returns: whether Cinder shows it as such; if not, a clone for the instance would be taken
            to exist already
        """
        assert guest.volume_id is not None
        self._deps.trove.set_volume(instance_id, None)
        try:
            self._deps.cinder.describe_volume(
                guest.volume_id,
                guest_name(guest.guest_id),
                _description(guest),
                {
                    cinder_resources.OPERATION_KEY: guest.guest_id,
                    cinder_resources.DEPENDENT_KEY: cinder_resources.DEPENDENT,
                },
            )
        except exceptions.TroveCephError as error:
            LOG.warning('%s: volume %s keeps its name: %s', guest, guest.volume_id, error)
            return False
        return True

    def remove(self, guest: GuestRecord) -> bool:
        """Delete what was created for a guest to which nothing is attached; idempotent.

        What cannot be deleted now, the taskmanagers delete later.

        :returns: whether nothing is left in Cinder; otherwise the guest must not get a volume again
        """
        deps, own = self._deps, self._deps.cinder.project_id
        found = self._find(guest)
        if guest.volume_id is not None:
            found.add(guest.volume_id)
        for volume_id in sorted(found):
            instance = deps.trove.find_instance_of_volume(volume_id)
            if instance is None:
                deps.records.keep_volume(volume_id, guest.guest_id, own)
                flatten.stop_flattening(deps, volume_id)
            else:
                # It stays as long as the instance has it, whose creation has failed.
                deps.records.keep_volume(volume_id, instance.id, instance.project_id)
            volume_cleanup.reclaim_volume(deps, volume_id)
        cloned_volume.remove_images(deps, guest.guest_id)
        return not self._find(guest)

    def _find(self, guest: GuestRecord) -> set[str]:
        """Return the volumes in Cinder that were created for a guest, and are no instance's."""
        cinder = self._deps.cinder
        # A tenant may write any metadata to a volume of its own.
        return {
            one.id
            for one in cinder.find_volumes(guest.guest_id)
            if one.project_id == cinder.project_id
        }


def _description(guest: GuestRecord) -> str:
    return f'data volume of warm guest {guest.guest_id}'
