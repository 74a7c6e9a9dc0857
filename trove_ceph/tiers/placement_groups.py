# SPDX-License-Identifier: Apache-2.0
"""How many placement groups a pool gets."""

from trove_ceph.tiers import tier_types

#: Placement groups on each OSD, all pools together; the usual target of 100 to 200.
PER_OSD = 100


def wanted(
    policy: tier_types.PlacementGroups, osds: int, size: int, present: int | None = None
) -> int | None:
    """Return the number of placement groups, None where Ceph's autoscaler decides.

    A pool that exists keeps its number while it is within a factor of two of what its share gives,
    because every change moves data and the number of OSDs changes often.

    :param osds: that the pool can use
    :param size: copies, or chunks of an erasure code
    :param present: the number that the pool has, None for a new one
    """
    if policy.share is None:
        return policy.count
    target = power_of_two(osds * PER_OSD * policy.share / size)
    if present and target / 2 <= present <= target * 2:
        return present
    return target


def power_of_two(target: float) -> int:
    """Return the power of two below, or the next if that is more than a quarter below.

    The rule is that of Ceph's pgcalc.
    """
    below = 1
    while below * 2 <= target:
        below *= 2
    return below if below >= 0.75 * target else below * 2
