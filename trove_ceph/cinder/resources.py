# SPDX-License-Identifier: Apache-2.0
"""Values that the adapter to Cinder takes and returns."""

import dataclasses
import datetime
from collections.abc import Mapping

from trove_ceph.storage import image_types, names

#: Metadata key by which a repeated operation finds the volume or snapshot that it created.
OPERATION_KEY = 'trove_ceph.operation'
#: Metadata key of a volume that is to be flattened: whether it still has its parent.
DEPENDENT_KEY = 'trove_ceph.dependent'
DEPENDENT, INDEPENDENT = 'yes', 'no'
#: In place of DEPENDENT: it is to be flattened even if its parent is in the same pool.
TO_FLATTEN = 'flatten'
#: It is not to be flattened after all, like the volume of any replica.
SHARED = 'shared'

_UNDER_WAY = frozenset({'creating', 'deleting', 'extending'})
_FAILED = frozenset({'error', 'error_deleting', 'error_extending'})


class _Resource:
    """A resource on which Cinder works asynchronously, as its status shows."""

    status: str

    @property
    def under_way(self) -> bool:
        return self.status in _UNDER_WAY

    @property
    def failed(self) -> bool:
        return self.status in _FAILED


@dataclasses.dataclass(frozen=True)
class Volume(_Resource):
    """A volume as Cinder lists it.

    :param size_gib: 0 until Cinder manages the image
    :param backend: ``host@backend#pool``, or ``cluster@backend#pool`` if cinder-volume is
        clustered; None before it is scheduled
    :param snapshot_id: of the snapshot from which Cinder created it; its image may be a clone
    :param name_id: id in the name of the image if it differs from the volume's id, as after a live
        migration
    """

    id: str
    name: str
    status: str
    size_gib: int
    backend: str | None
    project_id: str
    volume_type: str
    metadata: Mapping[str, str]
    snapshot_id: str | None = None
    name_id: str | None = None
    migration_status: str | None = None
    created_at: datetime.datetime | None = None

    def __str__(self) -> str:
        return f'volume {self.id} ({self.status})'

    @property
    def image_name(self) -> str:
        return f'volume-{self.name_id or self.id}'

    @property
    def may_be_clone(self) -> bool:
        """Whether its image may read from another one; False once it was seen not to."""
        if DEPENDENT_KEY in self.metadata:
            return self.is_marked
        return self.snapshot_id is not None

    @property
    def is_marked(self) -> bool:
        """Whether it is marked as a clone, or to be flattened."""
        return self.metadata.get(DEPENDENT_KEY) in (DEPENDENT, TO_FLATTEN)

    @property
    def has_image(self) -> bool:
        """Whether Cinder has managed an image for the volume; it may have moved since."""
        return self.size_gib > 0 and not self.under_way and not self.failed


def rbd_name(snapshot_id: str) -> str:
    """Return the name in Ceph of a snapshot of Cinder."""
    return f'snapshot-{snapshot_id}'


@dataclasses.dataclass(frozen=True)
class Snapshot(_Resource):
    """A snapshot as Cinder lists it."""

    id: str
    name: str
    status: str
    size_gib: int
    volume_id: str
    project_id: str
    metadata: Mapping[str, str]
    created_at: datetime.datetime | None = None

    def __str__(self) -> str:
        return f'snapshot {self.id} ({self.status})'

    @property
    def rbd_name(self) -> str:
        return rbd_name(self.id)


@dataclasses.dataclass(frozen=True)
class VolumeType:
    """A volume type.

    :param backend_name: the required ``volume_backend_name``; None: any
    """

    id: str
    name: str
    backend_name: str | None
    multiattach: bool
    encrypted: bool


@dataclasses.dataclass(frozen=True)
class StorageBackend:
    """A back end of Cinder's RBD driver.

    :param name: ``host@backend#pool`` or ``cluster@backend#pool``, with Cinder's name of the pool
    :param pool: the pool in Ceph
    """

    name: str
    backend_name: str
    pool: str


@dataclasses.dataclass(frozen=True)
class Transfer:
    """An offered volume; the project that presents the key can accept it."""

    id: str
    auth_key: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class SnapshotToAdopt:
    """A request to adopt a snapshot.

    :param snapshot: the librbd snapshot, named by storage.names after the operation
    :param volume_id: the volume whose image has the snapshot
    """

    operation_id: str
    snapshot: image_types.SnapshotRef
    volume_id: str
    name: str
    description: str = ''
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        _require_own(self.snapshot.name, self.operation_id)


@dataclasses.dataclass(frozen=True)
class ImageToAdopt:
    """A request to adopt an image as a volume.

    :param image: the image, named by storage.names after the operation
    :param backend: name of the back end that uses the image's pool
    """

    operation_id: str
    image: image_types.ImageRef
    volume_type: str
    backend: str
    name: str
    description: str = ''
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)
    bootable: bool = False

    def __post_init__(self) -> None:
        _require_own(self.image.name, self.operation_id)


def _require_own(name: str, operation_id: str) -> None:
    """Refuse a name of another operation, because an undo would delete a foreign resource."""
    found = names.parse(name)
    if found is None or found.id != operation_id:
        raise ValueError(f'{name} is not a name that operation {operation_id} gives')
