# SPDX-License-Identifier: Apache-2.0
"""Create a volume from a backup where Cinder cannot: from the vault, or on another tier.

A clone takes the same time at any size, is usable at once, and may be in any pool. Its name has the
id of the instance, by which a later run finds all that was created for it.
"""

from trove_ceph import steps
from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.strategies.backup.dependencies import BackupDependencies
from trove_ceph.strategies.restore import cloned_volume
from trove_ceph.strategies.restore.restore_types import RestorePlan, RestoreRequest


def clone_volume(deps: BackupDependencies, request: RestoreRequest, plan: RestorePlan) -> None:
    """Create the volume and assign it to the instance.

    :raises TroveCephError: the volume could not be created; nothing is left of it
    """
    steps.run(str(request), VolumeClone(deps, request, plan).steps())


class VolumeClone:
    """One volume that is being created from a backup."""

    def __init__(self, deps: BackupDependencies, request: RestoreRequest, plan: RestorePlan):
        self._request = request
        self._volume = cloned_volume.ClonedVolume(
            deps,
            cloned_volume.CloneRequest(
                'restore',
                request.instance_id,
                request.instance_id,
                plan.source,
                plan.backend,
                request.volume_type,
                {
                    'backup_id': request.backup_id,
                    cinder_resources.DEPENDENT_KEY: cinder_resources.DEPENDENT,
                },
            ),
        )

    def steps(self) -> list[steps.Step]:
        """Return the steps."""
        return self._volume.steps_for_instance(self._request.size_gib)
