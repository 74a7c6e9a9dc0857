# SPDX-License-Identifier: Apache-2.0
"""The names of what operations make: the same whenever an operation is run again.

``trove_ceph.<kind>.<id>``, where the id is that of the operation, or of the instance for what
outlives operations. They never end in ``.clone_snap`` nor look like ``backup.*.snap.*``, which
Cinder's RBD driver and its backup service take for their own and delete, and never begin with
``trove-``: Trove deletes the volume ``trove-<instance id>`` with its instance.
"""

import dataclasses
import re
import uuid

#: What a snapshot is made for; its id is the operation's.
SNAPSHOT_KINDS = frozenset({'backup', 'replica', 'rewind', 'move', 'check'})
#: What an image is; a vault holds all copies of one instance, so its id is the instance's, or the
#: backup's where a copy can be built on none of those.
IMAGE_KINDS = frozenset({'vault', 'restore', 'replica', 'check', 'former'})

_PREFIX = 'trove_ceph'
_PATTERN = re.compile(
    rf'{_PREFIX}\.([a-z]+)\.([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})'
)


@dataclasses.dataclass(frozen=True)
class Name:
    """What a name says."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f'{_PREFIX}.{self.kind}.{self.id}'


def snapshot_name(kind: str, operation_id: str) -> str:
    """Name the snapshot that an operation makes.

    :raises ValueError: the kind is none of SNAPSHOT_KINDS, or the id no UUID
    """
    return _name(kind, operation_id, SNAPSHOT_KINDS)


def image_name(kind: str, owner_id: str) -> str:
    """Name the image that an operation makes, or the one vault of an instance.

    :raises ValueError: the kind is none of IMAGE_KINDS, or the id no UUID
    """
    return _name(kind, owner_id, IMAGE_KINDS)


def parse(name: str) -> Name | None:
    """Read a name back; None when it is not one of ours."""
    found = _PATTERN.fullmatch(name)
    if found is None or found[1] not in SNAPSHOT_KINDS | IMAGE_KINDS:
        return None
    return Name(found[1], found[2])


def _name(kind: str, owner_id: str, kinds: frozenset[str]) -> str:
    if kind not in kinds:
        raise ValueError(f'{kind} is none of {", ".join(sorted(kinds))}')
    return str(Name(kind, str(uuid.UUID(owner_id))))
