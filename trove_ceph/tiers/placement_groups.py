# SPDX-License-Identifier: Apache-2.0
"""The number of placement groups of a pool."""

from trove_ceph.tiers import tier_types


def choose_pg_num(
    policy: tier_types.PlacementGroups, osds: int, size: int, present: int | None = None
) -> int | None:
    """Return the number of placement groups; None: Ceph's autoscaler chooses it.

    An existing pool keeps its number if it is within a factor of two of the computed one, because
    every change moves data and the number of OSDs changes often.

    :param osds: number of OSDs that the pool can use
    :param size: copies, or chunks of an erasure code
    :param present: the present number of the pool; None: a new pool
    """
    if policy.share is None:
        return policy.count
    target = power_of_two(osds * policy.per_osd * policy.share / size)
    if present and target / 2 <= present <= target * 2:
        return present
    return target


def power_of_two(target: float) -> int:
    """Return the power of two below the target, or the next one if that is over 25 % smaller.

    Ceph's pgcalc uses the same rule.
    """
    below = 1
    while below * 2 <= target:
        below *= 2
    return below if below >= 0.75 * target else below * 2
