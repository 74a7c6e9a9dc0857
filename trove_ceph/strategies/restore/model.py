# SPDX-License-Identifier: Apache-2.0
"""What is asked for when something is restored, and how it is done."""

import dataclasses

from trove_ceph.cinder import model as cinder_model
from trove_ceph.storage import model as storage_model


@dataclasses.dataclass(frozen=True)
class Wanted:
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
class Plan:
    """How the volume is made.

    :param source: what it is cloned from
    :param backend: Cinder's, where the volume will lie
    :param by_cinder: Cinder itself can clone the source: it is a snapshot of Cinder's in this pool
    """

    source: storage_model.SnapshotRef
    backend: cinder_model.StorageBackend
    by_cinder: bool
