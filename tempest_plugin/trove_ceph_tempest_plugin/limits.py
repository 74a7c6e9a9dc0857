# SPDX-License-Identifier: Apache-2.0
"""What volumes are promised, and what limit an image has."""

from tempest.lib import exceptions

from trove_ceph.host import rbd_pool
from trove_ceph.mysql import tuning
from trove_ceph_bench import model

_OPTION = 'rbd_qos_iops_limit'


def parse(items: list[str]) -> dict[str, tuning.Tier]:
    """Return the option ``[trove_ceph] promises`` by volume type.

    :raises tempest.lib.exceptions.InvalidConfiguration: for an item of another form.
    """
    found = {}
    for item in items:
        try:
            volume_type, per_gib, floor, cap = item.split(':')
            found[volume_type] = tuning.Tier(float(per_gib), int(floor), int(cap))
        except ValueError as error:
            raise exceptions.InvalidConfiguration(
                f'[trove_ceph] promises: {item!r} is not TYPE:PER_GIB:FLOOR:CAP'
            ) from error
    return found


def of_image(image: model.Image) -> int:
    """Return the IOPS to which an image is limited, 0 without a limit."""
    pool = rbd_pool.RbdPool(image.conf, image.user, image.pool)
    return int(pool.image_options(image.name).get(_OPTION, 0))
