# SPDX-License-Identifier: Apache-2.0
"""The size of the machine, from which MySQL's settings are derived."""

import os
from collections.abc import Callable

from oslo_utils import units
from trove.common import cfg

from trove_ceph.host import data_volume
from trove_ceph.mysql import tuning

CONF = cfg.CONF


def measure(
    find_volume: Callable[[], data_volume.DataVolume],
    ram_mib: int | None,
    vcpus: int | None,
    tier: tuning.Tier | None,
) -> tuning.Machine:
    """Return the size of this machine.

    :param find_volume: returns the data volume
    :param ram_mib: of the flavor; None: what the kernel has
    :param vcpus: of the flavor; None: those of the kernel
    :param tier: of the volume; None: the one of the configuration
    """
    options = CONF.trove_ceph
    tier = tier or tuning.Tier(
        options.volume_iops_per_gib, options.volume_iops_floor, options.volume_iops_cap
    )
    size_mib = find_volume().size_mib()
    return tuning.Machine(
        ram_mib=ram_mib or _installed_ram_mib(),
        vcpus=vcpus or os.cpu_count() or 1,
        volume_mib=size_mib,
        volume_iops=tier.volume_iops(size_mib),
    )


def _installed_ram_mib() -> int:
    return os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') // units.Mi
