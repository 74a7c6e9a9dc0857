# SPDX-License-Identifier: Apache-2.0
"""Golden volumes: images with an initialised MySQL, which new instances clone.

A golden volume is in the pool of a tier, for one version of MySQL and one size. Its name is derived
from what is in it, and its state is the name of its only snapshot, so Ceph alone shows what there
is, and a change of state is atomic.
"""

import dataclasses
import enum
import re
import uuid
from collections.abc import Iterable

from trove_ceph.storage import image_types, names

#: Raised with each change of what a golden volume contains; creations use only this recipe.
RECIPE = 1
#: The largest size.
MOST_GIB = 65536
#: How many times larger than its golden volume a new volume may be. Allocation groups of XFS keep
#: their size when the file system grows, so that their number grows as much.
MOST_GROWTH = 16
#: The owner of the files: Trove's default of ``database_service_uid`` and ``_gid``. A guest with
#: another one changes the owner when it mounts the volume.
OWNER_ID = 1001

#: In the names of their images.
KIND = 'golden'
PREFIX = f'{names.Name(KIND, "")}'
#: The entry in the metadata of an image that tells what is in it.
METADATA_KEY = 'trove_ceph.golden'
_NAMESPACE = uuid.UUID('5d5c9c0e-1a0f-4b0e-9f57-6a1c0d2e7b43')
_VERSION = re.compile(r'\d{1,3}\.\d{1,3}\.\d{1,3}')
_CONTENT = re.compile(rf'({_VERSION.pattern}) (\d+) (\d+)')


class State(enum.StrEnum):
    """The state of a golden volume. All but BUILDING and OUTDATED are names of its snapshot."""

    #: Being filled, or left by an interrupted build.
    BUILDING = 'building'
    #: Filled; its inspection is under way, was interrupted, or did not find it sound.
    BUILT = 'built'
    #: Inspected; creations clone it.
    READY = 'ready'
    #: Ready, but of another recipe; no creation clones it.
    OUTDATED = 'outdated'
    #: To be removed; no creation clones it.
    RETIRED = 'retired'


@dataclasses.dataclass(frozen=True, order=True)
class GoldenVolume:
    """A golden volume, whether it exists or not.

    :param version: of MySQL, with three numbers
    """

    pool: str
    version: str
    size_gib: int
    recipe: int = RECIPE

    def __post_init__(self) -> None:
        if not is_exact(self.version):
            raise ValueError(f'version {self.version}: must have three numbers, such as 9.7.4')
        if not 1 <= self.size_gib <= MOST_GIB:
            raise ValueError(f'size_gib {self.size_gib}: must be 1 to {MOST_GIB}')

    @property
    def id(self) -> str:
        """The id in the name; the same in each pool."""
        return str(uuid.uuid5(_NAMESPACE, self.content))

    @property
    def image(self) -> image_types.ImageRef:
        return image_types.ImageRef(self.pool, names.image_name(KIND, self.id))

    @property
    def content(self) -> str:
        """What the image's metadata say of it."""
        return f'{self.version} {self.size_gib} {self.recipe}'

    def snapshot(self, state: State) -> image_types.SnapshotRef:
        """Return the snapshot that the image has in a state."""
        return self.image.snapshot(state.value)

    def __str__(self) -> str:
        return f'golden volume of MySQL {self.version} with {self.size_gib} GiB in pool {self.pool}'


def is_exact(version: str) -> bool:
    """Return whether a version of MySQL has three numbers, so that it is one release."""
    return bool(_VERSION.fullmatch(version))


def is_golden(image: image_types.ImageRef) -> bool:
    """Return whether an image has the name of a golden volume."""
    name = names.parse(image.name)
    return name is not None and name.kind == KIND


def state_of(facts: image_types.ImageFacts) -> State:
    """Return the state of a golden volume, given its image."""
    for state in (State.RETIRED, State.READY, State.BUILT):
        if state.value in facts.snapshot_names:
            volume = find_content(facts)
            is_current = volume is not None and volume.recipe == RECIPE
            return State.OUTDATED if state is State.READY and not is_current else state
    return State.BUILDING


def find_content(facts: image_types.ImageFacts) -> GoldenVolume | None:
    """Return what an image contains; None: its build was interrupted before it was recorded."""
    found = _CONTENT.fullmatch(facts.metadata.get(METADATA_KEY, ''))
    if found is None:
        return None
    return GoldenVolume(facts.image.pool, found[1], int(found[2]), int(found[3]))


def fitting_sizes(sizes_gib: Iterable[int], size_gib: int) -> list[int]:
    """Return the sizes of golden volumes from which a volume may grow, the largest first.

    :param size_gib: that of the new volume
    """
    fitting = {one for one in sizes_gib if one <= size_gib <= one * MOST_GROWTH}
    return sorted(fitting, reverse=True)
