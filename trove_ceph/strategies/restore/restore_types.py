# SPDX-License-Identifier: Apache-2.0
"""Values that describe a restore: the request and the plan."""

import dataclasses

from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.storage import image_types


@dataclasses.dataclass(frozen=True)
class RestoreRequest:
    """A request for a volume with a backup's data, for an instance that has no volume yet.

    :param volume_type: the name of the volume type, which determines the tier
    """

    instance_id: str
    backup_id: str
    volume_type: str
    size_gib: int

    def __str__(self) -> str:
        return f'restore of backup {self.backup_id} to instance {self.instance_id}'


@dataclasses.dataclass(frozen=True)
class RestorePlan:
    """How to create the volume.

    :param source: the snapshot to clone
    :param backend: the Cinder back end that will have the volume
    :param by_cinder: Cinder itself can clone the source, which is its own snapshot in this pool
    """

    source: image_types.SnapshotRef
    backend: cinder_resources.StorageBackend
    by_cinder: bool
