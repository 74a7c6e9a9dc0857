# SPDX-License-Identifier: Apache-2.0
"""What has to change so that an image's limits are those of its volume: pure functions."""

import dataclasses
from typing import Any

from oslo_utils import units

from trove_ceph.storage import image_types
from trove_ceph.tiers import resources, tier_types
from trove_ceph.tiers.qos import limits, ownership


@dataclasses.dataclass(frozen=True)
class Change:
    """One image whose limits differ from what its volume is promised.

    :param tier: the name of the tier that the volume's type belongs to, None for a type of none
    :param mark: what then says which limits are ours; None when none are
    :param limits_differ: the limits themselves change, not only whose they are; they may say the
        same and lack what is set with them
    """

    volume: resources.VolumeOfTier
    image: image_types.ImageRef
    tier: str | None
    before: image_types.Qos
    after: image_types.Qos
    mark: ownership.LimitOwner | None
    limits_differ: bool

    def __str__(self) -> str:
        return f'volume {self.volume.id} ({self.image}): {self.difference}'

    @property
    def difference(self) -> str:
        """What changes, for a person to read."""
        if self.before == self.after and self.limits_differ:
            return f'{text(self.after)}, completed'
        if self.before == self.after:
            whose = 'taken over' if self.mark else 'left to whom they belong'
            return f'{text(self.after)}, {whose}'
        return f'{text(self.before)} -> {text(self.after)}'

    def as_document(self) -> dict[str, Any]:
        """Return it as JSON takes it."""
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
    """Return where the image of a volume lies; None outside of the tiers."""
    for tier in content.tiers.values():
        if tier.volume_type and tier.volume_type.backend == volume.backend:
            return image_types.ImageRef(tier.pool, volume.image_name)
    return None


def tier_of(
    content: tier_types.TiersFile, volume: resources.VolumeOfTier
) -> tier_types.Tier | None:
    """Return the tier that promises a volume something, which is that of its type."""
    for tier in content.tiers.values():
        if tier.volume_type and tier.volume_type.name == volume.volume_type:
            return tier
    return None


def plan(
    content: tier_types.TiersFile, volume: resources.VolumeOfTier, image: image_types.ImageFacts
) -> Change | None:
    """Return what has to change at the image of a volume; None when nothing has.

    Where the tier's limits are the image's, they replace whatever is set. Elsewhere only limits of
    ours are taken away.
    """
    tier = tier_of(content, volume)
    found = ownership.read(image.metadata)
    new: ownership.LimitOwner | None = None
    if tier and tier.qos is tier_types.TierLimits.IMAGE:
        wanted = limits.of_volume(tier, volume.size_gib)
        new = ownership.LimitOwner(wanted, found.ours(image.qos) if found else image_types.Qos())
    elif found:
        wanted = found.foreign(image.qos)
    else:
        return None
    limits_differ = image.qos != wanted or not image.qos_is_whole
    if not limits_differ and found and new and found.limits == wanted:
        return None
    name = tier.name if tier else None
    return Change(volume, image.image, name, image.qos, wanted, new, limits_differ)


def text(qos: image_types.Qos) -> str:
    """Return limits for a person to read."""
    values = {
        'IOPS': f'{qos.iops}' if qos.iops else '',
        'IOPS burst': f'{qos.iops_burst}' if qos.iops_burst else '',
        'MiB/s': _mib(qos.bytes_per_sec),
        'MiB/s burst': _mib(qos.bytes_per_sec_burst),
    }
    return ', '.join(f'{value} {unit}' for unit, value in values.items() if value) or 'no limit'


def _mib(count: int) -> str:
    return f'{count / units.Mi:.6g}' if count else ''
