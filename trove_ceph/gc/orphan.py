# SPDX-License-Identifier: Apache-2.0
"""An orphan, and its kinds."""

import dataclasses
import datetime
import enum
from typing import Any

from trove_ceph.storage import image_types


class Kind(enum.StrEnum):
    """The kind of object; records are rows of trove_ceph's own tables."""

    IMAGE = 'image'
    SNAPSHOT = 'snapshot'
    TRASHED_IMAGE = 'trashed image'
    VOLUME = 'volume'
    VOLUME_SNAPSHOT = 'volume snapshot'
    GUEST = 'warm guest'
    JOB = 'job'
    BACKUP_RECORD = 'backup record'
    VOLUME_RECORD = 'volume record'
    TRASH_RECORD = 'trash record'


@dataclasses.dataclass(frozen=True)
class PlacedSnapshot:
    """A snapshot, with its image."""

    image: image_types.ImageFacts
    snapshot: image_types.SnapshotFacts

    @property
    def location(self) -> image_types.SnapshotRef:
        return self.image.image.snapshot(self.snapshot.name)


@dataclasses.dataclass(frozen=True)
class Orphan:
    """An object of trove_ceph that nothing refers to.

    :param target: the object as it was listed
    :param since: when it was created or last changed; None if that is not recorded
    :param reason: why it is an orphan
    :param obstacles: why it cannot be removed now
    :param unknown_id: an instance or backup that this Trove never had, or a warm guest that has no
        record, so that the object may belong to another Trove
    """

    kind: Kind
    target: Any
    name: str
    since: datetime.datetime | None
    reason: str
    obstacles: tuple[str, ...] = ()
    unknown_id: str | None = None

    def __str__(self) -> str:
        return f'{self.kind} {self.name}'

    def stays_because(self, include_unknown: bool = False) -> str | None:
        """Return why it must not be removed; None if it may be.

        :param include_unknown: allow the removal even if this Trove does not know its owner
        """
        reasons = list(self.obstacles)
        if self.unknown_id and not include_unknown:
            reasons.append(f'this Trove knows no instance, backup or guest {self.unknown_id}')
        return '; '.join(reasons) or None
