# SPDX-License-Identifier: Apache-2.0
"""The names of images and snapshots of operations, the same each time that an operation runs.

The form is ``trove_ceph.<kind>.<id>`` with the id of the operation, or that of the instance if the
image outlives the operation. A name never ends in ``.clone_snap`` and never matches
``backup.*.snap.*``, which Cinder's RBD driver and its backup service treat as their own and delete.
It never begins with ``trove-``: Trove deletes the volume ``trove-<instance id>`` with its instance.
"""

import dataclasses
import re
import uuid

#: Purposes of a snapshot; the id is that of the operation.
SNAPSHOT_KINDS = frozenset({'backup', 'replica', 'rewind', 'move', 'check'})
#: Purposes of an image. A vault image holds all copies of one instance and has its id, or that of
#: the backup if a copy cannot be an increment of any of those. The id of a golden volume says what
#: is in it.
IMAGE_KINDS = frozenset({'vault', 'restore', 'replica', 'check', 'former', 'golden'})

_PREFIX = 'trove_ceph'
_PATTERN = re.compile(
    rf'{_PREFIX}\.([a-z]+)\.([0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}})'
)


@dataclasses.dataclass(frozen=True)
class Name:
    """The parts of a name."""

    kind: str
    id: str

    def __str__(self) -> str:
        return f'{_PREFIX}.{self.kind}.{self.id}'


def snapshot_name(kind: str, operation_id: str) -> str:
    """Return the name of an operation's snapshot.

    :raises ValueError: the kind is not in SNAPSHOT_KINDS, or the id is not a UUID
    """
    return _name(kind, operation_id, SNAPSHOT_KINDS)


def image_name(kind: str, owner_id: str) -> str:
    """Return the name of an operation's image, or of an instance's vault image.

    :raises ValueError: the kind is not in IMAGE_KINDS, or the id is not a UUID
    """
    return _name(kind, owner_id, IMAGE_KINDS)


def parse(name: str) -> Name | None:
    """Return the parts of a name, or None if it does not have this form."""
    found = _PATTERN.fullmatch(name)
    if found is None or found[1] not in SNAPSHOT_KINDS | IMAGE_KINDS:
        return None
    return Name(found[1], found[2])


def _name(kind: str, owner_id: str, kinds: frozenset[str]) -> str:
    if kind not in kinds:
        raise ValueError(f'kind {kind}: must be one of {", ".join(sorted(kinds))}')
    return str(Name(kind, str(uuid.UUID(owner_id))))
