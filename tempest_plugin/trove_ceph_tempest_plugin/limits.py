# SPDX-License-Identifier: Apache-2.0
"""Parse the IOPS promised to volumes, and read the limit of an image."""

from tempest.lib import exceptions

from trove_ceph.host import rbd_pool
from trove_ceph.mysql import tuning
from trove_ceph_bench import model

_OPTION = 'rbd_qos_iops_limit'


def parse(items: list[str]) -> dict[str, tuning.Tier]:
    """Return the tiers of the option ``[trove_ceph] promises`` by volume type.

    :raises tempest.lib.exceptions.InvalidConfiguration: an item is malformed
    """
    found = {}
    for item in items:
        try:
            volume_type, per_gib, floor, cap = item.split(':')
            found[volume_type] = tuning.Tier(float(per_gib), int(floor), int(cap))
        except ValueError as error:
            raise exceptions.InvalidConfiguration(
                f'[trove_ceph] promises: expected TYPE:PER_GIB:FLOOR:CAP, found {item!r}'
            ) from error
    return found


def of_image(image: model.Image) -> int:
    """Return the IOPS limit of an image; 0 if it has none."""
    pool = rbd_pool.RbdPool(image.conf, image.user, image.pool)
    return int(pool.image_options(image.name).get(_OPTION, 0))
