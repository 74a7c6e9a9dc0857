# SPDX-License-Identifier: Apache-2.0
"""What Cinder's verbs take and return."""

import dataclasses
import datetime
from collections.abc import Mapping

from trove_ceph.storage import image_types, names

#: The metadata by which an operation that is run again finds what it made.
OPERATION_KEY = 'trove_ceph.operation'
#: The metadata of a volume whose image was cloned into another pool: whether it still reads from
#: where it was cloned.
DEPENDENT_KEY = 'trove_ceph.dependent'
DEPENDENT, INDEPENDENT = 'yes', 'no'

_UNDER_WAY = frozenset({'creating', 'deleting', 'extending'})
_FAILED = frozenset({'error', 'error_deleting', 'error_extending'})


class _Resource:
    """What Cinder works on until its status says how that ended."""

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

    :param size_gib: 0 until Cinder has taken the image over
    :param backend: ``host@backend#pool``, or ``cluster@backend#pool`` where cinder-volume is
        clustered; None before it is scheduled
    :param name_id: by which its image is named where that is not the id: after a migration in use
    """

    id: str
    name: str
    status: str
    size_gib: int
    backend: str | None
    project_id: str
    volume_type: str
    metadata: Mapping[str, str]
    name_id: str | None = None
    migration_status: str | None = None
    created_at: datetime.datetime | None = None

    def __str__(self) -> str:
        return f'volume {self.id} ({self.status})'

    @property
    def image_name(self) -> str:
        return f'volume-{self.name_id or self.id}'

    @property
    def has_image(self) -> bool:
        """Cinder has taken an image over, which may lie elsewhere by now."""
        return self.size_gib > 0 and not self.under_way and not self.failed


def rbd_name(snapshot_id: str) -> str:
    """Return the name in Ceph of a snapshot of Cinder's."""
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

    :param backend_name: what it asks of a back end, if it does
    """

    id: str
    name: str
    backend_name: str | None
    multiattach: bool
    encrypted: bool


@dataclasses.dataclass(frozen=True)
class StorageBackend:
    """A back end of Cinder's RBD driver.

    :param name: as volumes name it: ``host@backend#pool``, or ``cluster@backend#pool``, where the
        pool is Cinder's
    :param pool: Ceph's
    """

    name: str
    backend_name: str
    pool: str


@dataclasses.dataclass(frozen=True)
class Transfer:
    """A volume on offer to whoever has the key; the key is told once."""

    id: str
    auth_key: str = dataclasses.field(repr=False)


@dataclasses.dataclass(frozen=True)
class SnapshotToAdopt:
    """What Cinder shall know of a snapshot.

    :param snapshot: by the name that storage.names gives it, which has the operation's id
    :param volume_id: the volume of whose image it is one
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
    """What Cinder shall know of an image, as a volume.

    :param image: by the name that storage.names gives it, which has the operation's id
    :param backend: the name of the back end whose pool the image lies in
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
    """Refuse what the operation did not make: undoing it would delete something of others."""
    found = names.parse(name)
    if found is None or found.id != operation_id:
        raise ValueError(f'{name} is not the name of what operation {operation_id} makes')
