# SPDX-License-Identifier: Apache-2.0
"""Comparison of an image's limits with those promised to its volume: pure functions."""

import dataclasses
from typing import Any

from oslo_utils import units

from trove_ceph.storage import image_types
from trove_ceph.tiers import resources, tier_types
from trove_ceph.tiers.qos import limits, ownership


@dataclasses.dataclass(frozen=True)
class Change:
    """A change of an image whose limits differ from those promised to its volume.

    :param tier: name of the tier of the volume's type; None: the type belongs to no tier
    :param owner: the new ownership entry; None: no limit is ours any more
    :param limits_differ: whether to set the limits, not only their ownership; limits with equal
        values may lack settings that belong to them
    """

    volume: resources.VolumeOfTier
    image: image_types.ImageRef
    tier: str | None
    before: image_types.Qos
    after: image_types.Qos
    owner: ownership.LimitOwner | None
    limits_differ: bool

    def __str__(self) -> str:
        return f'volume {self.volume.id} ({self.image}): {self.difference}'

    @property
    def difference(self) -> str:
        """The difference as text."""
        if self.before == self.after and self.limits_differ:
            return f'{text(self.after)}, completed'
        if self.before == self.after:
            action = 'taken over' if self.owner else 'no longer managed'
            return f'{text(self.after)}, {action}'
        return f'{text(self.before)} -> {text(self.after)}'

    def as_document(self) -> dict[str, Any]:
        """Return a value for JSON."""
        return {
            'volume': self.volume.id,
            'image': str(self.image),
            'tier': self.tier,
            'size_gib': self.volume.size_gib,
            'from': dataclasses.asdict(self.before),
            'to': dataclasses.asdict(self.after),
        }


def image_of(
    content: tier_types.TiersFile, volume: resources.VolumeOfTier
) -> image_types.ImageRef | None:
    """Return the image of a volume; None: it is in no tier."""
    for tier in content.tiers.values():
        if tier.volume_type and tier.volume_type.backend == volume.backend:
            return image_types.ImageRef(tier.pool, volume.image_name)
    return None


def tier_of(
    content: tier_types.TiersFile, volume: resources.VolumeOfTier
) -> tier_types.Tier | None:
    """Return the tier of a volume's type, whose limits apply to the volume."""
    return content.find_by_type(volume.volume_type)


def plan(
    content: tier_types.TiersFile, volume: resources.VolumeOfTier, image: image_types.ImageFacts
) -> Change | None:
    """Return the change of a volume's image; None: nothing differs.

    If the tier limits its images, its limits replace all that are set. Otherwise only our own
    limits are removed.
    """
    tier = tier_of(content, volume)
    found = ownership.read(image.metadata)
    new: ownership.LimitOwner | None = None
    if tier and tier.qos is tier_types.TierLimits.IMAGE:
        target = limits.of_volume(tier, volume.size_gib)
        new = ownership.LimitOwner(target, found.ours(image.qos) if found else image_types.Qos())
    elif found:
        target = found.foreign(image.qos)
    else:
        return None
    limits_differ = image.qos != target or not image.qos_is_whole
    if not limits_differ and found and new and found.limits == target:
        return None
    name = tier.name if tier else None
    return Change(volume, image.image, name, image.qos, target, new, limits_differ)


def text(qos: image_types.Qos) -> str:
    """Return limits as text."""
    values = {
        'IOPS': f'{qos.iops}' if qos.iops else '',
        'IOPS burst': f'{qos.iops_burst}' if qos.iops_burst else '',
        'MiB/s': _mib(qos.bytes_per_sec),
        'MiB/s burst': _mib(qos.bytes_per_sec_burst),
    }
    return ', '.join(f'{value} {unit}' for unit, value in values.items() if value) or 'no limit'


def _mib(count: int) -> str:
    return f'{count / units.Mi:.6g}' if count else ''
