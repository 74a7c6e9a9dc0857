# SPDX-License-Identifier: Apache-2.0
"""What is asked for when something is restored, and how it is done."""

import dataclasses

from trove_ceph.cinder import resources as cinder_resources
from trove_ceph.storage import image_types


@dataclasses.dataclass(frozen=True)
class RestoreRequest:
    """A volume with a backup's data, for an instance that has nothing yet.

    :param volume_type: names the tier
    """

    instance_id: str
    backup_id: str
    volume_type: str
    size_gib: int

    def __str__(self) -> str:
        return f'restore of backup {self.backup_id} to instance {self.instance_id}'


@dataclasses.dataclass(frozen=True)
class RestorePlan:
    """How the volume is made.

    :param source: what it is cloned from
    :param backend: Cinder's, where the volume will lie
    :param by_cinder: Cinder itself can clone the source: it is a snapshot of Cinder's in this pool
    """

    source: image_types.SnapshotRef
    backend: cinder_resources.StorageBackend
    by_cinder: bool
