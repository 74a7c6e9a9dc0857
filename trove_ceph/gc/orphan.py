# SPDX-License-Identifier: Apache-2.0
"""What is found that belongs to nobody."""

import dataclasses
import datetime
import enum
from typing import Any

from trove_ceph.storage import image_types


class Kind(enum.StrEnum):
    """What it is; the records are rows of trove_ceph's own tables."""

    IMAGE = 'image'
    SNAPSHOT = 'snapshot'
    TRASHED_IMAGE = 'trashed image'
    VOLUME = 'volume'
    VOLUME_SNAPSHOT = 'volume snapshot'
    JOB = 'job'
    BACKUP_RECORD = 'backup record'
    VOLUME_RECORD = 'volume record'
    TRASH_RECORD = 'trash record'


@dataclasses.dataclass(frozen=True)
class PlacedSnapshot:
    """A snapshot, with the image that it is one of."""

    image: image_types.ImageFacts
    snapshot: image_types.SnapshotFacts

    @property
    def place(self) -> image_types.SnapshotRef:
        return self.image.image.snapshot(self.snapshot.name)


@dataclasses.dataclass(frozen=True)
class Orphan:
    """Something of ours that nobody claims.

    :param target: as it was seen
    :param since: when it was made, or last changed; None when nobody noted it
    :param reason: why it is thought to belong to nobody
    :param obstacles: why it is not removed, besides
    :param unknown_id: of which our Trove has never heard, so that it may be another one's
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
        """Say why it is not removed; None when it may be.

        :param include_unknown: what our Trove has never heard of may be
        """
        reasons = list(self.obstacles)
        if self.unknown_id and not include_unknown:
            reasons.append(f'this Trove has never had an instance or a backup {self.unknown_id}')
        return '; '.join(reasons) or None
